// Box sections against sorted breakpoints, and their gradients against the formula.
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
    if (!breakpoints.empty() && (!p.at_most || p.sum(0) > p.total)) {    // none: all are masked
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
        auto number = [&](double v) { return single ? static_cast<double>(static_cast<float>(v)) : v; };
        double x = std::normal_distribution<double>()(random);
        if (uniform(random) < 0.05) x = -inf;
        p.x.push_back(number(x));
        p.lower.push_back(number(-uniform(random)));
        p.upper.push_back(number(uniform(random)));
        p.weight.push_back(number(0.5 + uniform(random)));
        least += p.weight.back() * p.lower.back();
        most += p.weight.back() * (x == -inf ? p.lower.back() : p.upper.back());
    }
    p.total = least + (most - least) * uniform(random);
    p.tau = std::pow(10, 4 * uniform(random) - 3);
    p.at_most = uniform(random) < 0.3;
    return p;
}

// Random problems, all of them to be met or all of them `at_most`, as the kernel takes them.
template <class T>
struct Boxes {
    int64_t rows, n;
    std::vector<BoxProblem> problems;
    std::vector<double> total, tau, mu, lower, upper, weight;
    std::vector<T> x, y;

    Boxes(int64_t number, int64_t size, Random& random)
        : rows(number), n(size), mu(static_cast<size_t>(rows)), y(static_cast<size_t>(rows * n)) {
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
    }

    // In single precision if there is any, by its sums: bounds and weights are numbers of both.
    void solve(const Variant& v, int threads) {
        std::vector<float> narrow[3];
        std::vector<double>* wide[] = {&lower, &upper, &weight};
        PerEntry entries[3];
        for (int k = 0; k < 3; ++k) {
            narrow[k].assign(wide[k]->begin(), wide[k]->end());
            if (sizeof(T) == 4) entries[k] = {nullptr, n, 1, narrow[k].data()};
            else entries[k] = {wide[k]->data(), n, 1};
        }
        PerSlice totals{total.data(), 0}, taus{tau.data(), 0};
        Result result = functions<T>(v).box({rows, n, totals, taus, entries[0], entries[1], entries[2],
                                             problems[0].at_most, x.data(), y.data(), mu.data(), threads});
        check(result.status == Status::ok, "status", static_cast<double>(result.status));
    }
};

template <class T>
void check_rows(const Variant& v, int64_t rows, int64_t n, int threads, Random& random) {
    context = std::string(v.name) + ", box of " + std::to_string(rows) + " x " + std::to_string(n);
    Boxes<T> boxes(rows, n, random);
    boxes.solve(v, threads);
    for (int64_t r = 0; r < rows; ++r) {
        const BoxProblem& p = boxes.problems[static_cast<size_t>(r)];
        Slice expected = solve(p);
        for (int64_t i = 0; i < n; ++i)
            check_near(static_cast<double>(boxes.y[static_cast<size_t>(r * n + i)]),
                       expected[static_cast<size_t>(i)],
                       2 * eps<T> + 1e-14 * (static_cast<double>(n) + 1 / p.tau), "box");
    }
}

// The gradients of sum(v y) of one row, by the formulas of box_backward.hpp.
template <class T>
struct BoxGradients {
    Slice x, lower, upper, weight;
    double total = 0, tau = 0;

    BoxGradients(const BoxProblem& p, const T* y, const T* v, double mu) {
        double ww = 0, wv = 0;
        auto is_low = [&](size_t i) { return y[i] <= static_cast<T>(p.lower[i]); };
        auto is_high = [&](size_t i) { return !is_low(i) && y[i] >= static_cast<T>(p.upper[i]); };
        for (size_t i = 0; i < p.x.size(); ++i) {
            bool free = !is_low(i) && !is_high(i);
            ww += free ? p.weight[i] * p.weight[i] : 0;
            wv += free ? p.weight[i] * static_cast<double>(v[i]) : 0;
        }
        total = ww > 0 && !(p.at_most && mu == 0) ? wv / ww : 0;
        for (size_t i = 0; i < p.x.size(); ++i) {
            bool free = !is_low(i) && !is_high(i);
            double at = static_cast<double>(y[i]), rest = static_cast<double>(v[i]) - p.weight[i] * total;
            x.push_back(free ? rest / p.tau : 0);
            lower.push_back(is_low(i) ? rest : 0);
            upper.push_back(is_high(i) ? rest : 0);
            weight.push_back(-total * at - (free ? mu / p.tau * rest : 0));
            tau -= free ? rest * at / p.tau : 0;
        }
    }
};

