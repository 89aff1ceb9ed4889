// Passes over one row of a box section, in double precision: what its bounds allow, its sums at some mu, and
// y = clip((x - mu w)/tau, lower, upper).
#pragma once
#include "arrangement.hpp"
#include "kernel.hpp"
#include "newton.hpp"
#include "wide.hpp"

namespace hs::HS_VARIANT {

// Numbers one after the other, in double or single precision, or one for all entries.
struct Series {
    const double* at;
    const float* singles;
    int64_t step;
    HS_INLINE typename Wide::Vec load(int64_t i) const {
        return !step ? Wide::splat(first()) : singles ? load_wide(singles + i) : Wide::load(at + i);
    }
    // Arrays are filled up with zeros, and a number if asked for.
    HS_INLINE typename Wide::Vec rest(int64_t i, int64_t count, bool fill) const {
        if (step) return singles ? load_some(singles + i, count) : load_some(at + i, count);
        typename Wide::Vec all = Wide::splat(first());
        return fill ? first_lanes<double>(all, count) : all;
    }
    double operator[](int64_t i) const {
        return singles ? static_cast<double>(singles[i * step]) : at[i * step];
    }
    double first() const { return (*this)[0]; }
};

// A register of entries: x, their bounds and their weights.
struct Entries {
    typename Wide::Vec x, lower, upper, weight;
};

// How bounds and weights are given: as three numbers, as three arrays of one precision, or in any way.
enum class Given { numbers, singles, doubles, mixed };

template <class T>
struct BoxRow {
    const T* x;
    Series lower, upper, weight;
    double inverse;    // 1/tau

    Given given() const {
        if (!(lower.step || upper.step || weight.step)) return Given::numbers;
        if (!(lower.step && upper.step && weight.step)) return Given::mixed;
        int single = !!lower.singles + !!upper.singles + !!weight.singles;
        return single == 3 ? Given::singles : single == 0 ? Given::doubles : Given::mixed;
    }

    template <Given how>
    HS_INLINE Entries load(int64_t i) const {
        typename Wide::Vec own = load_wide(x + i);
        if constexpr (how == Given::numbers)
            return {own, Wide::splat(lower.first()), Wide::splat(upper.first()), Wide::splat(weight.first())};
        if constexpr (how == Given::singles)
            return {own, load_wide(lower.singles + i), load_wide(upper.singles + i),
                    load_wide(weight.singles + i)};
        if constexpr (how == Given::doubles)
            return {own, Wide::load(lower.at + i), Wide::load(upper.at + i), Wide::load(weight.at + i)};
        return {own, lower.load(i), upper.load(i), weight.load(i)};
    }

