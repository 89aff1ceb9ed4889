// The HyperSimplex loss: classes are brought into rows, tile by tile, solved, and their gradients brought back.
#pragma once
#include "loss_rows.hpp"
#include "tasks.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t wide_tile = 32;

// Scratch for one task, or nothing. Freed by its owner's destructor: tasks end in many places.
template <class E>
struct Scratch {
    E* data = nullptr;
    bool take(int64_t size) {
        data = static_cast<E*>(std::malloc(static_cast<size_t>(size > 0 ? size : 1) * sizeof(E)));
        return data != nullptr;
    }
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { std::free(data); }
};

template <class T>
struct LossTasks {
    const Loss<T>& p;
    const IntOf<T>* labels;    // of the kept samples, or null
    const int64_t* kept;       // their places, or null if all are kept
    int64_t n;
    const double* k;
    int64_t across, number;
    double* losses;    // per task

    bool contiguous() const {
        return !kept && ((p.positions == 1 && p.sample_stride == 1) || n == 1);
    }

    // Between an array like x and contiguous rows of the kept entries of `count` classes.
    template <bool out>
    void move(int64_t first, int64_t count, T* array, T* rows, int64_t spacing) const {
        if (!kept && p.positions == 1 && p.class_stride == 1) {
            if constexpr (out) return turn<T>(rows, spacing, array + first, p.sample_stride, count, n);
            else return turn<T>(array + first, p.sample_stride, rows, spacing, n, count);
        }
        for (int64_t j = 0; j < count; ++j)
            for (int64_t i = 0; i < n; ++i) {
                int64_t place = kept ? kept[i] : i;
                T& there = array[place / p.positions * p.sample_stride + place % p.positions * p.position_stride +
                                 (first + j) * p.class_stride];
                if constexpr (out) there = rows[j * spacing + i];
                else rows[j * spacing + i] = there;
            }
    }

    void run(int64_t task, int threads, Result& result) const {
        int64_t first = task * across, count = p.classes - first < across ? p.classes - first : across;
        bool direct = contiguous();
        int64_t spacing = direct ? p.class_stride : (n + 15) / 16 * 16 + 16;
        Scratch<T> rows, dense;
        T* x = const_cast<T*>(p.x) + first * p.class_stride;
        T* y = p.dense ? const_cast<T*>(p.dense) + first * p.class_stride : nullptr;
        if (!direct) {
            if (!rows.take(spacing * count) || (p.dense && !dense.take(spacing * count)))
                return fail(result, Status::no_memory, first);
            x = rows.data;
            move<false>(first, count, const_cast<T*>(p.x), x, spacing);
            if (p.dense) move<false>(first, count, const_cast<T*>(p.dense), y = dense.data, spacing);
        }
        Targets<T> targets[wide_tile];
        for (int64_t j = 0; j < count; ++j) targets[j] = {labels, static_cast<IntOf<T>>(first + j), y ? y + j * spacing : nullptr};
        T* grad = !p.grad ? nullptr : direct ? p.grad + first * p.class_stride : x;
        int members = threads > 1 && n >= parallel_row ? (threads < most_members ? threads : most_members) : 1;
        LossSink<T> sink{p, k, first, n, spacing, n, targets, x, grad, result, members};
        solve_rows(Rows<T>{x, spacing, n, first, {k, 0}, p.tau, p.start}, count, threads, sink);
        losses[task] = sink.loss;
        if (p.grad && !direct) move<true>(first, count, p.grad, x, spacing);
    }
};

// Labels as the lanes compare them, without the ignored ones; their counts where k is not given.
template <class T>
bool read_labels(const Loss<T>& p, IntOf<T>* labels, int64_t* kept, double* counts, int64_t& n, Result& result) {
    n = 0;
    for (int64_t i = 0; i < p.samples * p.positions; ++i) {
        int64_t label = p.labels[i];
        if (label == p.ignored) continue;
        if (label < 0 || label >= p.classes) {
            fail(result, Status::bad_label, i, label);
            return false;
        }
        labels[n] = static_cast<IntOf<T>>(label);
        kept[n++] = i;
        counts[label] += 1;
    }
    return true;
}

template <class T>
void sum_targets(const Loss<T>& p, double* counts) {
    for (int64_t s = 0; s < p.samples; ++s)
        for (int64_t c = 0; c < p.classes; ++c)
            for (int64_t i = 0; i < p.positions; ++i)
                counts[c] += static_cast<double>(p.dense[s * p.sample_stride + c * p.class_stride + i * p.position_stride]);
}

// How many classes are turned into rows at a time. A tile stays in the cache, and a wide one reads more of every row of
// memory; of long columns only one or a few are brought together.
template <class T>
int64_t classes_together(int64_t n) {
    int64_t bytes = n * static_cast<int64_t>(sizeof(T)), fit = (1 << 20) / bytes;
    return wide_tile * bytes <= 1 << 19 ? wide_tile : fit < 1 ? 1 : fit > tile ? tile : fit;
}

template <class T>
Result loss(const Loss<T>& p) {
    Result result;
    int64_t n = p.samples * p.positions;
    Scratch<IntOf<T>> labels;
    Scratch<int64_t> kept;
    Scratch<double> losses;
    if ((p.labels && (!labels.take(n) || !kept.take(n))) || !losses.take(p.classes)) return {Status::no_memory, 0, 0};
    for (int64_t c = 0; c < p.classes; ++c) p.k_used[c] = losses.data[c] = 0;
    int64_t all = n;
    if (p.labels && !read_labels(p, labels.data, kept.data, p.k_used, n, result)) return result;
    if (p.dense && !p.k) sum_targets(p, p.k_used);
    *p.kept = n;
    *p.loss = 0;
    for (int64_t c = 0; c < p.classes; ++c) {
        if (p.k) p.k_used[c] = p.share ? p.k[c] * static_cast<double>(n) : p.k[c];
        if (!(p.tau[c] > 0) || !std::isfinite(p.tau[c])) return {Status::bad_tau, c, 0};
        if (!(p.k_used[c] >= 0 && p.k_used[c] <= static_cast<double>(n))) return {Status::bad_k, c, n};
        p.mu[c] = 0;
    }
    if (p.grad && n < all)
        for (int64_t s = 0; s < p.samples; ++s)
            for (int64_t c = 0; c < p.classes; ++c)
                for (int64_t i = 0; i < p.positions; ++i)
                    p.grad[s * p.sample_stride + c * p.class_stride + i * p.position_stride] = 0;
    if (n == 0 || p.classes == 0) return result;
    int64_t across = for_each_thread<T>(classes_together<T>(n), p.classes, n * p.classes, p.threads);
    LossTasks<T> tasks{p, p.labels ? labels.data : nullptr, n < all ? kept.data : nullptr, n, p.k_used, across,
                       (p.classes + across - 1) / across, losses.data};
    result = deal(tasks, tasks.number, n * p.classes, p.threads);
    for (int64_t t = 0; t < tasks.number; ++t) *p.loss += losses.data[t];
    return result;
}

}  // namespace hs::HS_VARIANT
