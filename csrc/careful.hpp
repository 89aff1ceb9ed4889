// One slice by exact selection of breakpoints: for what the Newton search leaves over (infinities, NaN, k at its
// ends, staircases whose steps are much wider than tau). Expected O(n): every round halves what is undecided.
#pragma once
#include <cstdlib>

#include "newton.hpp"

namespace hs::HS_VARIANT {

struct Answer {
    enum Kind { threshold, zeros, ones, shared, not_a_number, masked, no_memory } kind;
    double mu, low;
    int64_t count;    // shared: entries at +inf; masked: entries that are not -inf
};

// Where no entry is active every mu between two entries solves the problem; the house takes the middle.
template <class T>
double middle(const T* x, int64_t stride, int64_t n, double mu, double tau) {
    double inf = std::numeric_limits<double>::infinity(), zero = -inf, one = inf;
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i * stride]);
        if (!std::isfinite(v)) continue;
        if (v - mu > tau / 2) one = v < one ? v : one;
        else zero = v > zero ? v : zero;
    }
    if (one == inf) return zero == -inf ? 0 : zero;
    if (zero == -inf) return one - tau;
    return zero + ((one - zero) - tau) / 2;
}

struct Undecided {
    double *x, k, tau, origin;
    int64_t n;
    double ones, lines, line_sum;    // entries decided to be 1, or active, on the whole bracket

    double at(double mu) const {
        double s = ones + (line_sum + lines * (origin - mu)) / tau;
        for (int64_t i = 0; i < n; ++i) {
            double t = (x[i] - mu) / tau;
            s += t >= 1 ? 1 : t > 0 ? t : 0;
        }
        return s;
    }

    void narrow(double lo, double hi) {
        int64_t kept = 0;
        for (int64_t i = 0; i < n; ++i) {
            double v = x[i], w = v - tau;
            if ((v > lo && v < hi) || (w > lo && w < hi)) x[kept++] = v;
            else if (w >= hi) ones += 1;
            else if (v >= hi) lines += 1, line_sum += v - origin;
        }
        n = kept;
    }
};

inline double select(Undecided u) {
    double inf = std::numeric_limits<double>::infinity(), lo = -inf, hi = inf;
    uint64_t random = 0x9E3779B97F4A7C15u;
    while (u.n > 0) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        double v = u.x[(random >> 33) % static_cast<uint64_t>(u.n)], w = v - u.tau;
        bool use_v = v > lo && v < hi && !((random >> 32 & 1) && w > lo && w < hi);
        double mu = use_v ? v : w, r = u.at(mu) - u.k;
        if (r == 0) return mu;
        (r > 0 ? lo : hi) = mu;
        u.narrow(lo, hi);
    }
    if (u.lines == 0) return lo == -inf ? hi : hi == inf ? lo : lo + (hi - lo) / 2;
    double mu = u.origin + (u.line_sum - u.tau * (u.k - u.ones)) / u.lines;
    return mu < lo ? lo : mu > hi ? hi : mu;
}

// The active set is known; one Newton step in doubled precision gives the digits that x - tau rounded away.
// True if no entry is active.
template <class T>
bool polish(const T* x, int64_t stride, int64_t n, double k, double tau, Answer& answer) {
    Sums sums{0, 0, 0};
    for (int64_t i = 0; i < n; ++i) {
        double t = (static_cast<double>(x[i * stride]) - answer.mu) / tau;
        if (t >= 1) sums.ones += 1;
        else if (t > 0) sums.active_sum += t, sums.active += 1;
    }
    if (is_flat(sums.active_sum, sums.active, k)) return true;
    double step = (sums.total() - k) / sums.active * tau;
    if (!(std::fabs(step) < tau)) return false;
    double moved = answer.mu + step, back = moved - answer.mu;
    answer.low = (answer.mu - (moved - back)) + (step - back);
    answer.mu = moved;
    return false;
}

template <class T>
Answer careful(const T* x, int64_t stride, int64_t n, double k, double tau) {
    double inf = std::numeric_limits<double>::infinity();
    auto* buffer = static_cast<double*>(std::malloc(static_cast<size_t>(n > 0 ? n : 1) * sizeof(double)));
    if (!buffer) return {Answer::no_memory, 0, 0, 0};
    int64_t finite = 0, above = 0;
    bool nan = false;
    double least = inf, most = -inf;
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i * stride]);
        nan = nan || v != v;
        if (v == inf) ++above;
        if (!std::isfinite(v)) continue;
        buffer[finite++] = v;
        least = v < least ? v : least;
        most = v > most ? v : most;
    }
    double rest = k - static_cast<double>(above);
    Answer answer{Answer::threshold, 0, 0, 0};
    if (nan) answer.kind = Answer::not_a_number;
    else if (rest > static_cast<double>(finite)) answer.kind = Answer::masked, answer.count = finite + above;
    else if (rest < 0) answer.kind = Answer::shared, answer.mu = inf, answer.count = above;
    else if (rest == 0) answer = {Answer::zeros, finite ? most : 0, 0, 0};
    else if (rest == static_cast<double>(finite)) answer = {Answer::ones, least - tau, 0, 0};
    else {
        answer.mu = select({buffer, rest, tau, buffer[0], finite, 0, 0, 0});
        if (polish(x, stride, n, k, tau, answer)) answer.mu = middle(x, stride, n, answer.mu, tau);
    }
    std::free(buffer);
    return answer;
}

// The slice itself, once its answer is known. Double precision throughout: this is not the fast path.
template <class T>
void write_careful(const T* x, T* y, int64_t stride, int64_t n, double k, double tau, const Answer& answer) {
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i * stride]), t;
        if (answer.kind == Answer::not_a_number) t = std::numeric_limits<double>::quiet_NaN();
        else if (std::isinf(v)) t = v < 0 ? 0 : answer.kind == Answer::shared ? k / static_cast<double>(answer.count) : 1;
        else if (answer.kind == Answer::shared || answer.kind == Answer::zeros) t = 0;
        else if (answer.kind == Answer::ones) t = 1;
        else t = ((v - answer.mu) - answer.low) / tau;
        y[i * stride] = static_cast<T>(t > 1 ? 1 : t < 0 ? 0 : t);
    }
}

}  // namespace hs::HS_VARIANT
