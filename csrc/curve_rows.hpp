// Projections of contiguous rows by smooth curves. E = exp((x - c)/tau) is computed once, where y will be, c
// being a first guess of the threshold; the passes of the search are over E, and the last makes y of it.
#pragma once
#include "curves.hpp"
#include "solve.hpp"

namespace hs::HS_VARIANT {

// The search stops where exp((mu - c)/tau) or its inverse exceeds this, and E is computed anew from there:
// what an exponent is rounded by grows with it.
constexpr double farthest = 20;
constexpr int most_curve_passes = 24;

// The sums of one row. In short chains: in a long one, equal numbers would round to the same side every time.
template <class T, class At>
struct CurveTally {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    static constexpr int64_t run = 32 * L::width;
    const At& at;
    bool shorter;    // than a chain
    Vec sum[4] = {};
    typename L::Wide total[4] = {};

    HS_INLINE CurveTally(const At& pass, int64_t n) : at(pass), shorter(n <= run) {}
    HS_INLINE void add(Vec e) { at.add(e, sum); }
    HS_INLINE void collect() {
        for (int i = 0; !shorter && i < At::parts; ++i) {
            total[i] += L::widen(sum[i]);
            sum[i] = Vec{};
        }
    }
    HS_INLINE void store(CurveSums& out) {
        collect();
        for (int i = 0; i < At::parts; ++i) {
            if (shorter) L::store_parts(out.part[i], sum[i]);
            else out.part[i][0] = L::total(total[i]), out.part[i][1] = out.part[i][2] = out.part[i][3] = 0;
        }
    }
};

// The sums of a row of E; with `fill`, E is computed from x first.
template <class T, class At, bool fill>
HS_INLINE void pass_curve(const T* x, T* e, int64_t n, T m, T c, T inverse, CurveSums& out) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    const At at(m);
    const Vec origin = L::splat(c), inv = L::splat(inverse);
    CurveTally<T, At> tally(at, n);
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
        return tally.store(out);
    }
    int64_t i = 0;
    while (i + W <= n) {
        int64_t end = i + tally.run < n ? i + tally.run : n;
        for (; i + W <= end; i += W) tally.add(value(i));
        tally.collect();
    }
    if (i < n) tally.add(L::keep(value(n - W), lanes_from<T>(static_cast<int>(W - (n - i)))));
    tally.store(out);
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

// Some rows at a time: one row's passes do not wait for another's divisions.
constexpr int most_curve_rows = 16;
constexpr int64_t curve_rows_entries = 4096;

template <class T, Curve curve>
class CurveRows {
    using At = CurveAt<T, curve>;
    static constexpr double inf = std::numeric_limits<double>::infinity();

  public:
    // Row j is at x + j * x_spacing, and its exponentials go to e + j * e_spacing.
    CurveRows(const T* from, int64_t from_spacing, T* to, int64_t to_spacing, int64_t entries, int threads_)
        : x(from), x_spacing(from_spacing), e(to), e_spacing(to_spacing), n(entries), threads(threads_) {}

    static int together(int64_t n) {
        int64_t fit = curve_rows_entries / n;
        return static_cast<int>(fit < 1 ? 1 : fit > most_curve_rows ? most_curve_rows : fit);
    }

    // The first `count` rows, whose k and tau k_of(j) and tau_of(j) tell.
    template <class K, class Tau>
    void run(int count, K k_of, Tau tau_of) {
        int searching = 0;
        for (int j = 0; j < count; ++j) {
            k[j] = k_of(j);
            tau[j] = tau_of(j);
            inverse[j] = static_cast<T>(1 / tau[j]);
            solved[j] = false;
            if (at_edge(k[j], static_cast<double>(n), inverse[j])) continue;
            begin(j, start(j));
            open[searching++] = j;
        }
        search(searching);
    }

    // By the inverse that the passes multiply with: it is rounded, and tau is not.
    double mu(int j) const {
        return static_cast<double>(c[j]) +
               std::log(static_cast<double>(m[j])) / static_cast<double>(inverse[j]);
    }

    // y in the place of row j's exponentials; not for what is left to the selection.
    void write(int j) {
        T* to = e + j * e_spacing;
        T at = m[j];
        in_blocks(n, threads,
                  [to, at](int64_t from, int64_t end) { write_curve<T, At>(to + from, end - from, at); });
    }

    bool solved[most_curve_rows];

  private:
    enum class Step { next, settled, far, failed };
    static constexpr double least_slopes = sizeof(T) == 4 ? 1e-27 : 1e-280;

    // Whether no entry can be 1, as in softmax: then M is a sum over k.
    HS_INLINE bool one_sum(int j) const { return curve == Curve::exp && k[j] <= 1; }