    // The last entries of [i, to), filled up with some that weigh next to nothing. Their bounds are both zero
    // or both the given numbers, so that they are in order.
    HS_INLINE Entries rest(int64_t i, int64_t to) const {
        double weights[together];
        int64_t count = to - i;
        bool fill = !lower.step != !upper.step;
        Wide::store(weights, Wide::splat(std::numeric_limits<double>::min()));
        Wide::store_first(weights, count, weight.rest(i, count, false));
        return {load_some(x + i, count), lower.rest(i, count, fill), upper.rest(i, count, fill),
                Wide::load(weights)};
    }
};

// Row `slice` of a problem, with its y or its x.
template <class P, class T>
HS_INLINE BoxRow<T> box_row(const P& p, const T* x, int64_t slice) {
    auto series = [slice](const PerEntry& e) -> Series {
        int64_t at = slice * e.row_stride;
        if (e.singles) return {nullptr, e.singles + at, e.step};
        return {e.values + at, nullptr, e.step};
    };
    double inverse = 1 / p.tau[slice], most = std::numeric_limits<double>::max();
    return {x + slice * p.n, series(p.lower), series(p.upper), series(p.weight),
            inverse < most ? inverse : most};
}

// Short rows by the dozen.
template <class P>
Tiles box_tiles(const P& p) {
    return Tiles(p.rows, p.n < task_entries ? task_entries / (p.n + 1) + 1 : 1);
}

// f(constant) with the constant that says how bounds and weights are given: a loop for each.
template <class F>
HS_INLINE auto as_given(Given how, F f) {
    if (how == Given::numbers) return f(std::integral_constant<Given, Given::numbers>());
    if (how == Given::singles) return f(std::integral_constant<Given, Given::singles>());
    if (how == Given::doubles) return f(std::integral_constant<Given, Given::doubles>());
    return f(std::integral_constant<Given, Given::mixed>());
}

// make().add(load(i)) for all of [from, to) and rest(i, to) at its end, in short chains, two at a time: long
// ones would pile up rounding, and one would wait for itself.
template <class Sum, int width = together, class Make, class Load, class Rest>
HS_INLINE Sum add_chains(int64_t from, int64_t to, Make make, Load load, Rest rest) {
    Sum sum{};
    for (int64_t i = from; i < to;) {
        int64_t stop = i + 128 * width < to ? i + 128 * width : to;
        auto chain = make(), other = make();
        for (; i + 2 * width <= stop; i += 2 * width) {
            chain.add(load(i));
            other.add(load(i + width));
        }
        if (i + width <= stop) chain.add(load(i)), i += width;
        if (i < stop) other.add(rest(i, stop)), i = stop;
        chain.join(other);
        sum.add(chain.sum());
    }
    return sum;
}

template <class Sum, class Make, class T>
Sum add_entries(const BoxRow<T>& row, int64_t from, int64_t to, Make make) {
    return as_given(row.given(), [&](auto how) {
        return add_chains<Sum>(
            from, to, make, [&](int64_t i) { return row.template load<how.value>(i); },
            [&](int64_t i, int64_t stop) { return row.rest(i, stop); });
    });
}

// What is known of a row before its search.
struct BoxSurvey {
    double least, most;    // of sum(w y)
    double certain;        // what the entries at +inf add to the least
    double size;           // sum(w |bound|), of the finite ones: what rounding is measured by
    double wx, ww, xx;     // of the finite entries
    double wrong, nan;     // entries whose bounds or weights are bad; entries that are NaN
    void add(const BoxSurvey& o) {
        least += o.least, most += o.most, certain += o.certain, size += o.size;
        wx += o.wx, ww += o.ww, xx += o.xx, wrong += o.wrong, nan += o.nan;
    }
};

// `finite`: as if all numbers were finite. The sums are not if that is wrong.
template <bool finite>
struct Surveyor {
    using Vec = typename Wide::Vec;
    using Int = typename Wide::Int;
    Vec least = {}, most = {}, certain = {}, size = {}, wx = {}, ww = {}, xx = {};
    Int wrong = {}, nan = {};

    HS_INLINE void add(const Entries& e) {
        Vec zero = Wide::splat(0), low = e.weight * e.lower, high = e.weight * e.upper;
        Int right = (e.upper >= e.lower) & (e.weight > zero);
        least += low;
        if constexpr (finite) {
            wrong -= ~right;
            most += high;
            size += Wide::magnitude(low) + Wide::magnitude(high);
            wx = Wide::plus_product(wx, e.weight, e.x);
            ww = Wide::plus_product(ww, e.weight, e.weight);
            xx = Wide::plus_product(xx, e.x, e.x);
        } else {
            Vec big = Wide::splat(std::numeric_limits<double>::max());
            Int is_number = e.x >= e.x, bounded = ~(Wide::magnitude(e.x) > big) & is_number;
            Vec x = Wide::keep(e.x, bounded), a = Wide::magnitude(low), b = Wide::magnitude(high);
            wrong -= ~(right & (big >= e.weight));
            nan -= ~is_number;
            most += Wide::pick(zero - big > e.x, low, high);
            certain += Wide::keep(high - low, e.x > big);
            size += Wide::keep(a, big >= a) + Wide::keep(b, big >= b);
            wx += e.weight * x;
            ww += Wide::keep(e.weight * e.weight, bounded);
            xx += x * x;
        }
    }
    HS_INLINE void join(const Surveyor& o) {
        least += o.least, most += o.most, certain += o.certain, size += o.size;
        wx += o.wx, ww += o.ww, xx += o.xx, wrong += o.wrong, nan += o.nan;
    }
    BoxSurvey sum() const {
        return {Wide::total(least),
                Wide::total(most),
                Wide::total(certain),
                Wide::total(size),
                Wide::total(wx),
                Wide::total(ww),
                Wide::total(xx),
                static_cast<double>(Wide::total_int(wrong)),
                static_cast<double>(Wide::total_int(nan))};
    }
};

// The sums at some mu: of w y over the free entries, of their w^2, of w y over those at a bound, and of |w
// y|.
struct BoxSums {
    double free_sum, free, fixed, bulk;
    void add(const BoxSums& o) { free_sum += o.free_sum, free += o.free, fixed += o.fixed, bulk += o.bulk; }
};

// (x - mu w)/tau, where mu is a number and the digits it has not.
struct BoxPlace {
    using Vec = typename Wide::Vec;
    Factor mu;
    Vec low, minus;    // minus: -1/tau
    BoxPlace(double at, double rest, double per_tau)
        : mu(at), low(Wide::splat(rest)), minus(Wide::splat(-per_tau)) {}
    HS_INLINE Vec of(const Entries& e) const {
        return Wide::plus_product(mu.times_minus(e.weight, e.x), low, e.weight) * minus;
    }
};

template <bool with_bulk>
struct BoxAdder {
    using Vec = typename Wide::Vec;
    BoxPlace place;
    Vec free_sum = {}, free = {}, fixed = {}, bulk = {};

