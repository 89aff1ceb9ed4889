// The two passes of the derivative, over rows and over columns: the sums by slopes, then the gradient.
#pragma once
#include "columns.hpp"
#include "slopes.hpp"

namespace hs::HS_VARIANT {

// Sums over the entries by their slopes s: of s, s v, s t and s v t, t being (x - mu)/tau where that is not
// clipped. For the ramp these are the number of the active entries, and what v, y and v y add up to there.
struct Dual {
    double count, v, y, vy;
    double mean() const { return count > 0 ? v / count : 0; }
    double to_tau(double tau) const { return count > 0 ? -(vy - mean() * y) / tau : 0; }
    void add(const Dual& other) {
        count += other.count;
        v += other.v;
        y += other.y;
        vy += other.vy;
    }
    void add_entry(Curve curve, double y_of, double value) {
        double s = slope_at(curve, y_of);
        if (!(s > 0)) return;
        double t = place_at(curve, y_of);
        add({s, s * value, s * t, s * value * t});
    }
};

// Sums over registers; those of products only when tau asks for them.
template <class T, Curve curve, bool full>
struct DualLanes {
    using L = Lanes<T>;
    using S = Slope<T, curve>;
    typename L::Vec v{}, y{}, vy{};
    typename S::Sum count{};

    HS_INLINE void add(typename L::Vec yy, typename L::Vec vv) {
        const S slope(yy);
        v = slope.add(v, vv);
        count = slope.count(count);
        if constexpr (full) {
            typename L::Vec t = S::place(yy);
            y = slope.add(y, t);
            vy = slope.add(vy, vv * t);
        }
    }

    HS_INLINE void collect(const DualLanes& other, Dual& out) const {
        out.count += S::total(count + other.count);
        out.v += L::total(L::widen(v + other.v));
        if constexpr (full) {
            out.y += L::total(L::widen(y + other.y));
            out.vy += L::total(L::widen(vy + other.vy));
        }
    }
};

template <class T, Curve curve, bool full>
HS_INLINE Dual dual_row(const T* y, const T* v, int64_t n) {
    using L = Lanes<T>;
    constexpr int W = L::width, run = 32;
    Dual out{0, 0, 0, 0};
    DualLanes<T, curve, full> a, b;
    if (n < W) {
        a.add(L::load_first(y, n), L::load_first(v, n));
        a.collect(b, out);
        return out;
    }
    // The last register overlaps the one before: what is in that counts as zero here.
    if (int left = static_cast<int>(n % W))
        b.add(L::keep(L::load(y + n - W), lanes_from<T>(W - left)), L::load(v + n - W));
    int64_t i = 0;
    do {
        int64_t end = i + run * W < n ? i + run * W : n;
        for (; i + 2 * W <= end; i += 2 * W) {
            a.add(L::load(y + i), L::load(v + i));
            b.add(L::load(y + i + W), L::load(v + i + W));
        }
        if (i + W <= end) a.add(L::load(y + i), L::load(v + i)), i += W;
        a.collect(b, out);
        a = b = {};
    } while (i + W <= n);
    return out;
}

// The ramp's sum of v over the active entries of a row that fills a register, in four parts; returns how many
// those are.
template <class T>
HS_INLINE int64_t active_parts(const T* y, const T* v, int64_t n, double* parts) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    Counter<T> count;
    auto add = [&](Vec& sum, Vec yy, Vec vv) HS_INLINED {
        const Places<T> active(yy);
        sum = active.add(sum, vv);
        count.add(active.on);
    };
    ChainedSum<T> all(n);
    int64_t i = 0;
    all.add_pairs(i, [&](int64_t stop) HS_INLINED {
        Vec a = {}, b = {};
        for (; i + 2 * W <= stop; i += 2 * W) {
            add(a, L::load(y + i), L::load(v + i));
            add(b, L::load(y + i + W), L::load(v + i + W));
        }
        return a + b;
    });
    if (i + W <= n) add(all.sum, L::load(y + i), L::load(v + i)), i += W;
    Vec rest = {};
    // The last register overlaps the one before: what is in that counts as zero here.
    if (i < n)
        add(rest, L::keep(L::load(y + n - W), lanes_from<T>(static_cast<int>(W - (n - i)))),
            L::load(v + n - W));
    all.sum += rest;
    all.store(parts);
    return count.total();
}

template <class T>
HS_INLINE T grad_of(Curve curve, T y, T v, T mean, T inverse) {
    T slope = slope_at(curve, y);
    return slope > 0 ? slope * ((v - mean) * inverse) : T(0);
}

template <class T, Curve curve>
HS_INLINE void grad_row(const T* y, const T* v, T* grad, int64_t n, T mean, T inverse) {
    using L = Lanes<T>;
    constexpr int W = L::width;
    using Vec = typename L::Vec;
    Vec m = L::splat(mean), inv = L::splat(inverse);
    auto of = [&](Vec yy, Vec vv) HS_INLINED { return Slope<T, curve>(yy).times((vv - m) * inv); };
    if (n < W) return L::store_first(grad, n, of(L::load_first(y, n), L::load_first(v, n)));
    auto value = [&](int64_t i) HS_INLINED { return of(L::load(y + i), L::load(v + i)); };
    if (store_behind(grad, n, value) < n) L::store(grad + n - W, value(n - W));
}

// How many registers a row may fill to stay in them between its two passes.
constexpr int most_held = Lanes<float>::masks ? 8 : 4;

// A row of so many registers. The last may be filled in part: without masks it overlaps the one before, so
// it is stored first, and what is in both counts once.
template <class T, Curve curve, int registers>
struct HeldRow {
    using S = Slope<T, curve>;
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    static constexpr int W = L::width, last = registers - 1;
    Vec v[registers];
    S slope[registers];
    Dual dual;

