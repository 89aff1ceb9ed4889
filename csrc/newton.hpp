// The search for one slice's threshold: safeguarded Newton steps on f(mu) = sum clip((x - mu)/tau, 0, 1) - k.
#pragma once
#include "lanes.hpp"

namespace hs::HS_VARIANT {

// One pass over a slice at some mu: how many entries are active, what they sum to, how many are 1.
struct Sums {
    double active_sum, active, ones;
    HS_INLINE double total() const { return active_sum + ones; }
    void add(const Sums& other) {
        active_sum += other.active_sum;
        active += other.active;
        ones += other.ones;
    }
};

// A threshold split so that (x - c) - d keeps every digit of x - mu that matters after division by tau:
// c is the nearest T, and whenever an entry is active |d| <= tau.
template <class T>
struct Split {
    T c, d;
};

// Plain numbers without branches, so that a loop over slices vectorises.
struct Search {
    double mu, low;       // the threshold is mu + low; low holds what double precision cannot
    double lo, hi;        // bracket
    double r_lo, r_hi;    // residuals there
    double width;         // how far to jump while one end is unknown
    double last;          // the residual of the pass before
    int64_t settled;      // no step is left to do; mu stays
    int64_t stuck;        // the sums are not numbers
    int64_t near;         // the next pass is very likely the last, so it may write
};

template <class T>
HS_INLINE Split<T> split(double mu, double low) {
    T c = static_cast<T>(mu);
    return {c, static_cast<T>((mu - static_cast<double>(c)) + low)};
}

HS_INLINE Search start_at(double mu, double width) {
    double inf = std::numeric_limits<double>::infinity();
    return {mu, 0, -inf, inf, 0, 0, width, inf, 0, 0, 0};
}

// The residual a threshold may leave: what rounding of the entries themselves explains.
template <class T>
HS_INLINE double tolerance(const Sums& sums, double k) {
    double least = sums.active < k ? sums.active : k;
    if (sizeof(T) == 8) return 4e-16 * least + 1e-16 * k;
    return 1e-7 * least;
}

// The residual below which a search that no longer improves has met the rounding of its own sums.
template <class T>
HS_INLINE double noise(const Sums& sums) {
    return (sizeof(T) == 8 ? 1e-13 : 1e-6) * sums.active;
}

// Whether the step from here will very likely be the last, so that the next pass may write: either it crosses
// no entry, or the error, which Newton steps square, will vanish. `last` is the residual before this one.
template <class T>
HS_INLINE bool close(const Sums& sums, double k, double last) {
    double r = std::fabs(sums.total() - k), before = last * last, after = r * r * r;
    bool vanishing =
        (r <= 2e-3 * sums.active) & (after <= (sizeof(T) == 8 ? 4e-16 : 6e-8) * before * sums.active);
    return (r <= 0.1) | (r <= (sizeof(T) == 8 ? 1e-8 : 2e-4) * sums.active) | vanishing;
}

// From s.mu + s.low, where the residual is r, by `change` if some entry is active and the bracket allows it.
HS_INLINE void follow(Search& s, double r, double change, bool active) {
    bool up = r > 0;
    s.lo = up ? s.mu : s.lo;
    s.r_lo = up ? r : s.r_lo;
    s.hi = up ? s.hi : s.mu;
    s.r_hi = up ? s.r_hi : r;
    double newton = s.mu + change;
    bool inside = active && newton >= s.lo && newton <= s.hi;
    bool bracketed = s.hi - s.lo < std::numeric_limits<double>::infinity();
    double fraction = s.r_lo / (s.r_lo - s.r_hi);
    fraction = fraction > 0.9 ? 0.9 : fraction < 0.1 ? 0.1 : fraction;
    double between = s.lo + (s.hi - s.lo) * fraction;
    double jump = up ? s.mu + s.width : s.mu - s.width;
    s.width = inside || bracketed ? s.width : 4 * s.width;
    double other = bracketed ? between : jump;
    double moved = s.low + change;
    double sum = s.mu + moved, back = sum - s.mu;
    // Not to the other end of the bracket: its own step may well lead back here, again and again.
    double next = inside ? sum : other, seen = up ? s.hi : s.lo;
    s.low = inside ? (s.mu - (sum - back)) + (moved - back) : 0;
    s.mu = next == seen ? between : next;
}

HS_INLINE void step(Search& s, const Sums& sums, double k, double n, double tau) {
    double total = sums.total();
    // Far away the tail of f is closer to an exponential than to a line: step on log f (here by a rational
    // approximation), on the side with fewer entries.
    bool small = 2 * k <= n;
    double part = small ? total : n - total, goal = small ? k : n - k;
    double square = part * part + goal * goal, excess = part - goal;
    bool nearby = std::fabs(excess) < 0.25 * goal;
    double rise = nearby ? excess : 3 * excess * (part + goal) * part;
    double run = nearby ? sums.active : (square + 4 * part * goal) * sums.active;
    follow(s, total - k, (small ? rise : -rise) * tau / run, sums.active > 0);
}

// Judges the sums of a pass at s.mu + s.low, and steps unless they will do. A late pass must be fine: where
// the sums' own rounding stops a search that took so long, the selection knows better.
template <class T>
HS_INLINE void advance(Search& s, const Sums& sums, double k, double n, double tau, bool late = false) {
    double r = std::fabs(sums.total() - k);
    int64_t exact = (sums.active == 0) & (r == 0);
    int64_t fine = (r <= tolerance<T>(sums, k)) & (sums.active > 0);
    int64_t stalled = (r <= noise<T>(sums)) & (r > s.last / 2) & !late;
    int64_t bad = !(r >= 0);
    int64_t now = s.settled | exact | fine | stalled | bad;
    Search next = s;
    step(next, sums, k, n, tau);
    next.mu = now ? s.mu : next.mu;
    next.low = now ? s.low : next.low;
    next.near = now | static_cast<int64_t>(close<T>(sums, k, s.last));
    next.last = r;
    next.settled = now;
    next.stuck = s.stuck | bad;
    s = next;
}

// Whether the solved slice has no active entry but for rounding: the active entries sum to a whole number,
// and that number is none or all of them.
HS_INLINE bool is_flat(const Sums& s, double k) {
    bool either = (s.active_sum < 0.5) | (s.active - s.active_sum < 0.5);
    return (s.active == 0) | ((k == std::floor(k)) & either);
}

// Where no entry is active every mu between two entries solves the problem; the house takes the middle, or
// the finite end. Halved before they are added, lest the sum overflow.
inline double middle(double zero, double one, double tau) {
    bool low = std::isfinite(zero), high = std::isfinite(one);
    if (low && high) return zero / 2 + (one - tau) / 2;
    return low ? zero : high ? one - tau : 0;
}

// How many standard deviations above the mean a normal variable is with chance k/n, to 2 % between 10^-4 and
// 1 - 10^-4: Tukey's lambda distribution, its power an eighth so that square roots will do.
HS_INLINE double quantile(double k, double n) {
    double above = k < 0 ? 0 : k < n ? k / n : 1;
    return 5.39 * (std::sqrt(std::sqrt(std::sqrt(1 - above))) - std::sqrt(std::sqrt(std::sqrt(above))));
}

// What a curve S is as a distribution function: its mean, and 1 over its variance. The ramp's is uniform.
struct Blur {
    double mean = 0.5, precision = 12;
};

// The threshold of a slice with this mean and variance if it were normal, z its quantile: S((x - mu)/tau) is
// the chance that x - tau * U exceeds mu, U distributed as S.
HS_INLINE double normal_threshold(double mean, double variance, double z, double tau, Blur u = {}) {
    return mean - tau * u.mean + std::sqrt(variance + tau * tau / u.precision) * z;
}

HS_INLINE Search start_near(double mean, double variance, double z, double tau) {
    double spread = std::sqrt(variance + tau * tau / 12);
    return start_at(normal_threshold(mean, variance, z, tau), tau / 2 + spread / 8);
}

// The number with as many floating-point numbers above it, up to b, as below it, down to a.
inline double halfway(double a, double b) {
    auto key = [](double v) {
        int64_t bits;
        std::memcpy(&bits, &v, sizeof v);
        return bits < 0 ? std::numeric_limits<int64_t>::min() - bits : bits;
    };
    int64_t from = key(a), to = key(b), middle = (from & to) + ((from ^ to) >> 1);
    middle = middle < 0 ? std::numeric_limits<int64_t>::min() - middle : middle;
    double out;
    std::memcpy(&out, &middle, sizeof out);
    return out;
}

constexpr int most_passes = 28, late_pass = 14;    // a selection takes as long as a hundred passes

}    // namespace hs::HS_VARIANT
