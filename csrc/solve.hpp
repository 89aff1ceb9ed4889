// The search over contiguous rows. What becomes of a row once its threshold is known is the sink's business:
//   bool wanted()                                      whether it wants a last pass at all
//   Sums pass(row, x, from, to, at, inverse, member)   that pass, over entries [from, to); its sums judge the threshold
//   void write(row, x, at, inverse)                    that pass for a whole row whose threshold is known to be right
//   bool thresholds(); void done(row, mu)              whether it wants thresholds; the threshold of a finished row
//   void careful(row, x, k, tau, answer)               a row that had to be solved by selection
#pragma once
#include "careful.hpp"
#include "kernel.hpp"
#include "lockstep.hpp"
#include "rows.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t short_row = 2048, sampled_row = 4096, sample_run = 16, parallel_row = 1 << 17;
constexpr int most_members = 64;

template <class T>
struct Rows {
    const T* x;
    int64_t spacing, n, first;    // row r is slice first + r
    PerSlice k, tau;
    const double* start;    // per slice, or null
    const T* row(int64_t r) const { return x + r * spacing; }
};

// Problems without a Newton step: nothing to search for, or a tau beyond the type's range.
template <class T>
bool at_edge(double k, double n, double tau) {
    return k == 0 || k == n || !std::isfinite(static_cast<T>(1 / tau));
}

template <class T, class Sink>
void solve_careful(const Rows<T>& rows, int64_t r, Sink& sink) {
    double k = rows.k[rows.first + r], tau = rows.tau[rows.first + r];
    sink.careful(r, rows.row(r), k, tau, careful(rows.row(r), 1, rows.n, k, tau));
}

// One row by a team: every member sums its part, and all of them draw the same conclusion from all parts.
template <class T, class Sink>
struct RowTeam {
    const T* x;
    int64_t n, row;
    double k, tau;
    Sink& sink;
    Search search;
    bool solved;
    Sums parts[2][most_members];
    Gap gaps[most_members];

    void run(int id, const Team* team) {
        int size = team ? team->size : 1;
        int64_t from = n / size * id, to = id + 1 == size ? n : n / size * (id + 1);
        T inverse = static_cast<T>(1 / tau);
        Search s = search;
        double last = std::numeric_limits<double>::infinity();
        bool near = false, done = false;
        Sums sums{0, 0, 0};
        for (int number = 0; number < most_passes && !done; ++number) {
            bool final = near && sink.wanted();
            Split<T> at = split<T>(s.mu, s.low);
            Sums* out = parts[number & 1];
            out[id] = final ? sink.pass(row, x, from, to, at, inverse, id)
                            : pass_row<T, false>(x + from, nullptr, to - from, at, inverse);
            if (team) team->wait();
            sums = total(out, size);
            double r = std::fabs(sums.total() - k);
            if (!(r >= 0)) break;
            bool fine = sums.active == 0 ? r == 0 : r <= tolerance<T>(sums, k);
            bool stalled = r <= noise<T>(sums) && r > last / 2;
            near = close<T>(sums, k, last);
            last = r;
            done = fine || stalled;
            if (!done) advance(sums, k, static_cast<double>(n), tau, s);
            else if (sink.wanted() && !final) sink.pass(row, x, from, to, at, inverse, id);
        }
        if (done && is_flat(sums, k)) done = settle(s, sums, id, team, from, to, inverse);
        if (id == 0) {
            search = s;
            solved = done;
        }
    }

  private:
    static Sums total(const Sums* part, int size) {
        Sums sums{0, 0, 0};
        for (int m = 0; m < size; ++m) {
            sums.active_sum += part[m].active_sum;
            sums.active += part[m].active;
            sums.ones += part[m].ones;
        }
        return sums;
    }

