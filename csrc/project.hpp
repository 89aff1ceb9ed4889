// From a Project to slices: how they lie in memory decides how they are solved.
#pragma once
#include "careful.hpp"
#include "lockstep.hpp"
#include "rows.hpp"
#include "kernel.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t short_row = 2048, sampled_row = 4096, sample_run = 16, parallel_row = 1 << 17, parallel_work = 1 << 16;

inline void fail(Result& result, Status status, int64_t slice, int64_t limit = 0) {
    if (result.status == Status::ok) result = {status, slice, limit};
}

// Problems without a Newton step: nothing to search for, or a tau beyond the type's range.
template <class T>
bool at_edge(double k, double n, double tau) {
    return k == 0 || k == n || !std::isfinite(static_cast<T>(1 / tau));
}

// A slice whose threshold the Newton search did not find.
template <class T>
void finish_careful(const Project<T>& p, int64_t slice, int64_t stride, const T* x, T* y, Result& result) {
    double k = p.k[slice], tau = p.tau[slice];
    Answer answer = careful(x, stride, p.layout.n, k, tau);
    if (answer.kind == Answer::no_memory) return fail(result, Status::no_memory, slice);
    if (answer.kind == Answer::masked) return fail(result, Status::masked_k, slice, answer.count);
    if (y) write_careful(x, y, stride, p.layout.n, k, tau, answer);
    if (p.mu) {
        double nan = std::numeric_limits<double>::quiet_NaN();
        p.mu[slice] = answer.kind == Answer::not_a_number ? nan : answer.mu + answer.low;
    }
}

// Passes by a team: every member sums its part, and all of them draw the same conclusion from all parts.
template <class T>
struct RowTeam {
    const T* x;
    T* y;
    int64_t n;
    double k, tau;
    Search search;
    bool solved, flat;
    Sums parts[2][64];

    // Returns this member's verdict; all members reach the same one.
    void run(int id, const Team* team) {
        int size = team ? team->size : 1;
        int64_t from = n / size * id, to = id + 1 == size ? n : n / size * (id + 1);
        T inverse = static_cast<T>(1 / tau);
        Search s = search;
        double last = std::numeric_limits<double>::infinity();
        bool near = false, done = false, level = false;
        for (int number = 0; number < most_passes && !done; ++number) {
            bool writing = y && near;
            Split<T> at = split<T>(s.mu, s.low);
            Sums* out = parts[number & 1];
            out[id] = writing ? pass_row<T, true>(x + from, y + from, to - from, at, inverse)
                              : pass_row<T, false>(x + from, nullptr, to - from, at, inverse);
            if (team) team->wait();
            Sums sums{0, 0, 0};
            for (int m = 0; m < size; ++m) {
                sums.active_sum += out[m].active_sum;
                sums.active += out[m].active;
                sums.ones += out[m].ones;
            }
            double r = std::fabs(sums.total() - k);
            if (!(r >= 0)) break;
            level = is_flat(sums.active_sum, sums.active, k);
            bool fine = sums.active == 0 ? r == 0 : r <= tolerance<T>(sums, k, static_cast<double>(n));
            bool stalled = r <= (sizeof(T) == 8 ? 1e-13 : 1e-6) * sums.active && r > last / 2;
            last = r;
            near = close<T>(sums, k);
            done = fine || stalled;
            if (done) {
                if (y && !writing) pass_row<T, true>(x + from, y + from, to - from, at, inverse);
            } else {
                advance(sums, k, static_cast<double>(n), tau, s);
            }
        }
        if (id == 0) {
            search = s;
            solved = done;
            flat = level;
        }
    }
};

// A start from a sample of runs of neighbouring entries, solved in the cache.
template <class T>
Search sample_start(const T* x, int64_t n, double k, double tau) {
    T sample[8192];
    int64_t m = n;
    const T* from = x;
    if (n >= sampled_row) {
        m = n / 32 < 512 ? 512 : n / 32 > 8192 ? 8192 : n / 32 / sample_run * sample_run;
        int64_t step = n / (m / sample_run);
        for (int64_t r = 0; r < m / sample_run; ++r)
            std::memcpy(sample + r * sample_run, x + r * step, sample_run * sizeof(T));
        from = sample;
    }
    double mean, variance, share = static_cast<double>(m) / static_cast<double>(n);
    moments_row(from, m, mean, variance);
    Search s = start_at(guess(mean, variance, k, static_cast<double>(n), tau), tau + std::sqrt(variance) / 4);
    if (m == n) return s;
    T inverse = static_cast<T>(1 / tau);
    for (int number = 0; number < 8; ++number) {
        Sums sums = pass_row<T, false>(from, nullptr, m, split<T>(s.mu, s.low), inverse);
        double goal = share * k, r = sums.total() - goal;
        if (!(std::fabs(r) >= 0)) break;
        if (sums.active == 0 && r == 0) break;
        advance(sums, goal, static_cast<double>(m), tau, s);
        if (std::fabs(r) <= 0.5 || std::fabs(r) <= 0.01 * sums.active) break;
    }
    return start_at(s.mu, tau + std::sqrt(variance) / 16);
}

