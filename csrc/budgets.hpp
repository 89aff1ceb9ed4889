// The bindings of box sections, segments and assignments: arrays are checked by views.hpp.
#pragma once
#include "calls.hpp"
#include "views.hpp"

namespace hs {

using Entries = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

inline PerEntry per_entry(const Entries& array, int64_t rows, int64_t n, const char* name) {
    demand(array.ndim() == 2, std::string(name) + " must have two dims, of rows and entries");
    int64_t r = static_cast<int64_t>(array.shape(0)), e = static_cast<int64_t>(array.shape(1));
    demand((r == rows || r == 1) && (e == n || e == 1), std::string(name) + " must broadcast to x");
    uintptr_t at = aligned(array, name);
    int64_t row_stride = r == 1 ? 0 : e, step = e == 1 ? 0 : 1;
    if (is_double(array, name)) return {pointer<const double>(at), row_stride, step};
    return {nullptr, row_stride, step, pointer<const float>(at)};
}

inline Answer run_box(bool is_double, int64_t rows, int64_t n, PerSlice total, PerSlice tau,
                      const PerEntry (&entries)[3], bool at_most, uintptr_t x, uintptr_t y, uintptr_t mu,
                      int threads) {
    return run(is_double, [&](auto zero) {
        using T = decltype(zero);
        T* room = on_large_pages(pointer<T>(y), rows * n);
        return functions<T>().box({rows, n, total, tau, entries[0], entries[1], entries[2], at_most,
                                   pointer<const T>(x), room, pointer<double>(mu), threads});
    });
}

inline Answer box(const Array& x, const Output& y, const Doubles& mu, const Numbers& total,
                  const Numbers& tau, const Entries& lower, const Entries& upper, const Entries& weight,
                  bool at_most, int threads) {
    demand(x.ndim() == 2, "x must have two dims, of rows and entries");
    int64_t rows = static_cast<int64_t>(x.shape(0)), n = static_cast<int64_t>(x.shape(1));
    demand(x.size() == 0 || ((n == 1 || x.stride(1) == 1) && (rows == 1 || x.stride(0) == n)),
           "x must be contiguous");
    auto each = [&](const Numbers& v, const char* name) {
        return per_slice(numbers(std::optional<Numbers>(v), rows, name, "row"), 0);
    };
    return run_box(is_double(x), rows, n, each(total, "total"), each(tau, "tau"),
                   {per_entry(lower, rows, n, "lower"), per_entry(upper, rows, n, "upper"),
                    per_entry(weight, rows, n, "weight")},
                   at_most, aligned(x, "x"), lying_as(y, x, "y", true),
                   numbers(std::optional<Doubles>(mu), rows, "mu", "row"), threads);
}

// On addresses. Those of total, tau, lower, upper and weight may be 0: then it is the number of that place in
// `numbers`. `kinds`, of the bounds and weights: 1 if rows have their own, 2 if entries do, 4 if they are in
// single precision.
struct BoxGiven {
    int64_t rows, n;
    PerSlice total, tau;
    PerEntry entries[3];

