// One slice by exact selection: for what the Newton search leaves over (infinities, NaN, k at its ends, gaps
// of just tau, staircases whose steps are much wider than tau). Expected O(n): every round halves what is
// undecided.
#pragma once
#include "blocks.hpp"
#include "curves.hpp"

namespace hs::HS_VARIANT {

struct Answer {
    enum Kind { threshold, flat, shared, not_a_number, masked, no_memory } kind;
    double mu, low;    // the threshold is mu + low
    double edge;       // flat: entries from here on are 1, the others 0
    int64_t count;     // shared: entries at +inf; masked: entries that are not -inf
};

inline int64_t any_of(uint64_t& random, int64_t n) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((random >> 33) % static_cast<uint64_t>(n));
}

// The j-th largest of n numbers, of which the rest is lost.
inline double largest(double* x, int64_t n, int64_t j) {
    uint64_t random = 0x9E3779B97F4A7C15u;
    for (;;) {
        double pivot = x[any_of(random, n)];
        int64_t above = 0, equal = 0, kept = 0;
        for (int64_t i = 0; i < n; ++i) {
            above += x[i] > pivot;
            equal += x[i] == pivot;
        }
        if (j > above && j <= above + equal) return pivot;
        bool up = j <= above;
        for (int64_t i = 0; i < n; ++i)
            if (up ? x[i] > pivot : x[i] < pivot) x[kept++] = x[i];
        j -= up ? 0 : above + equal;
        n = kept;
    }
}

// Entries z = (x - edge)/tau between -1 and 1, and nu between -1 and 0 with sum clip(z - nu, 0, 1) = k. Every
// entry has one breakpoint there: below 0 it is z, where the entry leaves 0, above 0 it is z - 1, where it
// arrives at 1.
struct Undecided {
    double *z, k;
    int64_t n;
    double ones, lines, line_sum;    // entries known to be 1, or active, on the whole bracket

    static double breakpoint(double z) { return z > 0 ? z - 1 : z; }

    double residual(double nu) const {
        double s = line_sum - lines * nu - (k - ones);
        for (int64_t i = 0; i < n; ++i) {
            double t = z[i] - nu;
            s += t >= 1 ? 1 : t > 0 ? t : 0;
        }
        return s;
    }

    void narrow(double lo, double hi) {
        int64_t kept = 0;
        for (int64_t i = 0; i < n; ++i) {
            double v = z[i], b = breakpoint(v);
            if (b > lo && b < hi) z[kept++] = v;
            else if (v > 0 && b >= hi) ones += 1;
            else if (v > 0 || b >= hi) lines += 1, line_sum += v;
        }
        n = kept;
    }

    double solve() {
        double lo = -1, hi = 0;
        uint64_t random = 0x9E3779B97F4A7C15u;
        narrow(lo, hi);
        while (n > 0) {
            double nu = breakpoint(z[any_of(random, n)]), r = residual(nu);
            if (r == 0) return nu;
            (r > 0 ? lo : hi) = nu;
            narrow(lo, hi);
        }
        double nu = (line_sum - (k - ones)) / lines;
        return nu < lo ? lo : nu > hi ? hi : nu;
    }
};

// Of the finite entries `rest` are to be shared out, 0 < rest <= their number. The edge is the ceil(rest)-th
// largest. Unless the slice is flat it has 0 < y < 1, so the threshold is less than tau below it: measured
// from there, in units of tau, nothing is rounded away.
template <class T>
Answer select(const T* x, int64_t stride, int64_t n, double* buffer, int64_t finite, double rest,
              double tau) {
    double edge = largest(buffer, finite, static_cast<int64_t>(std::ceil(rest)));
    double below = -std::numeric_limits<double>::infinity(), at_least = 0;
    Undecided u{buffer, rest, 0, 0, 0, 0};
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i * stride]), z = (v - edge) / tau;
        if (!std::isfinite(v)) continue;
        if (v >= edge) at_least += 1;
        else below = v > below ? v : below;
        if (z >= 1) u.ones += 1;
        else if (z > -1) buffer[u.n++] = z;
    }
    if (at_least == rest && edge - below >= tau) return {Answer::flat, middle(below, edge, tau), 0, edge, 0};
    return {Answer::threshold, edge, tau * u.solve(), edge, 0};
}

// The same for a smooth curve: for what the passes over E leave over, among which is a tau so small that most
// exponentials are 0 or too large. The search is for nu = (mu - edge)/tau. At the edge, the ceil(rest)-th
// largest, y is at least what the mean of the rest needs, and at the floor(rest + 1)-th at most what the mean
// of those so far allows: so nu lies between two numbers.
//
// Of the two mirrored curves. The ones are taken off k and the sum is of what is left below 0 and above it:
// in a wide gap nothing else tells where its middle is.
inline double solve_mirrored(const double* z, int64_t n, double k, Curve curve, double lo, double hi) {
    double nu = lo / 2 + hi / 2, last = std::numeric_limits<double>::infinity();
    for (int pass = 0; pass < 300; ++pass) {
        double sum = 0, slope = 0, total = 0, ones = 0;
        for (int64_t i = 0; i < n; ++i) {
            double t = z[i] - nu, part = rise(curve, -std::fabs(t));
            sum += t < 0 ? part : -part;
            total += part;
            ones += t < 0 ? 0 : 1;
            slope += slope_at(curve, part);
        }
        double r = sum - (k - ones), size = std::fabs(r);
        if (size <= 1e-16 * total) return nu;
        (r > 0 ? lo : hi) = nu;
        // Where there are too many the sum falls like an exponential, and its logarithm like a line.
        double next = nu + (r > k ? std::log((r + k) / k) * (r + k) : r) / slope;
        bool inside = next > lo && next < hi && size < last / 2;
        next = inside ? next : lo / 2 + hi / 2;
        if (next == nu || !(next > lo && next < hi)) return nu;
        nu = next;
        last = inside ? size : std::numeric_limits<double>::infinity();
    }
    return nu;
}

