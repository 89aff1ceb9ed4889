// The derivative from the projection alone: grad = s (v - mean of v by s)/tau, the slope s a function of y.
#pragma once
#include "backward_passes.hpp"
#include "columns.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t rows_bytes = 4 << 10, most_rows = 16, fetched_row = 2048;

template <class T, Curve curve>
class BackwardTasks {
  public:
    explicit BackwardTasks(const Backward<T>& problem)
        : p(problem),
          one_inverse(static_cast<T>(1 / p.tau.scalar)),
          how(arrangement<T>(p.layout)),
          tiles(1, 1) {
        const Layout& l = p.layout;
        if (how == Arrangement::rows) {
            tiles = Tiles(l.slices(), l.n < task_entries ? task_entries / l.n : 1);
        } else {
            how = are_columns<T>(l) ? Arrangement::columns : Arrangement::scattered;
            tiles = Tiles(l.inner, how == Arrangement::columns ? most_slices : 1, true);
        }
        number = (how == Arrangement::rows ? 1 : l.outer) * tiles.number;
    }

    void run(int64_t task, int threads, Result& result) const {
        int64_t tile = task % tiles.number, first = tiles.first(tile), count = tiles.width(tile);
        if (how == Arrangement::rows) all_rows(first, count, threads);
        else if (how == Arrangement::scattered) scattered(task, threads);
        else columns(task / tiles.number, first, static_cast<int>(count), threads, result);
    }

    int64_t number;

  private:
    T inverse(int64_t slice) const {
        return p.tau.values ? static_cast<T>(1 / p.tau.values[slice]) : one_inverse;
    }

    // A slice is NaN as a whole or not at all, so its first entry tells.
    void report(int64_t slice, bool nan, const Dual& dual) const {
        double none = std::numeric_limits<double>::quiet_NaN();
        if (p.grad_k) p.grad_k[slice] = nan ? none : dual.mean();
        if (p.grad_tau) p.grad_tau[slice] = nan ? none : dual.to_tau(p.tau[slice]);
    }

    void all_rows(int64_t first, int64_t count, int threads) const {
        int64_t n = p.layout.n, registers = (n + Lanes<T>::width - 1) / Lanes<T>::width;
        if (registers <= most_held && !p.grad_tau) return held_rows<most_held>(registers, first, count);
        int64_t fit = rows_bytes / static_cast<int64_t>(sizeof(T)) / n;
        fit = fit < 1 ? 1 : fit > most_rows ? most_rows : fit;
        for (int64_t r = first; r < first + count; r += fit) {
            int64_t some = first + count - r < fit ? first + count - r : fit;
            T mean[most_rows];
            if (curve == Curve::ramp && fit > 1 && !p.grad_tau) sum_short(r, some, mean);
            else sum_long(r, some, threads, mean);
            for (int64_t j = 0; p.grad && j < some; ++j) write(r + j, threads, mean[j]);
        }
    }

    // `registers` is found among the numbers that are known when this is compiled. A row is stored behind the
    // loads of the next, for the reason given in store_behind.
    template <int guess>
    void held_rows(int64_t registers, int64_t first, int64_t count) const {
        if constexpr (guess > 1)
            if (registers < guess) return held_rows<guess - 1>(registers, first, count);
        const Backward<T> q = p;    // a copy: for all the compiler knows, a store to grad may change p
        int64_t n = q.layout.n;
        T same = one_inverse;
        HeldRow<T, curve, guess> row, next;
        int64_t at, then = q.layout.origin(first);
        next.read(q.y + then, q.v + then, n);
        for (int64_t s = first; s < first + count; ++s) {
            row = next;
            at = then;
            then = q.layout.origin(s + 1);
            if (s + 1 < first + count) next.read(q.y + then, q.v + then, n);
            bool nan = q.y[at] != q.y[at];
            if (q.grad_k) report(s, nan, row.dual);
            if (!q.grad) continue;
            row.write(q.grad + at, n, q.tau.values ? static_cast<T>(1 / q.tau[s]) : same);
            if (nan) keep_nan(at);
        }
    }

    // The sums of some rows first: one row's do not wait for another's division.
    void sum_short(int64_t first, int64_t count, T* mean) const {
        double parts[most_rows][4], active[most_rows], sums[most_rows];
        for (int64_t r = 0; r < count; ++r) {
            int64_t at = p.layout.origin(first + r);
            active[r] = static_cast<double>(active_parts(p.y + at, p.v + at, p.layout.n, parts[r]));
        }
        for (int64_t r = 0; r < count; ++r) {
            sums[r] = add_parts(parts[r]);
            mean[r] = static_cast<T>(active[r] > 0 ? sums[r] / active[r] : 0);
        }
        for (int64_t r = 0; p.grad_k && r < count; ++r) {
            T y = p.y[p.layout.origin(first + r)];
            report(first + r, y != y, {active[r], sums[r], 0, 0});
        }
    }