    // A flat row has its threshold in the middle of the gap. Found at the gap's edge, it goes there: what a rounding
    // made active must not stay so. False if the gap is too narrow for that.
    bool settle(Search& s, const Sums& sums, int id, const Team* team, int64_t from, int64_t to, T inverse) {
        if (sums.active == 0 && !sink.thresholds()) return true;
        int size = team ? team->size : 1;
        gaps[id] = gap_row(x + from, to - from, split<T>(s.mu, s.low), inverse);
        if (team) team->wait();
        Gap gap = gaps[0];
        for (int m = 1; m < size; ++m) {
            gap.zero = gaps[m].zero > gap.zero ? gaps[m].zero : gap.zero;
            gap.one = gaps[m].one < gap.one ? gaps[m].one : gap.one;
        }
        s.mu = middle(gap.zero, gap.one, tau);
        s.low = 0;
        if (sums.active == 0) return true;
        Split<T> at = split<T>(s.mu, 0);
        parts[0][id] = sink.wanted() ? sink.pass(row, x, from, to, at, inverse, id)
                                     : pass_row<T, false>(x + from, nullptr, to - from, at, inverse);
        if (team) team->wait();
        Sums again = total(parts[0], size);
        return again.active == 0 && again.ones == k;
    }
};

// A start from a sample of runs of neighbouring entries, solved in the cache.
template <class T>
Search sample_start(const T* x, int64_t n, double k, double tau) {
    T sample[8192];
    int64_t m = n;
    const T* from = x;
    if (n >= sampled_row) {
        m = n / 32 < 512 ? 512 : n / 32 > 8192 ? 8192 : n / 32 / sample_run * sample_run;
        int64_t step = n / (m / sample_run);
        for (int64_t r = 0; r < m / sample_run; ++r)
            std::memcpy(sample + r * sample_run, x + r * step, sample_run * sizeof(T));
        from = sample;
    }
    Moments some = moments_row(from, m);
    double share = static_cast<double>(m) / static_cast<double>(n), spread = std::sqrt(some.variance());
    Search s = start_at(guess(some, share * k, tau), tau + spread / 4);
    if (m == n) return s;
    double normal = s.mu;
    T inverse = static_cast<T>(1 / tau);
    for (int number = 0; number < 8; ++number) {
        Sums sums = pass_row<T, false>(from, nullptr, m, split<T>(s.mu, s.low), inverse);
        double goal = share * k, r = sums.total() - goal;
        if (!(std::fabs(r) >= 0)) break;
        if (sums.active == 0 && r == 0) break;
        advance(sums, goal, static_cast<double>(m), tau, s);
        if (std::fabs(r) <= 0.5 || std::fabs(r) <= 0.01 * sums.active) break;
    }
    // Where the sample looks normal, the moments of the whole row tell more than the sample's own threshold.
    if (n < parallel_row && some.count == static_cast<double>(m) && std::fabs(s.mu - normal) < 0.1 * (spread + tau / 4))
        s.mu = guess(moments_row(x, n), k, tau);
    return start_at(s.mu, tau + spread / 16);
}

template <class T, class Sink>
void solve_row(const Rows<T>& rows, int64_t r, int threads, Sink& sink) {
    int64_t n = rows.n, slice = rows.first + r;
    double k = rows.k[slice], tau = rows.tau[slice];
    const T* x = rows.row(r);
    if (at_edge<T>(k, static_cast<double>(n), tau)) return solve_careful(rows, r, sink);
    using Member = RowTeam<T, Sink>;
    Member row{x, n, r, k, tau, sink, {}, false, {}, {}};
    row.search = rows.start ? start_at(rows.start[slice], tau) : sample_start(x, n, k, tau);
    auto body = [](void* member, int id, const Team& team) { static_cast<Member*>(member)->run(id, &team); };
    if (threads > 1 && n >= parallel_row) parallel(threads < most_members ? threads : most_members, body, &row);
    else row.run(0, nullptr);
    if (!row.solved) return solve_careful(rows, r, sink);
    if (sink.thresholds()) sink.done(r, row.search.mu + row.search.low);
}

// Up to most_slices short rows, in step.
template <class T, class Sink>
class RowBatch {
  public:
    RowBatch(const Rows<T>& all, int64_t first_row, Sink& s) : rows(all), base(first_row), sink(s) {}

