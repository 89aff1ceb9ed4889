// The HyperSimplex loss as an objective of boosted trees: one pass each over whole columns of scores. The search for the
// thresholds lives with the caller, who may add up the sums of many machines between two passes.
// A row of weight w counts as w rows. Arithmetic is double throughout; gradients leave as float, as boosters keep them.
#pragma once
#include "solve.hpp"

namespace hs::HS_VARIANT {

using Wide = Lanes<double>;
constexpr int together = Wide::width, numbers = 5;    // numbers: see Objective::sums

template <class S>
HS_INLINE typename Wide::Vec load_wide(const S* p) {
    if constexpr (sizeof(S) == 8) return Wide::load(p);
    double wide[together];
    for (int l = 0; l < together; ++l) wide[l] = static_cast<double>(p[l]);
    return Wide::load(wide);
}

// A label is a class, or, for a single column, the share of the positive class.
template <bool single>
HS_INLINE typename Wide::Vec targets(const float* labels, typename Wide::Vec c) {
    typename Wide::Vec label = load_wide(labels);
    if constexpr (single) return label;
    return Wide::keep(Wide::splat(1), (label >= c) & (c >= label));
}

template <class T, bool weighted, bool labelled, bool single>
struct Adding {
    using Vec = typename Wide::Vec;
    Vec mu, inverse, label, sum = {}, active = {}, ones = {}, positive = {}, square = {};

