// The search for one slice's threshold: a safeguarded Newton step on f(mu) = sum clip((x - mu)/tau, 0, 1) - k.
#pragma once
#include "lanes.hpp"

namespace hs::HS_VARIANT {

// One pass over a slice at some mu: how many entries are active, what they sum to, how many are 1.
struct Sums {
    double active_sum, active, ones;
    HS_INLINE double total() const { return active_sum + ones; }
};

// A threshold split so that (x - c) - d keeps every digit of x - mu that matters after division by tau:
// c is the nearest T, and whenever an entry is active |d| <= tau.
template <class T>
struct Split {
    T c, d;
};

// The state is plain doubles passed by reference, without branches, so that a loop over slices vectorises.
struct Search {
    double mu, low;     // the threshold is mu + low; low holds what double precision cannot
    double lo, hi;      // bracket
    double r_lo, r_hi;  // residuals there
    double width;       // how far to jump while one end is unknown
};

template <class T>
HS_INLINE Split<T> split(double mu, double low) {
    T c = static_cast<T>(mu);
    return {c, static_cast<T>((mu - static_cast<double>(c)) + low)};
}

inline Search start_at(double mu, double width) {
    double inf = std::numeric_limits<double>::infinity();
    return {mu, 0, -inf, inf, 0, 0, width};
}

HS_INLINE void advance(const Sums& sums, double k, double n, double tau, double& mu, double& low, double& lo,
                       double& hi, double& r_lo, double& r_hi, double& width) {
    double s = sums.total(), r = s - k;
    bool up = r > 0;
    lo = up ? mu : lo;
    r_lo = up ? r : r_lo;
    hi = up ? hi : mu;
    r_hi = up ? r_hi : r;
    // Far away the tail of f is closer to an exponential than to a line: step on log f (here by a rational
    // approximation), on the side with fewer entries.
    bool small = 2 * k <= n;
    double part = small ? s : n - s, goal = small ? k : n - k;
    double square = part * part + goal * goal, excess = part - goal;
    bool nearby = std::fabs(excess) < 0.25 * goal;
    double rise = nearby ? excess : 3 * excess * (part + goal) * part;
    double run = nearby ? sums.active : (square + 4 * part * goal) * sums.active;
    double step = (small ? rise : -rise) * tau / run;
    double newton = mu + step;
    bool inside = sums.active > 0 && newton >= lo && newton <= hi;
    bool bracketed = hi - lo < std::numeric_limits<double>::infinity();
    double share = r_lo / (r_lo - r_hi);
    share = share > 0.9 ? 0.9 : share < 0.1 ? 0.1 : share;
    double between = lo + (hi - lo) * share;
    double jump = up ? mu + width : mu - width;
    width = inside || bracketed ? width : 4 * width;
    double other = bracketed ? between : jump;
    double moved = low + step;
    double sum = mu + moved, back = sum - mu;
    low = inside ? (mu - (sum - back)) + (moved - back) : 0;
    mu = inside ? sum : other;
}

inline void advance(const Sums& sums, double k, double n, double tau, Search& s) {
    advance(sums, k, n, tau, s.mu, s.low, s.lo, s.hi, s.r_lo, s.r_hi, s.width);
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

// Whether the step from here will very likely be the last, so that the next pass may write: either it crosses no
// entry, or the error, which Newton steps square, will vanish. `last` is the residual before this one.
template <class T>
HS_INLINE bool close(const Sums& sums, double k, double last) {
    double r = std::fabs(sums.total() - k), before = last * last, after = r * r * r;
    bool vanishing = (r <= 2e-3 * sums.active) & (after <= (sizeof(T) == 8 ? 4e-16 : 6e-8) * before * sums.active);
    return (r <= 0.1) | (r <= (sizeof(T) == 8 ? 1e-8 : 2e-4) * sums.active) | vanishing;
}

// Whether the solved slice has no active entry but for rounding: the active entries sum to a whole number, and that
// number is none or all of them.
HS_INLINE bool is_flat(const Sums& s, double k) {
    return s.active == 0 || (k == std::floor(k) && (s.active_sum < 0.5 || s.active - s.active_sum < 0.5));
}

// How many standard deviations above the mean a normal variable is with chance k/n, to 2 % between 10^-4 and 1 - 10^-4:
// Tukey's lambda distribution, its power an eighth so that square roots will do.
HS_INLINE double quantile(double k, double n) {
    double above = k < 0 ? 0 : k < n ? k / n : 1;
    return 5.39 * (std::sqrt(std::sqrt(std::sqrt(1 - above))) - std::sqrt(std::sqrt(std::sqrt(above))));
}

// The threshold of a slice with this mean and variance if it were normal, z its quantile: clip((x - mu)/tau) is the
// chance that x - tau * U exceeds mu, U uniform.
HS_INLINE double guess(double mean, double variance, double z, double tau) {
    return mean - tau / 2 + std::sqrt(variance + tau * tau / 12) * z;
}

constexpr int most_passes = 14;

}  // namespace hs::HS_VARIANT
