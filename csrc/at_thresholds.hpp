// One rank's part of a loss whose batch lies on many: the sums at thresholds that all ranks try together, and
// the gradient once they are found. The search itself, and the sums over the ranks, are the caller's.
#pragma once
#include "loss_tiles.hpp"

namespace hs::HS_VARIANT {

// The threshold of a class whose entries are all 0 or all 1 is infinite here. Where it is NaN, nothing is
// asked.
template <class T>
Split<T> split_any(double mu, double low) {
    return std::isfinite(mu) ? split<T>(mu, low) : Split<T>{static_cast<T>(mu), 0};
}

template <class T>
struct LossAtTasks {
    const LossAt<T>& a;
    const LossBatch<T>& batch;
    Tiles tiles;

    void run(int64_t task, int threads, Result& result) const {
        const Loss<T>& p = a.loss;
        LossTile<T> tile(batch, tiles.first(task), tiles.width(task), false);
        bool asked = false;
        for (int64_t j = 0; j < tile.count; ++j) asked = asked || !std::isnan(p.mu[tile.first + j]);
        if (!asked) return;
        if (!tile.load(threads)) return fail(result, Status::no_memory, tile.first);
        for (int64_t j = 0; j < tile.count; ++j)
            if (!std::isnan(p.mu[tile.first + j]))
                one(tile.first + j, tile.x + j * tile.spacing, tile.targets(j), threads);
        if (p.grad) tile.store(p.grad, threads);
    }

    void one(int64_t c, T* x, const Targets<T>& y, int threads) const {
        const Loss<T>& p = a.loss;
        Split<T> at = split_any<T>(p.mu[c], a.low[c]);
        T inverse = static_cast<T>(1 / p.tau[c]);
        if (p.grad) {
            T factor = static_cast<T>(p.weight[c] * a.scale / p.tau[c]), mean = static_cast<T>(a.mean[c]);
            return loss_grad_row(x, y, batch.n, at, inverse, mean, factor, x, threads);
        }
        LossSums s = loss_row(x, y, batch.n, at, inverse, threads);
        double numbers[loss_sums] = {s.sums.active_sum, s.sums.active, s.sums.ones, s.error, s.square};
        for (int i = 0; i < loss_sums; ++i) a.sums[i * p.classes + c] = numbers[i];
    }
};

template <class T>
Result loss_at(const LossAt<T>& a) {
    const Loss<T>& p = a.loss;
    LossBatch<T> batch(p);
    Scratch<double> counts;
    if (!batch.take_memory() || !counts.take(p.classes)) return {Status::no_memory, 0, 0};
    for (int64_t c = 0; c < p.classes; ++c) counts.data[c] = 0;
    Result result = batch.read_labels(counts.data);
    if (result.status != Status::ok) return result;
    batch.clear_ignored();
    if (a.sums)
        for (int64_t i = 0; i < loss_sums * p.classes; ++i) a.sums[i] = 0;
    if (batch.n == 0 || p.classes == 0) return result;
    LossAtTasks<T> tasks{a, batch, batch.tiles()};
    return run_tasks(tasks, tasks.tiles.number, batch.n * p.classes, p.threads);
}

}    // namespace hs::HS_VARIANT
