// The graph of columns: its parts by following all links, steps by the conditions of a minimum, and inverses
// by their product with the Laplacian.
#pragma once
#include <algorithm>
#include <vector>

#include "checks.hpp"
#include "problems.hpp"

namespace graphs {

using namespace hs;
using Matrix = std::vector<std::vector<double>>;

struct Problem {
    size_t n;
    std::vector<double> links, bias, excess, capacity;
    Matrix laplacian;
    std::vector<int64_t> parts;

    Problem(size_t columns, double density, Random& random)
        : n(columns), links(n * n), bias(n), excess(n), capacity(n, 1.0), laplacian(n, bias), parts(n) {
        for (size_t i = 0; i < n; ++i) {
            bias[i] = uniform(random) < 0.5 ? 0 : uniform(random);
            excess[i] = uniform(random) - 0.7;
            links[i * n + i] = 100;    // not to be read
            for (size_t j = 0; j < i; ++j)
                links[i * n + j] = links[j * n + i] = uniform(random) < density ? uniform(random) : 0;
        }
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < n; ++j)
                if (i != j) laplacian[i][i] += links[i * n + j], laplacian[i][j] = -links[i * n + j];
        find_parts();
    }

    ColumnGraph graph() const { return {static_cast<int64_t>(n), links.data(), bias.data()}; }

    void find_parts() {
        std::vector<std::vector<bool>> reached(n, std::vector<bool>(n));
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < n; ++j) reached[i][j] = i == j || links[i * n + j] != 0;
        for (size_t k = 0; k < n; ++k)
            for (size_t i = 0; i < n; ++i)
                for (size_t j = 0; j < n; ++j)
                    reached[i][j] = reached[i][j] || (reached[i][k] && reached[k][j]);
        for (size_t i = 0; i < n; ++i)
            parts[i] = std::find(reached[i].begin(), reached[i].end(), true) - reached[i].begin();
    }
};

inline void check_step(const Variant& v, const Problem& p) {
    std::vector<double> move(p.n);
    ColumnMoved moved{};
    check(v.column_step({p.graph(), p.excess.data(), p.capacity.data(), 1e-9, move.data(), &moved}).status ==
              Status::ok,
          "status");
    double longest = 0, sum = 0, squares = 0, size = static_cast<double>(p.n);
    std::vector<double> whole(p.n);
    for (size_t i = 0; i < p.n; ++i) {
        double slope = -p.excess[i], there = p.bias[i] + move[i];
        for (size_t j = 0; j < p.n; ++j) slope += p.laplacian[i][j] * move[j];
        check(there >= -1e-9, "a bias after the step", there);
        if (moved.complete) {
            check(slope >= -2e-9, "the slope at a column", slope);
            check(there <= 1e-9 || std::fabs(slope) <= 2e-9, "the slope where there is a bias", slope);
        }
        whole[static_cast<size_t>(p.parts[i])] += p.excess[i];
        longest = std::max(longest, std::fabs(move[i]));
        sum += move[i], squares += move[i] * move[i];
    }
    bool fits = std::all_of(whole.begin(), whole.end(), [](double total) { return total <= 0; });
    check(moved.complete == fits, "whether the model has a minimum", moved.complete, fits);
    check_near(moved.longest, longest, 0, "longest");
    double variance = p.n ? squares / size - sum * sum / size / size : 0;
    check_near(moved.deviation * moved.deviation, variance, 1e-12 + 1e-9 * squares, "deviation");
}

inline void check_inverse(const Variant& v, const Problem& p) {
    std::vector<double> inverse(p.n * p.n, -1.0);
    check(v.column_inverse(p.graph(), inverse.data()).status == Status::ok, "status");
    std::vector<size_t> lowest(p.n, p.n);
    for (size_t i = 0; i < p.n; ++i) {
        size_t& at = lowest[static_cast<size_t>(p.parts[i])];
        if (at == p.n || p.bias[i] < p.bias[at]) at = i;
    }
    auto held = [&](size_t i) { return p.bias[i] <= 0 || lowest[static_cast<size_t>(p.parts[i])] == i; };
    for (size_t i = 0; i < p.n; ++i)
        for (size_t j = 0; j < p.n; ++j) {
            double product = 0;
            for (size_t k = 0; k < p.n; ++k) product += p.laplacian[i][k] * inverse[k * p.n + j];
            if (held(i) || held(j))
                check_near(inverse[i * p.n + j], 0, 0, "inverse of a column that is held");
            else check_near(product, i == j, 1e-9, "inverse");
        }
}

inline void test_all(const Variant& v) {
    Random random(11);
    for (size_t n : {0, 1, 2, 3, 7, 8, 9, 16, 17, 33, 65})
        for (double density : {0.0, 0.05, 0.3, 1.0})
            for (int turn = 0; turn < 5; ++turn) {
                context = std::string(v.name) + ", graph of " + std::to_string(n) + " columns, density " +
                          std::to_string(density);
                Problem p(n, density, random);
                std::vector<int64_t> parts(n);
                check(v.column_parts({p.graph().columns, p.links.data(), nullptr}, parts.data()).status ==
                          Status::ok,
                      "status");
                check(parts == p.parts, "parts");
                check_step(v, p);
                check_inverse(v, p);
            }
}

}    // namespace graphs
