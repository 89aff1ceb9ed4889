// The HyperSimplex loss as an objective of boosted trees: one pass each over whole columns of scores. The
// search for the thresholds lives with the caller, who may add up the sums of many machines between two
// passes. A row of weight w counts as w rows. Arithmetic is double throughout; gradients leave as float, as
// boosters keep them.
#pragma once
#include "solve.hpp"
#include "wide.hpp"

namespace hs::HS_VARIANT {

constexpr int numbers = 5;    // see Objective::sums

template <int size>
struct Numbers {
    double value[size] = {};
    void add(const Numbers& other) {
        for (int j = 0; j < size; ++j) value[j] += other.value[j];
    }
};

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
Numbers<numbers> add_rows(const Objective<T>& p, int64_t c, int64_t from, int64_t to) {
    const T* x = p.x + c * p.stride;
    Adding<T, weighted, labelled, single> a{Wide::splat(p.mu[c]), Wide::splat(1 / p.tau[c]),
                                            Wide::splat(static_cast<double>(c))};
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
    return {{Wide::total(a.sum), Wide::total(a.active), Wide::total(a.ones), Wide::total(a.positive),
             Wide::total(a.square)}};
}

template <class T, bool labelled, bool single>
Numbers<numbers> add_all(const Objective<T>& p, int64_t c) {
    return sum_blocks<Numbers<numbers>>(p.n, p.threads, [&](int64_t from, int64_t to) {
        return p.weights ? add_rows<T, true, labelled, single>(p, c, from, to)
                         : add_rows<T, false, labelled, single>(p, c, from, to);
    });
}

template <class T>
Result objective_sums(const Objective<T>& p) {
    for (int64_t c = 0; c < p.classes; ++c) {
        if (p.skip && p.skip[c]) continue;
        Numbers<numbers> sums = !p.labels        ? add_all<T, false, true>(p, c)
                                : p.classes == 1 ? add_all<T, true, true>(p, c)
                                                 : add_all<T, true, false>(p, c);
        for (int j = 0; j < numbers; ++j) p.sums[c * numbers + j] = sums.value[j];
    }
    return {};
}

template <class T, bool weighted, bool single>
void write_rows(const Objective<T>& p, int64_t c, int64_t from, int64_t to) {
    using Vec = typename Wide::Vec;
    const T* x = p.x + c * p.stride;
    float *grad = p.grad + c * p.n, *hess = p.hess + c * p.n;
    double inverse = 1 / p.tau[c], on = p.on[c], off = p.off[c];
    Vec mu = Wide::splat(p.mu[c]), factor = Wide::splat(inverse), mean = Wide::splat(p.mean[c]),
        label = Wide::splat(static_cast<double>(c));
    Vec zero = Wide::splat(0), one = Wide::splat(1), inside = Wide::splat(on), outside = Wide::splat(off);
    int64_t i = from;
    for (; i + together <= to; i += together) {
        Vec t = (load_wide(x + i) - mu) * factor;
        auto active = (t > zero) & (t < one);
        Vec g = Wide::keep((t - targets<single>(p.labels + i, label) - mean) * factor, active),
            h = Wide::pick(active, inside, outside);
        if constexpr (weighted) {
            Vec w = load_wide(p.weights + i);
            g = g * w;
            h = h * w;
        }
        store_wide(grad + i, g);
        store_wide(hess + i, h);
    }
    for (; i < to; ++i) {
        double t = (static_cast<double>(x[i]) - p.mu[c]) * inverse,
               w = weighted ? static_cast<double>(p.weights[i]) : 1.0;
        double y = single                                 ? static_cast<double>(p.labels[i])
                   : p.labels[i] == static_cast<float>(c) ? 1.0
                                                          : 0.0;
        bool active = t > 0 && t < 1;
        grad[i] = static_cast<float>(active ? (t - y - p.mean[c]) * inverse * w : 0.0);
        hess[i] = static_cast<float>((active ? on : off) * w);
    }
}

template <class T>
Result objective_write(const Objective<T>& p) {
    bool single = p.classes == 1;
    for (int64_t c = 0; c < p.classes; ++c)
        in_blocks(p.n, p.threads, [&](int64_t from, int64_t to) {
            if (single)
                p.weights ? write_rows<T, true, true>(p, c, from, to)
                          : write_rows<T, false, true>(p, c, from, to);
            else
                p.weights ? write_rows<T, true, false>(p, c, from, to)
                          : write_rows<T, false, false>(p, c, from, to);
        });
    return {};
}

// Around a threshold without active entries: the largest score that is 0 there and the smallest that is 1.
template <class T>
Gap gap_rows(const Objective<T>& p, int64_t c, int64_t from, int64_t to) {
    Gap gap{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    for (int64_t i = from; i < to; ++i) {
        double v = static_cast<double>(p.x[c * p.stride + i]);
        if (!std::isfinite(v) || (p.weights && !(p.weights[i] > 0))) continue;
        if (v - p.mu[c] > p.tau[c] / 2) gap.one = v < gap.one ? v : gap.one;
        else gap.zero = v > gap.zero ? v : gap.zero;
    }
    return gap;
}

template <class T>
Result objective_gap(const Objective<T>& p) {
    for (int64_t c = 0; c < p.classes; ++c) {
        Gap gap = sum_blocks<Gap>(p.n, p.threads,
                                  [&](int64_t from, int64_t to) { return gap_rows(p, c, from, to); });
        p.sums[2 * c] = gap.zero;
        p.sums[2 * c + 1] = gap.one;
    }
    return {};
}

// Labels and weights that will not do are found first, by counting those that will.
template <class T>
Result objective_check(const Objective<T>& p, int64_t from, int64_t to) {
    double top = p.classes == 1 ? 1 : static_cast<double>(p.classes - 1);
    for (int64_t i = from; i < to; ++i) {
        double label = static_cast<double>(p.labels[i]),
               w = p.weights ? static_cast<double>(p.weights[i]) : 1.0;
        bool whole = p.classes == 1 || label == std::floor(label);
        if (!(label >= 0 && label <= top && whole)) return {Status::bad_label, i, 0};
        if (!(w >= 0 && std::isfinite(w))) return {Status::bad_weight, i, 0};
    }
    return {};
}

template <class T, bool weighted>
Numbers<3> count_rows(const Objective<T>& p, int64_t from, int64_t to) {
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
    Numbers<3> out{{Wide::total(positive), weighted ? Wide::total(all) : static_cast<double>(i - from),
                    Wide::total(good)}};
    for (; i < to; ++i) {
        double w = weighted ? static_cast<double>(p.weights[i]) : 1.0;
        out.value[0] += w * static_cast<double>(p.labels[i]);
        out.value[1] += w;
        if (objective_check(p, i, i + 1).status == Status::ok) out.value[2] += 1;
    }
    return out;
}

// The weight of every class, and of all rows behind them. Fails with the first row whose label or weight will
// not do.
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
    Numbers<3> all = sum_blocks<Numbers<3>>(p.n, p.threads, [&](int64_t from, int64_t to) {
        return p.weights ? count_rows<T, true>(p, from, to) : count_rows<T, false>(p, from, to);
    });
    p.sums[0] = all.value[0];
    p.sums[1] = all.value[1];
    return all.value[2] < static_cast<double>(p.n) ? objective_check(p, 0, p.n) : Result{};
}

template <class T>
Result objective(const Objective<T>& p) {
    switch (p.step) {
        case ObjectiveStep::count:
            return objective_count(p);
        case ObjectiveStep::sums:
            return objective_sums(p);
        case ObjectiveStep::gap:
            return objective_gap(p);
        default:
            return objective_write(p);
    }
}

}    // namespace hs::HS_VARIANT