template <class T>
void check_gradients(const Variant& v, int64_t rows, int64_t n, int threads, Random& random) {
    context = std::string(v.name) + ", box gradients, " + std::to_string(rows) + " x " + std::to_string(n);
    Boxes<T> boxes(rows, n, random);
    std::vector<T> pull, out[4];
    std::vector<double> to_total(static_cast<size_t>(rows)), to_tau = to_total;
    for (int64_t i = 0; i < rows * n; ++i) pull.push_back(static_cast<T>(2 * uniform(random) - 1));
    for (std::vector<T>& each : out) each.resize(pull.size());
    boxes.solve(v, threads);
    BoxBackward<T> p{};
    p.rows = rows, p.n = n, p.at_most = boxes.problems[0].at_most, p.threads = threads;
    p.tau = {boxes.tau.data(), 0};
    p.lower = {boxes.lower.data(), n, 1}, p.upper = {boxes.upper.data(), n, 1};
    p.weight = {boxes.weight.data(), n, 1};
    p.y = boxes.y.data(), p.v = pull.data(), p.mu = boxes.mu.data();
    p.grad = out[0].data(), p.to_lower = out[1].data(), p.to_upper = out[2].data();
    p.to_weight = out[3].data(), p.to_total = to_total.data(), p.to_tau = to_tau.data();
    check(functions<T>(v).box_backward(p).status == Status::ok, "status");
    for (int64_t r = 0; r < rows; ++r) {
        size_t first = static_cast<size_t>(r * n), row = static_cast<size_t>(r);
        const BoxProblem& problem = boxes.problems[row];
        BoxGradients<T> expected(problem, &boxes.y[first], &pull[first], boxes.mu[row]);
        double room = 16 * eps<T> + 1e-13, nu = 1 + std::fabs(boxes.mu[row]) / problem.tau;
        const Slice* wanted[] = {&expected.x, &expected.lower, &expected.upper, &expected.weight};
        double scales[] = {1 / problem.tau, 1, 1, nu};
        for (size_t k = 0; k < 4; ++k)
            for (size_t i = 0; i < static_cast<size_t>(n); ++i)
                check_near(static_cast<double>(out[k][first + i]), (*wanted[k])[i], room * scales[k],
                           "gradient of a box");
        check_near(to_total[row], expected.total, room, "gradient to the total");
        check_near(to_tau[row], expected.tau, room * static_cast<double>(n) / problem.tau, "gradient to tau");
    }
    p.grad = p.to_lower = p.to_upper = p.to_weight = nullptr;
    p.to_total = p.to_tau = nullptr;
    check(functions<T>(v).box_backward(p).status == Status::ok, "nothing wanted");
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
    auto box = [&](PerSlice sum, PerEntry l, PerEntry u, PerEntry w, std::vector<T>& to) {
        PerSlice tau{nullptr, 1};
        return functions<T>(v).box({2, n, sum, tau, l, u, w, false, x.data(), to.data(), mu, 2});
    };
    box({total, 0}, {&lower, 0, 0}, {upper, 1, 0}, {weight, 0, 1}, y);
    box({total, 0}, {every[0].data(), n, 1}, {every[1].data(), n, 1}, {every[2].data(), n, 1}, full);
    for (size_t i = 0; i < 14; ++i) check(y[i] == full[i], "broadcast", static_cast<double>(y[i]));
    auto refused = [&](double l, double u, double w, double all, Status status) {
        Result r = box({nullptr, all}, {&l, 0, 0}, {&u, 0, 0}, {&w, 0, 0}, y);
        check(r.status == status && r.slice == 0, "refusal", static_cast<double>(r.status));
    };
    refused(1, 0, 1, 0, Status::bad_bounds);
    refused(0, 1, 0, 1, Status::bad_weight);
    refused(0, 1, 1, 7.5, Status::bad_total);
    refused(0, 1, 1, -0.5, Status::bad_total);
    refused(0, 1, 1, reference::nan, Status::bad_total);
}

}    // namespace budgets
