// Passes over slices that lie side by side in rows of memory: one lane a slice, no transpose of the array.
#pragma once
#include "arrangement.hpp"
#include "rows.hpp"

namespace hs::HS_VARIANT {

constexpr int most_lanes = 256, most_chunks = 32;

// How registers lie over `count` columns. Wide: a group is one row of memory, and the last register overlaps
// the one before. Narrow: a group is as many rows as fill whole registers, so one column stands in several
// lanes.
template <class T>
struct ColumnLanes {
    static constexpr int W = Lanes<T>::width;
    int count, rows = 1, slots;
    int64_t groups, step, rest;    // rest: rows of memory behind the last group
    int column[most_lanes], offset[most_lanes / W];

    ColumnLanes(const Layout& l, int columns) : count(columns) {
        if (are_narrow(l))
            while (rows * count % W) ++rows;
        int across = rows * count;
        slots = (across + W - 1) / W;
        for (int s = 0; s < slots; ++s) {
            offset[s] = s * W + W <= across ? s * W : across - W;
            for (int lane = 0; lane < W; ++lane) column[s * W + lane] = (offset[s] + lane) % count;
        }
        groups = l.n / rows;
        step = l.stride * rows;
        rest = l.n % rows;
    }

    int lanes() const { return slots * W; }
    // Lanes of one column are added up, but where wide registers overlap, the later one counts.
    bool several_lanes_a_column() const { return rows > 1; }
    Blocks chunks() const { return Blocks(groups, lanes(), most_chunks); }
};

// What one chunk of groups adds, lane by lane.
template <class T>
struct LaneSums {
    double sum[most_lanes];
    IntOf<T> active[most_lanes], ones[most_lanes];
    void clear(int lanes) {
        for (int l = 0; l < lanes; ++l) sum[l] = 0, active[l] = ones[l] = 0;
    }
};

// A threshold and 1/tau for every lane, in the parts that Pass takes.
template <class T>
struct LaneThresholds {
    T c[most_lanes], d[most_lanes], inverse[most_lanes];
};

// `groups` groups, `step` apart, at x; with `write` the projection goes to y.
template <class T, bool write>
void pass_columns(const ColumnLanes<T>& lay, const T* from, T* to, int64_t groups, int64_t step,
                  const LaneThresholds<T>& mu, LaneSums<T>& out) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width, run = 32;
    Vec one = L::splat(1);
    for (int64_t g = 0; g < groups; g += run) {
        int64_t end = g + run < groups ? g + run : groups;
        for (int s = 0; s < lay.slots; ++s) {
            const Pass<T> at(L::load(mu.c + s * W), L::load(mu.d + s * W), L::load(mu.inverse + s * W));
            Vec sum[2] = {};
            LaneTally<T> tally(L::load_int(out.active + s * W), L::load_int(out.ones + s * W));
            const T* x = from + g * step + lay.offset[s];
            T* y = write ? to + g * step + lay.offset[s] : nullptr;
            int64_t i = g;
            for (; i + 2 <= end; i += 2, x += 2 * step) {
                Vec p = at.add(L::load(x), sum[0], tally);
                Vec q = at.add(L::load(x + step), sum[1], tally);
                if constexpr (write) {
                    L::store(y, L::min(one, p));
                    L::store(y + step, L::min(one, q));
                    y += 2 * step;
                }
            }
            if (i < end) {
                Vec p = at.add(L::load(x), sum[0], tally);
                if constexpr (write) L::store(y, L::min(one, p));
            }
            L::add_to(out.sum + s * W, sum[0] + sum[1]);
            L::store_int(out.active + s * W, tally.active());
            L::store_int(out.ones + s * W, tally.ones());
        }
    }
}

// First and second moments of the finite entries of every lane, about `origin`.
template <class T>
void moments_columns(const ColumnLanes<T>& lay, const T* from, int64_t groups, int64_t step, const T* origin,
                     LaneSums<T>& out, double* second) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    constexpr int W = L::width;
    Vec big = L::splat(std::numeric_limits<T>::max()), zero = L::splat(0);
    for (int s = 0; s < lay.slots; ++s) {
        Vec shift = L::load(origin + s * W), one = {}, two = {};
        Int n = {};
        const T* x = from + lay.offset[s];
        for (int64_t g = 0; g < groups; ++g, x += step) {
            Vec v = L::load(x);
            Int finite = ~(L::max(v, zero - v) >= big);
            Vec t = L::keep(v - shift, finite);
            one += t;
            two += t * t;
            n -= finite;
        }
        L::add_to(out.sum + s * W, one);
        L::add_to(second + s * W, two);
        L::store_int(out.active + s * W, n);
    }
}

}    // namespace hs::HS_VARIANT
