// The loss as a sink of the search: the last pass also sums the errors, and then the gradient is written.
#pragma once
#include "project.hpp"

namespace hs::HS_VARIANT {

// The targets of one class: labels to be compared with it, or numbers.
template <class T>
struct Targets {
    const IntOf<T>* labels;
    IntOf<T> label;
    const T* dense;

    HS_INLINE typename Lanes<T>::Vec load(int64_t i) const {
        using L = Lanes<T>;
        if (dense) return L::load(dense + i);
        return L::keep(L::splat(1), L::equal(L::load_int(labels + i), L::splat_int(label)));
    }
    HS_INLINE T at(int64_t i) const { return dense ? dense[i] : labels[i] == label ? T(1) : T(0); }
};

struct LossSums {
    Sums sums;
    double square, error;    // errors: squared over all entries, plain over the active ones
    void add(const LossSums& other) {
        sums.add(other.sums);
        square += other.square;
        error += other.error;
    }
};

template <class T>
LossSums loss_pass(const T* x, const Targets<T>& y, int64_t from, int64_t to, Split<T> mu, T inverse) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width, run = 64;
    const Pass<T> at(mu, inverse);
    Vec one = L::splat(1), zero = L::splat(0);
    Tally<T> tally;
    typename L::Wide total = {}, square = {}, error = {};
    int64_t i = from;
    while (i + W <= to) {
        Vec sum = {}, squares = {}, off = {};
        int64_t end = i + run * W < to ? i + run * W : to;
        for (; i + W <= end; i += W) {
            Vec p = L::min(one, at.add(L::load(x + i), sum, tally));
            Vec e = p - y.load(i);
            squares += e * e;
            off = L::add_where((p > zero) & (p < one), off, e);
        }
        total += L::widen(sum);
        square += L::widen(squares);
        error += L::widen(off);
    }
    LossSums out{sums_of(L::total(total), tally.counts()), L::total(square), L::total(error)};
    for (; i < to; ++i) {
        T t = ((x[i] - mu.c) - mu.d) * inverse, p = t > 1 ? T(1) : t < 0 ? T(0) : t;
        double e = static_cast<double>(p) - static_cast<double>(y.at(i));
        out.square += e * e;
        if (t >= 1) out.sums.ones += 1;
        else out.sums.active_sum += static_cast<double>(p);
        if (p > 0 && p < 1) out.sums.active += 1, out.error += e;
    }
    return out;
}

// grad = scale * (p - y - mean) on the active entries. May overwrite x.
template <class T>
void loss_grad(const T* x, const Targets<T>& y, int64_t from, int64_t to, Split<T> mu, T inverse, T mean,
               T scale, T* grad) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    const Pass<T> at(mu, inverse);
    Vec m = L::splat(mean), s = L::splat(scale), zero = L::splat(0), one = L::splat(1);
    auto value = [&](int64_t i) HS_INLINED {
        Vec t = at.place(L::load(x + from + i));
        return L::keep(((t - y.load(from + i)) - m) * s, (t > zero) & (t < one));
    };
    for (int64_t i = from + store_behind(grad + from, to - from, value); i < to; ++i) {
        T t = ((x[i] - mu.c) - mu.d) * inverse;
        grad[i] = t > 0 && t < 1 ? ((t - y.at(i)) - mean) * scale : T(0);
    }
}

constexpr int64_t most_classes_together = 32;

template <class T>
struct LossSink {
    const Loss<T>& p;
    int64_t first, n, spacing;    // classes from `first` on, of n samples that are kept
    const Targets<T>* targets;
    const T* rows;
    T* grad;           // rows like x's, and perhaps the same memory; or null
    double* losses;    // per class
    int threads;
    Result& result;
    LossSums parts[most_classes_together] = {};    // per row, until it is done
    Split<T> last[most_classes_together] = {};

    void fetch(int64_t, int64_t, int64_t) const {}
    bool wanted() const { return true; }
    bool thresholds() const { return true; }

    Sums pass(int64_t row, const T* x, Split<T> at, T inverse) {
        last[row] = at;
        parts[row] = sum_blocks<LossSums>(n, threads, [&](int64_t from, int64_t to) {
            return loss_pass(x, targets[row], from, to, at, inverse);
        });
        return parts[row].sums;
    }

    HS_INLINE Counts pass_parts(int64_t row, const T* x, Split<T> at, T inverse, double* parts) {
        Sums sums = pass(row, x, at, inverse);
        parts[0] = sums.active_sum;
        parts[1] = parts[2] = parts[3] = 0;
        return {static_cast<int64_t>(sums.active), static_cast<int64_t>(sums.ones)};
    }

    void write(int64_t row, const T* x, Split<T> at, T inverse) { pass(row, x, at, inverse); }

    double factor(int64_t row) const {
        double w = p.weight[first + row] / p.tau[first + row];
        return p.mean ? w / static_cast<double>(n) : w;
    }

    void done(int64_t row, double mu) {
        const LossSums& s = parts[row];
        p.mu[first + row] = mu;
        losses[first + row] = p.weight[first + row] * s.square / 2;
        if (!grad) return;
        T mean = static_cast<T>(s.sums.active > 0 ? s.error / s.sums.active : 0);
        T inverse = static_cast<T>(1 / p.tau[first + row]), scale = static_cast<T>(factor(row));
        const T* x = rows + row * spacing;
        T* to_x = grad + row * spacing;
        in_blocks(n, threads, [&](int64_t from, int64_t to) {
            loss_grad(x, targets[row], from, to, last[row], inverse, mean, scale, to_x);
        });
    }

    // Infinities, NaN, k at its ends, exact ties: in double precision, entry by entry.
    void selected(int64_t row, const T* x, double k, double tau, const Answer& answer) {
        if (failed(answer, first + row, result)) return;
        Scratch<T> projected;
        if (!projected.take(n)) return fail(result, Status::no_memory, first + row);
        const T* y = projected.data;
        write_answer(x, projected.data, 1, n, k, tau, answer);
        double nan = std::numeric_limits<double>::quiet_NaN(), error = 0, active = 0, square = 0;
        bool broken = answer.kind == Answer::not_a_number;
        for (int64_t i = 0; i < n; ++i) {
            double e = static_cast<double>(y[i]) - static_cast<double>(targets[row].at(i));
            square += e * e;
            if (y[i] > 0 && y[i] < 1) active += 1, error += e;
        }
        p.mu[first + row] = broken ? nan : answer.mu + answer.low;
        losses[first + row] = p.weight[first + row] * square / 2;
        for (int64_t i = 0; grad && i < n; ++i) {
            double e = static_cast<double>(y[i]) - static_cast<double>(targets[row].at(i));
            bool on = y[i] > 0 && y[i] < 1;
            grad[row * spacing + i] = static_cast<T>(broken ? nan
                                                     : on   ? (e - error / active) * factor(row)
                                                            : 0);
        }
    }
};

}    // namespace hs::HS_VARIANT
