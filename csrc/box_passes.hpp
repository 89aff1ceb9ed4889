// Passes over one row of a box section, in double precision: what its bounds allow, its sums at some mu, and
// y = clip((x - mu w)/tau, lower, upper).
#pragma once
#include "kernel.hpp"
#include "newton.hpp"
#include "wide.hpp"

namespace hs::HS_VARIANT {

// Numbers one after the other, or one for all entries.
struct Series {
    const double* at;
    int64_t step;
    HS_INLINE typename Wide::Vec load(int64_t i) const {
        return step ? Wide::load(at + i) : Wide::splat(*at);
    }
    double operator[](int64_t i) const { return at[i * step]; }
};

// A register of entries: x, their bounds and their weights.
struct Entries {
    typename Wide::Vec x, lower, upper, weight;
};

template <class T>
struct BoxRow {
    const T* x;
    Series lower, upper, weight;
    double inverse;    // 1/tau

    HS_INLINE Entries load(int64_t i) const {
        return {load_wide(x + i), lower.load(i), upper.load(i), weight.load(i)};
    }

    // The last entries of [i, to), filled up with some that can only be 0.
    Entries rest(int64_t i, int64_t to) const {
        double part[4][together];
        for (int l = 0; l < together; ++l) {
            bool is = i + l < to;
            part[0][l] = is ? static_cast<double>(x[i + l]) : -std::numeric_limits<double>::infinity();
            part[1][l] = is ? lower[i + l] : 0;
            part[2][l] = is ? upper[i + l] : 0;
            part[3][l] = is ? weight[i + l] : 1;
        }
        return {Wide::load(part[0]), Wide::load(part[1]), Wide::load(part[2]), Wide::load(part[3])};
    }
};

// adder.add(entries) for all of [from, to), in short chains: long ones would pile up rounding.
template <class Adder, class Sum, class T>
HS_INLINE Sum add_entries(const BoxRow<T>& row, int64_t from, int64_t to, Adder adder) {
    Sum sum{};
    for (int64_t i = from; i < to;) {
        int64_t stop = i + 64 * together < to ? i + 64 * together : to;
        Adder chain = adder;
        for (; i + together <= stop; i += together) chain.add(row.load(i));
        if (i < stop) chain.add(row.rest(i, stop));
        i = stop;
        sum.add(chain.sum());
    }
    return sum;
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

struct Surveyor {
    using Vec = typename Wide::Vec;
    using Int = typename Wide::Int;
    Vec least = {}, most = {}, certain = {}, size = {}, wx = {}, ww = {}, xx = {};
    Int right = {}, number = {}, all = {};

    HS_INLINE void add(const Entries& e) {
        Vec zero = Wide::splat(0), big = Wide::splat(std::numeric_limits<double>::max());
        Int finite = ~(Wide::max(e.x, zero - e.x) > big) & (e.x >= e.x);
        Vec low = e.weight * e.lower, high = e.weight * e.upper, x = Wide::keep(e.x, finite);
        least += low;
        most += Wide::pick(zero - big > e.x, low, high);
        certain += Wide::keep(high - low, e.x > big);
        size += magnitude(low, big) + magnitude(high, big);
        wx += e.weight * x;
        ww += Wide::keep(e.weight * e.weight, finite);
        xx += x * x;
        right -= (e.upper >= e.lower) & (e.weight > zero) & (big >= e.weight);
        number -= e.x >= e.x;
        all -= zero >= zero;
    }
    static HS_INLINE Vec magnitude(Vec v, Vec big) {
        Vec size = Wide::max(v, Wide::splat(0) - v);
        return Wide::keep(size, big >= size);
    }
    BoxSurvey sum() const {
        double every = static_cast<double>(Wide::total_int(all));
        return {Wide::total(least),
                Wide::total(most),
                Wide::total(certain),
                Wide::total(size),
                Wide::total(wx),
                Wide::total(ww),
                Wide::total(xx),
                every - static_cast<double>(Wide::total_int(right)),
                every - static_cast<double>(Wide::total_int(number))};
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
    Vec mu, low, inverse;
    BoxPlace(double at, double rest, double per_tau)
        : mu(Wide::splat(at)), low(Wide::splat(rest)), inverse(Wide::splat(per_tau)) {}
    HS_INLINE Vec of(const Entries& e) const {
        return (Wide::splat(0) - (Wide::fused(mu, e.weight, e.x) + low * e.weight)) * inverse;
    }
};

struct BoxAdder {
    using Vec = typename Wide::Vec;
    BoxPlace place;
    Vec free_sum = {}, free = {}, fixed = {}, bulk = {};

    HS_INLINE void add(const Entries& e) {
        Vec t = place.of(e), part = e.weight * Wide::min(e.upper, Wide::max(e.lower, t));
        auto inside = (t > e.lower) & (t < e.upper);
        free_sum += Wide::keep(part, inside);
        free += Wide::keep(e.weight * e.weight, inside);
        fixed += Wide::drop(part, inside);
        bulk += Wide::max(part, Wide::splat(0) - part);
    }
    BoxSums sum() const {
        return {Wide::total(free_sum), Wide::total(free), Wide::total(fixed), Wide::total(bulk)};
    }
};

// Writes y. What rounding keeps from a bound, by 4 eps or `slack` times its weight, is put there: an entry
// that is not free must not look so.
template <class T>
void write_box(const BoxRow<T>& row, T* y, int64_t from, int64_t to, double mu, double low, double slack) {
    using Vec = typename Wide::Vec;
    BoxPlace place(mu, low, row.inverse);
    Vec few = Wide::splat(4 * std::numeric_limits<double>::epsilon()), each = Wide::splat(slack);
    for (int64_t i = from; i < to; i += together) {
        Entries e = i + together <= to ? row.load(i) : row.rest(i, to);
        Vec t = place.of(e), zero = Wide::splat(0), room = each * e.weight;
        Vec down = few * Wide::max(e.lower, zero - e.lower) + room,
            up = few * Wide::max(e.upper, zero - e.upper) + room;
        t = Wide::pick(t >= e.upper - up, e.upper, Wide::pick(e.lower + down >= t, e.lower, t));
        double out[together];
        Wide::store(out, Wide::min(e.upper, Wide::max(e.lower, t)));
        for (int l = 0; l < together && i + l < to; ++l) y[i + l] = static_cast<T>(out[l]);
    }
}

}    // namespace hs::HS_VARIANT
