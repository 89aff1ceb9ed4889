// Short rows in step: the passes go row by row, and all that is left is done for many rows at once: the last
// additions of a sum, the Newton steps, the rounding of the thresholds.
#pragma once
#include <utility>

#include "solve.hpp"

namespace hs::HS_VARIANT {

// Rows so long ask for memory in two halves: more at a time would have to wait.
constexpr int64_t halved_row = 192;

// The rows that are not settled: those that only search, and those that the next pass may write.
struct Lists {
    int search[most_slices], write[most_slices], searching, writing;
    int total() const { return searching + writing; }
};

template <class T, class Sink>
class RowBatch {
  public:
    RowBatch(const Rows<T>& all, Sink& s) : rows(all), sink(s) {}

    // `count` rows from the first on.
    void run(int64_t first, int count) {
        int64_t which[most_slices];
        for (int j = 0; j < count; ++j) which[j] = first + j;
        run(which, count);
    }

    // Any rows.
    void run(const int64_t* which, int count) {
        double n = static_cast<double>(rows.n);
        begin(which, count, n);
        for (int number = 0; number < most_passes && open->total(); ++number) {
            split_all();
            if (rows.n >= halved_row && number < 2) pass_all<true>(number);
            else pass_all<false>(number);
            add_up();
            step.update<T>(0, step.count, n, 1, number >= late_pass);
            sort_out();
            if (2 * open->total() < step.count) compact();
        }
        for (int j = 0; j < step.count; ++j)
            if (!step.settled[j]) select_row(rows, row[j], sink);
    }

  private:
    void begin(const int64_t* which, int count, double n) {
        double mean[most_slices], variance[most_slices], z[most_slices], all = quantile(rows.k.scalar, n);
        T same = static_cast<T>(1 / rows.tau.scalar);
        step.count = 0;
        for (int given = 0; given < count; ++given) {
            int64_t r = which[given];
            double k = rows.k_of(r), tau = rows.tau_of(r);
            T inv = rows.tau.values ? static_cast<T>(1 / tau) : same;
            if (at_edge(k, n, inv)) {
                select_row(rows, r, sink);
                continue;
            }
            int j = step.count++;
            row[j] = r;
            step.k[j] = k;
            step.tau[j] = tau;
            inverse[j] = inv;
            if (rows.n >= Lanes<T>::width) moment_parts(rows.row(r), rows.n, part[j], square[j]);
            else    // of so few it counts as odd
                for (int q = 0; q < 4; ++q)
                    part[j][q] = square[j][q] = std::numeric_limits<double>::infinity();
            mean[j] = static_cast<double>(rows.row(r)[0]);
        }
        int odd[most_slices], any = 0;
        for (int j = 0; j < step.count; ++j) {
            Moments m(n, 0, add_parts(part[j]), add_parts(square[j]), mean[j]);
            any |= odd[j] = !fits<T>(m);
            mean[j] = m.center();
            variance[j] = m.variance();
            z[j] = all;
        }
        for (int j = 0; rows.k.values && j < step.count; ++j) z[j] = quantile(step.k[j], n);
        for (int j = 0; any && j < step.count; ++j) {
            if (!odd[j]) continue;
            Moments m = moments_of_odd(rows.row(row[j]), rows.n);
            mean[j] = m.center();
            variance[j] = m.variance();
            z[j] = quantile(m, step.k[j]);
        }
        for (int j = 0; j < step.count; ++j) step.set(j, start_near(mean[j], variance[j], z[j], step.tau[j]));
        for (int j = 0; j < step.count; ++j) open->search[j] = j;
        open->searching = step.count;
        open->writing = 0;
    }

    template <bool long_rows>
    HS_INLINE void pass_all(int number) {
        for (int o = 0; o < open->searching; ++o) {
            if constexpr (long_rows) fetch_half(row[open->search[o]], number);
            search(open->search[o]);
        }
        for (int o = 0; o < open->writing; ++o) {
            if constexpr (long_rows) fetch_half(row[open->write[o]], number);
            write(open->write[o]);
        }
        for (int j = 0; !long_rows && number == 0 && j < step.count; ++j) sink.fetch(row[j], 0, rows.n);
    }

    // Half of where row r goes comes while it is searched.
    HS_INLINE void fetch_half(int64_t r, int half) {
        sink.fetch(r, half ? rows.n / 2 : 0, half ? rows.n : rows.n / 2);
    }

    // The thresholds as the passes take them.
    void split_all() {
        for (int j = 0; j < step.count; ++j) {
            Split<T> mu = split<T>(step.mu[j], step.low[j]);
            c[j] = mu.c;
            d[j] = mu.d;
        }
    }

    HS_INLINE void search(int j) {
        note(j, pass_parts<T, false>(rows.row(row[j]), nullptr, rows.n, at(j), inverse[j], part[j]));
    }

    HS_INLINE void write(int j) {
        const T* x = rows.row(row[j]);
        note(j, sink.pass_parts(row[j], x, at(j), inverse[j], part[j]));
    }

    void add_up() {
        for (int j = 0; j < step.count; ++j) {
            step.active_sum[j] = add_parts(part[j]);
            step.active[j] = active[j];
            step.ones[j] = ones[j];
        }
    }

    // Finishes the rows that have settled, and parts the others.
    void sort_out() {
        std::swap(open, old);
        open->searching = open->writing = 0;
        sort_out(old->search, old->searching, false);
        sort_out(old->write, old->writing, true);
    }

    // Without branches, which nobody could predict.
    HS_INLINE void sort_out(const int* list, int count, bool written) {
        int ended[most_slices], over = 0, wanted = sink.wanted();
        int *search = open->search, *write = open->write, searching = open->searching,
            writing = open->writing;
        for (int o = 0; o < count; ++o) {
            int j = list[o], settled = static_cast<int>(step.settled[j]);
            int near = static_cast<int>(step.near[j]) & wanted, left = 1 - settled;
            ended[over] = search[searching] = write[writing] = j;
            over += settled;
            searching += left & ~near;
            writing += left & near;
        }
        open->searching = searching;
        open->writing = writing;
        for (int o = 0; o < over; ++o) finish(ended[o], written);
    }

    HS_INLINE Split<T> at(int j) const { return {c[j], d[j]}; }

    HS_INLINE void note(int j, Counts counts) {
        active[j] = static_cast<int>(counts.active);
        ones[j] = static_cast<int>(counts.ones);
    }

    void compact() {
        int place[most_slices], count = 0;
        for (int j = 0; j < step.count; ++j) {
            if (step.settled[j]) continue;
            step.move(j, count);
            row[count] = row[j];
            inverse[count] = inverse[j];
            place[j] = count++;
        }
        step.count = count;
        for (int o = 0; o < open->searching; ++o) open->search[o] = place[open->search[o]];
        for (int o = 0; o < open->writing; ++o) open->write[o] = place[open->write[o]];
    }

    HS_INLINE void finish(int j, bool written) {
        if (step.stuck[j]) return select_row(rows, row[j], sink);
        finish_row(rows, row[j], step.mu[j], step.low[j], step.sums(j), inverse[j], written, sink);
    }

    const Rows<T>& rows;
    Sink& sink;
    Lockstep step;
    int64_t row[most_slices];
    T inverse[most_slices], c[most_slices], d[most_slices];
    double part[most_slices][4], square[most_slices][4];
    int active[most_slices], ones[most_slices];
    Lists lists[2], *open = lists, *old = lists + 1;
};

}    // namespace hs::HS_VARIANT
