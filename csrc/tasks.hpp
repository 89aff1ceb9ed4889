// Cuts a Project into tasks by how its slices lie in memory, and deals them out to threads.
#pragma once
#include <cstdlib>

#include "column_search.hpp"
#include "project.hpp"
#include "turn.hpp"

namespace hs::HS_VARIANT {

// Slices that are contiguous; columns short enough to be turned into rows in the cache; longer columns, whose rows of
// memory are read as they lie; and anything else.
enum class Lie { rows, turned, columns, scattered };

constexpr int64_t turned_bytes = 1 << 20, tile = 16;

template <class T>
Lie how(const Layout& l) {
    if (l.stride == 1 || l.n == 1) return Lie::rows;
    if (l.inner_stride != 1) return Lie::scattered;
    if (l.n * tile * static_cast<int64_t>(sizeof(T)) <= turned_bytes) return Lie::turned;
    bool narrow = l.inner < narrow_columns && l.stride == l.inner;
    return narrow || l.inner >= Lanes<T>::width ? Lie::columns : Lie::scattered;
}

// Tiles of at most `most` columns whose widths differ by one at most: none may be narrower than a register, which the
// last of tiles of one width could be.
struct Tiles {
    int64_t columns, number;
    Tiles(int64_t all, int64_t most) : columns(all), number((all + most - 1) / most) {}
    int64_t first(int64_t tile) const { return columns / number * tile + (tile < columns % number ? tile : columns % number); }
    int64_t width(int64_t tile) const { return first(tile + 1) - first(tile); }
};

// Narrower tiles where otherwise a thread would have none, but not narrower than a register: turning those is slow.
template <class T>
int64_t for_each_thread(int64_t across, int64_t columns, int64_t entries, int threads) {
    int64_t share = (columns + threads - 1) / threads;
    return threads < 2 || entries < parallel_worth() || share < Lanes<T>::width || share > across ? across : share;
}

template <class T>
class Tasks {
  public:
    explicit Tasks(const Project<T>& problem) : p(problem), lie(how<T>(problem.layout)), tiles(1, 1) {
        const Layout& l = p.layout;
        if (lie == Lie::rows && l.inner == 1) {
            across = l.n <= short_row ? 64 : 1;
            number = (l.outer + across - 1) / across;
            return;
        }
        int64_t turned_tile = for_each_thread<T>(tile, l.outer * l.inner, l.slices() * l.n, p.threads);
        tiles = Tiles(l.inner, lie == Lie::turned ? turned_tile : lie == Lie::columns ? most_slices : 1);
        number = l.outer * tiles.number;
    }

    void run(int64_t task, int threads, Result& result) const {
        const Layout& l = p.layout;
        if (lie == Lie::rows && l.inner == 1) {
            int64_t first = task * across, count = l.outer - first < across ? l.outer - first : across;
            int64_t at = first * l.outer_stride;
            return project_rows(p, first, count, p.x + at, p.y ? p.y + at : nullptr, l.outer_stride, threads, result);
        }
        int64_t outer = task / tiles.number, first = tiles.first(task % tiles.number);
        int64_t count = tiles.width(task % tiles.number), slice = outer * l.inner + first;
        int64_t at = outer * l.outer_stride + first * l.inner_stride;
        const T* x = p.x + at;
        T* y = p.y ? p.y + at : nullptr;
        if (lie == Lie::rows) project_rows(p, slice, count, x, y, l.inner_stride, threads, result);
        else if (lie == Lie::turned) turned(slice, count, x, y, result);
        else if (lie == Lie::columns) columns(slice, static_cast<int>(count), x, y, result);
        else scattered(slice, x, y, threads, result);
    }

    const Project<T>& p;
    Lie lie;
    int64_t across = 1, number;
    Tiles tiles;

  private:
    void turned(int64_t slice, int64_t count, const T* x, T* y, Result& result) const {
        const Layout& l = p.layout;
        // Rows a little apart from a power of two, lest they compete for the same places in the cache.
        int64_t spacing = (l.n + 15) / 16 * 16 + 16, size = spacing * count;
        T* rows = static_cast<T*>(std::malloc(static_cast<size_t>(2 * size) * sizeof(T)));
        if (!rows) return fail(result, Status::no_memory, slice);
        turn(x, l.stride, rows, spacing, l.n, count);
        project_rows(p, slice, count, rows, y ? rows + size : nullptr, spacing, 1, result);
        if (y) turn(rows + size, spacing, y, l.stride, count, l.n);
        std::free(rows);
    }

