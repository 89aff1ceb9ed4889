// Box sections against sorted breakpoints, and segments against one row at a time.
#pragma once
#include "checks.hpp"
#include "problems.hpp"

namespace budgets {

using namespace hs;

struct BoxProblem {
    Slice x, lower, upper, weight;
    double total, tau;
    bool at_most;

    double place(size_t i, double mu) const {
        return std::min(upper[i], std::max(lower[i], (x[i] - mu * weight[i]) / tau));
    }
    double sum(double mu) const {
        double s = 0;
        for (size_t i = 0; i < x.size(); ++i) s += weight[i] * place(i, mu);
        return s;
    }
};

// Between two breakpoints the sum is a line.
inline Slice solve(const BoxProblem& p) {
    Slice breakpoints, y;
    for (size_t i = 0; i < p.x.size(); ++i)
        for (double bound : {p.lower[i], p.upper[i]}) {
            double at = (p.x[i] - p.tau * bound) / p.weight[i];
            if (std::isfinite(at)) breakpoints.push_back(at);
        }
    std::sort(breakpoints.begin(), breakpoints.end());
    double mu = 0;
    if (!p.at_most || p.sum(0) > p.total) {
        size_t left = 0, right = breakpoints.size() - 1;
        while (right - left > 1) {
            size_t middle = (left + right) / 2;
            (p.sum(breakpoints[middle]) >= p.total ? left : right) = middle;
        }
        double lo = breakpoints[left], hi = breakpoints[right], at = p.sum(lo), slope = p.sum(hi) - at;
        mu = slope < 0 ? lo + (hi - lo) * (p.total - at) / slope : lo;
    }
    for (size_t i = 0; i < p.x.size(); ++i) y.push_back(p.place(i, mu));
    return y;
}

inline BoxProblem random_box(int64_t n, Random& random, bool single) {
    BoxProblem p;
    double least = 0, most = 0;
    for (int64_t i = 0; i < n; ++i) {
        double x = std::normal_distribution<double>()(random);
        if (uniform(random) < 0.05) x = -inf;
        p.x.push_back(single ? static_cast<double>(static_cast<float>(x)) : x);
        p.lower.push_back(-uniform(random));
        p.upper.push_back(uniform(random));
        p.weight.push_back(0.5 + uniform(random));
        least += p.weight.back() * p.lower.back();
        most += p.weight.back() * (x == -inf ? p.lower.back() : p.upper.back());
    }
    p.total = least + (most - least) * uniform(random);
    p.tau = std::pow(10, 4 * uniform(random) - 3);
    p.at_most = uniform(random) < 0.3;
    return p;
}

template <class T>
void check_rows(const Variant& v, int64_t rows, int64_t n, int threads, Random& random) {
    context = std::string(v.name) + ", box of " + std::to_string(rows) + " x " + std::to_string(n);
    std::vector<BoxProblem> problems;
    std::vector<double> total, tau, mu(static_cast<size_t>(rows)), lower, upper, weight;
    std::vector<T> x, y(static_cast<size_t>(rows * n));
    for (int64_t r = 0; r < rows; ++r) {
        problems.push_back(random_box(n, random, sizeof(T) == 4));
        BoxProblem& p = problems.back();
        p.at_most = problems[0].at_most;
        total.push_back(p.total), tau.push_back(p.tau);
        for (double e : p.x) x.push_back(static_cast<T>(e));
        lower.insert(lower.end(), p.lower.begin(), p.lower.end());
        upper.insert(upper.end(), p.upper.begin(), p.upper.end());
        weight.insert(weight.end(), p.weight.begin(), p.weight.end());
    }
    Result result = functions<T>(v).box({rows,
                                         n,
                                         {total.data(), 0},
                                         {tau.data(), 0},
                                         {lower.data(), n, 1},
                                         {upper.data(), n, 1},
                                         {weight.data(), n, 1},
                                         problems[0].at_most,
                                         x.data(),
                                         y.data(),
                                         mu.data(),
                                         threads});
    check(result.status == Status::ok, "status", static_cast<double>(result.status));
    for (int64_t r = 0; r < rows; ++r) {
        const BoxProblem& p = problems[static_cast<size_t>(r)];
        Slice expected = solve(p);
        for (int64_t i = 0; i < n; ++i)
            check_near(static_cast<double>(y[static_cast<size_t>(r * n + i)]),
                       expected[static_cast<size_t>(i)],
                       2 * eps<T> + 1e-14 * (static_cast<double>(n) + 1 / p.tau), "box");
    }
}

// Bounds and weights that are one number for all entries, one for each row, or one for each place.
template <class T>
void check_broadcast(const Variant& v) {
    context = std::string(v.name) + ", box of broadcast numbers";
    int64_t n = 7;
    std::vector<T> x{3, 1, 2, 0, 5, 4, 6, 3, 1, 2, 0, 5, 4, 6}, y(14), full(14);
    double total[] = {4, 5}, mu[2], lower = 0, upper[] = {1, 2}, weight[] = {1, 2, 1, 2, 1, 2, 1};
    std::vector<double> every[3];
    for (int64_t i = 0; i < 14; ++i) {
        every[0].push_back(lower);
        every[1].push_back(upper[i / n]);
        every[2].push_back(weight[i % n]);
    }
    const Functions<T>& f = functions<T>(v);
    f.box({2,
           n,
           {total, 0},
           {nullptr, 1},
           {&lower, 0, 0},
           {upper, 1, 0},
           {weight, 0, 1},
           false,
           x.data(),
           y.data(),
           mu,
           1});
    f.box({2,
           n,
           {total, 0},
           {nullptr, 1},
           {every[0].data(), n, 1},
           {every[1].data(), n, 1},
           {every[2].data(), n, 1},
           false,
           x.data(),
           full.data(),
           mu,
           1});
    for (size_t i = 0; i < 14; ++i) check(y[i] == full[i], "broadcast", static_cast<double>(y[i]));
    auto refused = [&](double l, double u, double w, double all, Status status) {
        Result r = f.box({2,
                          n,
                          {nullptr, all},
                          {nullptr, 1},
                          {&l, 0, 0},
                          {&u, 0, 0},
                          {&w, 0, 0},
                          false,
                          x.data(),
                          y.data(),
                          mu,
                          2});
        check(r.status == status && r.slice == 0, "refusal", static_cast<double>(r.status));
    };
    refused(1, 0, 1, 0, Status::bad_bounds);
    refused(0, 1, 0, 1, Status::bad_weight);
    refused(0, 1, 1, 7.5, Status::bad_total);
    refused(0, 1, 1, -0.5, Status::bad_total);
    refused(0, 1, 1, reference::nan, Status::bad_total);
}

template <class T>
void check_segments(const Variant& v, int threads, Random& random) {
    context = std::string(v.name) + ", segments on " + std::to_string(threads) + " threads";
    std::vector<int64_t> offsets{0};
    std::vector<double> k, tau;
    for (int64_t n : {0, 1, 2, 33, 0, 200, 2049}) {
        offsets.push_back(offsets.back() + n);
        k.push_back(static_cast<double>(n) * uniform(random));
        tau.push_back(0.1 + uniform(random));
    }
    int64_t rows = static_cast<int64_t>(k.size()), size = offsets.back();
    std::vector<T> x, pull, y(static_cast<size_t>(size)), grad = y;
    for (int64_t i = 0; i < 2 * size; ++i) (i < size ? x : pull).push_back(value<T>(Kind::normal, 1, random));
    std::vector<double> to_k(k.size()), to_tau(k.size());
    const Functions<T>& f = functions<T>(v);
    Segments<T> p{rows,    size,     offsets.data(), {k.data(), 0}, {tau.data(), 0}, x.data(),
                  nullptr, y.data(), nullptr,        nullptr,       threads};
    check(f.segments(p).status == Status::ok, "status");
    Segments<T> back{rows,        size,        offsets.data(), {nullptr, 0},  {tau.data(), 0}, y.data(),
                     pull.data(), grad.data(), to_k.data(),    to_tau.data(), threads};
    check(f.segments(back).status == Status::ok, "status");
    for (size_t s = 0; s < k.size(); ++s) {
        auto part = [&](const std::vector<T>& all) {
            return Slice(all.begin() + offsets[s], all.begin() + offsets[s + 1]);
        };
        Slice expected = part(x).empty() ? Slice() : reference::project(part(x), k[s], tau[s]).y,
              got = part(y), g = part(grad);
        reference::Gradients gradients = reference::backward(got, part(pull), tau[s]);
        for (size_t i = 0; i < got.size(); ++i) {
            check_near(got[i], expected[i], 2 * eps<T> + 1e-12, "segment");
            check_near(g[i], gradients.x[i], 64 * eps<T> / tau[s], "gradient of a segment");
        }
        check_near(to_k[s], gradients.k, 64 * eps<T>, "gradient to k");
        check_near(to_tau[s], gradients.tau, 64 * eps<T> * static_cast<double>(got.size()) / tau[s],
                   "gradient to tau");
    }
    auto refused = [&](size_t at, int64_t wrong) {
        std::vector<int64_t> other = offsets;
        other[at] = wrong;
        p.offsets = other.data();
        Result r = f.segments(p);
        check(r.status == Status::bad_offsets && r.limit == wrong, "refusal of offsets");
    };
    refused(0, 1), refused(2, -1), refused(7, size - 1), refused(7, size + 1);
}

template <class T>
void test_all(const Variant& v) {
    Random random(7);
    for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 255, 256, 257, 513, 1000})
        for (int64_t rows : {1, 5}) check_rows<T>(v, rows, n, 2, random);
    for (int threads = 1; threads <= 4; ++threads) {
        check_rows<T>(v, 1, (1 << 17) + 1, threads, random);
        check_rows<T>(v, 40, 2000, threads, random);
        check_segments<T>(v, threads, random);
    }
    check_broadcast<T>(v);
}

}    // namespace budgets
