// Passes over one contiguous slice.
#pragma once
#include "newton.hpp"
#include "tally.hpp"

namespace hs::HS_VARIANT {

// A threshold and 1/tau, as the passes use them: (x - mu)/tau = (x - c) * inv - shift.
template <class T>
struct Pass {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    Vec c, shift, inv;

    HS_INLINE Pass(Vec at, Vec rest, Vec inverse) : c(at), shift(rest * inverse), inv(inverse) {}
    HS_INLINE Pass(Split<T> mu, T inverse) : Pass(L::splat(mu.c), L::splat(mu.d), L::splat(inverse)) {}

    HS_INLINE Vec place(Vec x) const { return L::fused(x - c, inv, shift); }

    template <class Counts>
    HS_INLINE Vec add(Vec x, Vec& sum, Counts& counts) const {
        return counts.add(place(x), sum);
    }
};

// Lanes from `first` on: what is left of a slice when its last register overlaps the one before.
template <class T>
HS_INLINE typename Lanes<T>::Int lanes_from(int first) {
    constexpr int W = Lanes<T>::width;
    struct Steps {
        IntOf<T> value[2 * W];
        constexpr Steps() : value{} {
            for (int l = W; l < 2 * W; ++l) value[l] = -1;
        }
    };
    static constexpr Steps steps;
    return Lanes<T>::load_int(steps.value + W - first);
}

// Entries from i on, fewer than a register holds; returns what they add to the sum.
template <class T, bool write>
HS_INLINE typename Lanes<T>::Vec pass_rest(const T* x, T* y, int64_t i, int64_t n, const Pass<T>& at,
                                           Tally<T>& tally) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    Vec sum = {}, none = L::splat(-std::numeric_limits<T>::infinity()), one = L::splat(1);
    if (n >= W) {
        Vec v = L::load(x + n - W);
        at.add(L::pick(lanes_from<T>(static_cast<int>(W - (n - i))), v, none), sum, tally);
        if constexpr (write) L::store(y + n - W, L::min(one, L::max(L::splat(0), at.place(v))));
        return sum;
    }
    Vec v = L::pick(lanes_from<T>(static_cast<int>(n)), none, L::load_first(x, n));
    Vec p = at.add(v, sum, tally);
    if constexpr (write) L::store_first(y, n, L::min(one, p));
    return sum;
}

// A sum over a row, in short chains: in a long one, equal numbers would round to the same side every time.
template <class T>
struct ChainedSum {
    using L = Lanes<T>;
    static constexpr int W = L::width, run = 64 * W, chain = 16 * W;
    int64_t n;
    typename L::Vec sum{};
    typename L::Wide total{};

    HS_INLINE explicit ChainedSum(int64_t entries) : n(entries) {}

    // All pairs of registers: pairs(stop) returns the sum of those from i on, and moves i.
    template <class Pairs>
    HS_INLINE void add_pairs(const int64_t& i, Pairs pairs) {
        if (n <= chain) {
            sum = pairs(n);
            return;
        }
        while (i + 2 * W <= n) {
            int64_t end = i + run < n ? i + run : n;
            while (i + 2 * W <= end) sum += pairs(i + chain < end ? i + chain : end);
            total += L::widen(sum);
            sum = typename L::Vec{};
        }
    }
    HS_INLINE void store(double* parts) const {
        L::store_parts(parts, n <= chain ? sum : typename L::Vec{});
        if (n > chain) parts[0] = L::total(total + L::widen(sum));
    }
};

// The registers from i on, in pairs, as far as `stop`.
template <class T, bool write>
HS_INLINE typename Lanes<T>::Vec pass_pairs(const T* x, T* y, int64_t& i, int64_t stop, const Pass<T>& at,
                                            Tally<T>& tally) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    Vec a = {}, b = {}, one = L::splat(1);
    for (; i + 2 * W <= stop; i += 2 * W) {
        Vec p = at.add(L::load(x + i), a, tally);
        Vec q = at.add(L::load(x + i + W), b, tally);
        if constexpr (write) {
            L::store(y + i, L::min(one, p));
            L::store(y + i + W, L::min(one, q));
        }
    }
    return a + b;
}

HS_INLINE Sums sums_of(double active_sum, Counts counts) {
    return {active_sum, static_cast<double>(counts.active), static_cast<double>(counts.ones)};
}

HS_INLINE double add_parts(const double* parts) { return (parts[0] + parts[1]) + (parts[2] + parts[3]); }