    void run(int count) {
        double n = static_cast<double>(rows.n);
        begin(count, n);
        int open = step.count;
        for (int number = 0; number < most_passes && open; ++number) {
            for (int j = 0; j < step.count; ++j)
                if (!step.settled[j]) look(j);
            step.update<T>(n, 1);
            for (int j = 0; j < step.count; ++j)
                if (step.settled[j] && !done[j]) finish(j), --open;
            if (2 * open < step.count) compact();
        }
        for (int j = 0; j < step.count; ++j)
            if (!done[j]) solve_careful(rows, row[j], sink);
    }

  private:
    void begin(int count, double n) {
        double mean[most_slices], variance[most_slices], z[most_slices], all = quantile(rows.k.scalar, n);
        step.count = 0;
        for (int64_t r = base; r < base + count; ++r) {
            double k = rows.k[rows.first + r], tau = rows.tau[rows.first + r];
            if (at_edge<T>(k, n, tau)) {
                solve_careful(rows, r, sink);
                continue;
            }
            int j = step.count++;
            if (!rows.start) {
                Moments m = moments_row(rows.row(r), rows.n);
                mean[j] = m.center();
                variance[j] = m.variance();
                z[j] = rows.k.values || m.count < n ? quantile(m, k) : all;
            }
            row[j] = r;
            done[j] = false;
            step.k[j] = k;
            step.tau[j] = tau;
            inverse[j] = static_cast<T>(1 / tau);
        }
        if (rows.start) {
            for (int j = 0; j < step.count; ++j) step.start(j, rows.start[rows.first + row[j]], step.tau[j]);
            return;
        }
        for (int j = 0; j < step.count; ++j) {
            mean[j] = guess(mean[j], variance[j], z[j], step.tau[j]);
            variance[j] = step.tau[j] + std::sqrt(variance[j]) / 4;
        }
        for (int j = 0; j < step.count; ++j) step.start(j, mean[j], variance[j]);
    }

    void compact() {
        int kept = 0;
        for (int j = 0; j < step.count; ++j) {
            if (done[j]) continue;
            step.move(j, kept);
            row[kept] = row[j];
            inverse[kept] = inverse[j];
            done[kept++] = false;
        }
        step.count = kept;
    }

    Sums pass(int j, bool final) const {
        const T* x = rows.row(row[j]);
        Split<T> at = split<T>(step.mu[j], step.low[j]);
        return final ? sink.pass(row[j], x, 0, rows.n, at, inverse[j], 0)
                     : pass_row<T, false>(x, nullptr, rows.n, at, inverse[j]);
    }

    void look(int j) {
        finalised[j] = step.near[j] && sink.wanted();
        Sums s = pass(j, finalised[j]);
        step.active_sum[j] = s.active_sum;
        step.active[j] = s.active;
        step.ones[j] = s.ones;
    }

    void finish(int j) {
        done[j] = true;
        if (step.stuck[j]) return solve_careful(rows, row[j], sink);
        Sums sums{step.active_sum[j], step.active[j], step.ones[j]};
        double mu = step.mu[j] + step.low[j];
        bool flat = is_flat(sums, step.k[j]), moved = flat && sums.active > 0;
        if (moved || (flat && sink.thresholds())) {
            Gap gap = gap_row(rows.row(row[j]), rows.n, split<T>(step.mu[j], step.low[j]), inverse[j]);
            mu = middle(gap.zero, gap.one, step.tau[j]);
        }
        if (moved) {
            step.mu[j] = mu;
            step.low[j] = 0;
            Sums again = pass(j, sink.wanted());
            if (again.active > 0 || again.ones != step.k[j]) return solve_careful(rows, row[j], sink);
        } else if (sink.wanted() && !finalised[j]) {
            pass(j, true);
        }
        if (sink.thresholds()) sink.done(row[j], mu);
    }

    const Rows<T>& rows;
    int64_t base;
    Sink& sink;
    Lockstep step;
    int64_t row[most_slices];
    T inverse[most_slices];
    bool finalised[most_slices], done[most_slices];
};

}  // namespace hs::HS_VARIANT
