// The loss, one rank's part of it, and the passes of the boosting objective, against sums written out.
#pragma once
#include <random>
#include <vector>

#include "checks.hpp"
#include "reference.hpp"

namespace hs::losses {

// The mean loss of rows of classes, with a weight of 2 and a tau of 1.
template <class T>
Loss<T> batch(int64_t samples, int64_t classes, const T* x, const int64_t* labels, int threads) {
    Loss<T> p{};
    p.samples = samples, p.classes = classes, p.positions = 1;
    p.sample_stride = classes, p.class_stride = 1, p.position_stride = 1;
    p.x = x, p.labels = labels, p.ignored = -100;
    p.tau = {nullptr, 1}, p.weight = {nullptr, 2};
    p.mean = true;
    p.threads = threads;
    return p;
}

template <class T>
struct Batch {
    int64_t samples, classes, threads;
    double tau = 0.7;
    std::vector<T> x;
    std::vector<int64_t> labels;
    std::vector<reference::Slice> columns, targets;    // per class, without the ignored samples

    Batch(int64_t n, int64_t c, bool ignoring, int64_t t)
        : samples(n), classes(c), threads(t), columns(size(c)), targets(size(c)) {
        std::mt19937_64 random(static_cast<uint64_t>(7 * n + c));
        std::normal_distribution<double> normal;
        for (int64_t i = 0; i < n * c; ++i) x.push_back(static_cast<T>(normal(random)));
        for (int64_t i = 0; i < n; ++i) {
            labels.push_back(
                ignoring && i % 3 == 1 ? -100 : static_cast<int64_t>(random() % static_cast<uint64_t>(c)));
            for (int64_t j = 0; labels.back() >= 0 && j < c; ++j) {
                columns[size(j)].push_back(static_cast<double>(x[size(i * c + j)]));
                targets[size(j)].push_back(j == labels.back() ? 1 : 0);
            }
        }
    }

    static size_t size(int64_t n) { return static_cast<size_t>(n); }

    Loss<T> problem(T* grad, double* mu, double* k, double* loss, int64_t* kept) const {
        Loss<T> p = batch(samples, classes, x.data(), labels.data(), static_cast<int>(threads));
        p.tau.scalar = tau;
        p.grad = grad, p.mu = mu, p.k_used = k, p.loss = loss, p.kept = kept;
        return p;
    }
};

template <class T>
struct Expected {
    double loss = 0;
    std::vector<double> mu, mean;
    std::vector<std::vector<double>> sums;    // per class: as in LossAt::sums
    std::vector<std::vector<double>> grad;