    // From the solution of a sample of a long row, else from the threshold of a normal row.
    double start(int j) {
        const T* row = x + j * x_spacing;
        if (n < sampled_row) return normal_start(row, n, j);
        T sample[8192], exponentials[8192];
        int64_t some = take_sample(row, n, sample);
        CurveRows few(sample, 0, exponentials, 0, some, 1);
        few.k[0] = k[j] * static_cast<double>(some) / static_cast<double>(n);
        few.tau[0] = tau[j];
        few.inverse[0] = inverse[j];
        few.begin(0, few.normal_start(sample, some, 0));
        few.open[0] = 0;
        few.search(1);
        double found = few.mu(0);
        return std::isfinite(found) ? found : normal_start(row, n, j);
    }

    double normal_start(const T* row, int64_t count, int j) {
        Moments some = moments_row(row, count);
        double z = last_z;
        if (some.certain != 0 || some.count != static_cast<double>(n)) z = quantile(some, k[j]);
        else if (k[j] != last_k) z = last_z = quantile(last_k = k[j], some.count);
        return normal_threshold(some.center(), some.variance(), z, tau[j], At::blur);
    }

    void begin(int j, double from) {
        c[j] = static_cast<T>(from);
        m[j] = one_sum(j) ? std::numeric_limits<T>::max() : T(1);
        lo[j] = 0;
        hi[j] = inf;
        fresh[j] = true;
    }

    // All rows that `open` names. A row whose threshold turns out to be far from c begins anew from there.
    void search(int searching) {
        for (int number = 0; number < most_curve_passes && searching; ++number) {
            for (int o = 0; o < searching; ++o) {
                int j = open[o];
                fresh[j] ? pass<true>(j) : pass<false>(j);
            }
            int left = 0;
            for (int o = 0; o < searching; ++o) {
                int j = open[o];
                fresh[j] = false;
                Step done = step(j);
                if (done == Step::far) begin(j, mu(j));
                solved[j] = done == Step::settled;
                open[left] = j;
                left += done == Step::next || done == Step::far;
            }
            searching = left;
        }
    }

    template <bool fill>
    HS_INLINE void pass(int j) {
        const T* from = x + j * x_spacing;
        T* to = e + j * e_spacing;
        T at = m[j], origin = c[j], inv = inverse[j];
        if (n < parallel_row) return pass_curve<T, At, fill>(from, to, n, at, origin, inv, sums[j]);
        sums[j] = sum_blocks<CurveSums>(n, threads, [=](int64_t begin, int64_t end) {
            CurveSums out;
            pass_curve<T, At, fill>(from + begin, to + begin, end - begin, at, origin, inv, out);
            return out;
        });
    }

    HS_INLINE Step step(int j) {
        double s[4], at = static_cast<double>(m[j]);
        for (int i = 0; i < At::parts; ++i) s[i] = add_parts(sums[j].part[i]);
        double r = At::residual(s, at, k[j]), next = At::next(s, at, k[j]);
        if (!(std::fabs(r) <= static_cast<double>(n))) return Step::failed;    // not a number
        if (one_sum(j)) {
            m[j] = static_cast<T>(next);
            if (!(next > 0 && next < inf)) return Step::failed;
            return next < farthest && next > 1 / farthest ? Step::settled : Step::far;
        }
        (r > 0 ? lo : hi)[j] = at;
        bool inside = next > 0 && next >= lo[j] && next <= hi[j];
        double moved = std::fabs(next - at);
        bool near = moved <= At::enough * at, nothing = std::fabs(r) <= (sizeof(T) == 4 ? 1e-7 : 1e-15);
        // Almost no slope, or one of exponentials that are cut off: the selection knows which to take.
        if (nothing && !(moved <= at / 2 && At::slopes(s, at) > least_slopes)) return Step::failed;
        nothing = nothing && (near || curve == Curve::exp);
        if (nothing && !inside) return Step::settled;
        if (!inside) next = lo[j] > 0 && hi[j] < inf ? std::sqrt(lo[j] * hi[j]) : r > 0 ? at * 16 : at / 16;
        next = next > at * 64 ? at * 64 : next < at / 64 ? at / 64 : next;
        m[j] = static_cast<T>(next);
        if (!(next < farthest && next > 1 / farthest)) return Step::far;
        return (near && inside) || nothing ? Step::settled : Step::next;
    }

    const T* x;
    int64_t x_spacing;
    T* e;
    int64_t e_spacing, n;
    int threads, open[most_curve_rows];
    bool fresh[most_curve_rows];
    T c[most_curve_rows], m[most_curve_rows], inverse[most_curve_rows];
    double k[most_curve_rows], tau[most_curve_rows], lo[most_curve_rows], hi[most_curve_rows];
    double last_k = std::numeric_limits<double>::quiet_NaN(), last_z = 0;
    CurveSums sums[most_curve_rows];
};

}    // namespace hs::HS_VARIANT
