// The HyperSimplex loss: classes are brought into rows, tile by tile, solved, and their gradients brought
// back.
#pragma once
#include "loss_rows.hpp"
#include "loss_tiles.hpp"

namespace hs::HS_VARIANT {

template <class T>
struct LossTasks {
    const LossBatch<T>& batch;
    Tiles tiles;
    double* losses;    // per class

    void run(int64_t task, int threads, Result& result) const {
        const Loss<T>& p = batch.p;
        LossTile<T> tile(batch, tiles.first(task), tiles.width(task));
        if (!tile.load(threads)) return fail(result, Status::no_memory, tile.first);
        Targets<T> targets[most_classes_together];
        for (int64_t j = 0; j < tile.count; ++j) targets[j] = tile.targets(j);
        T* grad = !p.grad ? nullptr : tile.direct ? p.grad + tile.first * p.class_stride : tile.x;
        LossSink<T> sink{p,      tile.first, batch.n, tile.spacing, targets,
                         tile.x, grad,       losses,  threads,      result};
        Rows<T> rows{tile.x, tile.spacing, batch.n, tile.first, p.classes, {p.k_used, 0}, p.tau, threads};
        solve_rows(rows, tile.count, sink);
        if (p.grad) tile.store(p.grad, threads);
    }
};

template <class T>
Result loss(const Loss<T>& p) {
    LossBatch<T> batch(p);
    Scratch<double> losses;
    if (!losses.take(p.classes)) return {Status::no_memory, 0, 0};
    for (int64_t c = 0; c < p.classes; ++c) p.k_used[c] = losses.data[c] = 0;
    Result result = batch.read_labels(p.k_used);
    if (result.status != Status::ok) return result;
    double* counts = p.k_used;
    if (p.dense && !p.k)
        batch.each_entry([&](int64_t c, int64_t at) { counts[c] += static_cast<double>(p.dense[at]); });
    *p.kept = batch.n;
    *p.loss = 0;
    double n = static_cast<double>(batch.n);
    for (int64_t c = 0; c < p.classes; ++c) {
        if (p.k) p.k_used[c] = p.k_is_fraction ? p.k[c] * n : p.k[c];
        if (!(p.tau[c] > 0) || !std::isfinite(p.tau[c])) return {Status::bad_tau, c, 0};
        if (!(p.k_used[c] >= 0 && p.k_used[c] <= n)) return {Status::bad_k, c, batch.n};
        p.mu[c] = 0;
    }
    batch.clear_ignored();
    if (batch.n == 0 || p.classes == 0) return result;
    LossTasks<T> tasks{batch, batch.tiles(), losses.data};
    result = run_tasks(tasks, tasks.tiles.number, batch.n * p.classes, p.threads);
    for (int64_t c = 0; c < p.classes; ++c) *p.loss += losses.data[c];
    return result;
}

}    // namespace hs::HS_VARIANT