    explicit Expected(const Batch<T>& b) {
        for (size_t c = 0; c < b.columns.size(); ++c) {
            const reference::Slice &x = b.columns[c], &y = b.targets[c];
            double k = 0;
            for (double t : y) k += t;
            reference::Solution solution = reference::project(x, k, b.tau);
            std::vector<double> s(5), g(x.size());
            for (size_t i = 0; i < x.size(); ++i) {
                double p = solution.y[i], e = p - y[i];
                bool active = p > 0 && p < 1;
                s[0] += active ? p : 0, s[1] += active, s[2] += p == 1, s[3] += active ? e : 0, s[4] += e * e;
            }
            double middle = s[1] > 0 ? s[3] / s[1] : 0, n = static_cast<double>(x.size());
            for (size_t i = 0; i < x.size(); ++i) {
                double p = solution.y[i];
                g[i] = p > 0 && p < 1 ? 2 / (b.tau * n) * (p - y[i] - middle) : 0;
            }
            loss += 0.5 * 2 * s[4];
            mu.push_back(solution.mu), mean.push_back(middle), sums.push_back(s), grad.push_back(g);
        }
    }
};

template <class T>
void check_grad(const Batch<T>& b, const Expected<T>& expected, const std::vector<T>& grad,
                const char* what) {
    for (int64_t j = 0; j < b.classes; ++j) {
        size_t at = 0;
        for (int64_t i = 0; i < b.samples; ++i) {
            bool counts = b.labels[b.size(i)] >= 0;
            double right = counts ? expected.grad[b.size(j)][at++] : 0;
            check_near(static_cast<double>(grad[b.size(i * b.classes + j)]), right, 64 * eps<T>, what);
        }
    }
}

template <class T>
void test_loss(const Functions<T>& f, const Batch<T>& b) {
    Expected<T> expected(b);
    std::vector<T> grad(b.x.size());
    std::vector<double> mu(b.columns.size()), k(b.columns.size());
    double loss = 0;
    int64_t kept = 0;
    check(f.loss(b.problem(grad.data(), mu.data(), k.data(), &loss, &kept)).status == Status::ok,
          "status of the loss");
    check_near(loss, expected.loss, 1e3 * eps<T> * (1 + expected.loss), "loss");
    check(kept == static_cast<int64_t>(b.columns[0].size()), "kept", static_cast<double>(kept));
    check_grad(b, expected, grad, "gradient of the loss");
    for (size_t c = 0; c < mu.size(); ++c)
        if (kept > 0) check_near(mu[c], expected.mu[c], 1e3 * eps<T>, "threshold of a class");
    if (kept == 0) return;

    // One rank alone has all of the batch: its sums and gradient at the thresholds are the loss's own.
    std::vector<double> low(mu.size()), sums(5 * mu.size());
    Loss<T> part = b.problem(nullptr, expected.mu.data(), k.data(), &loss, &kept);
    check(f.loss_at({part, low.data(), expected.mean.data(), sums.data()}).status == Status::ok,
          "status of one rank");
    double n = static_cast<double>(b.columns[0].size());
    for (size_t c = 0; c < mu.size(); ++c) {
        double total = sums[c] + sums[2 * mu.size() + c];
        check_near(total, expected.sums[c][0] + expected.sums[c][2], 1e3 * eps<T> * n,
                   "projections of one rank");
        check_near(sums[4 * mu.size() + c], expected.sums[c][4], 1e3 * eps<T> * n,
                   "squared errors of one rank");
    }
    part = b.problem(grad.data(), expected.mu.data(), k.data(), &loss, &kept);
    std::vector<double> factor(mu.size());
    for (size_t c = 0; c < mu.size(); ++c) factor[c] = part.weight[static_cast<int64_t>(c)] / n;
    part.weight = {factor.data(), 0};
    part.mean = false;
    check(f.loss_at({part, low.data(), expected.mean.data(), nullptr}).status == Status::ok,
          "status of one rank");
    check_grad(b, expected, grad, "gradient of one rank");
}

// Scores lie class by class; a weight w counts as w rows.
template <class T>
void test_objective(const Functions<T>& f, int64_t n, int64_t classes, bool weighted, int threads) {
    std::mt19937_64 random(static_cast<uint64_t>(n + classes));
    std::normal_distribution<double> normal;
    auto size = [](int64_t i) { return static_cast<size_t>(i); };
    int64_t top = classes == 1 ? 2 : classes;
    std::vector<T> x(size(n * classes));
    std::vector<float> labels(size(n)), weights(size(n)), grad(x.size()), hess(x.size());
    for (T& v : x) v = static_cast<T>(normal(random));
    for (float& v : labels) v = static_cast<float>(random() % static_cast<uint64_t>(top));
    for (float& v : weights) v = static_cast<float>(random() % 4);
    std::vector<double> mu(size(classes), 0.1), tau(size(classes), 0.8), mean(size(classes), 0.05),
        on(size(classes), 1.5), off(size(classes), 0.25), sums(size(5 * classes + 1));
    auto run = [&](ObjectiveStep step, const char* what) {
        const float* own = weighted ? weights.data() : nullptr;
        Result result = f.objective({step, n, classes, n, x.data(), labels.data(), own, mu.data(), tau.data(),
                                     mean.data(), on.data(), off.data(), nullptr, sums.data(), grad.data(),
                                     hess.data(), threads});
        check(result.status == Status::ok, what);
    };
    auto weight = [&](int64_t i) { return weighted ? static_cast<double>(weights[size(i)]) : 1.0; };
    auto label = [&](int64_t c, int64_t i) {
        return static_cast<double>(labels[size(i)]) == static_cast<double>(classes == 1 ? 1 : c) ? 1.0 : 0.0;
    };
    run(ObjectiveStep::count, "status of counts");
    for (int64_t c = 0; c < classes; ++c) {
        double count = 0;
        for (int64_t i = 0; i < n; ++i) count += weight(i) * label(c, i);
        check_near(sums[size(c)], count, 0, "weight of a class");
    }
    run(ObjectiveStep::sums, "status of sums");
    for (int64_t c = 0; c < classes; ++c) {
        double right[5] = {};
        for (int64_t i = 0; i < n; ++i) {
            double q = reference::clip((static_cast<double>(x[size(c * n + i)]) - 0.1) / 0.8), w = weight(i),
                   e = q - label(c, i);
            bool active = q > 0 && q < 1;
            right[0] += active ? w * q : 0, right[1] += active ? w : 0, right[2] += q == 1 ? w : 0;
            right[3] += active ? w * label(c, i) : 0, right[4] += w * e * e;
        }
        for (int j = 0; j < 5; ++j)
            check_near(sums[size(5 * c + j)], right[j], 1e-9 * (1 + right[j]), "sum of an objective");
    }
    run(ObjectiveStep::write, "status of gradients");
    for (int64_t c = 0; c < classes; ++c)
        for (int64_t i = 0; i < n; ++i) {
            double q = (static_cast<double>(x[size(c * n + i)]) - 0.1) / 0.8, w = weight(i);
            bool active = q > 0 && q < 1;
            check_near(static_cast<double>(grad[size(c * n + i)]),
                       active ? w * (q - label(c, i) - 0.05) / 0.8 : 0, 1e-5, "gradient of an objective");
            check_near(static_cast<double>(hess[size(c * n + i)]), w * (active ? 1.5 : 0.25), 1e-5,
                       "hessian of an objective");
        }
    run(ObjectiveStep::gap, "status of gaps");
    for (int64_t c = 0; c < classes; ++c)
        check(sums[size(2 * c)] < sums[size(2 * c + 1)] || n == 0, "gap", sums[size(2 * c)],
              sums[size(2 * c + 1)]);
}

template <class T>
void test_all(const Variant& v) {
    const Functions<T>& f = functions<T>(v);
    int64_t shapes[][2] = {{1, 1},    {2, 3},   {7, 5},    {64, 10},  {129, 17},
                           {300, 40}, {3, 130}, {5000, 9}, {1200, 70}};
    for (auto& shape : shapes)
        for (bool ignoring : {false, true})
            for (int64_t threads : {1, 3}) {
                context = std::string(v.name) + ", loss of " + std::to_string(shape[0]) + " x " +
                          std::to_string(shape[1]) + " of " + std::to_string(sizeof(T)) +
                          " bytes, threads = " + std::to_string(threads);
                test_loss(f, Batch<T>(shape[0], shape[1], ignoring, threads));
            }
    for (int64_t n : {0, 1, 3, 8, 61, 1000, 140003})
        for (int64_t classes : {1, 3})
            for (bool weighted : {false, true}) {
                context = std::string(v.name) + ", objective of " + std::to_string(n) + " x " +
                          std::to_string(classes);
                test_objective<T>(f, n, classes, weighted, n > 1000 ? 3 : 1);
            }
}

}    // namespace hs::losses