// Of exp: from the edge up, where the sum is at least k. The first step goes too far, if anything; the others
// come back, and the last finds all entries on their sides.
inline double solve_exp(const double* z, int64_t n, double k) {
    double nu = 0;
    for (int pass = 0; pass < 300; ++pass) {
        double sum = 0, ones = 0;
        for (int64_t i = 0; i < n; ++i) {
            if (z[i] > nu) ones += 1;
            else sum += std::exp(z[i] - nu);
        }
        double next = nu + std::log(sum / (k - ones));
        if (pass > 0 && !(next < nu)) return nu;
        nu = next;
    }
    return nu;
}

template <class T>
Answer select_smooth(const T* x, int64_t stride, int64_t n, double* buffer, int64_t finite, double rest,
                     double tau, Curve curve) {
    double whole = std::floor(rest), top = std::ceil(rest), count = static_cast<double>(finite);
    double edge = largest(buffer, finite, static_cast<int64_t>(top));
    double below = -std::numeric_limits<double>::infinity(), at_least = 0;
    int64_t number = 0;
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i * stride]);
        if (!std::isfinite(v)) continue;
        if (v >= edge) at_least += 1;
        else below = v > below ? v : below;
        buffer[number++] = (v - edge) / tau;
    }
    double gap = at_least > whole ? 0 : (below - edge) / tau;
    // No y differs from 0 or 1 so far from both sides.
    if (gap < -2000) return {Answer::flat, curve == Curve::exp ? edge : edge / 2 + below / 2, 0, edge, 0};
    double lo = curve == Curve::exp ? 0 : gap - place_at(curve, rest / (whole + 1));
    double hi = -place_at(curve, (rest - (top - 1)) / (count - (top - 1)));
    // What is certainly 1 or 0 on all of the bracket needs no further look.
    double ones = 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < finite; ++i) {
        double z = buffer[i];
        if (z - hi > 745) ones += 1;
        else if (z - lo >= -745) buffer[kept++] = z;
    }
    double nu = curve == Curve::exp ? solve_exp(buffer, kept, rest - ones)
                                    : solve_mirrored(buffer, kept, rest - ones, curve, lo, hi);
    return {Answer::threshold, edge, tau * nu, edge, 0};
}

// For k = 0 and k = n the threshold of a smooth curve is infinite, but for the smallest entry where exp is 1
// from there on.
template <class T>
Answer by_selection(const T* x, int64_t stride, int64_t n, double k, double tau, Curve curve = Curve::ramp) {
    double inf = std::numeric_limits<double>::infinity(), most = -inf, least = inf;
    Scratch<double> buffer;
    if (!buffer.take(n)) return {Answer::no_memory, 0, 0, 0, 0};
    int64_t finite = 0, above = 0;
    bool nan = false;
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i * stride]);
        nan = nan || v != v;
        above += v == inf;
        if (!std::isfinite(v)) continue;
        buffer.data[finite++] = v;
        most = v > most ? v : most;
        least = v < least ? v : least;
    }
    double rest = k - static_cast<double>(above);
    if (nan) return {Answer::not_a_number, 0, 0, 0, 0};
    if (rest > static_cast<double>(finite)) return {Answer::masked, 0, 0, 0, finite + above};
    if (rest < 0) return {Answer::shared, inf, 0, inf, above};
    bool smooth = curve != Curve::ramp;
    if (rest == 0) return {Answer::flat, smooth ? inf : middle(most, inf, tau), 0, inf, 0};
    if (smooth && rest == static_cast<double>(finite))
        return {Answer::flat, curve == Curve::exp ? least : -inf, 0, least, 0};
    return smooth ? select_smooth(x, stride, n, buffer.data, finite, rest, tau, curve)
                  : select(x, stride, n, buffer.data, finite, rest, tau);
}

// The slice itself, once its answer is known. Double precision throughout: this is not the fast path.
template <class T>
void write_answer(const T* x, T* y, int64_t stride, int64_t n, double k, double tau, const Answer& answer,
                  Curve curve = Curve::ramp) {
    double inf = std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < n; ++i) {
        double v = static_cast<double>(x[i * stride]), t;
        if (answer.kind == Answer::not_a_number) t = std::numeric_limits<double>::quiet_NaN();
        else if (answer.kind == Answer::shared) t = v == inf ? k / static_cast<double>(answer.count) : 0;
        else if (answer.kind == Answer::flat) t = v >= answer.edge ? 1 : 0;
        else t = rise(curve, ((v - answer.mu) - answer.low) / tau);
        y[i * stride] = static_cast<T>(t);
    }
}

}    // namespace hs::HS_VARIANT
