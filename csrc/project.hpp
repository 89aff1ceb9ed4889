// The projection as a sink of the search: it writes y and mu.
#pragma once
#include "abreast.hpp"

namespace hs::HS_VARIANT {

inline void fail(Result& result, Status status, int64_t slice, int64_t limit = 0) {
    if (result.status == Status::ok) result = {status, slice, limit};
}

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
    Result& result;

    bool wanted() const { return y != nullptr; }
    bool thresholds() const { return p.mu != nullptr; }

    Sums pass(int64_t row, const T* x, int64_t from, int64_t to, Split<T> at, T inverse, int) const {
        return pass_row<T, true>(x + from, y + row * spacing + from, to - from, at, inverse);
    }

    void write(int64_t row, const T* x, Split<T> at, T inverse) const {
        write_row(x, y + row * spacing, p.layout.n, at, inverse);
    }

    void done(int64_t row, double mu) const { p.mu[first + row] = mu; }

    void careful(int64_t row, const T* x, double k, double tau, const Answer& answer) const {
        settle(p, first + row, 1, x, y ? y + row * spacing : nullptr, k, tau, answer, result);
    }

    static void settle(const Project<T>& p, int64_t slice, int64_t stride, const T* x, T* y, double k, double tau,
                       const Answer& answer, Result& result) {
        if (failed(answer, slice, result)) return;
        if (y) write_careful(x, y, stride, p.layout.n, k, tau, answer);
        double nan = std::numeric_limits<double>::quiet_NaN();
        if (p.mu) p.mu[slice] = answer.kind == Answer::not_a_number ? nan : answer.mu + answer.low;
    }
};

// Contiguous rows, `spacing` apart, that are the slices from `first` on.
template <class T>
void project_rows(const Project<T>& p, int64_t first, int64_t count, const T* x, T* y, int64_t spacing, int threads,
                  Result& result) {
    ProjectSink<T> sink{p, first, spacing, y, result};
    solve_rows(Rows<T>{x, spacing, p.layout.n, first, p.k, p.tau, p.start}, count, threads, sink);
}

// A slice whose entries lie `stride` apart and whose threshold the search did not find.
template <class T>
void finish_careful(const Project<T>& p, int64_t slice, int64_t stride, const T* x, T* y, Result& result) {
    double k = p.k[slice], tau = p.tau[slice];
    ProjectSink<T>::settle(p, slice, stride, x, y, k, tau, careful(x, stride, p.layout.n, k, tau), result);
}

}  // namespace hs::HS_VARIANT
