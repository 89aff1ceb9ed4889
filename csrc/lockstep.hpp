// The threshold search of many slices at once, in step. The state lies in one array a number, so that the
// step is vectorised over the slices: alone, a slice would spend longer waiting for divisions than reading
// its entries.
#pragma once
#include <initializer_list>

#include "arrangement.hpp"
#include "newton.hpp"

namespace hs::HS_VARIANT {

struct Lockstep {
    int count;
    double k[most_slices], tau[most_slices], mu[most_slices], low[most_slices];
    double lo[most_slices], hi[most_slices], r_lo[most_slices], r_hi[most_slices], width[most_slices],
        last[most_slices];
    double active_sum[most_slices], active[most_slices], ones[most_slices];
    int64_t settled[most_slices], stuck[most_slices], near[most_slices];

    HS_INLINE Search search(int j) const {
        return {mu[j],    low[j],  lo[j],      hi[j],    r_lo[j], r_hi[j],
                width[j], last[j], settled[j], stuck[j], near[j]};
    }
    HS_INLINE void set(int j, const Search& s) {
        mu[j] = s.mu, low[j] = s.low, lo[j] = s.lo, hi[j] = s.hi, r_lo[j] = s.r_lo, r_hi[j] = s.r_hi;
        width[j] = s.width, last[j] = s.last, settled[j] = s.settled, stuck[j] = s.stuck, near[j] = s.near;
    }
    HS_INLINE Sums sums(int j) const { return {active_sum[j], active[j], ones[j]}; }
    void start(int j, double at, double jump) { set(j, start_at(at, jump)); }

    // Judges the last pass over slices [from, to), over n entries of which `fraction` times k are wanted, and
    // steps; true when all are settled.
    template <class T>
    bool update(int from, int to, double n, double fraction, bool late = false) {
        int64_t all = 1;
        for (int j = from; j < to; ++j) {
            Search s = search(j);
            advance<T>(s, sums(j), fraction * k[j], n, tau[j], late);
            all &= s.settled;
            set(j, s);
        }
        return all;
    }

    bool all_near() const {
        int64_t all = 1;
        for (int j = 0; j < count; ++j) all &= near[j];
        return all;
    }

    // Slice `from` takes the place of slice `to`; what its last pass found is not needed any more.
    void move(int from, int to) {
        set(to, search(from));
        for (double* a : {k, tau}) a[to] = a[from];
    }
};

}    // namespace hs::HS_VARIANT
