// The derivative from the projection alone: grad = (v - mean of v over A)/tau on A = {0 < y < 1}, 0 elsewhere.
#pragma once
#include "column_search.hpp"
#include "tasks.hpp"

namespace hs::HS_VARIANT {

struct Dual {
    double count, v, y, vy;    // over the active entries
    double mean() const { return count > 0 ? v / count : 0; }
    double to_tau(double tau) const { return count > 0 ? -(vy - mean() * y) / tau : 0; }
};

// Sums over registers at p + i * step; the sums of products only when tau asks for them.
template <class T, bool full>
struct DualLanes {
    using L = Lanes<T>;
    typename L::Vec v{}, y{}, vy{};
    typename L::Int count{};

    static HS_INLINE typename L::Int active(typename L::Vec y) { return (y > L::splat(0)) & (y < L::splat(1)); }

    HS_INLINE void add(typename L::Vec yy, typename L::Vec vv) {
        typename L::Int on = active(yy);
        typename L::Vec kept = L::keep(vv, on);
        v += kept;
        count -= on;
        if constexpr (full) {
            y += L::keep(yy, on);
            vy += L::keep(vv * yy, on);
        }
    }
};

template <class T, bool full>
Dual dual_row(const T* y, const T* v, int64_t n) {
    using L = Lanes<T>;
    constexpr int W = L::width, run = 32;
    Dual out{0, 0, 0, 0};
    int64_t i = 0;
    while (i + W <= n) {
        DualLanes<T, full> a, b;
        int64_t end = i + run * W < n ? i + run * W : n;
        for (; i + 2 * W <= end; i += 2 * W) {
            a.add(L::load(y + i), L::load(v + i));
            b.add(L::load(y + i + W), L::load(v + i + W));
        }
        if (i + W <= end) a.add(L::load(y + i), L::load(v + i)), i += W;
        out.count += static_cast<double>(L::total_int(a.count + b.count));
        out.v += L::total(L::widen(a.v + b.v));
        if constexpr (full) out.y += L::total(L::widen(a.y + b.y)), out.vy += L::total(L::widen(a.vy + b.vy));
    }
    for (; i < n; ++i)
        if (y[i] > 0 && y[i] < 1) {
            out.count += 1;
            out.v += static_cast<double>(v[i]);
            out.y += static_cast<double>(y[i]);
            out.vy += static_cast<double>(v[i]) * static_cast<double>(y[i]);
        }
    return out;
}

template <class T>
void grad_row(const T* y, const T* v, T* grad, int64_t n, T mean, T inverse) {
    using L = Lanes<T>;
    constexpr int W = L::width;
    typename L::Vec m = L::splat(mean), inv = L::splat(inverse);
    int64_t i = 0;
    for (; i + W <= n; i += W)
        L::store(grad + i, L::keep((L::load(v + i) - m) * inv, DualLanes<T, false>::active(L::load(y + i))));
    for (; i < n; ++i) grad[i] = y[i] > 0 && y[i] < 1 ? (v[i] - mean) * inverse : T(0);
}

constexpr int64_t rows_bytes = 4 << 10, most_rows = 16;

template <class T>
class BackwardTasks {
  public:
    explicit BackwardTasks(const Backward<T>& problem) : p(problem), lie(how<T>(problem.layout)), tiles(1, 1) {
        const Layout& l = p.layout;
        narrow = l.inner < narrow_columns && l.stride == l.inner;
        if (lie == Lie::turned) lie = narrow || l.inner >= Lanes<T>::width ? Lie::columns : Lie::scattered;
        if (lie == Lie::rows) {
            across = rows_bytes / static_cast<int64_t>(sizeof(T)) / l.n;
            across = across < 1 ? 1 : across > most_rows ? most_rows : across;
            number = (l.slices() + across - 1) / across;
            return;
        }
        tiles = Tiles(l.inner, lie == Lie::columns ? most_slices : 1);
        number = l.outer * tiles.number;
    }

    void run(int64_t task, int, Result&) const {
        const Layout& l = p.layout;
        int64_t slices = l.slices();
        if (lie == Lie::rows) return rows(task * across, task * across + across < slices ? task * across + across : slices);
        if (lie == Lie::scattered) return scattered(task);
        int64_t tile = task % tiles.number;
        columns(task / tiles.number, tiles.first(tile), static_cast<int>(tiles.width(tile)));
    }

    const Backward<T>& p;
    Lie lie;
    int64_t across = 1, number;
    Tiles tiles;
    bool narrow;

  private:
    bool full() const { return p.grad_tau != nullptr; }

    // A slice is NaN as a whole or not at all, so its first entry tells.
    void report(int64_t slice, bool nan, const Dual& dual) const {
        double none = std::numeric_limits<double>::quiet_NaN();
        if (p.grad_k) p.grad_k[slice] = nan ? none : dual.mean();
        if (p.grad_tau) p.grad_tau[slice] = nan ? none : dual.to_tau(p.tau[slice]);
    }

    // First the sums of some rows, then their gradients: one row's sums do not wait for another's division.
    void rows(int64_t from, int64_t to) const {
        Dual dual[most_rows];
        int64_t n = p.layout.n;
        for (int64_t r = from; r < to; ++r) {
            int64_t at = p.layout.origin(r);
            dual[r - from] = full() ? dual_row<T, true>(p.y + at, p.v + at, n) : dual_row<T, false>(p.y + at, p.v + at, n);
        }
        for (int64_t r = from; r < to; ++r) {
            int64_t at = p.layout.origin(r);
            bool nan = p.y[at] != p.y[at];
            report(r, nan, dual[r - from]);
            if (!p.grad) continue;
            if (nan) std::memcpy(p.grad + at, p.y + at, static_cast<size_t>(n) * sizeof(T));
            else grad_row(p.y + at, p.v + at, p.grad + at, n, static_cast<T>(dual[r - from].mean()), static_cast<T>(1 / p.tau[r]));
        }
    }

