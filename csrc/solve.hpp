// The search over contiguous rows. What becomes of a row once its threshold is known is the sink's business:
//   void fetch(row, from, to)             says that a part of the row will be wanted soon
//   bool wanted()                         whether it wants a last pass at all
//   Sums pass(row, x, at, inverse)        that pass; its sums judge the threshold
//   Counts pass_parts(..., parts)         the same of a short row, the sum in four parts
//   void write(row, x, at, inverse)       that pass for a row whose threshold is known to be right
//   bool thresholds(); void done(row, mu) whether it wants thresholds; the threshold of a finished row
//   void selected(row, x, k, tau, answer) a row that had to be solved by selection
#pragma once
#include "blocks.hpp"
#include "lockstep.hpp"
#include "moments.hpp"
#include "selection.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t short_row = 2048, sampled_row = 4096, sample_run = 16;

template <class T>
struct Rows {
    const T* x;
    int64_t spacing, n, first;    // row r is slice first + r
    int64_t all;    // rows of the whole problem: how they are searched must not depend on the threads
    PerSlice k, tau;
    int threads;    // that share a long row
    const T* row(int64_t r) const { return x + r * spacing; }
    double k_of(int64_t r) const { return k[first + r]; }
    double tau_of(int64_t r) const { return tau[first + r]; }
};

// Problems without a Newton step: nothing to search for, or a tau beyond the type's range.
template <class T>
HS_INLINE bool at_edge(double k, double n, T inverse) {
    return (k == 0) | (k == n) | !std::isfinite(inverse);
}

template <class T, class Sink>
void select_row(const Rows<T>& rows, int64_t r, Sink& sink) {
    double k = rows.k_of(r), tau = rows.tau_of(r);
    sink.selected(r, rows.row(r), k, tau, by_selection(rows.row(r), 1, rows.n, k, tau));
}

template <class T>
HS_INLINE Sums sum_row(const T* x, int64_t n, Split<T> at, T inverse, int threads) {
    return sum_blocks<Sums>(n, threads, [&](int64_t from, int64_t to) {
        return pass_row<T, false>(x + from, nullptr, to - from, at, inverse);
    });
}

// A flat row has its threshold in the middle of the gap. Found at the gap's edge, it goes there: what a
// rounding made active must not stay so.
template <class T, class Sink>
HS_APART void finish_flat(const Rows<T>& rows, int64_t r, Split<T> at, const Sums& sums, T inverse,
                          bool written, Sink& sink) {
    const T* x = rows.row(r);
    Gap gap = sum_blocks<Gap>(rows.n, rows.threads, [&](int64_t from, int64_t to) {
        return gap_row(x + from, to - from, at, inverse);
    });
    double mu = middle(gap.zero, gap.one, rows.tau_of(r));
    if (sums.active > 0) {
        at = split<T>(mu, 0);
        Sums again =
            sink.wanted() ? sink.pass(r, x, at, inverse) : sum_row(x, rows.n, at, inverse, rows.threads);
        if (again.active > 0 || again.ones != rows.k_of(r)) return select_row(rows, r, sink);
    } else if (sink.wanted() && !written) {
        sink.write(r, x, at, inverse);
    }
    if (sink.thresholds()) sink.done(r, mu);
}

// The last of a row that is not flat, or where that makes no difference.
template <class T, class Sink>
HS_INLINE void end_row(const Rows<T>& rows, int64_t r, Split<T> at, double mu, T inverse, bool written,
                       Sink& sink) {
    if (sink.wanted() && !written) sink.write(r, rows.row(r), at, inverse);
    if (sink.thresholds()) sink.done(r, mu);
}

// The last of a row whose search has settled.
template <class T, class Sink>
HS_INLINE void finish_row(const Rows<T>& rows, int64_t r, double mu, double low, const Sums& sums, T inverse,
                          bool written, Sink& sink) {
    Split<T> at = split<T>(mu, low);
    if (is_flat(sums, rows.k_of(r)) && (sums.active > 0 || sink.thresholds()))
        return finish_flat(rows, r, at, sums, inverse, written, sink);
    end_row(rows, r, at, mu + low, inverse, written, sink);
}

// A sample of runs of neighboring entries, in the cache.
template <class T>
int64_t take_sample(const T* x, int64_t n, T* sample) {
    int64_t m = n / 32 < 512 ? 512 : n / 32 > 8192 ? 8192 : n / 32 / sample_run * sample_run;
    int64_t apart = n / (m / sample_run);
    for (int64_t r = 0; r < m / sample_run; ++r)
        std::memcpy(sample + r * sample_run, x + r * apart, sample_run * sizeof(T));
    return m;
}

template <class T>
Search start_of(const T* x, int64_t n, double k, double tau) {
    T sample[8192];
    int64_t m = n >= sampled_row ? take_sample(x, n, sample) : n;
    const T* from = m < n ? sample : x;
    Moments some = moments_row(from, m);
    double fraction = static_cast<double>(m) / static_cast<double>(n), goal = fraction * k;
    Search s = start_near(some, goal, tau);
    if (m == n) return s;
    double normal = s.mu, spread = std::sqrt(some.variance());
    T inverse = static_cast<T>(1 / tau);
    for (int number = 0; number < 8 && !s.settled; ++number) {
        Sums sums = pass_row<T, false>(from, nullptr, m, split<T>(s.mu, s.low), inverse);
        advance<T>(s, sums, goal, static_cast<double>(m), tau);
        if (s.last <= 0.5 || s.last <= 0.01 * sums.active) break;
    }
    // Where the sample looks normal, the moments of the whole row tell more than the sample's own threshold.
    bool like_normal =
        some.count == static_cast<double>(m) && std::fabs(s.mu - normal) < 0.1 * (spread + tau / 4);
    if (n < parallel_row && like_normal) s.mu = start_near(moments_row(x, n), k, tau).mu;
    return start_at(s.mu, tau + spread / 16);
}

// One row by itself.
template <class T, class Sink>
void solve_row(const Rows<T>& rows, int64_t r, Sink& sink) {
    double n = static_cast<double>(rows.n), k = rows.k_of(r), tau = rows.tau_of(r);
    T inverse = static_cast<T>(1 / tau);
    if (at_edge(k, n, inverse)) return select_row(rows, r, sink);
    const T* x = rows.row(r);
    Search s = start_of(x, rows.n, k, tau);
    Sums sums{0, 0, 0};
    bool written = false;
    for (int number = 0; number < most_passes && !s.settled; ++number) {
        written = s.near && sink.wanted();
        Split<T> at = split<T>(s.mu, s.low);
        sums = written ? sink.pass(r, x, at, inverse) : sum_row(x, rows.n, at, inverse, rows.threads);
        advance<T>(s, sums, k, n, tau, number >= late_pass);
    }
    if (s.stuck || !s.settled) return select_row(rows, r, sink);
    finish_row(rows, r, s.mu, s.low, sums, inverse, written, sink);
}

}    // namespace hs::HS_VARIANT
