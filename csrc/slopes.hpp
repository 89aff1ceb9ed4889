// The slope of a curve where it is y, a register at a time: what goes into the sums of the derivative.
#pragma once
#include "curves.hpp"
#include "rows.hpp"

namespace hs::HS_VARIANT {

// What has no slope is left out, whatever v is there.
template <class T, Curve curve>
struct Slope {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Sum = Vec;
    Vec s;

    Slope() = default;
    HS_INLINE explicit Slope(Vec y) {
        const Vec one = L::splat(1);
        if constexpr (curve == Curve::exp) s = L::drop(y, y >= one);
        else if constexpr (curve == Curve::laplace) s = L::min(one - y, y);
        else s = y * (one - y);
    }
    HS_INLINE Vec add(Vec sum, Vec v) const { return L::add_where(s > L::splat(0), sum, s * v); }
    HS_INLINE Vec times(Vec v) const { return L::keep(s * v, s > L::splat(0)); }
    HS_INLINE Sum count(Sum sum) const { return sum + L::keep(s, s > L::splat(0)); }
    static HS_INLINE double total(Sum sum) { return L::total(L::widen(sum)); }
    static HS_INLINE Vec place(Vec y) {
        T at[L::width];
        L::store(at, y);
        for (T& each : at) each = static_cast<T>(place_at(curve, static_cast<double>(each)));
        return L::load(at);
    }

    struct Counter {
        Sum sum{};
        HS_INLINE void add(const Slope& slope) { sum = slope.count(sum); }
        HS_INLINE double total() const { return Slope::total(sum); }
    };
};

// 1 or none.
template <class T>
struct Slope<T, Curve::ramp> {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Sum = typename L::Int;
    Places<T> active;

    Slope() = default;
    HS_INLINE explicit Slope(Vec y) : active(y) {}
    HS_INLINE Vec add(Vec sum, Vec v) const { return active.add(sum, v); }
    HS_INLINE Vec times(Vec v) const { return active.keep(v); }
    HS_INLINE Sum count(Sum sum) const { return active.tally(active.on, sum); }
    static HS_INLINE double total(Sum sum) { return static_cast<double>(L::total_int(sum)); }
    static HS_INLINE Vec place(Vec y) { return y; }

    struct Counter {
        hs::HS_VARIANT::Counter<T> number;
        HS_INLINE void add(const Slope& slope) { number.add(slope.active.on); }
        HS_INLINE double total() const { return static_cast<double>(number.total()); }
    };
};

}    // namespace hs::HS_VARIANT