    void columns(int64_t slice, int count, const T* x, T* y, Result& result) const {
        const Layout& l = p.layout;
        ColumnSearch<T> search;
        search.lay_out(count, count < narrow_columns && l.stride == count);
        int64_t rest = l.n % search.rows, whole = l.n - rest;
        T tail[2][most_lanes];
        for (int64_t i = 0; i < search.rows * count; ++i)
            tail[0][i] = i < rest * count ? x[whole * l.stride + i] : -std::numeric_limits<T>::infinity();
        Block<T> blocks[2] = {{x, y, l.n / search.rows, l.stride * search.rows, search.slots, search.offset},
                              {tail[0], tail[1], 1, 0, search.slots, search.offset}};
        search_columns(search, blocks, rest > 0 ? 2 : 1, slice);
        if (y && rest > 0) std::memcpy(y + whole * l.stride, tail[1], static_cast<size_t>(rest * count) * sizeof(T));
        for (int j = 0; j < count; ++j) {
            Sums sums{search.active_sum[j], search.active[j], search.ones[j]};
            bool flat = is_flat(sums, search.k[j]) && (sums.active > 0 || p.mu);
            if (search.stuck[j] || flat) finish_careful(p, slice + j, l.stride, x + j, y ? y + j : nullptr, result);
            else if (p.mu) p.mu[slice + j] = search.mu[j] + search.low[j];
        }
    }

    void search_columns(ColumnSearch<T>& search, const Block<T>* blocks, int number_of_blocks, int64_t slice) const {
        double n = static_cast<double>(p.layout.n);
        for (int j = 0; j < search.count; ++j) {
            search.k[j] = p.k[slice + j];
            search.tau[j] = p.tau[slice + j];
            if (p.start) search.start(j, p.start[slice + j], search.tau[j]);
        }
        if (!p.start) {
            Block<T> sample = blocks[0];
            int64_t skip = sample.groups * search.rows / 512;
            sample.groups /= skip;
            sample.step *= skip;
            double m = static_cast<double>(sample.groups * search.rows);
            search.begin(sample, n);
            search.solve(&sample, 1, m, m / n, false, 6);
            for (int j = 0; j < search.count; ++j) search.start(j, search.mu[j], search.width[j]);
        }
        for (int j = 0; j < search.count; ++j)
            if (at_edge<T>(search.k[j], n, search.tau[j])) search.settled[j] = search.stuck[j] = search.near[j] = 1;
        search.solve(blocks, number_of_blocks, n, 1, p.y != nullptr, most_passes);
    }

    // Neither along nor across memory: the slice is copied, solved, and copied back.
    void scattered(int64_t slice, const T* x, T* y, int threads, Result& result) const {
        const Layout& l = p.layout;
        T* copy = static_cast<T*>(std::malloc(2 * static_cast<size_t>(l.n) * sizeof(T)));
        if (!copy) return fail(result, Status::no_memory, slice);
        for (int64_t i = 0; i < l.n; ++i) copy[i] = x[i * l.stride];
        project_rows(p, slice, 1, copy, y ? copy + l.n : nullptr, l.n, threads, result);
        if (y)
            for (int64_t i = 0; i < l.n; ++i) y[i * l.stride] = copy[l.n + i];
        std::free(copy);
    }
};

// Deals the tasks out: work(task, threads within the task, result).
template <class W>
Result deal(W& work, int64_t number, int64_t entries, int wanted) {
    struct Job {
        W* work;
        int64_t number;
        Result results[most_members];
    } job{&work, number, {}};
    Result result;
    int threads = wanted < 1 ? 1 : wanted > most_members ? most_members : wanted;
    // Few tasks, each large, are done one after the other by all threads together.
    bool together = number < threads && entries / number >= parallel_row;
    if (threads == 1 || number == 1 || entries < parallel_worth() || together) {
        for (int64_t t = 0; t < number; ++t) work.run(t, threads, result);
        return result;
    }
    auto body = [](void* context, int id, const Team& team) {
        auto* j = static_cast<Job*>(context);
        int64_t each = j->number / team.size, from = each * id, to = id + 1 == team.size ? j->number : from + each;
        for (int64_t t = from; t < to; ++t) j->work->run(t, 1, j->results[id]);
    };
    parallel(number < threads ? static_cast<int>(number) : threads, body, &job);
    for (const Result& r : job.results)
        if (r.status != Status::ok && (result.status == Status::ok || r.slice < result.slice)) result = r;
    return result;
}

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
    Tasks<T> tasks(p);
    return deal(tasks, tasks.number, l.slices() * l.n, p.threads);
}

}  // namespace hs::HS_VARIANT
