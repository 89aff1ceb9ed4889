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

// A task is a tile of classes over a block of rows: nothing is searched for, so no class is needed as a
// whole.
template <class T>
struct LossAtTasks {
    const LossAt<T>& a;
    const LossBatch<T>& batch;
    Tiles tiles;
    Blocks blocks;
    double* parts = nullptr;    // per block: what it adds to the sums

    LossAtTasks(const LossAt<T>& problem, const LossBatch<T>& b)
        : a(problem), batch(b), tiles(a.loss.classes, most_classes_together), blocks(b.n, tiles.width(0)) {}

    int64_t number() const { return blocks.number * tiles.number; }

    void run(int64_t task, int, Result& result) const {
        const Loss<T>& p = a.loss;
        int64_t wide = task % tiles.number, block = task / tiles.number;
        LossTile<T> tile(batch, tiles.first(wide), tiles.width(wide), blocks.from(block), blocks.to(block));
        bool asked = false;
        for (int64_t j = 0; j < tile.count; ++j) asked = asked || !std::isnan(p.mu[tile.first + j]);
        if (!asked) return;
        if (!tile.load(1)) return fail(result, Status::no_memory, tile.first);
        for (int64_t j = 0; j < tile.count; ++j)
            if (!std::isnan(p.mu[tile.first + j])) one(tile, j, parts + block * loss_sums * p.classes);
        if (p.grad) tile.store(p.grad, 1);
    }

    void one(const LossTile<T>& tile, int64_t j, double* sums) const {
        const Loss<T>& p = a.loss;
        int64_t c = tile.first + j;
        T *x = tile.x + j * tile.spacing, inverse = static_cast<T>(1 / p.tau[c]);
        Split<T> at = split_any<T>(p.mu[c], a.low[c]);
        if (p.grad) {
            T factor = static_cast<T>(p.weight[c] / p.tau[c]), mean = static_cast<T>(a.mean[c]);
            return loss_grad(x, tile.targets(j), 0, tile.n, at, inverse, mean, factor, x);
        }
        LossSums s = loss_pass(x, tile.targets(j), 0, tile.n, at, inverse);
        double numbers[loss_sums] = {s.sums.active_sum, s.sums.active, s.sums.ones, s.error, s.square};
        for (int i = 0; i < loss_sums; ++i) sums[i * p.classes + c] = numbers[i];
    }
};

template <class T>
Result loss_at(const LossAt<T>& a) {
    const Loss<T>& p = a.loss;
    LossBatch<T> batch(p);
    Scratch<double> parts;
    Result result = batch.read_labels(nullptr);
    if (result.status != Status::ok) return result;
    batch.clear_ignored();
    int64_t size = a.sums ? loss_sums * p.classes : 0;
    for (int64_t i = 0; i < size; ++i) a.sums[i] = 0;
    if (batch.n == 0 || p.classes == 0) return result;
    LossAtTasks<T> tasks(a, batch);
    int64_t all = tasks.blocks.number * size;
    if (!parts.take(all)) return {Status::no_memory, 0, 0};
    tasks.parts = parts.data;
    for (int64_t i = 0; i < all; ++i) parts.data[i] = 0;
    result = run_tasks(tasks, tasks.number(), batch.n * p.classes, p.threads);
    for (int64_t i = 0; i < all; ++i) a.sums[i % size] += parts.data[i];
    return result;
}

}    // namespace hs::HS_VARIANT
