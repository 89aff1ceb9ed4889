// Short rows in step: the passes go row by row, the Newton steps are done for all of them at once.
#pragma once
#include "solve.hpp"

namespace hs::HS_VARIANT {

template <class T, class Sink>
class RowBatch {
  public:
    RowBatch(const Rows<T>& all, int64_t first_row, Sink& s) : rows(all), base(first_row), sink(s) {}

    void run(int count) {
        double n = static_cast<double>(rows.n);
        begin(count, n);
        for (int number = 0; number < most_passes && open; ++number) {
            for (int o = 0; o < open; ++o) look(list[o], number > 0);
            step.update<T>(0, step.count, n, 1);
            // Without branches, which nobody could predict.
            int ended[most_slices], over = 0, left = 0;
            for (int o = 0; o < open; ++o) {
                int j = list[o], settled = static_cast<int>(step.settled[j]);
                ended[over] = list[left] = j;
                over += settled;
                left += 1 - settled;
            }
            for (int o = 0; o < over; ++o) finish(ended[o]);
            open = left;
            if (2 * open < step.count) compact();
        }
        for (int o = 0; o < open; ++o) select_row(rows, row[list[o]], sink);
    }

  private:
    void begin(int count, double n) {
        double mean[most_slices], variance[most_slices], z[most_slices], all = quantile(rows.k.scalar, n);
        step.count = 0;
        for (int64_t r = base; r < base + count; ++r) {
            double k = rows.k_of(r), tau = rows.tau_of(r);
            if (at_edge<T>(k, n, tau)) {
                select_row(rows, r, sink);
                continue;
            }
            int j = step.count++;
            Moments m = moments_row(rows.row(r), rows.n);
            mean[j] = m.center();
            variance[j] = m.variance();
            z[j] = rows.k.values || m.count < n ? quantile(m, k) : all;
            row[j] = r;
            step.k[j] = k;
            step.tau[j] = tau;
            inverse[j] = static_cast<T>(1 / tau);
        }
        for (int j = 0; j < step.count; ++j) {
            mean[j] = guess(mean[j], variance[j], z[j], step.tau[j]);
            variance[j] = step.tau[j] + std::sqrt(variance[j]) / 4;
        }
        for (int j = 0; j < step.count; ++j) step.start(j, mean[j], variance[j]), list[j] = j;
        open = step.count;
    }

    void compact() {
        for (int o = 0; o < open; ++o) {
            int j = list[o];
            step.move(j, o);
            row[o] = row[j];
            inverse[o] = inverse[j];
            list[o] = o;
        }
        step.count = open;
    }

    HS_INLINE void look(int j, bool may_write) {
        const T* x = rows.row(row[j]);
        Split<T> at = split<T>(step.mu[j], step.low[j]);
        written[j] = may_write && step.near[j] && sink.wanted();
        Sums s = written[j] ? sink.pass(row[j], x, at, inverse[j])
                            : pass_row<T, false>(x, nullptr, rows.n, at, inverse[j]);
        if (!may_write) sink.fetch(row[j]);
        step.active_sum[j] = s.active_sum;
        step.active[j] = s.active;
        step.ones[j] = s.ones;
    }

    HS_INLINE void finish(int j) {
        if (step.stuck[j]) return select_row(rows, row[j], sink);
        finish_row(rows, row[j], step.mu[j], step.low[j], step.sums(j), inverse[j], written[j], sink);
    }

    const Rows<T>& rows;
    int64_t base;
    Sink& sink;
    Lockstep step;
    int64_t row[most_slices];
    T inverse[most_slices];
    bool written[most_slices];
    int list[most_slices], open;    // the slices that are not settled
};

}    // namespace hs::HS_VARIANT