// Sums over one slice, that of the active entries in four parts; with `y`, the projection is written as well.
template <class T, bool write>
HS_INLINE Counts pass_parts(const T* x, T* y, int64_t n, Split<T> mu, T inverse, double* parts) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    const Pass<T> at(mu, inverse);
    Tally<T> tally;
    ChainedSum<T> all(n);
    int64_t i = 0;
    all.add_pairs(i, [&](int64_t stop) HS_INLINED { return pass_pairs<T, write>(x, y, i, stop, at, tally); });
    if (i + W <= n) {
        Vec p = at.add(L::load(x + i), all.sum, tally);
        if constexpr (write) L::store(y + i, L::min(L::splat(1), p));
        i += W;
    }
    if (i < n) all.sum += pass_rest<T, write>(x, y, i, n, at, tally);
    all.store(parts);
    return tally.counts();
}

template <class T, bool write>
HS_INLINE Sums pass_row(const T* x, T* y, int64_t n, Split<T> mu, T inverse) {
    double parts[4];
    Counts counts = pass_parts<T, write>(x, y, n, mu, inverse, parts);
    return sums_of(add_parts(parts), counts);
}

// Asks for memory that will be written soon, or read.
template <bool write, class T>
HS_INLINE void fetch_row(const T* row, int64_t n) {
#if defined(__GNUC__)
    constexpr int64_t line = 64 / sizeof(T);
    for (int64_t i = 0; i < n; i += line) __builtin_prefetch(row + i, write, 2);
#endif
}

// Stores value(i) for the registers at i = 0, W, ... that fit into n entries; returns where the rest begins.
// Each is stored after the next four have been computed: a load right behind a store to the same place of
// another page waits for it, and arrays that were allocated one after the other often lie so.
template <class T, class Value>
HS_INLINE int64_t store_behind(T* to, int64_t n, Value value) {
    using L = Lanes<T>;
    constexpr int W = L::width, ahead = 4, block = ahead * W;
    typename L::Vec now[ahead], next[ahead];
    auto compute = [&](int64_t from) HS_INLINED {
        for (int j = 0; j < ahead; ++j) next[j] = value(from + j * W);
    };
    int64_t i = 0;
    if (n >= block) {
        for (compute(0); i + 2 * block <= n; i += block) {
            for (int j = 0; j < ahead; ++j) now[j] = next[j];
            compute(i + block);
            for (int j = 0; j < ahead; ++j) L::store(to + i + j * W, now[j]);
        }
        for (int j = 0; j < ahead; ++j) L::store(to + i + j * W, next[j]);
        i += block;
    }
    for (; i + W <= n; i += W) L::store(to + i, value(i));
    return i;
}

// The projection alone, once mu is known to be right: then there is no NaN.
template <class T>
HS_INLINE void write_row(const T* x, T* y, int64_t n, Split<T> mu, T inverse) {
    using L = Lanes<T>;
    constexpr int W = L::width;
    const Pass<T> at(mu, inverse);
    typename L::Vec one = L::splat(1);
    auto value = [&](int64_t i) HS_INLINED { return L::clip(at.place(L::load(x + i)), one); };
    if (store_behind(y, n, value) == n) return;
    if (n >= W) return L::store(y + n - W, value(n - W));
    L::store_first(y, n, L::clip(at.place(L::load_first(x, n)), one));
}

// The largest entry of the lower and the smallest of the upper side of a slice that lies apart at mu.
struct Gap {
    double zero, one;
    void add(const Gap& other) {
        zero = other.zero > zero ? other.zero : zero;
        one = other.one < one ? other.one : one;
    }
};

template <class T>
Gap gap_row(const T* x, int64_t n, Split<T> mu, T inverse) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    constexpr T inf = std::numeric_limits<T>::infinity();
    T zero = -inf, one = inf, zeros[W], ones[W];
    const Pass<T> at(mu, inverse);
    Vec half = L::splat(T(0.5));
    Vec low = L::splat(-inf), high = L::splat(inf), most = low, least = high;
    int64_t i = 0;
    for (; i + W <= n; i += W) {
        Vec v = L::load(x + i);
        typename L::Int up = at.place(v) > half;
        most = L::max(most, L::pick(up, low, v));
        least = L::min(least, L::pick(up, v, high));
    }
    L::store(zeros, most);
    L::store(ones, least);
    for (int l = 0; l < W; ++l) {
        zero = zeros[l] > zero ? zeros[l] : zero;
        one = ones[l] < one ? ones[l] : one;
    }
    for (; i < n; ++i) {
        if (((x[i] - mu.c) - mu.d) * inverse > T(0.5)) one = x[i] < one ? x[i] : one;
        else zero = x[i] > zero ? x[i] : zero;
    }
    return {static_cast<double>(zero), static_cast<double>(one)};
}

}    // namespace hs::HS_VARIANT
