// The smooth curves: what they are as functions of a number, and of a register of E = exp((x - c)/tau), of
// which all of them are made once it is known how far the threshold lies from c.
#pragma once
#include "newton.hpp"

namespace hs::HS_VARIANT {

// f(the curve as a constant).
template <class F>
HS_INLINE auto with_curve(Curve curve, F f) {
    if (curve == Curve::exp) return f(std::integral_constant<Curve, Curve::exp>());
    if (curve == Curve::logistic) return f(std::integral_constant<Curve, Curve::logistic>());
    if (curve == Curve::laplace) return f(std::integral_constant<Curve, Curve::laplace>());
    return f(std::integral_constant<Curve, Curve::ramp>());
}

// S(t).
inline double rise(Curve curve, double t) {
    if (curve == Curve::ramp) return t > 1 ? 1 : t < 0 ? 0 : t;
    double e = std::exp(-std::fabs(t));
    if (curve == Curve::exp) return t >= 0 ? 1 : e;
    if (curve == Curve::laplace) return t < 0 ? e / 2 : 1 - e / 2;
    return (t < 0 ? e : 1) / (1 + e);
}

// Its slope where it is y.
template <class T>
HS_INLINE T slope_at(Curve curve, T y) {
    if (curve == Curve::ramp) return y > 0 && y < 1 ? T(1) : T(0);
    if (curve == Curve::exp) return y < 1 ? y : T(0);
    if (curve == Curve::laplace) return y < 1 - y ? y : 1 - y;
    return y * (1 - y);
}

// t where it is y and rises.
inline double place_at(Curve curve, double y) {
    if (curve == Curve::ramp) return y;
    if (curve == Curve::exp) return std::log(y);
    if (curve == Curve::laplace) return y < 0.5 ? std::log(2 * y) : -std::log(2 * (1 - y));
    return std::log(y / (1 - y));
}

// e^t to about one unit in the last place, by powers of two and Taylor's series; 0 below -most, and above
// `most` as there: so it may be multiplied and divided without a thought. A NaN stays one.
template <class T>
struct Exponential {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    static constexpr bool single = sizeof(T) == 4;
    static constexpr int terms = single ? 7 : 12, digits = single ? 23 : 52;
    static constexpr T most = single ? T(87) : T(700);
    // The logarithm of 2 in two parts: a multiple of the first is exact.
    static constexpr T upper = single ? T(0.693359375) : T(6.93145751953125e-1),
                       lower = single ? T(-2.12194440054690583e-4) : T(1.42860682030941723212e-6);

    static constexpr T coefficient(int i) { return i < 2 ? T(1) : coefficient(i - 1) / static_cast<T>(i); }

    static HS_INLINE Vec of(Vec t) {
        // Added to this, a number is rounded to a whole one, which then lies in the last bits.
        const Vec rounding = L::splat(static_cast<T>(3 * (int64_t{1} << (digits - 1))));
        Vec u = L::min(L::splat(most), L::max(L::splat(-most), t));
        Vec rounded = L::plus_product(rounding, u, L::splat(T(1.44269504088896341))),
            whole = rounded - rounding;
        Vec rest = L::plus_product(u, whole, L::splat(-upper));
        rest = L::plus_product(rest, whole, L::splat(-lower));
        Vec sum = L::splat(coefficient(terms));
        for (int i = terms - 1; i >= 0; --i) sum = L::plus_product(L::splat(coefficient(i)), sum, rest);
        Int bits, power;
        std::memcpy(&bits, &sum, sizeof bits);
        std::memcpy(&power, &rounded, sizeof power);
        bits += power << digits;
        std::memcpy(&sum, &bits, sizeof sum);
        return L::drop(sum, L::splat(-most) >= t);
    }
};

// What a pass over E adds up, each sum in four parts.
struct CurveSums {
    double part[4][4];
    void add(const CurveSums& other) {
        for (int i = 0; i < 16; ++i) part[i / 4][i % 4] += other.part[i / 4][i % 4];
    }
};

// The curves for passes at M = exp((mu - c)/tau). Of what a pass adds up, residual() makes the sum less k, so
// that nothing is lost where almost all entries are 1; next() is the M where the sum would be k, to the order
// that the curve allows. A relative step by less than `enough` need not be confirmed; of the mirrored curves
// it is far above what the sums are rounded by, even where next to nothing is added up.
template <class T, Curve curve>
struct CurveAt;

template <class T>
struct CurveAt<T, Curve::exp> {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    static constexpr Blur blur{-1, 1};
    static constexpr double enough = sizeof(T) == 4 ? 2e-7 : 1e-15;
    static constexpr int parts = 2;    // the sum of E below M, and how many are not
    Vec m, inverse;
    HS_INLINE explicit CurveAt(T at) : m(L::splat(at)), inverse(L::splat(1 / at)) {}

