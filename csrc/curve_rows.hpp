// Projections of contiguous rows by smooth curves. E = exp((x - c)/tau) is computed once, where y will be, c
// being a first guess of the threshold; the passes of the search are over E, and the last makes y of it.
#pragma once
#include "curves.hpp"
#include "solve.hpp"

namespace hs::HS_VARIANT {

// The search stops where exp((mu - c)/tau) or its inverse exceeds this, and E is computed anew from there:
// what an exponent is rounded by grows with it.
constexpr double farthest = 55;
constexpr int most_curve_passes = 16, most_fills = 4;

template <class T, class At>
struct CurveTally {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    static constexpr int W = L::width, run = 32 * W;
    const At& at;
    Vec sum[4] = {};
    typename L::Wide total[4] = {};

    HS_INLINE explicit CurveTally(const At& pass) : at(pass) {}
    HS_INLINE void add(Vec e) { at.add(e, sum); }
    // In short chains: in a long one, equal numbers would round to the same side every time.
    HS_INLINE void collect() {
        for (int i = 0; i < At::parts; ++i) {
            total[i] += L::widen(sum[i]);
            sum[i] = Vec{};
        }
    }
    HS_INLINE CurveSums sums() {
        collect();
        CurveSums out{};
        for (int i = 0; i < At::parts; ++i) out.part[i] = L::total(total[i]);
        return out;
    }
};

// The sums of a row of E; with `fill`, E is computed from x first.
template <class T, class At, bool fill>
HS_INLINE CurveSums pass_curve(const T* x, T* e, int64_t n, T m, T c, T inverse) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    const At at(m);
    const Vec origin = L::splat(c), inv = L::splat(inverse);
    CurveTally<T, At> tally(at);
    auto of = [&](Vec v) HS_INLINED { return Exponential<T>::of((v - origin) * inv); };
    auto value = [&](int64_t i) HS_INLINED {
        if constexpr (!fill) return L::load(e + i);
        Vec v = of(L::load(x + i));
        L::store(e + i, v);
        return v;
    };
    if (n < W) {
        Vec v = L::load_first(fill ? x : e, n);
        if constexpr (fill) L::store_first(e, n, v = of(v));
        tally.add(L::drop(v, lanes_from<T>(static_cast<int>(n))));
        return tally.sums();
    }
    int64_t i = 0;
    while (i + W <= n) {
        int64_t end = i + tally.run < n ? i + tally.run : n;
        for (; i + W <= end; i += W) tally.add(value(i));
        tally.collect();
    }
    if (i < n) tally.add(L::keep(value(n - W), lanes_from<T>(static_cast<int>(W - (n - i)))));
    return tally.sums();
}

// y in the place of E.
template <class T, class At>
HS_INLINE void write_curve(T* e, int64_t n, T m) {
    using L = Lanes<T>;
    constexpr int W = L::width;
    const At at(m);
    if (n < W) return L::store_first(e, n, at.value(L::load_first(e, n)));
    typename L::Vec last = L::load(e + n - W);    // before those that it shares with the one before change
    int64_t i = 0;
    for (; i + W <= n; i += W) L::store(e + i, at.value(L::load(e + i)));
    if (i < n) L::store(e + n - W, at.value(last));
}

// The search for one row.
template <class T, Curve curve>
struct CurveRow {
    using At = CurveAt<T, curve>;
    const T* x;
    T* e;
    int64_t n;
    double k, tau;
    int threads;
    T c = 0, m = 1;

    double mu() const { return static_cast<double>(c) + tau * std::log(static_cast<double>(m)); }

    void write() {
        in_blocks(n, threads,
                  [this](int64_t from, int64_t to) { write_curve<T, At>(e + from, to - from, m); });
    }

    // Finds c and m; false if this is left to the selection.
    bool solve() {
        T inverse = static_cast<T>(1 / tau);
        if (at_edge(k, static_cast<double>(n), inverse)) return false;
        double from = start();
        for (int fills = 0; fills < most_fills; ++fills) {
            c = static_cast<T>(from);
            m = 1;
            Step found = search(inverse);
            if (found == Step::settled) return true;
            if (found == Step::failed) return false;
            from = mu();
        }
        return false;
    }

  private:
    enum class Step { settled, far, failed };

    template <bool fill>
    HS_INLINE CurveSums pass(T inverse) const {
        return sum_blocks<CurveSums>(n, threads, [this, inverse](int64_t from, int64_t to) {
            return pass_curve<T, At, fill>(x + from, e + from, to - from, m, c, inverse);
        });
    }

    // Of a long row from the solution of a sample, of others from the threshold of a normal row.
    double start() {
        if (n >= sampled_row) {
            T sample[8192], exponentials[8192];
            int64_t some = take_sample(x, n, sample);
            CurveRow row{
                sample, exponentials, some, k * static_cast<double>(some) / static_cast<double>(n), tau, 1};
            if (row.solve_from(normal_start(sample, some, row.k))) return row.mu();
        }
        return normal_start(x, n, k);
    }
    double normal_start(const T* from, int64_t count, double wanted) const {
        Moments some = moments_row(from, count);
        return normal_threshold(some.center(), some.variance(), quantile(some, wanted), tau, At::blur);
    }
    // For a sample: as near as the first steps come.
    bool solve_from(double from) {
        c = static_cast<T>(from);
        m = 1;
        return search(static_cast<T>(1 / tau)) != Step::failed;
    }

    Step search(T inverse) {
        double lo = 0, hi = std::numeric_limits<double>::infinity();
        CurveSums sums = pass<true>(inverse);
        for (int number = 0; number < most_curve_passes; ++number) {
            double at = static_cast<double>(m), r = At::residual(sums.part, at, k);
            if (!(std::fabs(r) <= static_cast<double>(n))) return Step::failed;    // not a number
            (r > 0 ? lo : hi) = at;
            double next = At::next(sums.part, at, k);
            bool inside = next > 0 && next >= lo && next <= hi;
            bool bracketed = lo > 0 && hi < std::numeric_limits<double>::infinity();
            if (!inside) next = bracketed ? std::sqrt(lo * hi) : r > 0 ? at * 16 : at / 16;
            next = next > at * 64 ? at * 64 : next < at / 64 ? at / 64 : next;
            bool near = inside && std::fabs(next - at) <= At::enough * at;
            near = near || std::fabs(r) <= (sizeof(T) == 4 ? 1e-7 : 1e-15);
            m = static_cast<T>(near && !inside ? at : next);
            if (!(next < farthest && next > 1 / farthest)) return Step::far;
            if (near) return Step::settled;
            sums = pass<false>(inverse);
        }
        return Step::failed;
    }
};

}    // namespace hs::HS_VARIANT