    HS_INLINE void add(const Entries& e) {
        Vec t = place.of(e), part = e.weight * Wide::min(e.upper, Wide::max(e.lower, t));
        auto inside = (t > e.lower) & (t < e.upper);
        free_sum = Wide::add_where(inside, free_sum, part);
        free = Wide::add_where(inside, free, e.weight * e.weight);
        fixed = Wide::add_unless(inside, fixed, part);
        if constexpr (with_bulk) bulk += Wide::magnitude(part);
    }
    HS_INLINE void join(const BoxAdder& o) {
        free_sum += o.free_sum, free += o.free, fixed += o.fixed, bulk += o.bulk;
    }
    BoxSums sum() const {
        return {Wide::total(free_sum), Wide::total(free), Wide::total(fixed),
                with_bulk ? Wide::total(bulk) : 0};
    }
};

// y at some mu. What rounding keeps from a bound, by 4 eps or `slack` times its weight, is put there: an
// entry that is not free must not look so. In single precision y is rounded over 4 eps anyway.
template <class T>
struct BoxWriter {
    using Vec = typename Wide::Vec;
    BoxPlace place;
    Vec few, each;
    BoxWriter(const BoxPlace& at, double slack)
        : place(at), few(Wide::splat(4 * std::numeric_limits<double>::epsilon())), each(Wide::splat(slack)) {}
    HS_INLINE Vec room(const Entries& e, Vec bound) const {
        if constexpr (sizeof(T) == 4) return each * e.weight;
        else return Wide::plus_product(each * e.weight, few, Wide::magnitude(bound));
    }
    HS_INLINE Vec of(const Entries& e) const {
        Vec t = place.of(e);
        Vec down = Wide::pick(e.lower + room(e, e.lower) >= t, e.lower, t);
        return Wide::pick(t >= e.upper - room(e, e.upper), e.upper, down);
    }
};

// Writes y, and returns the sums there but for the bulk.
template <class T>
BoxSums write_box(const BoxRow<T>& row, T* y, int64_t from, int64_t to, const BoxPlace& at, double slack) {
    BoxWriter<T> writer(at, slack);
    return as_given(row.given(), [&](auto how) {
        return add_chains<BoxSums>(
            from, to, [&] { return BoxAdder<false>{at}; },
            [&](int64_t i) {
                Entries e = row.template load<how.value>(i);
                store_wide(y + i, writer.of(e));
                return e;
            },
            [&](int64_t i, int64_t stop) {
                Entries e = row.rest(i, stop);
                store_some(y + i, writer.of(e), stop - i);
                return e;
            });
    });
}

// Writes y as a share of what it is at one mu, and the rest of what it is at another.
template <class T>
void write_mixture(const BoxRow<T>& row, T* y, int64_t from, int64_t to, const BoxPlace& one,
                   const BoxPlace& other, double share) {
    using Vec = typename Wide::Vec;
    Vec part = Wide::splat(share);
    auto of = [&](const Entries& e) {
        auto clipped = [&](Vec t) { return Wide::min(e.upper, Wide::max(e.lower, t)); };
        Vec a = clipped(one.of(e)), b = clipped(other.of(e));
        return Wide::pick(a == b, a, Wide::plus_product(b, part, a - b));
    };
    int64_t i = from;
    for (; i + together <= to; i += together) store_wide(y + i, of(row.template load<Given::mixed>(i)));
    if (i < to) store_some(y + i, of(row.rest(i, to)), to - i);
}

}    // namespace hs::HS_VARIANT