    HS_INLINE Vec value(Vec e) const { return L::min(L::splat(1), e * inverse); }
    HS_INLINE void add(Vec e, Vec* sum) const {
        typename L::Int one = e >= m;
        sum[0] = L::add_unless(one, sum[0], e);
        sum[1] = L::add_where(one, sum[1], L::splat(1));
    }
    static double slopes(const double* s, double m) { return s[0] / m; }
    static double residual(const double* s, double m, double k) { return s[0] / m + (s[1] - k); }
    static double next(const double* s, double, double k) { return s[0] / (k - s[1]); }
};

template <class T>
struct CurveAt<T, Curve::laplace> {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    static constexpr Blur blur{0, 0.5};
    static constexpr double enough = sizeof(T) == 4 ? 3e-4 : 1e-8;
    static constexpr int parts = 3;    // 2 y below M, 2 (1 - y) from there on, and how many those are
    Vec inverse;
    HS_INLINE explicit CurveAt(T at) : inverse(L::splat(1 / at)) {}

    HS_INLINE Vec value(Vec e) const {
        Vec r = e * inverse, half = L::splat(T(0.5)) * L::min(L::splat(1) / r, r);
        return L::pick(r >= L::splat(1), L::splat(1) - half, half);
    }
    HS_INLINE void add(Vec e, Vec* sum) const {
        Vec r = e * inverse, twice = L::min(L::splat(1) / r, r);
        typename L::Int above = r >= L::splat(1);
        sum[0] = L::add_unless(above, sum[0], twice);
        sum[1] = L::add_where(above, sum[1], twice);
        sum[2] = L::add_where(above, sum[2], L::splat(1));
    }
    static double slopes(const double* s, double) { return (s[0] + s[1]) / 2; }
    static double residual(const double* s, double, double k) { return (s[0] - s[1]) / 2 + (s[2] - k); }
    // As long as no entry crosses M, M -> g M makes the sum s0/2g + s2 - s1 g/2.
    static double next(const double* s, double m, double k) {
        double left = k - s[2], root = std::sqrt(left * left + s[0] * s[1]);
        return m * (left > 0 ? s[0] / (left + root) : (root - left) / s[1]);
    }
};

template <class T>
struct CurveAt<T, Curve::logistic> {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    static constexpr Blur blur{0, 0.30396355092701331};
    static constexpr double enough = sizeof(T) == 4 ? 4e-3 : 1e-5;
    static constexpr int parts =
        4;    // y below M and y - 1 from there on, slopes, curvatures, how many from M on
    Vec m;
    HS_INLINE explicit CurveAt(T at) : m(L::splat(at)) {}

    HS_INLINE Vec value(Vec e) const { return e / (e + m); }
    HS_INLINE void add(Vec e, Vec* sum) const {
        Vec r = L::splat(1) / (e + m), y = e * r, rest = m * r, slope = y * rest;
        typename L::Int above = e >= m;
        sum[0] += L::pick(above, L::splat(0) - rest, y);
        sum[1] += slope;
        sum[2] = L::plus_product(sum[2], slope, rest - y);
        sum[3] = L::add_where(above, sum[3], L::splat(1));
    }
    static double slopes(const double* s, double) { return s[1]; }
    static double residual(const double* s, double, double k) { return s[0] + (s[3] - k); }
    // Halley's step of log M, and its exponential by a fraction.
    static double next(const double* s, double m, double k) {
        double r = residual(s, m, k), bend = 2 * s[1] * s[1] - r * s[2];
        double d = bend > 0 ? 2 * r * s[1] / bend : r / s[1];
        d = d > 3 ? 3 : d < -3 ? -3 : d;
        return m * ((12 + d * d) + 6 * d) / ((12 + d * d) - 6 * d);
    }
};

}    // namespace hs::HS_VARIANT