template <class T>
void project_row(const Project<T>& p, int64_t slice, const T* x, T* y, int threads, Result& result) {
    int64_t n = p.layout.n;
    double k = p.k[slice], tau = p.tau[slice];
    if (at_edge<T>(k, static_cast<double>(n), tau)) return finish_careful(p, slice, 1, x, y, result);
    RowTeam<T> row{x, y, n, k, tau, {}, false, false, {}};
    row.search = p.start ? start_at(p.start[slice], tau) : sample_start(x, n, k, tau);
    if (threads > 1 && n >= parallel_row)
        parallel(threads < 64 ? threads : 64, [](void* r, int id, const Team& t) { static_cast<RowTeam<T>*>(r)->run(id, &t); }, &row);
    else
        row.run(0, nullptr);
    if (!row.solved) return finish_careful(p, slice, 1, x, y, result);
    if (p.mu) p.mu[slice] = row.flat ? middle(x, 1, n, row.search.mu, tau) : row.search.mu + row.search.low;
}

// Up to most_slices short rows, `spacing` apart, in step.
template <class T>
class RowBatch {
  public:
    RowBatch(const Project<T>& problem, int64_t first_slice, const T* rows, T* out, int64_t row_spacing, Result& r)
        : p(problem), first(first_slice), x(rows), y(out), spacing(row_spacing), result(r) {}

    void run(int count) {
        double n = static_cast<double>(p.layout.n);
        begin(count, n);
        int open = step.count;
        for (int number = 0; number < most_passes && open; ++number) {
            for (int j = 0; j < step.count; ++j)
                if (!step.settled[j]) look(j);
            step.update<T>(n, 1);
            for (int j = 0; j < step.count; ++j)
                if (step.settled[j] && !done[j]) finish(j), --open;
            if (2 * open < step.count) compact();
        }
        for (int j = 0; j < step.count; ++j)
            if (!done[j]) finish_careful(p, first + row[j], 1, x + row[j] * spacing, out(row[j]), result);
    }

  private:
    void begin(int count, double n) {
        double mean[most_slices], variance[most_slices];
        step.count = 0;
        for (int r = 0; r < count; ++r) {
            double k = p.k[first + r], tau = p.tau[first + r];
            if (at_edge<T>(k, n, tau)) {
                finish_careful(p, first + r, 1, x + r * spacing, out(r), result);
                continue;
            }
            int j = step.count++;
            if (!p.start) moments_row(x + r * spacing, p.layout.n, mean[j], variance[j]);
            row[j] = r;
            done[j] = false;
            step.k[j] = k;
            step.tau[j] = tau;
            inverse[j] = static_cast<T>(1 / tau);
        }
        if (p.start) {
            for (int j = 0; j < step.count; ++j) step.start(j, p.start[first + row[j]], step.tau[j]);
            return;
        }
        for (int j = 0; j < step.count; ++j) {
            mean[j] = guess(mean[j], variance[j], step.k[j], n, step.tau[j]);
            variance[j] = step.tau[j] + std::sqrt(variance[j]) / 4;
        }
        for (int j = 0; j < step.count; ++j) step.start(j, mean[j], variance[j]);
    }

    void compact() {
        int kept = 0;
        for (int j = 0; j < step.count; ++j) {
            if (done[j]) continue;
            step.move(j, kept);
            row[kept] = row[j];
            inverse[kept] = inverse[j];
            done[kept++] = false;
        }
        step.count = kept;
    }

    T* out(int r) const { return y ? y + r * spacing : nullptr; }

    Sums pass(int j, bool writing) const {
        const T* from = x + row[j] * spacing;
        Split<T> at = split<T>(step.mu[j], step.low[j]);
        return writing ? pass_row<T, true>(from, out(row[j]), p.layout.n, at, inverse[j])
                       : pass_row<T, false>(from, nullptr, p.layout.n, at, inverse[j]);
    }

    void look(int j) {
        wrote[j] = y && step.near[j];
        Sums s = pass(j, wrote[j]);
        step.active_sum[j] = s.active_sum;
        step.active[j] = s.active;
        step.ones[j] = s.ones;
    }

    void finish(int j) {
        done[j] = true;
        int64_t slice = first + row[j];
        const T* from = x + row[j] * spacing;
        if (step.stuck[j]) return finish_careful(p, slice, 1, from, out(row[j]), result);
        if (y && !wrote[j]) pass(j, true);
        if (p.mu)
            p.mu[slice] = is_flat(step.active_sum[j], step.active[j], step.k[j])
                              ? middle(from, 1, p.layout.n, step.mu[j], step.tau[j])
                              : step.mu[j] + step.low[j];
    }

    const Project<T>& p;
    int64_t first;
    const T* x;
    T* y;
    int64_t spacing;
    Result& result;
    Lockstep step;
    int row[most_slices];
    T inverse[most_slices];
    bool wrote[most_slices], done[most_slices];
};

// Any number of contiguous rows, `spacing` apart, that are the slices from `first` on.
template <class T>
void project_rows(const Project<T>& p, int64_t first, int64_t count, const T* x, T* y, int64_t spacing, int threads,
                  Result& result) {
    int64_t n = p.layout.n;
    if (n > short_row || count < 3) {
        for (int64_t r = 0; r < count; ++r)
            project_row(p, first + r, x + r * spacing, y ? y + r * spacing : nullptr, threads, result);
        return;
    }
    // As many at a time as stay in the first-level cache between passes.
    int64_t fit = (32 << 10) / static_cast<int64_t>(sizeof(T)) / n;
    fit = fit < 8 ? 8 : fit > most_slices ? most_slices : fit;
    for (int64_t r = 0; r < count; r += fit) {
        RowBatch<T> batch(p, first + r, x + r * spacing, y ? y + r * spacing : nullptr, spacing, result);
        batch.run(static_cast<int>(count - r < fit ? count - r : fit));
    }
}

}  // namespace hs::HS_VARIANT
