// Cuts a Project into tasks by how its slices lie in memory.
#pragma once
#include "arrangement.hpp"
#include "column_search.hpp"
#include "project.hpp"
#include "transpose.hpp"

namespace hs::HS_VARIANT {

template <class T>
class ProjectTasks {
  public:
    explicit ProjectTasks(const Project<T>& problem) : p(problem), how(arranged()), tiles(width()) {
        number = contiguous() ? tiles.number : p.layout.outer * tiles.number;
    }

    void run(int64_t task, int threads, Result& result) const {
        const Layout& l = p.layout;
        int64_t tile = task % tiles.number, first = tiles.first(tile), count = tiles.width(tile);
        int64_t outer = task / tiles.number, slice = outer * l.inner + first;
        int64_t spacing = contiguous() ? l.outer_stride : l.inner_stride,
                at = outer * l.outer_stride + first * spacing;
        const T* x = p.x + at;
        T* y = p.y ? p.y + at : nullptr;
        if (how == Arrangement::rows) project_rows(p, slice, count, x, y, spacing, threads, result);
        else if (how == Arrangement::transposed) transposed(slice, count, x, y, threads, result);
        else if (how == Arrangement::columns) columns(slice, static_cast<int>(count), x, y, threads, result);
        else scattered(slice, x, y, threads, result);
    }

    int64_t number;

  private:
    // Exponentials are computed once and kept: that is for rows, so all columns are transposed.
    Arrangement arranged() const {
        Arrangement found = arrangement<T>(p.layout);
        bool across = found == Arrangement::columns && p.curve != Curve::ramp;
        return across ? Arrangement::transposed : found;
    }

    bool contiguous() const { return how == Arrangement::rows && p.layout.inner == 1; }

    Tiles width() const {
        const Layout& l = p.layout;
        if (contiguous()) {
            int64_t fit = task_entries / l.n;
            return {l.outer, l.n > short_row || fit < 1 ? 1 : fit < task_rows ? fit : task_rows};
        }
        if (how == Arrangement::columns) return {l.inner, most_slices, true};
        if (how != Arrangement::transposed) return {l.inner, 1};
        return {l.inner, for_each_thread<T>(transposed_tile, l.slices(), l.slices() * l.n, p.threads)};
    }

    void transposed(int64_t slice, int64_t count, const T* x, T* y, int threads, Result& result) const {
        const Layout& l = p.layout;
        // Rows a little apart from a power of two, lest they compete for the same places in the cache.
        int64_t spacing = (l.n + 15) / 16 * 16 + 16, size = spacing * count;
        Scratch<T> rows;
        if (!rows.take(2 * size)) return fail(result, Status::no_memory, slice);
        transpose(x, l.stride, rows.data, spacing, l.n, count);
        project_rows(p, slice, count, rows.data, y ? rows.data + size : nullptr, spacing, threads, result);
        if (y) transpose(rows.data + size, spacing, y, l.stride, count, l.n);
    }

    void columns(int64_t slice, int count, const T* x, T* y, int threads, Result& result) const {
        ColumnSearch<T> search(p.layout, count, threads);
        if (!search.ready()) return fail(result, Status::no_memory, slice);
        for (int j = 0; j < count; ++j) {
            search.k[j] = p.k[slice + j];
            search.tau[j] = p.tau[slice + j];
        }
        search.run(x, y);
        for (int j = 0; j < count; ++j) {
            Sums sums = search.sums(j);
            bool flat = is_flat(sums, search.k[j]) && (sums.active > 0 || p.mu);
            if (search.stuck[j] || flat)
                select_slice(p, slice + j, p.layout.stride, x + j, y ? y + j : nullptr, result);
            else if (p.mu) p.mu[slice + j] = search.mu[j] + search.low[j];
        }
    }

    // Neither along nor across memory: the slice is copied, solved, and copied back.
    void scattered(int64_t slice, const T* x, T* y, int threads, Result& result) const {
        int64_t n = p.layout.n, stride = p.layout.stride;
        Scratch<T> copy;
        if (!copy.take(2 * n)) return fail(result, Status::no_memory, slice);
        T *in = copy.data, *out = copy.data + n;
        in_blocks(n, threads, [&](int64_t from, int64_t to) {
            for (int64_t i = from; i < to; ++i) in[i] = x[i * stride];
        });
        project_rows(p, slice, 1, in, y ? out : nullptr, n, threads, result);
        if (!y) return;
        in_blocks(n, threads, [&](int64_t from, int64_t to) {
            for (int64_t i = from; i < to; ++i) y[i * stride] = out[i];
        });
    }

    const Project<T>& p;
    Arrangement how;
    Tiles tiles;
};

template <class T>
Result project(const Project<T>& p) {
    const Layout& l = p.layout;
    double n = static_cast<double>(l.n);
    bool same = !p.k.values && !p.tau.values;    // then they are checked even where there is no slice
    for (int64_t s = 0; s < l.slices() || (same && s == 0); ++s) {
        if (!(p.tau[s] > 0) || !std::isfinite(p.tau[s])) return {Status::bad_tau, s, 0};
        if (!(p.k[s] >= 0 && p.k[s] <= n)) return {Status::bad_k, s, 0};
        if (same) break;
    }
    if (l.slices() == 0 || l.n == 0) {
        if (p.mu)
            for (int64_t s = 0; s < l.slices(); ++s) p.mu[s] = 0;
        return {};
    }
    ProjectTasks<T> tasks(p);
    return run_tasks(tasks, tasks.number, l.slices() * l.n, p.threads);
}

}    // namespace hs::HS_VARIANT
