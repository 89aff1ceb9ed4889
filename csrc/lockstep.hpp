// The threshold search of many slices at once, in step. The state lies in one array a number, so that the step is
// vectorised over the slices: alone, a slice would spend longer waiting for divisions than reading its entries.
#pragma once
#include <initializer_list>

#include "newton.hpp"

namespace hs::HS_VARIANT {

constexpr int most_slices = 128;

struct Lockstep {
    int count;
    double k[most_slices], tau[most_slices], mu[most_slices], low[most_slices];
    double lo[most_slices], hi[most_slices], r_lo[most_slices], r_hi[most_slices], width[most_slices];
    double active_sum[most_slices], active[most_slices], ones[most_slices], last[most_slices];
    int64_t settled[most_slices], stuck[most_slices], near[most_slices];

    void start(int j, double at, double jump) {
        Search s = start_at(at, jump);
        mu[j] = s.mu, low[j] = s.low, lo[j] = s.lo, hi[j] = s.hi, r_lo[j] = s.r_lo, r_hi[j] = s.r_hi, width[j] = s.width;
        last[j] = s.hi;
        settled[j] = stuck[j] = near[j] = 0;
    }

    // Judges the last pass, over n entries of which `share` times k are wanted, and steps; true when all are settled.
    template <class T>
    bool update(double n, double share) {
        return update<T>(0, count, n, share);
    }

    // The same for slices [from, to).
    template <class T>
    bool update(int from, int to, double n, double share) {
        int64_t all = 1;
        for (int j = from; j < to; ++j) {
            Sums s{active_sum[j], active[j], ones[j]};
            double goal = share * k[j], r = std::fabs(s.total() - goal);
            int64_t flat = (s.active == 0) & (r == 0);
            int64_t fine = (r <= tolerance<T>(s, goal)) & (s.active > 0);
            int64_t stalled = (r <= noise<T>(s)) & (r > last[j] / 2);
            int64_t bad = !(r >= 0);
            int64_t now = settled[j] | flat | fine | stalled | bad;
            stuck[j] |= bad;
            near[j] = now | static_cast<int64_t>(close<T>(s, goal, last[j]));
            last[j] = r;
            all &= now;
            // By way of local copies: the compiler would write through the references with masked stores.
            double m = mu[j], w = low[j], left = lo[j], right = hi[j], at_left = r_lo[j], at_right = r_hi[j], jump = width[j];
            advance(s, goal, n, tau[j], m, w, left, right, at_left, at_right, jump);
            mu[j] = now ? mu[j] : m;
            low[j] = now ? low[j] : w;
            lo[j] = left, hi[j] = right, r_lo[j] = at_left, r_hi[j] = at_right, width[j] = jump;
            settled[j] = now;
        }
        return all;
    }

    bool all_near() const {
        int64_t all = 1;
        for (int j = 0; j < count; ++j) all &= near[j];
        return all;
    }

    // Slice `from` takes the place of slice `to`.
    void move(int from, int to) {
        for (double* a : {k, tau, mu, low, lo, hi, r_lo, r_hi, width, active_sum, active, ones, last}) a[to] = a[from];
        for (int64_t* a : {settled, stuck, near}) a[to] = a[from];
    }
};

}  // namespace hs::HS_VARIANT
