// The projection of one slice, slow and obviously right: sorted breakpoints. The kernel is held against it.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace reference {

using Slice = std::vector<double>;
constexpr double inf = std::numeric_limits<double>::infinity(),
                 nan = std::numeric_limits<double>::quiet_NaN();

inline double clip(double t) { return t > 1 ? 1 : t > 0 ? t : 0; }

inline bool has_nan(const Slice& x) {
    return std::any_of(x.begin(), x.end(), [](double v) { return v != v; });
}

struct Solution {
    Slice y;
    double mu;
};

// Finite entries z around the one that must be active, and where sum clip(z - nu, 0, 1) = k.
inline double solve(const Slice& z, double k) {
    Slice breakpoints;
    for (double v : z) breakpoints.insert(breakpoints.end(), {v, v - 1});
    std::sort(breakpoints.begin(), breakpoints.end());
    auto sum = [&](double nu) {
        double s = 0;
        for (double v : z) s += clip(v - nu);
        return s;
    };
    size_t left = 0, right = breakpoints.size() - 1;
    while (right - left > 1) {
        size_t middle = (left + right) / 2;
        (sum(breakpoints[middle]) >= k ? left : right) = middle;
    }
    double hi = breakpoints[right], ones = 0, active = 0, active_sum = 0;
    for (double v : z) {
        if (v - 1 >= hi) ones += 1;
        else if (v >= hi) active += 1, active_sum += v;
    }
    return (active_sum - (k - ones)) / active;
}

inline Solution project(const Slice& x, double k, double tau) {
    if (has_nan(x)) return {Slice(x.size(), nan), nan};
    Slice y(x.size());
    double infinite = static_cast<double>(std::count(x.begin(), x.end(), inf));
    if (infinite > k) {
        for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] == inf ? k / infinite : 0;
        return {y, inf};
    }
    Slice largest = x;
    std::sort(largest.begin(), largest.end(), std::greater<>());
    largest.insert(largest.begin(), inf);
    largest.push_back(-inf);
    size_t whole = static_cast<size_t>(k);
    if (k == std::floor(k) && largest[whole] - largest[whole + 1] >= tau) {
        double above = largest[whole], low = largest[whole + 1], high = above - tau;
        for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] >= above ? 1 : 0;
        if (std::isfinite(low) && std::isfinite(high)) return {y, low / 2 + high / 2};
        return {y, std::isfinite(low) ? low : std::isfinite(high) ? high : 0};
    }
    double origin = largest[static_cast<size_t>(std::ceil(k))];
    Slice z(x.size());
    for (size_t i = 0; i < x.size(); ++i) z[i] = std::clamp((x[i] - origin) / tau, -1.0, 1.0);
    double nu = solve(z, k);
    for (size_t i = 0; i < x.size(); ++i) y[i] = clip(z[i] - nu);
    return {y, origin + tau * nu};
}

// S(t) of the smooth curves, numbered as the kernel numbers them.
inline double rise(int curve, double t) {
    if (curve == 1) return std::min(1.0, std::exp(t));
    if (curve == 2) return t < 0 ? std::exp(t) / (1 + std::exp(t)) : 1 / (1 + std::exp(-t));
    return t < 0 ? std::exp(t) / 2 : 1 - std::exp(-t) / 2;
}

inline double curve_sum(int curve, const Slice& x, double mu, double tau) {
    double sum = 0;
    for (double v : x) sum += rise(curve, (v - mu) / tau);
    return sum;
}

// Where a smooth curve sums to k, by halving a bracket.
inline double bisect(int curve, const Slice& x, double k, double tau) {
    double lo = inf, hi = -inf;
    for (double v : x)
        if (std::isfinite(v)) lo = std::min(lo, v), hi = std::max(hi, v);
    lo -= 800 * tau, hi += 800 * tau;
    for (int i = 0; i < 200; ++i) {
        double mu = lo / 2 + hi / 2;
        (curve_sum(curve, x, mu, tau) > k ? lo : hi) = mu;
    }
    return hi;
}

inline Slice binary(const Slice& x, double k) {
    if (has_nan(x)) return Slice(x.size(), nan);
    std::vector<size_t> order(x.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
    Slice y(x.size(), 0);
    for (size_t i = 0; i < static_cast<size_t>(k); ++i) y[order[i]] = 1;
    return y;
}

struct Gradients {
    Slice x;
    double k, tau;
    double slopes = 0;    // their sum
};

inline Gradients backward(const Slice& y, const Slice& v, double tau) {
    Gradients g{Slice(y.size(), 0), 0, 0};
    if (has_nan(y)) return {Slice(y.size(), nan), nan, nan};
    double count = 0, mean_v = 0, mean_y = 0;
    for (size_t i = 0; i < y.size(); ++i)
        if (y[i] > 0 && y[i] < 1) count += 1, mean_v += v[i], mean_y += y[i];
    if (count == 0) return g;
    mean_v /= count, mean_y /= count;
    for (size_t i = 0; i < y.size(); ++i)
        if (y[i] > 0 && y[i] < 1) g.x[i] = (v[i] - mean_v) / tau, g.tau -= v[i] * (y[i] - mean_y) / tau;
    g.k = mean_v;
    return g;
}

// The same for the smooth curves, by their slopes as functions of y.
inline Gradients backward(int curve, const Slice& y, const Slice& v, double tau) {
    Gradients g{Slice(y.size(), 0), 0, 0};
    if (has_nan(y)) return {Slice(y.size(), nan), nan, nan};
    Slice slope(y.size());
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) {
        double rest = 1 - y[i];
        slope[i] = curve == 1 ? (y[i] < 1 ? y[i] : 0) : curve == 2 ? y[i] * rest : std::min(y[i], rest);
        sum += slope[i], g.k += slope[i] * v[i];
    }
    g.k = sum > 0 ? g.k / sum : 0;
    g.slopes = sum;
    for (size_t i = 0; i < y.size(); ++i) {
        if (!(slope[i] > 0)) continue;
        double low = std::log(y[i]), high = std::log(1 - y[i]);
        double t = curve == 1   ? low
                   : curve == 2 ? low - high
                   : y[i] < 0.5 ? std::log(2.0) + low
                                : -std::log(2.0) - high;
        g.x[i] = slope[i] * (v[i] - g.k) / tau;
        g.tau -= g.x[i] * t;
    }
    return g;
}

}    // namespace reference
