// Sums of one row of a box section in single precision, for a fraction of the time: whether it needs a
// careful look before its search, and where that search begins.
#pragma once
#include "box_passes.hpp"

namespace hs::HS_VARIANT {

using Narrow = Lanes<float>;

struct NarrowEntries {
    typename Narrow::Vec x, lower, upper, weight;
};

struct NarrowSeries {
    using Vec = typename Narrow::Vec;
    const float* at;    // null: one number for all entries
    float all;
    explicit NarrowSeries(const Series& s)
        : at(s.step ? s.singles : nullptr), all(static_cast<float>(s.first())) {}
    HS_INLINE Vec load(int64_t i) const { return at ? Narrow::load(at + i) : Narrow::splat(all); }
    HS_INLINE Vec first(int64_t i, int64_t count, bool fill) const {
        if (at) return Narrow::load_first(at + i, count);
        return fill ? first_lanes<float>(Narrow::splat(all), count) : Narrow::splat(all);
    }
};

struct NarrowRow {
    const float* x;
    NarrowSeries lower, upper, weight;

    explicit NarrowRow(const BoxRow<float>& row)
        : x(row.x), lower(row.lower), upper(row.upper), weight(row.weight) {}

    // Arrays in double precision are not read here.
    static bool serves(const BoxRow<float>& row) {
        auto is_narrow = [](const Series& s) { return !s.step || s.singles; };
        return is_narrow(row.lower) && is_narrow(row.upper) && is_narrow(row.weight);
    }

    template <Given given>
    HS_INLINE NarrowEntries load(int64_t i) const {
        if constexpr (given == Given::singles)
            return {Narrow::load(x + i), Narrow::load(lower.at + i), Narrow::load(upper.at + i),
                    Narrow::load(weight.at + i)};
        return {Narrow::load(x + i), lower.load(i), upper.load(i), weight.load(i)};
    }

    // As of BoxRow.
    HS_INLINE NarrowEntries rest(int64_t i, int64_t to) const {
        float weights[Narrow::width];
        int64_t count = to - i;
        bool fill = !lower.at != !upper.at;
        Narrow::store(weights, Narrow::splat(1e-30f));
        Narrow::store_first(weights, count, weight.first(i, count, false));
        return {Narrow::load_first(x + i, count), lower.first(i, count, fill), upper.first(i, count, fill),
                Narrow::load(weights)};
    }

    template <Given given, class Sum, class Make>
    HS_INLINE Sum add(int64_t from, int64_t to, Make make) const {
        return add_chains<Sum, Narrow::width>(
            from, to, make, [&](int64_t i) HS_INLINED { return load<given>(i); },
            [&](int64_t i, int64_t stop) HS_INLINED { return rest(i, stop); });
    }
};

// A survey as if all were finite and right. Its sums are not finite if that is wrong.
struct Glancer {
    using Vec = typename Narrow::Vec;
    Vec least = {}, most = {}, size = {}, wx = {}, ww = {}, xx = {};

    HS_INLINE void add(const NarrowEntries& e) {
        Vec low = e.weight * e.lower, high = e.weight * e.upper;
        auto right = (e.upper >= e.lower) & (e.weight > Narrow::splat(0));
        Vec weight = Narrow::pick(right, e.weight, Narrow::splat(std::numeric_limits<float>::quiet_NaN()));
        least += low;
        most += high;
        size += Narrow::magnitude(low) + Narrow::magnitude(high);
        wx = Narrow::plus_product(wx, e.weight, e.x);
        ww = Narrow::plus_product(ww, weight, weight);
        xx = Narrow::plus_product(xx, e.x, e.x);
    }
    HS_INLINE void join(const Glancer& o) {
        least += o.least, most += o.most, size += o.size, wx += o.wx, ww += o.ww, xx += o.xx;
    }
    BoxSurvey sum() const {
        auto total = [](Vec v) { return Narrow::total(Narrow::widen(v)); };
        return {total(least), total(most), 0, total(size), total(wx), total(ww), total(xx), 0, 0};
    }
};

// At some mu: sum(w y), sum |w y|, and the sum of w^2 over the free entries.
struct NarrowSums {
    double sum, bulk, free;
    void add(const NarrowSums& o) { sum += o.sum, bulk += o.bulk, free += o.free; }
};

struct NarrowAdder {
    using Vec = typename Narrow::Vec;
    Vec mu, minus;    // minus: -1/tau
    Vec all = {}, bulk = {}, free = {};

    NarrowAdder(double at, double per_tau)
        : mu(Narrow::splat(static_cast<float>(at))), minus(Narrow::splat(static_cast<float>(-per_tau))) {}
    HS_INLINE void add(const NarrowEntries& e) {
        Vec t = Narrow::fused(mu, e.weight, e.x) * minus;
        Vec part = e.weight * Narrow::min(e.upper, Narrow::max(e.lower, t));
        all += part;
        bulk += Narrow::magnitude(part);
        auto inside = (t > e.lower) & (t < e.upper);
        free = Narrow::pick(inside, Narrow::plus_product(free, e.weight, e.weight), free);
    }
    HS_INLINE void join(const NarrowAdder& o) { all += o.all, bulk += o.bulk, free += o.free; }
    NarrowSums sum() const {
        auto total = [](Vec v) { return Narrow::total(Narrow::widen(v)); };
        return {total(all), total(bulk), total(free)};
    }
};

}    // namespace hs::HS_VARIANT
