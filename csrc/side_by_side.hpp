// Short rows side by side, a row a lane: a pass over them needs no sum across lanes, which for a short row
// would cost more than the row itself.
#pragma once
#include "batch.hpp"
#include "lane_search.hpp"
#include "transpose.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t side_bytes = 16 << 10;    // half of the first-level cache
constexpr int most_side_by_side = 64;
template <class T>
constexpr int longest_side_by_side = sizeof(T) == 4 ? 96 : 32;

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

    // `number` rows from the first on.
    void run(int64_t first_row, int number) {
        base = first_row;
        count = number;
        int slots = (count + W - 1) / W;
        lanes = slots * W;
        transpose(rows.row(base), rows.spacing, entries, lanes, count, rows.n);
        for (int64_t i = 0; count < lanes && i < rows.n; ++i)
            for (int j = count; j < lanes; ++j) entries[i * lanes + j] = 0;
        for (int s = 0; s < slots; ++s) begin(s * W);
        until_settled(slots, rough_passes, [&](int s, int pass) HS_INLINED {
            if (pass < 4) fetch_quarter(s, pass);
            return search[s].approach(entries + s * W, lanes, rows.n, pass);
        });
        for (int s = 0; s < slots; ++s) search[s].unsettle();
        until_settled(slots, precise_passes, [&](int s, int) HS_INLINED {
            return search[s].arrive(entries + s * W, lanes, rows.n);
        });
        unsolved = 0;
        for (int s = 0; s < slots; ++s) end(s * W, count - s * W < W ? count - s * W : W);
        if (unsolved) solve_rest();
    }

  private:
    // turn(slot, pass) for every slot until it is true. Slot by slot: while one waits for its divisions the
    // next one reads.
    template <class Turn>
    HS_INLINE void until_settled(int slots, int passes, Turn turn) {
        int open[most_side_by_side / W], opened = slots;
        for (int s = 0; s < slots; ++s) open[s] = s;
        for (int pass = 0; pass < passes && opened; ++pass) {
            int left = 0;
            for (int o = 0; o < opened; ++o) {
                int s = open[o];
                open[left] = s;
                left += !turn(s, pass);
            }
            opened = left;
        }
    }

    // Where these rows go comes while they are searched. A quarter with each pass: more at a time would have
    // to wait.
    HS_INLINE void fetch_quarter(int slot, int quarter) {
        int from = slot * W + quarter * W / 4, to = slot * W + (quarter + 1) * W / 4;
        for (int j = from; j < to && j < count; ++j) sink.fetch(base + j, 0, rows.n);
    }

    // A first guess for the rows in lanes [at, at + W).
    void begin(int at) {
        T whole[W], rest[W], tau[W], guess[W], reach[W], z[W], mean[W], variance[W];
        T all = static_cast<T>(quantile(rows.k.scalar, static_cast<double>(rows.n)));
        for (int l = 0; l < W; ++l) {
            int64_t r = base + (at + l < count ? at + l : 0);
            ks[at + l] = rows.k_of(r);
            taus[at + l] = rows.tau_of(r);
        }
        for (int l = 0; l < W; ++l) {
            double k = ks[at + l];
            whole[l] = static_cast<T>(std::floor(k));
            rest[l] = static_cast<T>(k - std::floor(k));
            tau[l] = static_cast<T>(taus[at + l]);
            inverse[at + l] = static_cast<T>(1 / taus[at + l]);
            z[l] = all;
        }
        for (int l = 0; rows.k.values && l < W; ++l)
            z[l] = static_cast<T>(quantile(ks[at + l], static_cast<double>(rows.n)));
        moments(at, mean, variance, z);
        T n = static_cast<T>(rows.n), little = T(1) / 16;
        for (int l = 0; l < W; ++l) {
            T spread = std::sqrt(variance[l] + tau[l] * tau[l] / 12);
            guess[l] = mean[l] - tau[l] / 2 + spread * z[l];
            // By the density of a normal variable there, about 8/5 p (1 - p); of k near 0 or n not too far.
            T k = whole[l] + rest[l], share = (k + little) * (n - k + little);
            reach[l] = spread * (n * T(0.625)) / share;
        }
        search[at / W].start(whole, rest, tau, inverse + at, guess, reach);
    }

    void moments(int at, T* mean, T* variance, T* z) const {
        Vec origin = L::load(entries + at), one[2] = {}, two[2] = {};
        const T* x = entries + at;
        auto add = [&](int chain) HS_INLINED {
            Vec t = L::load(x) - origin;
            one[chain] += t;
            two[chain] = L::plus_product(two[chain], t, t);
            x += lanes;
        };
        for (int64_t i = 0; i + 2 <= rows.n; i += 2) add(0), add(1);
        if (rows.n % 2) add(0);
        Vec n = L::splat(static_cast<T>(rows.n)), m = (one[0] + one[1]) / n, square = (two[0] + two[1]) / n;
        Int fits = square < L::splat(std::numeric_limits<T>::max());
        L::store(mean, origin + m);
        L::store(variance, L::max(L::splat(0), square - m * m));
        if (L::total_int(L::tally(fits, Int{})) < W) odd_moments(at, fits, mean, variance, z);
    }

    // Of the lanes that do not fit: without the infinities, of which masks are made. The other lanes keep
    // theirs, so that where a row starts from does not depend on its neighbors.
    HS_APART void odd_moments(int at, const Int& fits, T* mean, T* variance, T* z) const {
        T most = std::numeric_limits<T>::max(), usable[W], certain[W], odd_z[W];
        Vec sum = {}, square = {};
        Int count_of = {}, above = {};
        auto each = [&](auto add) HS_INLINED {
            const T* x = entries + at;
            for (int64_t i = 0; i < rows.n; ++i, x += lanes)
                add(L::load(x), L::splat(most) >= L::magnitude(L::load(x)));
        };
        each([&](Vec v, Int finite) HS_INLINED {
            sum = L::add_where(finite, sum, v);
            count_of = L::tally(finite, count_of);
            above = L::tally(v > L::splat(most), above);
        });
        Vec number = L::to_numbers(count_of), some = L::max(L::splat(1), number), center = sum / some;
        each([&](Vec v, Int finite)
                 HS_INLINED { square = L::add_where(finite, square, (v - center) * (v - center)); });
        L::store(mean, L::pick(fits, L::load(mean), center));
        L::store(variance, L::pick(fits, L::load(variance), square / some));
        L::store(usable, number);
        L::store(certain, L::to_numbers(above));
        for (int l = 0; l < W; ++l)
            odd_z[l] = static_cast<T>(
                quantile(ks[at + l] - static_cast<double>(certain[l]), static_cast<double>(usable[l])));
        L::store(z, L::pick(fits, L::load(z), L::load(odd_z)));
        for (int l = 0; l < W && at + l < count; ++l) {
            if (fits[l] || variance[l] < most) continue;
            Moments m = moments_of_huge(rows.row(base + at + l), rows.n);
            mean[l] = static_cast<T>(m.center());
            variance[l] = static_cast<T>(m.variance());
            z[l] = static_cast<T>(quantile(m, ks[at + l]));
        }
    }

    // The last step of the rows in lanes [at, at + number), in double precision, and what becomes of them.
    void end(int at, int number) {
        T c[W], d[W], active[W], ones[W];
        IntOf<T> settled[W];
        double mu[W], low[W], n = static_cast<double>(rows.n);
        int64_t solved[W], flat[W];
        const LaneSearch<T>& found = search[at / W];
        found.store(c, d, active, ones, settled);
        for (int l = 0; l < W; ++l) {
            double k = ks[at + l];
            Sums sums{found.sum(l), static_cast<double>(active[l]), static_cast<double>(ones[l])};
            double change = (sums.total() - k) * taus[at + l] / sums.active, from = static_cast<double>(c[l]);
            double moved = static_cast<double>(d[l]) + (sums.active > 0 ? change : 0);
            mu[l] = from + moved;
            low[l] = moved - (mu[l] - from);
            Split<T> parts = split<T>(mu[l], low[l]);
            c[l] = parts.c;
            d[l] = parts.d;
            flat[l] = is_flat(sums, k);
            solved[l] = (settled[l] != 0) & !at_edge(k, n, inverse[at + l]);
        }
        // Copies: for all the compiler knows, a row that is written may change the others.
        const Rows<T> own = rows;
        const int64_t from = base + at;
        for (int l = 0; l < number; ++l) {
            int64_t r = from + l;
            T inv = inverse[at + l];
            if (!solved[l]) put_off(r);
            else if (!flat[l]) end_row(own, r, {c[l], d[l]}, mu[l] + low[l], inv, false, sink);
            else
                finish_row(rows, r, mu[l], low[l],
                           {found.sum(l), static_cast<double>(active[l]), static_cast<double>(ones[l])}, inv,
                           false, sink);
        }
    }

    HS_APART void put_off(int64_t row) { rest_of[unsolved++] = row; }

    HS_APART void solve_rest() { RowBatch<T, Sink>(rows, sink).run(rest_of, unsolved); }

    const Rows<T>& rows;
    Sink& sink;
    int64_t base, rest_of[most_side_by_side];
    int count, lanes, unsolved;
    LaneSearch<T> search[most_side_by_side / W];
    double ks[most_side_by_side], taus[most_side_by_side];
    T inverse[most_side_by_side];
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
    // A task's rows stay in the second-level cache between passes: more of them at a time fill the registers
    // of a step better than fewer that would stay in the first.
    for (int64_t r = 0; r < count; r += most_slices) {
        int64_t number = count - r < most_slices ? count - r : most_slices;
        RowBatch<T, Sink>(rows, sink).run(r, static_cast<int>(number));
    }
}

}    // namespace hs::HS_VARIANT
