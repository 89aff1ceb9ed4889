// The derivatives of box sections, by the formulas of _box_formula.py: with A the free entries of a row, w
// the weights and m = sum_A(w v)/sum_A(w w), what goes to x is (v - w m)/tau on A, and so on.
#pragma once
#include "box_passes.hpp"

namespace hs::HS_VARIANT {

// Sums over the free entries.
struct BoxDual {
    double ww, wv, wy, vy;
    double mean() const { return ww > 0 ? wv / ww : 0; }
    void add(const BoxDual& o) { ww += o.ww, wv += o.wv, wy += o.wy, vy += o.vy; }
};

// A register of entries: y, v, weights, and which of them lie at a bound. Bounds are compared as T holds
// them, for y is one of them only so. NaN is free.
struct BoxPull {
    using Vec = typename Wide::Vec;
    Vec y, v, weight;
    typename Wide::Int low, high;

    template <class T, Given how>
    static HS_INLINE BoxPull of(const Entries& e, Vec pull) {
        if constexpr (how == Given::singles) return {e.x, pull, e.weight, e.lower >= e.x, e.x >= e.upper};
        return {e.x, pull, e.weight, rounded<T>(e.lower) >= e.x, e.x >= rounded<T>(e.upper)};
    }
    HS_INLINE typename Wide::Int fixed() const { return ~(~low & ~high); }
    HS_INLINE Vec free(Vec value) const { return Wide::drop(value, fixed()); }
};

// Without what only tau needs, or with it.
template <bool with_tau>
struct BoxDualAdder {
    using Vec = typename Wide::Vec;
    Vec ww = {}, wv = {}, wy = {}, vy = {};

    HS_INLINE void add(const BoxPull& e) {
        auto fixed = e.fixed();
        ww = Wide::add_unless(fixed, ww, e.weight * e.weight);
        wv = Wide::add_unless(fixed, wv, e.weight * e.v);
        if constexpr (with_tau) {
            wy = Wide::add_unless(fixed, wy, e.weight * e.y);
            vy = Wide::add_unless(fixed, vy, e.v * e.y);
        }
    }
    HS_INLINE void join(const BoxDualAdder& o) { ww += o.ww, wv += o.wv, wy += o.wy, vy += o.vy; }
    BoxDual sum() const { return {Wide::total(ww), Wide::total(wv), Wide::total(wy), Wide::total(vy)}; }
};

template <class T>
class BoxPullback {
  public:
    BoxPullback(const BoxBackward<T>& problem, int64_t row, int threads_within)
        : p(problem),
          slice(row),
          threads(threads_within),
          row(box_row(p, p.y, row)),
          v(p.one_v ? nullptr : p.v + row * p.n),
          one(Wide::splat(p.one_v ? static_cast<double>(*p.v) : 0)) {}

    void run() const {
        BoxDual dual = p.to_tau ? sums<true>() : sums<false>();
        double mu = p.mu[slice], mean = p.at_most && mu == 0 ? 0 : dual.mean();
        if (p.to_total) p.to_total[slice] = mean;
        if (p.to_tau) p.to_tau[slice] = -(dual.vy - mean * dual.wy) / p.tau[slice];
        in_blocks(p.n, threads, [&](int64_t from, int64_t to) { write(from, to, mu, mean); });
    }

  private:
    template <bool with_tau>
    BoxDual sums() const {
        return sum_blocks<BoxDual>(p.n, threads, [&](int64_t from, int64_t to) {
            return as_given(row.given(), [&](auto how) {
                return add_chains<BoxDual>(
                    from, to, [] { return BoxDualAdder<with_tau>{}; },
                    [&](int64_t i) { return load<how.value>(i); },
                    [&](int64_t i, int64_t stop) { return rest(i, stop); });
            });
        });
    }

    template <Given how>
    HS_INLINE BoxPull load(int64_t i) const {
        return BoxPull::of<T, how>(row.template load<how>(i), v ? load_wide(v + i) : one);
    }

    BoxPull rest(int64_t i, int64_t to) const {
        return BoxPull::of<T, Given::mixed>(row.rest(i, to), v ? load_some(v + i, to - i) : one);
    }

    // Where mu is infinite, the free entries are infinite too, and share what there is as if x were 0.
    void write(int64_t from, int64_t to, double mu, double mean) const {
        using Vec = typename Wide::Vec;
        bool shared = std::isinf(mu);
        Vec m = Wide::splat(mean), per_tau = Wide::splat(shared ? 0 : row.inverse), zero = Wide::splat(0),
            one_nu = Wide::splat(mu * row.inverse);
        auto put = [&](const BoxPull& e, auto store) {
            Vec rest = e.v - e.weight * m;
            if (p.grad) store(p.grad, e.free(rest * per_tau));
            if (p.to_lower) store(p.to_lower, Wide::keep(rest, e.low));
            if (p.to_upper) store(p.to_upper, Wide::drop(Wide::keep(rest, e.high), e.low));
            if (!p.to_weight) return;
            Vec nu = shared ? zero - e.y / e.weight : one_nu;
            store(p.to_weight, zero - m * e.y - e.free(nu * rest));
        };
        int64_t first = slice * p.n;
        as_given(row.given(), [&](auto how) {
            int64_t i = from;
            for (; i + together <= to; i += together)
                put(load<how.value>(i), [&](T* out, Vec value) { store_wide(out + first + i, value); });
            if (i == to) return;
            put(rest(i, to), [&](T* out, Vec value) { store_some(out + first + i, value, to - i); });
        });
    }

    const BoxBackward<T>& p;
    int64_t slice;
    int threads;
    BoxRow<T> row;
    const T* v;    // null: one number for all entries
    typename Wide::Vec one;
};

template <class T>
struct BoxBackwardTasks {
    const BoxBackward<T>& p;
    Tiles tiles;
    explicit BoxBackwardTasks(const BoxBackward<T>& problem) : p(problem), tiles(box_tiles(p)) {}
    void run(int64_t task, int threads, Result&) const {
        int64_t first = tiles.first(task);
        for (int64_t r = first; r < first + tiles.width(task); ++r) BoxPullback<T>(p, r, threads).run();
    }
};

template <class T>
Result box_backward(const BoxBackward<T>& p) {
    if (p.rows == 0) return {};
    BoxBackwardTasks<T> tasks(p);
    return run_tasks(tasks, tasks.tiles.number, p.rows * p.n, p.threads);
}

}    // namespace hs::HS_VARIANT
