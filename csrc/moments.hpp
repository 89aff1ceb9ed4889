// The mean and the variance of one contiguous slice, for a first guess of its threshold.
#pragma once
#include "rows.hpp"

namespace hs::HS_VARIANT {

// Of the finite entries; `square` is the mean square about `origin`, infinite where it overflowed. `certain`
// entries are +inf.
struct Moments {
    double count, certain, mean, square, origin;

    HS_INLINE Moments(double m, double up, double one, double two, double about)
        : count(m), certain(up), origin(about) {
        double each = m > 0 ? 1 / m : 0;
        mean = one * each;
        square = two * each;
    }
    HS_INLINE double variance() const { return square > mean * mean ? square - mean * mean : 0; }
    HS_INLINE double center() const { return origin + mean; }
};

// Whether the squares are numbers that the type can hold.
template <class T>
HS_INLINE bool fits(const Moments& m) {
    return m.square < std::numeric_limits<T>::max();
}

// The entries of a row less its first one, and their squares, each in four parts. Of a register and more;
// single precision will do for a first guess.
template <class T>
HS_INLINE void moment_parts(const T* x, int64_t n, double* one, double* two) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    Vec shift = L::splat(x[0]), sum[4] = {}, square[4] = {};
    auto add = [&](int chain, Vec u) HS_INLINED {
        sum[chain] += u;
        square[chain] = L::plus_product(square[chain], u, u);
    };
    int64_t i = 0;
    for (; i + 4 * W <= n; i += 4 * W)
        for (int chain = 0; chain < 4; ++chain) add(chain, L::load(x + i + chain * W) - shift);
    for (; i + W <= n; i += W) add(0, L::load(x + i) - shift);
    if (i < n) add(1, L::keep(L::load(x + n - W) - shift, lanes_from<T>(static_cast<int>(W - (n - i)))));
    L::store_parts(one, (sum[0] + sum[1]) + (sum[2] + sum[3]));
    L::store_parts(two, (square[0] + square[1]) + (square[2] + square[3]));
}

template <class T>
HS_INLINE Moments moments_of_all(const T* x, int64_t n) {
    double one[4] = {}, two[4] = {}, origin = static_cast<double>(x[0]);
    if (n >= Lanes<T>::width) moment_parts(x, n, one, two);
    else
        for (int64_t i = 1; i < n; ++i) {
            double u = static_cast<double>(x[i]) - origin;
            one[0] += u;
            two[0] += u * u;
        }
    return {static_cast<double>(n), 0, add_parts(one), add_parts(two), origin};
}

// Infinities are left out: masks are made of them.
template <class T>
Moments moments_of_finite(const T* x, int64_t n) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    int64_t i = 0;
    while (i + 1 < n && !std::isfinite(x[i])) ++i;
    T origin = std::isfinite(x[i]) ? x[i] : T(0);
    double certain = 0;
    for (int64_t j = 0; j < i; ++j) certain += x[j] > 0;
    Vec shift = L::splat(origin), big = L::splat(std::numeric_limits<T>::max()), zero = L::splat(0), one = {},
        two = {};
    typename L::Int count = {}, ups = {};
    for (; i + W <= n; i += W) {
        Vec v = L::load(x + i);
        typename L::Int finite = ~(L::max(v, zero - v) > big);
        Vec u = L::keep(v - shift, finite);
        one += u;
        two += u * u;
        count -= finite;
        ups -= v > big;
    }
    double m = static_cast<double>(L::total_int(count)), sum = L::total(L::widen(one)),
           square = L::total(L::widen(two));
    certain += static_cast<double>(L::total_int(ups));
    for (; i < n; ++i) {
        certain += x[i] > std::numeric_limits<T>::max();
        if (!std::isfinite(x[i])) continue;
        double u = static_cast<double>(x[i]) - static_cast<double>(origin);
        m += 1;
        sum += u;
        square += u * u;
    }
    return {m, certain, sum, square, static_cast<double>(origin)};
}

// Numbers whose squares the type cannot hold, and NaN.
template <class T>
Moments moments_of_huge(const T* x, int64_t n) {
    double m = 0, certain = 0, one = 0, two = 0, origin = 0;
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i]);
        certain += v > std::numeric_limits<double>::max();
        if (!std::isfinite(v)) continue;
        if (m == 0) origin = v;
        m += 1;
        one += v - origin;
        two += (v - origin) * (v - origin);
    }
    return {m, certain, one, two, origin};
}

// Of a row whose plain moments do not fit.
template <class T>
Moments moments_of_odd(const T* x, int64_t n) {
    Moments m = moments_of_finite(x, n);
    return fits<T>(m) ? m : moments_of_huge(x, n);
}

template <class T>
HS_INLINE Moments moments_row(const T* x, int64_t n) {
    Moments m = moments_of_all(x, n);
    return fits<T>(m) ? m : moments_of_odd(x, n);
}

HS_INLINE double quantile(const Moments& m, double k) { return quantile(k - m.certain, m.count); }

HS_INLINE Search start_near(const Moments& m, double k, double tau) {
    return start_near(m.center(), m.variance(), quantile(m, k), tau);
}

}    // namespace hs::HS_VARIANT
