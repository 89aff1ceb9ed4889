// The threshold search of as many rows as a register has lanes, in T's own precision. It says which rows it
// has settled; the others are for a more careful search.
#pragma once
#include "newton.hpp"
#include "rows.hpp"

namespace hs::HS_VARIANT {

constexpr int rough_passes = 26, late_rough_pass = 6, precise_passes = 3;
constexpr int64_t precise_run = 16;    // entries whose sums are single precision

template <class T>
class LaneSearch {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    static constexpr int W = L::width;
    static constexpr T inf = std::numeric_limits<T>::infinity();

  public:
    // k = whole + rest. The threshold is c + d; `far` is how far to go while one end is unknown, for each
    // entry too many or too few.
    void start(const T* whole_k, const T* rest_k, const T* taus, const T* inverses, const T* guess,
               const T* far) {
        whole = L::load(whole_k);
        rest = L::load(rest_k);
        tau = L::load(taus);
        inverse = L::load(inverses);
        c = L::load(guess);
        d = L::splat(0);
        goal = whole + rest;
        reach = L::load(far);
        lo = L::splat(-inf);
        hi = L::splat(inf);
        hopeless = ~(c + tau > c);
        settled = hopeless;
    }

    // One pass and one step; true when no lane has far to go. Entry i of row l lies at x[i * spacing + l].
    HS_INLINE bool approach(const T* x, int64_t spacing, int64_t n, int pass) {
        Vec r = rough_sum(x, spacing, n) * inverse - goal;
        pass < late_rough_pass ? follow<false>(r) : follow<true>(r);
        return L::all(settled);
    }

    // The same for the rest of the way, where a step may be smaller than c can tell. A lane where the
    // residual is small stays: its last step is taken in double precision, and is so small that no pass has
    // to confirm it.
    HS_INLINE bool arrive(const T* x, int64_t spacing, int64_t n) {
        precise_sums(x, spacing, n);
        T sum[W];
        for (int l = 0; l < W; ++l) sum[l] = static_cast<T>(sums[l]);
        Vec r = (ones - whole) + (L::load(sum) - rest), noise = L::splat(T(sizeof(T) == 8 ? 1e-13 : 1e-6));
        settled = settled | (noise * active >= L::magnitude(r));
        if (L::all(settled)) return true;
        narrow(r > L::splat(0));
        Vec moved = d + r * tau / active, newton = c + moved, between = (lo + hi) * L::splat(T(0.5));
        Int bracketed = L::magnitude(between) < L::splat(inf);
        Int inside = (active > L::splat(0)) & (newton >= lo) & (hi >= newton);
        Vec far = L::max(L::magnitude(r) * reach, tau * L::splat(T(0.5)));
        Vec other = L::pick(bracketed, between, c + L::with_sign(far, r));
        d = L::pick(settled, d, L::keep(moved - (newton - c), inside));
        c = L::pick(settled, c, L::pick(inside, newton, other));
        return false;
    }

    // Between the two: the bracket goes too. Near the end rough sums may be on the wrong side, and how many
    // passes there were depends on the other lanes.
    void unsettle() {
        settled = hopeless;
        lo = L::splat(-inf);
        hi = L::splat(inf);
    }

    double sum(int l) const { return sums[l]; }

    // What was found: the thresholds, what was counted there, and which lanes have settled.
    void store(T* at, T* low, T* active_count, T* one_count, IntOf<T>* done) const {
        L::store(at, c);
        L::store(low, d);
        L::store(active_count, active);
        L::store(one_count, ones);
        L::store_int(done, settled & ~hopeless);
    }

  private:
    // The bracket by the sign of the residual at c.
    HS_INLINE void narrow(Int up) {
        lo = L::pick(up, c, lo);
        hi = L::pick(up, hi, c);
    }

    // A step by the residual r at c; where it is small, the last one. A late step must make way, or two
    // points could lead to each other again and again, and where c cannot make any it is as near as it can
    // be.
    template <bool late>
    HS_INLINE void follow(Vec r) {
        Vec size = L::magnitude(r), half = L::splat(T(0.5));
        // A NaN has no way to go: it is noticed later.
        Int small = ~(size > L::splat(T(1e-3))), flat = ~(active > L::splat(0));
        narrow(r > L::splat(0));
        Vec newton = c + r * tau / active, between = (lo + hi) * half;
        Int bracketed = L::magnitude(between) < L::splat(inf);
        if constexpr (late) small = small | (newton == c) | (bracketed & ((lo >= between) | (between >= hi)));
        Int inside = small | ((newton > lo) & (newton < hi));
        Vec jump = c + L::with_sign(L::max(size * reach, tau * half), r);
        reach = L::pick(inside | bracketed, reach, reach + reach);
        Vec next = L::pick(inside, newton, L::pick(bracketed, between, jump));
        c = L::pick(settled | (small & flat), c, next);
        settled = settled | small;
    }

    // tau times the sum of the projection. An entry at the end of the active range counts as active.
    HS_INLINE Vec rough_sum(const T* x, int64_t spacing, int64_t n) {
        Vec total[2] = {};
        Int count[2] = {};
        auto add = [&](const T* p, int chain) HS_INLINED {
            Vec t = L::load(p) - c, inside = L::clip(t, tau);
            total[chain] += inside;
            count[chain] = L::tally_unclipped(t, tau, inside, count[chain]);
        };
        int64_t i = 0;
        for (; i + 4 <= n; i += 4, x += 4 * spacing)
            for (int j = 0; j < 4; ++j) add(x + j * spacing, j % 2);
        for (; i < n; ++i, x += spacing) add(x, i % 2);
        active = L::to_numbers(count[0] + count[1]);
        return total[0] + total[1];
    }

    // Of the active entries alone, in short chains for the reason given in pass_parts.
    HS_INLINE void precise_sums(const T* x, int64_t spacing, int64_t n) {
        const Pass<T> at(c, d, inverse);
        LaneTally<T> tally;
        for (int l = 0; l < W; ++l) sums[l] = 0;
        for (int64_t i = 0; i < n;) {
            Vec total[2] = {};
            int64_t stop = i + precise_run < n ? i + precise_run : n;
            for (; i + 2 <= stop; i += 2, x += 2 * spacing) {
                at.add(L::load(x), total[0], tally);
                at.add(L::load(x + spacing), total[1], tally);
            }
            if (i < stop) at.add(L::load(x), total[0], tally), x += spacing, ++i;
            L::add_to(sums, total[0] + total[1]);
        }
        active = L::to_numbers(tally.active());
        ones = L::to_numbers(tally.ones());
    }

    Vec c, d, lo, hi, reach, tau, inverse, whole, rest, goal;
    Vec active, ones;
    double sums[W];           // of the active entries
    Int settled, hopeless;    // hopeless: tau is less than T can tell
};

}    // namespace hs::HS_VARIANT