    BoxGiven(const Sizes& sizes, const std::vector<uintptr_t>& a, const Sizes& kinds,
             const std::vector<double>& numbers) {
        demand(sizes.size() == 2 && a.size() == 5 && kinds.size() == 3 && numbers.size() == 5,
               "expected two sizes, five addresses, three kinds and five numbers");
        demand(sizes[0] >= 0 && sizes[1] >= 0, "sizes must not be negative");
        rows = sizes[0], n = sizes[1];
        total = per_slice(a[0], numbers[0]), tau = per_slice(a[1], numbers[1]);
        for (size_t e = 0; e < 3; ++e) {
            uintptr_t at = a[2 + e];
            int64_t step = kinds[e] & 2 ? 1 : 0, row_stride = kinds[e] & 1 ? (step ? n : 1) : 0;
            if (!at) entries[e] = {&numbers[2 + e], 0, 0};
            else if (kinds[e] & 4) entries[e] = {nullptr, row_stride, step, pointer<const float>(at)};
            else entries[e] = {pointer<const double>(at), row_stride, step};
        }
    }
};

inline Answer box_at(bool is_double, const Sizes& sizes, uintptr_t x, uintptr_t y, uintptr_t mu,
                     const std::vector<uintptr_t>& addresses, const Sizes& kinds,
                     const std::vector<double>& numbers, bool at_most, int threads) {
    BoxGiven g(sizes, addresses, kinds, numbers);
    demand(((x && y) || g.rows * g.n == 0) && (mu || g.rows == 0), "x, y and mu must have memory");
    return run_box(is_double, g.rows, g.n, g.total, g.tau, g.entries, at_most, x, y, mu, threads);
}

// `outputs`: the gradients to x, lower, upper, weight, total and tau, or 0.
inline Answer box_backward_at(bool is_double, const Sizes& sizes, uintptr_t y, uintptr_t v, uintptr_t mu,
                              const std::vector<uintptr_t>& addresses, const Sizes& kinds,
                              const std::vector<double>& numbers, const std::vector<uintptr_t>& outputs,
                              bool at_most, int threads, bool one_v) {
    BoxGiven g(sizes, addresses, kinds, numbers);
    demand(outputs.size() == 6, "expected six outputs");
    demand(((y && v) || g.rows * g.n == 0) && (mu || g.rows == 0), "y, v and mu must have memory");
    return run(is_double, [&](auto zero) {
        using T = decltype(zero);
        BoxBackward<T> p{};
        p.rows = g.rows, p.n = g.n, p.tau = g.tau;
        p.lower = g.entries[0], p.upper = g.entries[1], p.weight = g.entries[2];
        p.at_most = at_most;
        p.y = pointer<const T>(y), p.v = pointer<const T>(v), p.mu = pointer<const double>(mu);
        p.grad = on_large_pages(pointer<T>(outputs[0]), g.rows * g.n);
        p.to_lower = pointer<T>(outputs[1]), p.to_upper = pointer<T>(outputs[2]);
        p.to_weight = pointer<T>(outputs[3]);
        p.to_total = pointer<double>(outputs[4]), p.to_tau = pointer<double>(outputs[5]);
        p.threads = threads, p.one_v = one_v && v;
        return functions<T>().box_backward(p);
    });
}

// Without v the projection of x into y; with v, x is the projection and its gradients are written.
inline Answer segments(const Array& x, const Labels& offsets, double k, double tau,
                       const std::optional<Output>& y, const std::optional<Array>& v,
                       const std::optional<Numbers>& ks, const std::optional<Numbers>& taus,
                       const std::optional<Doubles>& grad_k, const std::optional<Doubles>& grad_tau,
                       int threads, int curve) {
    demand(x.ndim() == 1 && (x.size() <= 1 || x.stride(0) == 1), "x must be contiguous, with one dim");
    demand(offsets.size() > 0, "offsets must have one number more than there are rows");
    demand(y || v, "y must be given");
    int64_t rows = static_cast<int64_t>(offsets.size()) - 1, size = static_cast<int64_t>(x.size());
    auto each = [&](const auto& v, const char* name) { return numbers(v, rows, name, "row"); };
    const int64_t* ends = pointer<const int64_t>(aligned(offsets, "offsets"));
    PerSlice own_k = per_slice(each(ks, "ks"), k), own_tau = per_slice(each(taus, "taus"), tau);
    uintptr_t from = aligned(x, "x"), pull = v ? lying_as(*v, x, "v", false) : 0,
              to = y ? lying_as(*y, x, "y", true) : 0;
    Curve shape = curve_of(curve);
    double *to_k = pointer<double>(each(grad_k, "grad_k")),
           *to_tau = pointer<double>(each(grad_tau, "grad_tau"));
    return run(is_double(x), [&](auto zero) {
        using T = decltype(zero);
        T* room = on_large_pages(pointer<T>(to), size);
        return functions<T>().segments({rows, size, ends, own_k, own_tau, pointer<const T>(from),
                                        pointer<const T>(pull), room, to_k, to_tau, threads, shape});
    });
}

inline Answer coactive(const Array& v, double low, double high, const std::optional<Doubles>& sums,
                       const std::optional<Doubles>& matrix, int threads) {
    demand(v.ndim() == 2, "v must have two dims");
    int64_t rows = shape_of(v)[0], n = shape_of(v)[1];
    demand(v.size() == 0 || (strides_of(v)[1] == 1 && (rows == 1 || strides_of(v)[0] == n)),
           "v must be rows one after the other");
    uintptr_t from = aligned(v, "v");
    double *out = pointer<double>(numbers(sums, n, "sums", "column")),
           *pairs = pointer<double>(numbers(matrix, n * n, "matrix", "pair of columns"));
    return run(is_double(v), [&](auto zero) {
        using T = decltype(zero);
        return functions<T>().coactive({rows, n, pointer<const T>(from), low, high, out, pairs, threads});
    });
}

// A number for each column, or for each pair of columns.
template <class A>
auto* columns(const A& values, int64_t count, const char* name) {
    return pointer<typename A::Scalar>(numbers(std::optional<A>(values), count, name, "column"));
}

inline const double* links_of(const Numbers& links, int64_t n) { return columns(links, n * n, "links"); }

inline nb::typed<nb::tuple, bool, double, double> column_step(const Numbers& links, const Numbers& bias,
                                                              const Numbers& excess, const Numbers& capacity,
                                                              double slack, const Doubles& move) {
    int64_t n = static_cast<int64_t>(move.size());
    ColumnMoved moved{};
    ColumnStep step{{n, links_of(links, n), columns(bias, n, "bias")},
                    columns(excess, n, "excess"),
                    columns(capacity, n, "capacity"),
                    slack,
                    columns(move, n, "move"),
                    &moved};
    tell(variant().column_step(step));
    return nb::make_tuple(moved.complete, moved.longest, moved.deviation);
}

inline void column_inverse(const Numbers& links, const Numbers& bias, const Doubles& inverse) {
    int64_t n = static_cast<int64_t>(bias.size());
    ColumnGraph graph{n, links_of(links, n), columns(bias, n, "bias")};
    tell(variant().column_inverse(graph, columns(inverse, n * n, "inverse")));
}

inline void column_parts(const Numbers& links, const Integers& parts) {
    int64_t n = static_cast<int64_t>(parts.size());
    tell(variant().column_parts({n, links_of(links, n), nullptr}, columns(parts, n, "parts")));
}

inline void define_budgets(nb::module_& m) {
    using namespace nb::literals;
    m.def("box", box, "x"_a.noconvert(), "y"_a.noconvert(), "mu"_a.noconvert(), "total"_a.noconvert(),
          "tau"_a.noconvert(), "lower"_a.noconvert(), "upper"_a.noconvert(), "weight"_a.noconvert(),
          "at_most"_a = false, "threads"_a = 1,
          "Write the nearest points within bounds and on a budget into the rows of y; None, or what failed.");
    m.def("box_at", box_at, "is_double"_a, "sizes"_a, "x"_a, "y"_a, "mu"_a, "addresses"_a, "kinds"_a,
          "numbers"_a, "at_most"_a, "threads"_a);
    m.def("box_backward_at", box_backward_at, "is_double"_a, "sizes"_a, "y"_a, "v"_a, "mu"_a, "addresses"_a,
          "kinds"_a, "numbers"_a, "outputs"_a, "at_most"_a, "threads"_a, "one_v"_a = false);
    m.def("segments", segments, "x"_a.noconvert(), "offsets"_a.noconvert(), "k"_a, "tau"_a,
          "y"_a.noconvert() = nb::none(), "v"_a.noconvert() = nb::none(), "ks"_a.noconvert() = nb::none(),
          "taus"_a.noconvert() = nb::none(), "grad_k"_a.noconvert() = nb::none(),
          "grad_tau"_a.noconvert() = nb::none(), "threads"_a = 1, "curve"_a = 0,
          "Write the projections of rows of different lengths into y; or, with v, the gradients of sum(v * "
          "x).");
    m.def("coactive", coactive, "v"_a.noconvert(), "low"_a, "high"_a, "sums"_a.noconvert() = nb::none(),
          "matrix"_a.noconvert() = nb::none(), "threads"_a = 1,
          "Write the sums of the columns, and how often two columns are between low and high together.");
    m.def("column_step", column_step, "links"_a.noconvert(), "bias"_a.noconvert(), "excess"_a.noconvert(),
          "capacity"_a.noconvert(), "slack"_a, "move"_a.noconvert(),
          "Write the step to the minimum of the quadratic model; whether it has one, the longest move, their "
          "deviation.");
    m.def("column_inverse", column_inverse, "links"_a.noconvert(), "bias"_a.noconvert(),
          "inverse"_a.noconvert(), "Write the inverse of the Laplacian of the columns with a bias.");
    m.def("column_parts", column_parts, "links"_a.noconvert(), "parts"_a.noconvert(),
          "Write the least column of the part of the graph that each column is in.");
}

}    // namespace hs
