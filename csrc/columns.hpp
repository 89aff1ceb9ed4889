// Passes over slices that lie side by side in rows of memory: one lane a slice, no transpose of the array.
#pragma once
#include "rows.hpp"

namespace hs::HS_VARIANT {

// `groups` rows of memory, each read as `slots` registers at the given offsets. Wide blocks: a group is a row, and the
// last register overlaps the one before. Narrow blocks (fewer than 16 columns): a group is as many rows as fill
// whole registers, so one column stands in several lanes.
template <class T>
struct Block {
    const T* x;
    T* y;
    int64_t groups, step;
    int slots;
    const int* offset;
};

template <class T>
struct LaneSums {
    double* sum;
    IntOf<T>*active, *ones;
};

template <class T, bool write>
void pass_columns(const Block<T>& b, const T* c, const T* d, const T* inv, LaneSums<T> out) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    constexpr int W = L::width, run = 32;
    Vec one = L::splat(1);
    for (int64_t g = 0; g < b.groups; g += run) {
        int64_t end = g + run < b.groups ? g + run : b.groups;
        for (int s = 0; s < b.slots; ++s) {
            const Pass<T> at(L::load(c + s * W), L::load(d + s * W), L::load(inv + s * W));
            Vec sum[2] = {};
            Int ones = L::load_int(out.ones + s * W), above = L::load_int(out.active + s * W) + ones;
            const T* x = b.x + g * b.step + b.offset[s];
            T* y = write ? b.y + g * b.step + b.offset[s] : nullptr;
            int64_t i = g;
            for (; i + 2 <= end; i += 2, x += 2 * b.step) {
                Vec p = at.add(L::load(x), sum[0], above, ones);
                Vec q = at.add(L::load(x + b.step), sum[1], above, ones);
                if constexpr (write) {
                    L::store(y, L::min(one, p));
                    L::store(y + b.step, L::min(one, q));
                    y += 2 * b.step;
                }
            }
            if (i < end) {
                Vec p = at.add(L::load(x), sum[0], above, ones);
                if constexpr (write) L::store(y, L::min(one, p));
            }
            L::add_to(out.sum + s * W, sum[0] + sum[1]);
            L::store_int(out.active + s * W, above - ones);
            L::store_int(out.ones + s * W, ones);
        }
    }
}

// First and second moments of the finite entries of every lane, about `origin`.
template <class T>
void moments_columns(const Block<T>& b, const T* origin, double* first, double* second, IntOf<T>* count) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    constexpr int W = L::width;
    Vec big = L::splat(std::numeric_limits<T>::max()), zero = L::splat(0);
    for (int s = 0; s < b.slots; ++s) {
        Vec shift = L::load(origin + s * W), one = {}, two = {};
        Int n = L::load_int(count + s * W);
        const T* x = b.x + b.offset[s];
        for (int64_t g = 0; g < b.groups; ++g, x += b.step) {
            Vec v = L::load(x);
            Int finite = ~(L::max(v, zero - v) >= big);
            Vec t = L::keep(v - shift, finite);
            one += t;
            two += t * t;
            n -= finite;
        }
        L::add_to(first + s * W, one);
        L::add_to(second + s * W, two);
        L::store_int(count + s * W, n);
    }
}

}  // namespace hs::HS_VARIANT