    HS_INLINE void add(const T* x, const float* labels, const float* weights) {
        Vec zero = Wide::splat(0), one = Wide::splat(1), w = one;
        if constexpr (weighted) w = load_wide(weights);
        Vec t = (load_wide(x) - mu) * inverse, risen = Wide::max(zero, t);
        auto full = t >= one;
        Vec in = Wide::keep(w, (t > zero) ^ full), part = Wide::drop(risen, full);
        sum += weighted ? part * w : part;    // a NaN is not >= 1, so it reaches the sum and is noticed there
        active += in;
        ones += Wide::keep(w, full);
        if constexpr (labelled) {
            Vec y = targets<single>(labels, label), e = Wide::min(one, risen) - y;
            positive += in * y;
            square += weighted ? e * e * w : e * e;
        }
    }
};

template <class T, bool weighted, bool labelled, bool single>
void add_rows(const Objective<T>& p, int64_t c, int64_t from, int64_t to, double* out) {
    const T* x = p.x + c * p.stride;
    Adding<T, weighted, labelled, single> a{Wide::splat(p.mu[c]), Wide::splat(1 / p.tau[c]), Wide::splat(static_cast<double>(c))};
    int64_t i = from;
    for (; i + together <= to; i += together)
        a.add(x + i, labelled ? p.labels + i : nullptr, weighted ? p.weights + i : nullptr);
    if (i < to) {    // the rest, filled up with rows that add nothing
        T scores[together];
        float labels[together], weights[together];
        for (int l = 0; l < together; ++l) {
            bool is = i + l < to;
            scores[l] = is ? x[i + l] : -std::numeric_limits<T>::infinity();
            labels[l] = labelled && is ? p.labels[i + l] : single ? 0.0f : -1.0f;
            weights[l] = weighted && is ? p.weights[i + l] : 0.0f;
        }
        a.add(scores, labels, weights);
    }
    out[0] = Wide::total(a.sum);
    out[1] = Wide::total(a.active);
    out[2] = Wide::total(a.ones);
    out[3] = Wide::total(a.positive);
    out[4] = Wide::total(a.square);
}

// Runs part(from, to, member) over the rows, on several threads if that is worth starting them.
template <class F>
void share_rows(int64_t n, int threads, F part) {
    struct Job {
        F& part;
        int64_t n;
    } job{part, n};
    auto body = [](void* context, int id, const Team& team) {
        auto* j = static_cast<Job*>(context);
        int64_t each = j->n / team.size / 64 * 64;
        j->part(each * id, id + 1 == team.size ? j->n : each * (id + 1), id);
    };
    if (threads > most_members) threads = most_members;
    if (threads > 1 && n >= parallel_row) parallel(threads, body, &job);
    else part(int64_t{0}, n, 0);
}

template <class T>
Result objective_sums(const Objective<T>& p) {
    bool single = p.classes == 1;
    for (int64_t c = 0; c < p.classes; ++c) {
        if (p.skip && p.skip[c]) continue;
        double parts[most_members][numbers] = {};
        share_rows(p.n, p.threads, [&](int64_t from, int64_t to, int id) {
            double* out = parts[id];
            if (!p.labels)
                p.weights ? add_rows<T, true, false, true>(p, c, from, to, out) : add_rows<T, false, false, true>(p, c, from, to, out);
            else if (single)
                p.weights ? add_rows<T, true, true, true>(p, c, from, to, out) : add_rows<T, false, true, true>(p, c, from, to, out);
            else
                p.weights ? add_rows<T, true, true, false>(p, c, from, to, out) : add_rows<T, false, true, false>(p, c, from, to, out);
        });
        for (int j = 0; j < numbers; ++j) {
            p.sums[c * numbers + j] = 0;
            for (const auto& part : parts) p.sums[c * numbers + j] += part[j];
        }
    }
    return {};
}

template <class T, bool weighted, bool single>
void write_rows(const Objective<T>& p, int64_t c, int64_t from, int64_t to) {
    using Vec = typename Wide::Vec;
    const T* x = p.x + c * p.stride;
    float *grad = p.grad + c * p.out_stride, *hess = p.hess + c * p.out_stride;
    double inverse = 1 / p.tau[c], on = p.on[c], off = p.off[c];
    Vec mu = Wide::splat(p.mu[c]), factor = Wide::splat(inverse), mean = Wide::splat(p.mean[c]), label = Wide::splat(static_cast<double>(c));
    Vec zero = Wide::splat(0), one = Wide::splat(1), inside = Wide::splat(on), outside = Wide::splat(off);
    int64_t i = from;
    for (; i + together <= to; i += together) {
        Vec t = (load_wide(x + i) - mu) * factor;
        auto active = (t > zero) & (t < one);
        Vec g = Wide::keep((t - targets<single>(p.labels + i, label) - mean) * factor, active), h = Wide::pick(active, inside, outside);
        if constexpr (weighted) {
            Vec w = load_wide(p.weights + i);
            g = g * w;
            h = h * w;
        }
        double gs[together], hs[together];
        Wide::store(gs, g);
        Wide::store(hs, h);
        for (int l = 0; l < together; ++l) grad[i + l] = static_cast<float>(gs[l]);
        for (int l = 0; l < together; ++l) hess[i + l] = static_cast<float>(hs[l]);
    }
    for (; i < to; ++i) {
        double t = (static_cast<double>(x[i]) - p.mu[c]) * inverse, w = weighted ? static_cast<double>(p.weights[i]) : 1.0;
        double y = single ? static_cast<double>(p.labels[i]) : p.labels[i] == static_cast<float>(c) ? 1.0 : 0.0;
        bool active = t > 0 && t < 1;
        grad[i] = static_cast<float>(active ? (t - y - p.mean[c]) * inverse * w : 0.0);
        hess[i] = static_cast<float>((active ? on : off) * w);
    }
}

template <class T>
Result objective_write(const Objective<T>& p) {
    bool single = p.classes == 1;
    for (int64_t c = 0; c < p.classes; ++c)
        share_rows(p.n, p.threads, [&](int64_t from, int64_t to, int) {
            if (single) p.weights ? write_rows<T, true, true>(p, c, from, to) : write_rows<T, false, true>(p, c, from, to);
            else p.weights ? write_rows<T, true, false>(p, c, from, to) : write_rows<T, false, false>(p, c, from, to);
        });
    return {};
}

// Around a threshold without active entries: the largest score that is 0 there and the smallest that is 1.
template <class T>
Result objective_gap(const Objective<T>& p) {
    double inf = std::numeric_limits<double>::infinity();
    for (int64_t c = 0; c < p.classes; ++c) {
        const T* x = p.x + c * p.stride;
        double zero = -inf, one = inf;
        for (int64_t i = 0; i < p.n; ++i) {
            double v = static_cast<double>(x[i]);
            if (!std::isfinite(v) || (p.weights && !(p.weights[i] > 0))) continue;
            if (v - p.mu[c] > p.tau[c] / 2) one = v < one ? v : one;
            else zero = v > zero ? v : zero;
        }
        p.sums[2 * c] = zero;
        p.sums[2 * c + 1] = one;
    }
    return {};
}

// Labels and weights that will not do are found first, by counting those that will.
template <class T>
Result objective_check(const Objective<T>& p, int64_t from, int64_t to) {
    double top = p.classes == 1 ? 1 : static_cast<double>(p.classes - 1);
    for (int64_t i = from; i < to; ++i) {
        double label = static_cast<double>(p.labels[i]), w = p.weights ? static_cast<double>(p.weights[i]) : 1.0;
        bool whole = p.classes == 1 || label == std::floor(label);
        if (!(label >= 0 && label <= top && whole)) return {Status::bad_label, i, 0};
        if (!(w >= 0 && std::isfinite(w))) return {Status::bad_weight, i, 0};
    }
    return {};
}

template <class T, bool weighted>
void count_rows(const Objective<T>& p, int64_t from, int64_t to, double* out) {
    using Vec = typename Wide::Vec;
    Vec zero = Wide::splat(0), one = Wide::splat(1), most = Wide::splat(std::numeric_limits<float>::max());
    Vec positive = {}, all = {}, good = {};
    int64_t i = from;
    for (; i + together <= to; i += together) {
        Vec y = load_wide(p.labels + i), w = one;
        auto fine = (y >= zero) & (one >= y);
        if constexpr (weighted) {
            w = load_wide(p.weights + i);
            fine = fine & (w >= zero) & (most >= w);
            all += w;
        }
        good += Wide::keep(one, fine);
        positive += w * y;
    }
    out[0] = Wide::total(positive);
    out[1] = weighted ? Wide::total(all) : static_cast<double>(i - from);
    out[2] = Wide::total(good);
    for (; i < to; ++i) {
        double w = weighted ? static_cast<double>(p.weights[i]) : 1.0;
        out[0] += w * static_cast<double>(p.labels[i]);
        out[1] += w;
        if (objective_check(p, i, i + 1).status == Status::ok) out[2] += 1;
    }
}

// The weight of every class, and of all rows behind them. Fails with the first row whose label or weight will not do.
template <class T>
Result objective_count(const Objective<T>& p) {
    for (int64_t c = 0; c <= p.classes; ++c) p.sums[c] = 0;
    if (p.classes > 1) {
        Result result = objective_check(p, 0, p.n);
        for (int64_t i = 0; result.status == Status::ok && i < p.n; ++i) {
            double w = p.weights ? static_cast<double>(p.weights[i]) : 1.0;
            p.sums[static_cast<int64_t>(p.labels[i])] += w;
            p.sums[p.classes] += w;
        }
        return result;
    }
    double parts[most_members][3] = {};
    share_rows(p.n, p.threads, [&](int64_t from, int64_t to, int id) {
        p.weights ? count_rows<T, true>(p, from, to, parts[id]) : count_rows<T, false>(p, from, to, parts[id]);
    });
    double good = 0;
    for (const auto& part : parts) p.sums[0] += part[0], p.sums[1] += part[1], good += part[2];
    return good < static_cast<double>(p.n) ? objective_check(p, 0, p.n) : Result{};
}

template <class T>
Result objective(const Objective<T>& p) {
    switch (p.step) {
        case ObjectiveStep::count: return objective_count(p);
        case ObjectiveStep::sums: return objective_sums(p);
        case ObjectiveStep::gap: return objective_gap(p);
        default: return objective_write(p);
    }
}

}  // namespace hs::HS_VARIANT
