// Passes over one contiguous slice.
#pragma once
#include "newton.hpp"

namespace hs::HS_VARIANT {

// A threshold and 1/tau, as the passes use them: (x - mu)/tau = (x - c) * inv - shift.
template <class T>
struct Pass {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    Vec c, shift, inv;

    HS_INLINE Pass(Vec at, Vec rest, Vec inverse) : c(at), shift(rest * inverse), inv(inverse) {}
    HS_INLINE Pass(Split<T> mu, T inverse) : Pass(L::splat(mu.c), L::splat(mu.d), L::splat(inverse)) {}

    HS_INLINE Vec place(Vec x) const { return L::fused(x - c, inv, shift); }

    // A NaN is not >= 1, so it reaches the sum and is noticed there.
    HS_INLINE Vec add(Vec x, Vec& sum, Int& above, Int& ones) const {
        Vec zero = L::splat(0), t = place(x), positive = L::max(zero, t);
        Int full = t >= L::splat(1);
        sum += L::drop(positive, full);
        above -= t > zero;
        ones -= full;
        return positive;
    }
};

// Sums over one slice; with `y`, the projection is written as well.
template <class T, bool write>
HS_INLINE Sums pass_row(const T* x, T* y, int64_t n, Split<T> mu, T inverse) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    constexpr int W = L::width, run = 64, chain = 16;
    const Pass<T> at(mu, inverse);
    Vec one = L::splat(1);
    Int above = {}, ones = {};
    typename L::Wide total = {};
    int64_t i = 0;
    while (i + 2 * W <= n) {
        // Sums of short chains: in a long one, equal numbers would round to the same side every time.
        Vec sum = {};
        int64_t end = i + run * W < n ? i + run * W : n;
        do {
            Vec a = {}, b = {};
            int64_t stop = i + chain * W < end ? i + chain * W : end;
            do {
                Vec p = at.add(L::load(x + i), a, above, ones);
                Vec q = at.add(L::load(x + i + W), b, above, ones);
                if constexpr (write) {
                    L::store(y + i, L::min(one, p));
                    L::store(y + i + W, L::min(one, q));
                }
                i += 2 * W;
            } while (i + 2 * W <= stop);
            sum += a + b;
        } while (i + 2 * W <= end);
        total += L::widen(sum);
    }
    for (; i < n; i += W) {
        int64_t rest = n - i < W ? n - i : W;
        Vec sum = {};
        T tail[W];
        for (int l = 0; l < W; ++l) tail[l] = l < rest ? x[i + l] : -std::numeric_limits<T>::infinity();
        Vec p = at.add(L::load(tail), sum, above, ones);
        total += L::widen(sum);
        if constexpr (write) {
            L::store(tail, L::min(one, p));
            std::memcpy(y + i, tail, static_cast<size_t>(rest) * sizeof(T));
        }
    }
    return {L::total(total), static_cast<double>(L::total_int(above - ones)), static_cast<double>(L::total_int(ones))};
}

// The projection alone, once mu is known to be right.
template <class T>
HS_INLINE void write_row(const T* x, T* y, int64_t n, Split<T> mu, T inverse) {
    using L = Lanes<T>;
    constexpr int W = L::width;
    const Pass<T> at(mu, inverse);
    typename L::Vec zero = L::splat(0), one = L::splat(1);
    int64_t i = 0;
    for (; i + W <= n; i += W) L::store(y + i, L::min(one, L::max(zero, at.place(L::load(x + i)))));
    if (i == n) return;
    T tail[W] = {};
    size_t rest = static_cast<size_t>(n - i) * sizeof(T);
    std::memcpy(tail, x + i, rest);
    L::store(tail, L::min(one, L::max(zero, at.place(L::load(tail)))));
    std::memcpy(y + i, tail, rest);
}

// The largest entry of the lower and the smallest of the upper side of a slice that lies apart at mu.
struct Gap {
    double zero, one;
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

// Mean and variance of the finite entries, about the first of them; single precision will do for a first guess.
template <class T>
void moments_row(const T* x, int64_t n, double& mean, double& variance) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    Vec shift = L::splat(x[0]), a = {}, b = {}, aa = {}, bb = {};
    int64_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        Vec u = L::load(x + i) - shift, v = L::load(x + i + W) - shift;
        a += u, b += v;
        aa += u * u, bb += v * v;
    }
    double m = static_cast<double>(n), one = L::total(L::widen(a + b)), two = L::total(L::widen(aa + bb));
    double origin = static_cast<double>(x[0]);
    for (; i < n; ++i) {
        double u = static_cast<double>(x[i]) - origin;
        one += u;
        two += u * u;
    }
    if (!(two < std::numeric_limits<T>::max())) {    // infinities: leave them out
        m = one = two = origin = 0;
        for (i = 0; i < n; ++i) {
            double v = static_cast<double>(x[i]);
            if (!std::isfinite(v)) continue;
            if (m == 0) origin = v;
            m += 1;
            one += v - origin;
            two += (v - origin) * (v - origin);
        }
    }
    m = m > 0 ? m : 1;
    mean = one / m;
    variance = two / m - mean * mean;
    variance = variance > 0 ? variance : 0;
    mean += origin;
}

}  // namespace hs::HS_VARIANT
