// Problems for the kernel: every way in which slices lie in memory, filled with anything from the tame to the
// nasty.
#pragma once
#include <random>
#include <string>

#include "../kernel.hpp"
#include "reference.hpp"

using hs::Layout;
using reference::inf;
using reference::Slice;

struct Place {
    std::string name;
    Layout layout;

    int64_t size() const {
        const Layout& l = layout;
        if (l.slices() == 0 || l.n == 0) return 0;
        return (l.outer - 1) * l.outer_stride + (l.n - 1) * l.stride + (l.inner - 1) * l.inner_stride + 1;
    }
};

// Columns are long when sixteen of them fill more than a megabyte: see arrangement.hpp.
template <class T>
std::vector<Place> places() {
    constexpr int64_t n = (1 << 16) / sizeof(T) + 9;
    std::vector<Place> all;
    for (int64_t m : {1, 2, 3, 7, 8, 9, 16, 17, 33, 100, 1000})
        all.push_back({"short rows", {11, m, 1, m, 1, 0}});
    all.push_back({"rows with gaps", {5, 37, 1, 41, 1, 0}});
    all.push_back({"a few short rows", {2, 300, 1, 300, 1, 0}});
    all.push_back({"many short rows", {300, 20, 1, 20, 1, 0}});
    all.push_back({"long rows", {3, 2049, 1, 2049, 1, 0}});
    all.push_back({"sampled rows", {2, 40001, 1, 40001, 1, 0}});
    for (int64_t columns : {1, 2, 3, 4, 5, 8, 15, 16, 17, 40, 130})
        all.push_back({"transposed columns", {1, 61, columns, 0, columns, 1}});
    all.push_back({"transposed columns with gaps", {3, 50, 19, 50 * 23, 23, 1}});
    for (int64_t columns : {1, 3, 10}) all.push_back({"long narrow columns", {1, n, columns, 0, columns, 1}});
    all.push_back({"long wide columns", {1, n, 21, 0, 21, 1}});
    all.push_back({"more short columns than one tile, by one", {1, 5, 127 * 128 + 1, 0, 127 * 128 + 1, 1}});
    all.push_back({"more long columns than one tile", {1, n, 131, 0, 131, 1}});
    all.push_back({"long columns with gaps", {2, n, 9, n * 11, 11, 1}});
    all.push_back({"few long columns with gaps", {1, n, 3, 0, 5, 1}});
    all.push_back({"scattered", {3, 29, 4, 29 * 4 * 2 * 3, 8 * 3, 2}});
    all.push_back({"middle axis", {4, 12, 6, 12 * 6, 6, 1}});
    return all;
}

enum class Kind { normal, ties, constant, offset, staircase, masked, certain, count };

using Random = std::mt19937_64;

inline double uniform(Random& random) { return std::uniform_real_distribution<double>(0, 1)(random); }

template <class T>
T value(Kind kind, double scale, Random& random) {
    double v = std::normal_distribution<double>()(random) * scale;
    if (kind == Kind::ties) v = std::round(v);
    if (kind == Kind::constant) v = 0.75 * scale;
    if (kind == Kind::offset) v += 1e6;
    if (kind == Kind::staircase) v = std::floor(uniform(random) * 5) * 1e3 * scale;
    if (kind == Kind::masked && uniform(random) < 0.4) v = -inf;
    if (kind == Kind::certain && uniform(random) < 0.1) v = uniform(random) < 0.5 ? inf : -inf;
    return static_cast<T>(v);
}

// One array with a k, a tau and the solution for every slice; entries between the slices hold a number that
// must stay.
template <class T>
struct Problem {
    static constexpr T untouched = T(77);
    Place place;
    std::vector<T> x;
    std::vector<double> k, tau;
    std::vector<reference::Solution> expected;

    Problem(const Place& p, Kind kind, Random& random)
        : place(p), x(static_cast<size_t>(p.size()), untouched) {
        const Layout& l = place.layout;
        double scale = std::pow(10, 6 * uniform(random) - 3);
        for (int64_t s = 0; s < l.slices(); ++s) {
            double usable = 0;
            for (int64_t i = 0; i < l.n; ++i) {
                T& v = x[at(s, i)] = value<T>(kind, kind == Kind::offset ? 1 : scale, random);
                usable += v != -std::numeric_limits<T>::infinity();
            }
            double wish = usable * uniform(random);
            int64_t how = static_cast<int64_t>(random() % 6);
            k.push_back(how == 0 ? 0 : how == 1 ? usable : how < 4 ? std::floor(wish) : wish);
            tau.push_back(std::pow(10, 6 * uniform(random) - 3));
            expected.push_back(reference::project(slice(x, s), k.back(), tau.back()));
        }
    }

    void spoil(Random& random) {
        int64_t s = static_cast<int64_t>(random() % k.size()),
                i = static_cast<int64_t>(random() % x.size()) % place.layout.n;
        x[at(s, i)] = static_cast<T>(reference::nan);
        expected[static_cast<size_t>(s)] = reference::project(slice(x, s), 0, 1);
    }

    size_t at(int64_t slice, int64_t i) const {
        return static_cast<size_t>(place.layout.origin(slice) + i * place.layout.stride);
    }
    Slice slice(const std::vector<T>& array, int64_t s) const {
        Slice out;
        for (int64_t i = 0; i < place.layout.n; ++i) out.push_back(static_cast<double>(array[at(s, i)]));
        return out;
    }
    std::vector<T> output() const { return std::vector<T>(x.size(), untouched); }
};
