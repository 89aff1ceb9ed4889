// The projection as a sink of the search: it writes y and mu.
#pragma once
#include "curve_rows.hpp"
#include "side_by_side.hpp"

namespace hs::HS_VARIANT {

inline bool failed(const Answer& answer, int64_t slice, Result& result) {
    if (answer.kind == Answer::no_memory) fail(result, Status::no_memory, slice);
    else if (answer.kind == Answer::masked) fail(result, Status::masked_k, slice, answer.count);
    else return false;
    return true;
}

template <class T>
struct ProjectSink {
    const Project<T>& p;
    int64_t first, spacing;
    T* y;
    int threads;
    Result& result;
    int64_t n = p.layout.n;

    HS_INLINE void fetch(int64_t row, int64_t from, int64_t to) const {
        if (y) fetch_row<true>(y + row * spacing + from, to - from);
    }
    bool wanted() const { return y != nullptr; }
    bool thresholds() const { return p.mu != nullptr; }

    // A short row's pass is inlined: one that comes back through memory takes half as long again.
    HS_INLINE Sums pass(int64_t row, const T* x, Split<T> at, T inverse) const {
        T* out = y + row * spacing;
        if (n < parallel_row) return pass_row<T, true>(x, out, n, at, inverse);
        return sum_blocks<Sums>(n, threads, [&](int64_t from, int64_t to) {
            return pass_row<T, true>(x + from, out + from, to - from, at, inverse);
        });
    }

    HS_INLINE Counts pass_parts(int64_t row, const T* x, Split<T> at, T inverse, double* parts) const {
        return hs::HS_VARIANT::pass_parts<T, true>(x, y + row * spacing, n, at, inverse, parts);
    }

    void write(int64_t row, const T* x, Split<T> at, T inverse) const {
        T* out = y + row * spacing;
        in_blocks(n, threads,
                  [&](int64_t from, int64_t to) { write_row(x + from, out + from, to - from, at, inverse); });
    }

    void done(int64_t row, double mu) const { p.mu[first + row] = mu; }

    void selected(int64_t row, const T* x, double k, double tau, const Answer& answer) const {
        finish(p, first + row, 1, x, y ? y + row * spacing : nullptr, k, tau, answer, result);
    }

    static void finish(const Project<T>& p, int64_t slice, int64_t stride, const T* x, T* y, double k,
                       double tau, const Answer& answer, Result& result) {
        if (failed(answer, slice, result)) return;
        if (y) write_answer(x, y, stride, p.layout.n, k, tau, answer, p.curve);
        double nan = std::numeric_limits<double>::quiet_NaN();
        if (p.mu) p.mu[slice] = answer.kind == Answer::not_a_number ? nan : answer.mu + answer.low;
    }
};

// A slice whose entries lie `stride` apart and whose threshold the search did not find.
template <class T>
HS_APART void select_slice(const Project<T>& p, int64_t slice, int64_t stride, const T* x, T* y,
                           Result& result) {
    double k = p.k[slice], tau = p.tau[slice];
    ProjectSink<T>::finish(p, slice, stride, x, y, k, tau,
                           by_selection(x, stride, p.layout.n, k, tau, p.curve), result);
}

// Without y, the rows' exponentials lie in memory of their own.
template <class T, Curve curve>
void project_curve_rows(const Project<T>& p, int64_t first, int64_t count, const T* x, T* y, int64_t spacing,
                        int threads, Result& result) {
    int64_t n = p.layout.n;
    int most = CurveRows<T, curve>::together(n);
    Scratch<T> own;
    if (!y && !own.take(n * most)) return fail(result, Status::no_memory, first);
    for (int64_t r = 0; r < count; r += most) {
        int some = static_cast<int>(count - r < most ? count - r : most);
        const T* from = x + r * spacing;
        T* to = y ? y + r * spacing : nullptr;
        CurveRows<T, curve> rows(from, spacing, y ? to : own.data, y ? spacing : n, n, threads);
        rows.run(
            some, [&](int j) { return p.k[first + r + j]; }, [&](int j) { return p.tau[first + r + j]; });
        for (int j = 0; j < some; ++j) {
            int64_t slice = first + r + j;
            if (rows.solved[j]) {
                if (y) rows.write(j);
                if (p.mu) p.mu[slice] = rows.mu(j);
            } else {
                select_slice(p, slice, 1, from + j * spacing, y ? to + j * spacing : nullptr, result);
            }
        }
    }
}

// Contiguous rows, `spacing` apart, that are the slices from `first` on.
template <class T>
void project_rows(const Project<T>& p, int64_t first, int64_t count, const T* x, T* y, int64_t spacing,
                  int threads, Result& result) {
    if (p.curve != Curve::ramp)
        return with_curve(p.curve, [&](auto curve) {
            if constexpr (curve != Curve::ramp)
                project_curve_rows<T, curve>(p, first, count, x, y, spacing, threads, result);
        });
    ProjectSink<T> sink{p, first, spacing, y, threads, result};
    Rows<T> rows{x, spacing, p.layout.n, first, p.layout.slices(), p.k, p.tau, threads};
    solve_rows(rows, count, sink);
}

}    // namespace hs::HS_VARIANT