    void scattered(int64_t slice) const {
        const Layout& l = p.layout;
        int64_t at = l.origin(slice);
        Dual dual{0, 0, 0, 0};
        for (int64_t i = 0; i < l.n; ++i) {
            double y = static_cast<double>(p.y[at + i * l.stride]), v = static_cast<double>(p.v[at + i * l.stride]);
            if (y > 0 && y < 1) dual.count += 1, dual.v += v, dual.y += y, dual.vy += v * y;
        }
        bool nan = p.y[at] != p.y[at];
        report(slice, nan, dual);
        if (!p.grad) return;
        for (int64_t i = 0; i < l.n; ++i) {
            int64_t e = at + i * l.stride;
            double y = static_cast<double>(p.y[e]), g = (static_cast<double>(p.v[e]) - dual.mean()) / p.tau[slice];
            p.grad[e] = nan ? p.y[e] : static_cast<T>(y > 0 && y < 1 ? g : 0);
        }
    }

    void columns(int64_t outer, int64_t first, int count) const {
        using L = Lanes<T>;
        constexpr int W = L::width, run = 32;
        const Layout& l = p.layout;
        ColumnSearch<T> lay;
        lay.lay_out(count, narrow);
        int64_t at = outer * l.outer_stride + first, slice = outer * l.inner + first;
        int64_t groups = l.n / lay.rows, step = l.stride * lay.rows, whole = groups * lay.rows;
        Dual lanes[most_lanes] = {}, dual[most_slices] = {};
        for (int64_t g = 0; g < groups; g += run) {
            int64_t end = g + run < groups ? g + run : groups;
            for (int s = 0; s < lay.slots; ++s) {
                int64_t e = at + g * step + lay.offset[s];
                DualLanes<T, true> sums;
                DualLanes<T, false> less;
                for (int64_t i = g; i < end; ++i, e += step) {
                    if (full()) sums.add(L::load(p.y + e), L::load(p.v + e));
                    else less.add(L::load(p.y + e), L::load(p.v + e));
                }
                for (int i = 0; i < W; ++i) {
                    Dual& to = lanes[s * W + i];
                    to.count += static_cast<double>(sums.count[i] + less.count[i]);
                    to.v += static_cast<double>(sums.v[i] + less.v[i]);
                    to.y += static_cast<double>(sums.y[i]);
                    to.vy += static_cast<double>(sums.vy[i]);
                }
            }
        }
        for (int i = 0; i < lay.slots * W; ++i) {
            Dual& to = dual[lay.column[i]];
            if (lay.rows == 1) to = lanes[i];
            else to.count += lanes[i].count, to.v += lanes[i].v, to.y += lanes[i].y, to.vy += lanes[i].vy;
        }
        for (int64_t i = whole; i < l.n; ++i)
            for (int j = 0; j < count; ++j) {
                double y = static_cast<double>(p.y[at + i * l.stride + j]), v = static_cast<double>(p.v[at + i * l.stride + j]);
                if (y > 0 && y < 1) dual[j].count += 1, dual[j].v += v, dual[j].y += y, dual[j].vy += v * y;
            }
        T nan[most_slices], mean[most_slices], inverse[most_slices];
        for (int j = 0; j < count; ++j) {
            T y = p.y[at + j];
            nan[j] = y != y ? y : T(0);    // added to the gradient: 0 + g, or NaN
            report(slice + j, y != y, dual[j]);
            mean[j] = static_cast<T>(dual[j].mean());
            inverse[j] = static_cast<T>(1 / p.tau[slice + j]);
        }
        if (!p.grad) return;
        for (int i = 0; i < lay.slots * W; ++i) {
            lay.c[i] = mean[lay.column[i]];
            lay.inv[i] = inverse[lay.column[i]];
            lay.d[i] = nan[lay.column[i]];
        }
        for (int64_t g = 0; g < groups; ++g)
            for (int s = 0; s < lay.slots; ++s) {
                int64_t e = at + g * step + lay.offset[s];
                typename L::Vec v = (L::load(p.v + e) - L::load(lay.c + s * W)) * L::load(lay.inv + s * W);
                v = L::keep(v, DualLanes<T, false>::active(L::load(p.y + e))) + L::load(lay.d + s * W);
                L::store(p.grad + e, v);
            }
        for (int64_t i = whole; i < l.n; ++i)
            for (int j = 0; j < count; ++j) {
                int64_t e = at + i * l.stride + j;
                p.grad[e] = (p.y[e] > 0 && p.y[e] < 1 ? (p.v[e] - mean[j]) * inverse[j] : T(0)) + nan[j];
            }
    }
};

template <class T>
Result backward(const Backward<T>& p) {
    const Layout& l = p.layout;
    if (l.slices() == 0) return {};
    if (l.n == 0) {
        for (int64_t s = 0; s < l.slices(); ++s) {
            if (p.grad_k) p.grad_k[s] = 0;
            if (p.grad_tau) p.grad_tau[s] = 0;
        }
        return {};
    }
    BackwardTasks<T> tasks(p);
    return deal(tasks, tasks.number, l.slices() * l.n, p.threads);
}

}  // namespace hs::HS_VARIANT
