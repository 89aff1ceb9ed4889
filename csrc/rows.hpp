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
    using Int = typename L::Int;
    Vec c, shift, inv;

    HS_INLINE Pass(Vec at, Vec rest, Vec inverse) : c(at), shift(rest * inverse), inv(inverse) {}
    HS_INLINE Pass(Split<T> mu, T inverse) : Pass(L::splat(mu.c), L::splat(mu.d), L::splat(inverse)) {}

    HS_INLINE Vec place(Vec x) const { return L::fused(x - c, inv, shift); }

    HS_INLINE Vec add(Vec x, Vec& sum, Tally<T>& tally) const { return tally.add(place(x), sum); }
    HS_INLINE Vec add(Vec x, Vec& sum, Int& above, Int& ones) const {
        return add_active<T>(place(x), sum, above, ones);
    }
};

// Lanes from `first` on, first >= 1: what is left of a slice when its last register overlaps the one before.
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

// Sums over one slice; with `y`, the projection is written as well.
template <class T, bool write>
HS_INLINE Sums pass_row(const T* x, T* y, int64_t n, Split<T> mu, T inverse) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width, run = 64 * W, chain = 16 * W;
    const Pass<T> at(mu, inverse);
    Tally<T> tally;
    Vec sum = {};
    typename L::Wide total = {};
    int64_t i = 0;
    // Sums of short chains: in a long one, equal numbers would round to the same side every time.
    if (n <= chain) sum = pass_pairs<T, write>(x, y, i, n, at, tally);
    else
        while (i + 2 * W <= n) {
            int64_t end = i + run < n ? i + run : n;
            while (i + 2 * W <= end)
                sum += pass_pairs<T, write>(x, y, i, i + chain < end ? i + chain : end, at, tally);
            total += L::widen(sum);
            sum = Vec{};
        }
    if (i + W <= n) {
        Vec p = at.add(L::load(x + i), sum, tally);
        if constexpr (write) L::store(y + i, L::min(L::splat(1), p));
        i += W;
    }
    if (i < n) sum += pass_rest<T, write>(x, y, i, n, at, tally);
    return {L::total(total + L::widen(sum)), tally.active(), tally.ones()};
}

// Asks for memory that will be written soon.
template <class T>
HS_INLINE void fetch_row(const T* y, int64_t n) {
#if defined(__GNUC__)
    constexpr int64_t line = 64 / sizeof(T);
    for (int64_t i = 0; i < n; i += line) __builtin_prefetch(y + i, 1, 2);
#endif
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
    if (n >= W) return L::store(y + n - W, L::min(one, L::max(zero, at.place(L::load(x + n - W)))));
    L::store_first(y, n, L::min(one, L::max(zero, at.place(L::load_first(x, n)))));
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

// About the first entry; single precision will do for a first guess.
template <class T>
HS_INLINE Moments moments_of_all(const T* x, int64_t n) {
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
    if (i + W <= n) {
        Vec u = L::load(x + i) - shift;
        a += u;
        aa += u * u;
        i += W;
    }
    if (i < n && n >= W) {
        Vec u = L::keep(L::load(x + n - W) - shift, lanes_from<T>(static_cast<int>(W - (n - i))));
        b += u;
        bb += u * u;
        i = n;
    }
    double one = L::total(L::widen(a + b)), two = L::total(L::widen(aa + bb)),
           origin = static_cast<double>(x[0]);
    for (; i < n; ++i) {
        double u = static_cast<double>(x[i]) - origin;
        one += u;
        two += u * u;
    }
    return {static_cast<double>(n), 0, one, two, origin};
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

template <class T>
HS_INLINE Moments moments_row(const T* x, int64_t n) {
    Moments m = moments_of_all(x, n);
    if (m.square < std::numeric_limits<T>::max()) return m;
    m = moments_of_finite(x, n);
    return m.square < std::numeric_limits<T>::max() ? m : moments_of_huge(x, n);
}

HS_INLINE double quantile(const Moments& m, double k) { return quantile(k - m.certain, m.count); }

HS_INLINE double guess(const Moments& m, double k, double tau) {
    return guess(m.center(), m.variance(), quantile(m, k), tau);
}

}    // namespace hs::HS_VARIANT
