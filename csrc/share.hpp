// One rank's share of a loss whose batch lies on many: the sums at thresholds that all ranks try together, and the
// gradient once they are found. The search itself, and the sums over the ranks, are the caller's.
#pragma once
#include "loss.hpp"

namespace hs::HS_VARIANT {

// The threshold of a class whose entries are all 0 or all 1 is infinite here. Where it is NaN, nothing is asked.
template <class T>
Split<T> split_any(double mu, double low) {
    return std::isfinite(mu) ? split<T>(mu, low) : Split<T>{static_cast<T>(mu), 0};
}

template <class T>
struct ShareTasks {
    const Share<T>& s;
    LossTasks<T> tiles;

    void run(int64_t task, int, Result& result) const {
        const Loss<T>& p = s.loss;
        int64_t n = tiles.n, first = task * tiles.across;
        int64_t count = p.classes - first < tiles.across ? p.classes - first : tiles.across;
        bool asked = false;
        for (int64_t j = 0; j < count; ++j) asked = asked || !std::isnan(p.mu[first + j]);
        if (!asked) return;
        int64_t spacing = (n + 15) / 16 * 16 + 16;
        Scratch<T> rows, dense;
        if (!rows.take(spacing * count) || (p.dense && !dense.take(spacing * count)))
            return fail(result, Status::no_memory, first);
        tiles.template move<false>(first, count, const_cast<T*>(p.x), rows.data, spacing);
        if (p.dense) tiles.template move<false>(first, count, const_cast<T*>(p.dense), dense.data, spacing);
        for (int64_t j = 0; j < count; ++j) {
            int64_t c = first + j;
            if (std::isnan(p.mu[c])) continue;
            Targets<T> y{tiles.labels, static_cast<IntOf<T>>(c), p.dense ? dense.data + j * spacing : nullptr};
            one(c, rows.data + j * spacing, y, n);
        }
        if (p.grad) tiles.template move<true>(first, count, p.grad, rows.data, spacing);
    }

    void one(int64_t c, T* x, const Targets<T>& y, int64_t n) const {
        const Loss<T>& p = s.loss;
        Split<T> at = split_any<T>(p.mu[c], s.low[c]);
        T inverse = static_cast<T>(1 / p.tau[c]);
        if (p.grad) {
            T factor = static_cast<T>(p.weight[c] * p.scale / p.tau[c]);
            return loss_grad(x, y, 0, n, at, inverse, static_cast<T>(s.mean[c]), factor, x);
        }
        Errors errors;
        Sums sums = loss_pass(x, y, 0, n, at, inverse, errors);
        double numbers[share_numbers] = {sums.active_sum, sums.active, sums.ones, errors.active, errors.square};
        for (int i = 0; i < share_numbers; ++i) s.sums[i * p.classes + c] = numbers[i];
    }
};

template <class T>
Result share(const Share<T>& s) {
    const Loss<T>& p = s.loss;
    Result result;
    int64_t all = p.samples * p.positions, n = all;
    Scratch<IntOf<T>> labels;
    Scratch<int64_t> kept;
    Scratch<double> counts;
    if ((p.labels && (!labels.take(n) || !kept.take(n))) || !counts.take(p.classes)) return {Status::no_memory, 0, 0};
    for (int64_t c = 0; c < p.classes; ++c) counts.data[c] = 0;
    if (p.labels && !read_labels(p, labels.data, kept.data, counts.data, n, result)) return result;
    if (p.grad && n < all)
        for (int64_t i = 0; i < p.samples; ++i)
            for (int64_t c = 0; c < p.classes; ++c)
                for (int64_t j = 0; j < p.positions; ++j)
                    p.grad[i * p.sample_stride + c * p.class_stride + j * p.position_stride] = 0;
    if (s.sums)
        for (int64_t i = 0; i < share_numbers * p.classes; ++i) s.sums[i] = 0;
    if (n == 0 || p.classes == 0) return result;
    int64_t across = for_each_thread<T>(classes_together<T>(n), p.classes, n * p.classes, p.threads);
    int64_t number = (p.classes + across - 1) / across;
    ShareTasks<T> tasks{s, {p, p.labels ? labels.data : nullptr, n < all ? kept.data : nullptr, n, nullptr, across, number, nullptr}};
    return deal(tasks, number, n * p.classes, p.threads);
}

}  // namespace hs::HS_VARIANT
