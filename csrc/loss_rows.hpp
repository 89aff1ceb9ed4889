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

struct Errors {
    double square, active;    // squared over all entries, plain over the active ones
};

template <class T>
Sums loss_pass(const T* x, const Targets<T>& y, int64_t from, int64_t to, Split<T> mu, T inverse, Errors& errors) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    constexpr int W = L::width, run = 64;
    const Pass<T> at(mu, inverse);
    Vec one = L::splat(1), zero = L::splat(0);
    Int above = {}, ones = {};
    typename L::Wide total = {}, square = {}, error = {};
    int64_t i = from;
    while (i + W <= to) {
        Vec sum = {}, squares = {}, off = {};
        int64_t end = i + run * W < to ? i + run * W : to;
        for (; i + W <= end; i += W) {
            Vec p = L::min(one, at.add(L::load(x + i), sum, above, ones));
            Vec e = p - y.load(i);
            squares += e * e;
            off += L::keep(e, (p > zero) & (p < one));
        }
        total += L::widen(sum);
        square += L::widen(squares);
        error += L::widen(off);
    }
    Sums sums{L::total(total), static_cast<double>(L::total_int(above - ones)), static_cast<double>(L::total_int(ones))};
    errors = {L::total(square), L::total(error)};
    for (; i < to; ++i) {
        T t = ((x[i] - mu.c) - mu.d) * inverse, p = t > 1 ? T(1) : t < 0 ? T(0) : t;
        double e = static_cast<double>(p) - static_cast<double>(y.at(i));
        errors.square += e * e;
        if (t >= 1) sums.ones += 1;
        else sums.active_sum += static_cast<double>(p);
        if (p > 0 && p < 1) sums.active += 1, errors.active += e;
    }
    return sums;
}

// grad = scale * (p - y - mean) on the active entries. May overwrite x.
template <class T>
void loss_grad(const T* x, const Targets<T>& y, int64_t from, int64_t to, Split<T> mu, T inverse, T mean, T scale, T* grad) {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    constexpr int W = L::width;
    const Pass<T> at(mu, inverse);
    Vec m = L::splat(mean), s = L::splat(scale), zero = L::splat(0), one = L::splat(1);
    int64_t i = from;
    for (; i + W <= to; i += W) {
        Vec t = at.place(L::load(x + i));
        L::store(grad + i, L::keep(((t - y.load(i)) - m) * s, (t > zero) & (t < one)));
    }
    for (; i < to; ++i) {
        T t = ((x[i] - mu.c) - mu.d) * inverse;
        grad[i] = t > 0 && t < 1 ? ((t - y.at(i)) - mean) * scale : T(0);
    }
}

template <class T>
struct LossSink {
    const Loss<T>& p;
    const double* k;    // per class
    int64_t first, n, spacing, count;    // classes from `first` on; count: samples that are kept
    const Targets<T>* targets;
    const T* rows;
    T* grad;    // rows like x's, and perhaps the same memory; or null
    Result& result;
    int members;    // of a team that shares one row; with one member, rows may take turns
    double loss = 0;
    Errors parts[most_members] = {};    // per member of the team, or per row
    Sums sums[most_members] = {};
    Split<T> last[most_members] = {};

    bool wanted() const { return true; }
    bool thresholds() const { return true; }

    Sums pass(int64_t row, const T* x, int64_t from, int64_t to, Split<T> at, T inverse, int member) {
        int64_t slot = members > 1 ? member : row;
        last[slot] = at;
        return sums[slot] = loss_pass(x, targets[row], from, to, at, inverse, parts[slot]);
    }

    void write(int64_t row, const T* x, Split<T> at, T inverse) { pass(row, x, 0, n, at, inverse, 0); }

    double factor(int64_t row) const {
        double w = p.weight[first + row] * p.scale / p.tau[first + row];
        return p.mean ? w / static_cast<double>(count) : w;
    }

    void done(int64_t row, double mu) {
        double square = 0, error = 0, active = 0;
        int64_t slot = members > 1 ? 0 : row;
        for (int64_t m = slot; m < slot + members; ++m)
            square += parts[m].square, error += parts[m].active, active += sums[m].active;
        p.mu[first + row] = mu;
        loss += p.weight[first + row] * square / 2;
        if (!grad) return;
        T mean = static_cast<T>(active > 0 ? error / active : 0), inverse = static_cast<T>(1 / p.tau[first + row]);
        loss_grad(rows + row * spacing, targets[row], 0, n, last[slot], inverse, mean, static_cast<T>(factor(row)), grad + row * spacing);
    }

    // Infinities, NaN, k at its ends, exact ties: in double precision, entry by entry.
    void careful(int64_t row, const T* x, double kc, double tau, const Answer& answer) {
        if (failed(answer, first + row, result)) return;
        T* projected = static_cast<T*>(std::malloc(static_cast<size_t>(n > 0 ? n : 1) * sizeof(T)));
        if (!projected) return fail(result, Status::no_memory, first + row);
        write_careful(x, projected, 1, n, kc, tau, answer);
        double nan = std::numeric_limits<double>::quiet_NaN(), error = 0, active = 0, square = 0;
        bool broken = answer.kind == Answer::not_a_number;
        for (int64_t i = 0; i < n; ++i) {
            double e = static_cast<double>(projected[i]) - static_cast<double>(targets[row].at(i));
            square += e * e;
            if (projected[i] > 0 && projected[i] < 1) active += 1, error += e;
        }
        p.mu[first + row] = broken ? nan : answer.mu + answer.low;
        loss += p.weight[first + row] * square / 2;
        for (int64_t i = 0; grad && i < n; ++i) {
            double e = static_cast<double>(projected[i]) - static_cast<double>(targets[row].at(i));
            bool on = projected[i] > 0 && projected[i] < 1;
            grad[row * spacing + i] = static_cast<T>(broken ? nan : on ? (e - error / active) * factor(row) : 0);
        }
        std::free(projected);
    }

};

}  // namespace hs::HS_VARIANT