    HS_INLINE void read(const T* y, const T* value, int64_t n) {
        Vec sum[2] = {};
        typename S::Counter count;
        for (int i = 0; i < last; ++i) {
            v[i] = L::load(value + i * W);
            slope[i] = S(L::load(y + i * W));
        }
        const Last at(n);
        v[last] = at.partial ? L::load_first(value + at.begin, at.left) : L::load(value + at.begin);
        slope[last] = S(at.partial ? L::load_first(y + at.begin, at.left)
                                   : L::keep(L::load(y + at.begin), lanes_from<T>(W - at.left)));
        for (int i = 0; i < registers; ++i) {
            sum[i % 2] = slope[i].add(sum[i % 2], v[i]);
            count.add(slope[i]);
        }
        double parts[4];
        L::store_parts(parts, sum[0] + sum[1]);
        dual = {count.total(), add_parts(parts), 0, 0};
    }

    HS_INLINE void write(T* grad, int64_t n, T inverse) const {
        Vec mean = L::splat(static_cast<T>(dual.mean())), inv = L::splat(inverse);
        auto of = [&](int i) HS_INLINED { return slope[i].times((v[i] - mean) * inv); };
        const Last at(n);
        if (at.partial) L::store_first(grad + at.begin, at.left, of(last));
        else L::store(grad + at.begin, of(last));
        for (int i = 0; i < last; ++i) L::store(grad + i * W, of(i));
    }

  private:
    struct Last {
        int left;
        bool partial;
        int64_t begin;
        HS_INLINE explicit Last(int64_t n)
            : left(static_cast<int>(n - last * W)),
              partial(left < W && (L::masks || registers == 1)),
              begin(partial ? last * W : n - W) {}
    };
};

struct LaneDuals {
    Dual lane[most_lanes], rest[most_slices];    // rest: rows of memory behind the last group
};

template <class T, Curve curve>
struct ColumnDerivative {
    using L = Lanes<T>;
    static constexpr int W = L::width;
    const Layout& layout;
    ColumnLanes<T> lay;
    Blocks chunks;
    const T *y, *v;
    T mean[most_slices], inverse[most_slices],
        nan[most_slices];    // nan: 0, or that of a slice that is not a number

    ColumnDerivative(const Layout& l, int count, const T* place, const T* value)
        : layout(l), lay(l, count), chunks(lay.chunks()), y(place), v(value) {}

    void set(int j, T middle, T factor, T none) {
        mean[j] = middle;
        inverse[j] = factor;
        nan[j] = none;
    }

    template <bool full>
    void sum(int64_t chunk, LaneDuals& out) const {
        constexpr int64_t run = 32;
        for (int l = 0; l < lay.lanes(); ++l) out.lane[l] = {};
        for (int j = 0; j < lay.count; ++j) out.rest[j] = {};
        for (int64_t g = chunks.from(chunk); g < chunks.to(chunk); g += run) {
            int64_t end = g + run < chunks.to(chunk) ? g + run : chunks.to(chunk);
            for (int s = 0; s < lay.slots; ++s) {
                int64_t e = g * lay.step + lay.offset[s];
                DualLanes<T, curve, full> sums;
                for (int64_t i = g; i < end; ++i, e += lay.step) sums.add(L::load(y + e), L::load(v + e));
                for (int l = 0; l < W; ++l)
                    out.lane[s * W + l].add({static_cast<double>(sums.count[l]),
                                             static_cast<double>(sums.v[l]), static_cast<double>(sums.y[l]),
                                             static_cast<double>(sums.vy[l])});
            }
        }
        if (chunk + 1 == chunks.number)
            each_rest([&](int j, int64_t e) {
                out.rest[j].add_entry(curve, static_cast<double>(y[e]), static_cast<double>(v[e]));
            });
    }

    void collect(LaneDuals* parts, Dual* dual) const {
        LaneDuals& all = parts[0];
        for (int64_t c = 1; c < chunks.number; ++c) {
            for (int l = 0; l < lay.lanes(); ++l) all.lane[l].add(parts[c].lane[l]);
            for (int j = 0; j < lay.count; ++j) all.rest[j].add(parts[c].rest[j]);
        }
        for (int l = 0; l < lay.lanes(); ++l) {
            if (!lay.several_lanes_a_column()) dual[lay.column[l]] = {};
            dual[lay.column[l]].add(all.lane[l]);
        }
        for (int j = 0; j < lay.count; ++j) dual[j].add(all.rest[j]);
    }

    void write(int64_t chunk, T* grad) const {
        T m[most_lanes], inv[most_lanes], none[most_lanes];
        for (int l = 0; l < lay.lanes(); ++l) {
            m[l] = mean[lay.column[l]];
            inv[l] = inverse[lay.column[l]];
            none[l] = nan[lay.column[l]];
        }
        for (int64_t g = chunks.from(chunk); g < chunks.to(chunk); ++g)
            for (int s = 0; s < lay.slots; ++s) {
                int64_t e = g * lay.step + lay.offset[s];
                typename L::Vec to = (L::load(v + e) - L::load(m + s * W)) * L::load(inv + s * W);
                to = Slope<T, curve>(L::load(y + e)).times(to) + L::load(none + s * W);
                L::store(grad + e, to);
            }
        if (chunk + 1 == chunks.number)
            each_rest([&](int j, int64_t e) {
                grad[e] = grad_of(curve, y[e], v[e], mean[j], inverse[j]) + nan[j];
            });
    }

  private:
    template <class F>
    void each_rest(F entry) const {
        for (int64_t i = layout.n - lay.rest; i < layout.n; ++i)
            for (int j = 0; j < lay.count; ++j) entry(j, i * layout.stride + j);
    }
};

}    // namespace hs::HS_VARIANT
