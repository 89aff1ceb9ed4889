// Short rows side by side, a row a lane: a pass over them needs no sum across lanes, which for a short row
// would cost more than the row itself.
#pragma once
#include "batch.hpp"
#include "transpose.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t side_bytes = 16 << 10;    // half of the first-level cache
constexpr int most_side_by_side = 64;
template <class T>
constexpr int longest_side_by_side = Lanes<T>::width < 16 ? 24 : 32;

// How many rows of n entries go side by side; 0 if they are too long for it.
template <class T>
constexpr int64_t rows_side_by_side(int64_t n) {
    int64_t fit = side_bytes / static_cast<int64_t>(sizeof(T)) / n / Lanes<T>::width * Lanes<T>::width;
    return n > longest_side_by_side<T> ? 0 : fit < most_side_by_side ? fit : most_side_by_side;
}

template <class T, class Sink>
class SideBySide {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    static constexpr int W = L::width;

  public:
    SideBySide(const Rows<T>& all, Sink& s) : rows(all), sink(s) {}

    void run(int64_t first_row, int number) {
        base = first_row;
        count = number;
        slots = (count + W - 1) / W;
        double n = static_cast<double>(rows.n);
        begin(n);
        int open[most_side_by_side / W], opened = slots;
        for (int s = 0; s < slots; ++s) open[s] = s;
        for (int pass = 0; pass < most_passes && opened; ++pass) {
            for (int o = 0; o < opened; ++o) look(open[o] * W);
            int left = 0;
            for (int o = 0; o < opened; ++o) {
                int s = open[o];
                if (!step.update<T>(s * W, s * W + W, n, 1)) open[left++] = s;
            }
            opened = left;
        }
        for (int j = 0; j < count; ++j) finish(j);
    }

  private:
    void begin(double n) {
        lanes = slots * W;
        transpose(rows.row(base), rows.spacing, entries, lanes, count, rows.n);
        for (int64_t i = 0; count < lanes && i < rows.n; ++i)
            for (int j = count; j < lanes; ++j) entries[i * lanes + j] = 0;
        for (int j = 0; j < lanes; ++j) {
            step.k[j] = j < count ? rows.k_of(base + j) : 1;
            step.tau[j] = j < count ? rows.tau_of(base + j) : 1;
            inverse[j] = static_cast<T>(1 / step.tau[j]);
        }
        guess_all(n);
        for (int j = 0; j < lanes; ++j) {
            edge[j] = j < count && at_edge<T>(step.k[j], n, step.tau[j]);
            step.settled[j] = edge[j] || j >= count;
        }
    }

    void guess_all(double n) {
        double mean[most_side_by_side], variance[most_side_by_side], z[most_side_by_side],
            all = quantile(rows.k.scalar, n);
        for (int j = 0; j < lanes; ++j) z[j] = rows.k.values ? quantile(step.k[j], n) : all;
        for (int at = 0; at < lanes; at += W) {
            Vec origin = L::load(entries + at), one = {}, two = {};
            const T* x = entries + at;
            for (int64_t i = 0; i < rows.n; ++i, x += lanes) {
                Vec t = L::load(x) - origin;
                one += t;
                two += t * t;
            }
            T first[W], second[W];
            L::store(first, one);
            L::store(second, two);
            for (int l = 0; l < W; ++l) {
                double m = static_cast<double>(first[l]) / n, square = static_cast<double>(second[l]) / n;
                mean[at + l] = static_cast<double>(entries[at + l]) + m;
                variance[at + l] = square - m * m;
            }
            for (int j = at; j < at + W; ++j)
                if (!(variance[j] < std::numeric_limits<T>::max()) && j < count) {
                    Moments m = moments_row(rows.row(base + j), rows.n);
                    mean[j] = m.center();
                    variance[j] = m.variance();
                    z[j] = quantile(m, step.k[j]);
                }
        }
        for (int j = 0; j < lanes; ++j)
            step.set(j, start_near(mean[j], variance[j] > 0 ? variance[j] : 0, z[j], step.tau[j]));
    }

    // One pass over the rows in lanes [at, at + W).
    HS_INLINE void look(int at) {
        T c[W], d[W];
        for (int l = 0; l < W; ++l) {
            Split<T> mu = split<T>(step.mu[at + l], step.low[at + l]);
            c[l] = mu.c;
            d[l] = mu.d;
        }
        const Pass<T> pass(L::load(c), L::load(d), L::load(inverse + at));
        Int above = {}, ones = {};
        double* total = step.active_sum + at;
        for (int l = 0; l < W; ++l) total[l] = 0;
        const T* x = entries + at;
        // Short chains, for the reason given in pass_parts.
        for (int64_t i = 0; i < rows.n;) {
            Vec a = {}, b = {};
            int64_t stop = i + 16 < rows.n ? i + 16 : rows.n;
            for (; i + 2 <= stop; i += 2, x += 2 * lanes) {
                pass.add(L::load(x), a, above, ones);
                pass.add(L::load(x + lanes), b, above, ones);
            }
            if (i < stop) pass.add(L::load(x), a, above, ones), x += lanes, ++i;
            L::add_to(total, a + b);
        }
        IntOf<T> counts[2][W];
        L::store_int(counts[0], above - ones);
        L::store_int(counts[1], ones);
        for (int l = 0; l < W; ++l) {
            step.active[at + l] = static_cast<double>(counts[0][l]);
            step.ones[at + l] = static_cast<double>(counts[1][l]);
        }
    }

    HS_INLINE void finish(int j) {
        if (edge[j] || step.stuck[j] || !step.settled[j]) return solve_row(rows, base + j, sink);
        finish_row(rows, base + j, step.mu[j], step.low[j], step.sums(j), inverse[j], false, sink);
    }

    const Rows<T>& rows;
    Sink& sink;
    int64_t base;
    int count, slots, lanes;
    Lockstep step;
    T inverse[most_side_by_side];
    bool edge[most_side_by_side];
    alignas(64) T entries[side_bytes / sizeof(T)];
};

// How a row is searched depends on its length, and hardly on how many rows there are: a row's results are the
// same to the last bit whatever its neighbors. Up to two rows of middle length go one by one, in the same
// steps.
template <class T, class Sink>
void solve_rows(const Rows<T>& rows, int64_t count, Sink& sink) {
    if (int64_t side = rows_side_by_side<T>(rows.n)) {
        SideBySide<T, Sink> search(rows, sink);
        for (int64_t r = 0; r < count; r += side)
            search.run(r, static_cast<int>(count - r < side ? count - r : side));
        return;
    }
    if (rows.n > short_row || rows.all < 3) {
        for (int64_t r = 0; r < count; ++r) solve_row(rows, r, sink);
        return;
    }
    // As many at a time as stay in the first-level cache between passes, but enough to fill the registers of
    // a step.
    int64_t fit = (32 << 10) / static_cast<int64_t>(sizeof(T)) / rows.n;
    fit = fit < 4 ? 4 : fit > most_slices ? most_slices : fit;
    for (int64_t r = 0; r < count; r += fit)
        RowBatch<T, Sink>(rows, r, sink).run(static_cast<int>(count - r < fit ? count - r : fit));
}

}    // namespace hs::HS_VARIANT