    void sum_long(int64_t first, int64_t count, int threads, T* mean) const {
        int64_t n = p.layout.n;
        for (int64_t r = 0; r < count; ++r) {
            int64_t at = p.layout.origin(first + r);
            // Where the gradient goes comes while the row is summed.
            if (p.grad && n <= fetched_row) fetch_row<true>(p.grad + at, n);
            Dual dual = sum_blocks<Dual>(n, threads, [this, at](int64_t from, int64_t to) {
                return part(p.y + at + from, p.v + at + from, to - from);
            });
            T y = p.y[at];
            report(first + r, y != y, dual);
            mean[r] = static_cast<T>(dual.mean());
        }
    }

    void write(int64_t slice, int threads, T mean) const {
        int64_t at = p.layout.origin(slice);
        T inv = inverse(slice);
        in_blocks(p.layout.n, threads, [this, at, mean, inv](int64_t from, int64_t to) {
            grad_row<T, curve>(p.y + at + from, p.v + at + from, p.grad + at + from, to - from, mean, inv);
        });
        if (p.y[at] != p.y[at]) keep_nan(at);
    }

    HS_APART void keep_nan(int64_t at) const {
        std::memcpy(p.grad + at, p.y + at, static_cast<size_t>(p.layout.n) * sizeof(T));
    }

    HS_APART Dual part(const T* y, const T* v, int64_t n) const {
        if (p.grad_tau) return dual_row<T, curve, true>(y, v, n);
        if constexpr (curve != Curve::ramp) return dual_row<T, curve, false>(y, v, n);
        double parts[4], active = static_cast<double>(active_parts(y, v, n, parts));
        return {active, add_parts(parts), 0, 0};
    }

    void scattered(int64_t slice, int threads) const {
        const Layout& l = p.layout;
        int64_t at = l.origin(slice), stride = l.stride;
        Dual dual = sum_blocks<Dual>(l.n, threads, [&](int64_t from, int64_t to) {
            Dual part{0, 0, 0, 0};
            for (int64_t i = from; i < to; ++i)
                part.add_entry(curve, static_cast<double>(p.y[at + i * stride]),
                               static_cast<double>(p.v[at + i * stride]));
            return part;
        });
        T y = p.y[at], mean = static_cast<T>(dual.mean()), inv = inverse(slice);
        report(slice, y != y, dual);
        if (!p.grad) return;
        T nan = y != y ? y : T(0);
        in_blocks(l.n, threads, [&](int64_t from, int64_t to) {
            for (int64_t i = from; i < to; ++i) {
                int64_t e = at + i * stride;
                p.grad[e] = grad_of(curve, p.y[e], p.v[e], mean, inv) + nan;
            }
        });
    }

    void columns(int64_t outer, int64_t first, int count, int threads, Result& result) const {
        const Layout& l = p.layout;
        int64_t at = outer * l.outer_stride + first, slice = outer * l.inner + first;
        ColumnDerivative<T, curve> lanes(l, count, p.y + at, p.v + at);
        if (lanes.chunks.number < 2) threads = 1;
        Scratch<LaneDuals> parts;
        if (!parts.take(lanes.chunks.number)) return fail(result, Status::no_memory, slice);
        take_blocks(threads, lanes.chunks.number, [&](int64_t c) {
            p.grad_tau ? lanes.template sum<true>(c, parts.data[c])
                       : lanes.template sum<false>(c, parts.data[c]);
        });
        Dual dual[most_slices] = {};
        lanes.collect(parts.data, dual);
        for (int j = 0; j < count; ++j) {
            T y = p.y[at + j];
            report(slice + j, y != y, dual[j]);
            lanes.set(j, static_cast<T>(dual[j].mean()), inverse(slice + j), y != y ? y : T(0));
        }
        if (p.grad)
            take_blocks(threads, lanes.chunks.number, [&](int64_t c) { lanes.write(c, p.grad + at); });
    }

    const Backward<T>& p;
    T one_inverse;    // of a tau that is the same for all
    Arrangement how;
    Tiles tiles;
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
    return with_curve(p.curve, [&](auto curve) {
        BackwardTasks<T, curve> tasks(p);
        return run_tasks(tasks, tasks.number, l.slices() * l.n, p.threads);
    });
}

}    // namespace hs::HS_VARIANT
