// Python in, numbers out: arrays are checked by views.hpp, and the GIL is released around the kernel. The
// *_at functions take addresses: at small sizes an array object would cost more than the arithmetic. Their
// callers check (torch's _boundary.py); here only an address of nothing is refused.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "budgets.hpp"
#include "calls.hpp"
#include "kernel.hpp"
#include "running.hpp"
#include "views.hpp"
#include "xla_ffi.hpp"

using namespace hs;
using namespace nb::literals;

namespace {

// Arrays: everything is checked.

Answer project(const Array& x, double k, double tau, const std::optional<Output>& y,
               const std::optional<Doubles>& mu, const std::optional<Numbers>& ks,
               const std::optional<Numbers>& taus, int64_t axis, int threads, int curve) {
    Layout l = layout_of(x, axis);
    int64_t n = l.slices();
    return run_project(is_double(x), l, per_slice(numbers(ks, n, "ks"), k),
                       per_slice(numbers(taus, n, "taus"), tau), aligned(x, "x"),
                       y ? lying_as(*y, x, "y", true) : 0, numbers(mu, n, "mu"), threads, curve_of(curve));
}

Answer backward(const Array& y, const Array& v, double tau, const std::optional<Output>& grad,
                const std::optional<Doubles>& grad_k, const std::optional<Doubles>& grad_tau,
                const std::optional<Numbers>& taus, int64_t axis, int threads, int curve) {
    Layout l = layout_of(y, axis);
    int64_t n = l.slices();
    return run_backward(is_double(y), l, per_slice(numbers(taus, n, "taus"), tau), aligned(y, "y"),
                        lying_as(v, y, "v", false), grad ? lying_as(*grad, y, "grad", true) : 0,
                        numbers(grad_k, n, "grad_k"), numbers(grad_tau, n, "grad_tau"), threads,
                        curve_of(curve));
}

Answer binary(const Array& x, double k, const Output& y, const std::optional<Numbers>& ks, int64_t axis,
              int threads) {
    Layout l = layout_of(x, axis);
    PerSlice each = per_slice(numbers(ks, l.slices(), "ks"), k);
    uintptr_t from = aligned(x, "x"), to = lying_as(y, x, "y", true);
    return run(is_double(x), [&](auto zero) {
        using T = decltype(zero);
        return functions<T>().binary({l, each, pointer<const T>(from), pointer<T>(to), threads});
    });
}

// A batch of (samples, classes, positions) and its targets.
template <class T>
Loss<T> batch(const Sizes& shape, const Sizes& strides, uintptr_t x, uintptr_t labels, int64_t ignored,
              uintptr_t dense) {
    Loss<T> loss{};
    loss.samples = shape[0], loss.classes = shape[1], loss.positions = shape[2];
    loss.sample_stride = strides[0], loss.class_stride = strides[1], loss.position_stride = strides[2];
    loss.x = pointer<const T>(x);
    loss.labels = pointer<const int64_t>(labels);
    loss.ignored = ignored;
    loss.dense = pointer<const T>(dense);
    return loss;
}

// At given thresholds: sums of every class, or the gradient.
Answer at_thresholds(const Array& x, const std::optional<Labels>& labels, const std::optional<Array>& dense,
                     int64_t ignored, const Numbers& mu, const Numbers& low, const Numbers& tau,
                     const std::optional<Numbers>& mean, const std::optional<Numbers>& factor,
                     const std::optional<Doubles>& sums, const std::optional<Output>& grad, int threads) {
    demand(x.ndim() == 3, "x must have three dims: samples, classes, positions");
    Sizes shape = shape_of(x), strides = strides_of(x);
    demand(labels.has_value() != dense.has_value(), "either labels or dense must be given");
    demand(sums.has_value() != grad.has_value(), "either sums or grad must be given");
    demand(!grad || (mean && factor), "grad needs mean and factor");
    auto each = [&](const std::optional<Numbers>& v, const char* name) {
        return numbers(v, shape[1], name, "class");
    };
    uintptr_t from = aligned(x, "x"), own = numbers(labels, shape[0] * shape[2], "labels", "sample"),
              given = dense ? lying_as(*dense, x, "dense", false) : 0, at = each(mu, "mu"),
              rest = each(low, "low"), middle = each(mean, "mean"),
              out = numbers(sums, loss_sums * shape[1], "sums", "class and sum"),
              to = grad ? lying_as(*grad, x, "grad", true) : 0;
    PerSlice taus = per_slice(each(tau, "tau"), 1), factors = per_slice(each(factor, "factor"), 1);
    return run(is_double(x), [&](auto zero) {
        using T = decltype(zero);
        Loss<T> loss = batch<T>(shape, strides, from, own, ignored, given);
        loss.tau = taus, loss.weight = factors;
        loss.grad = pointer<T>(to), loss.mu = pointer<double>(at);
        loss.threads = threads;
        return functions<T>().loss_at(
            {loss, pointer<const double>(rest), pointer<const double>(middle), pointer<double>(out)});
    });
}

// Addresses.

Answer project_at(bool is_double, uintptr_t x, uintptr_t y, const Shape& shape, int64_t axis, double k,
                  double tau, int threads, int curve) {
    Layout l = lay_out(shape, axis);
    demand((x && y) || l.slices() * l.n == 0, "x and y must have memory");
    return run_project(is_double, l, {nullptr, k}, {nullptr, tau}, x, y, 0, threads, curve_of(curve));
}

Answer backward_at(bool is_double, uintptr_t y, uintptr_t v, uintptr_t grad, const Shape& shape, int64_t axis,
                   double tau, int threads, int curve) {
    Layout l = lay_out(shape, axis);
    demand((y && v && grad) || l.slices() * l.n == 0, "y, v and grad must have memory");
    return run_backward(is_double, l, {nullptr, tau}, y, v, grad, 0, 0, threads, curve_of(curve));
}

// Returns (loss, samples that count), or what failed. k may be 0: the sums of the targets.
nb::tuple loss_at(bool is_double, const Sizes& shape, const Sizes& strides, uintptr_t x, uintptr_t labels,
                  int64_t ignored, uintptr_t dense, uintptr_t k, bool k_is_fraction, uintptr_t taus,
                  double tau, uintptr_t weight, bool mean, uintptr_t grad, uintptr_t mu, uintptr_t k_used,
                  int threads) {
    demand(shape.size() == 3 && strides.size() == 3, "shape and strides must have three numbers");
    int64_t entries = shape[0] * shape[1] * shape[2], kept = 0;
    demand((x && (labels || dense)) || entries == 0, "x and its targets must have memory");
    demand((mu && k_used) || shape[1] == 0, "mu and k_used must have memory");
    double value = 0;
    Answer failure = run(is_double, [&](auto zero) {
        using T = decltype(zero);
        Loss<T> loss = batch<T>(shape, strides, x, labels, ignored, dense);
        loss.k = pointer<const double>(k), loss.k_is_fraction = k_is_fraction;
        loss.tau = per_slice(taus, tau), loss.weight = per_slice(weight, 1.0), loss.mean = mean;
        loss.grad = on_large_pages(pointer<T>(grad), entries);
        loss.mu = pointer<double>(mu), loss.k_used = pointer<double>(k_used);
        loss.loss = &value, loss.kept = &kept;
        loss.threads = threads;
        return functions<T>().loss(loss);
    });
    if (failure) return *failure;
    return nb::make_tuple(value, kept);
}

void track_at(bool is_double, uintptr_t mu, uintptr_t k, int64_t classes, int64_t samples, double size,
              double least, bool with_share, uintptr_t threshold, uintptr_t seen, uintptr_t share,
              uintptr_t samples_seen) {
    demand(mu && k && threshold && seen && share && samples_seen,
           "the averages and what they take in must have memory");
    auto add = [&](auto zero) {
        using T = decltype(zero);
        Running<T>{pointer<T>(threshold), pointer<T>(seen), pointer<T>(share), pointer<T>(samples_seen)}.add(
            pointer<const double>(mu), pointer<const double>(k), classes, samples, size, least, with_share);
    };
    is_double ? add(0.0) : add(0.0f);
}

// One step of a boosting objective. `addresses`: x, labels, weights, mu, tau, mean, on, off, skip, sums,
// grad, hess.
Answer objective_at(bool is_double, int step, const Sizes& sizes, const std::vector<uintptr_t>& a,
                    int threads) {
    demand(sizes.size() == 3 && a.size() == 12, "expected three sizes and twelve addresses");
    return run(is_double, [&](auto zero) {
        using T = decltype(zero);
        return functions<T>().objective(
            {static_cast<ObjectiveStep>(step), sizes[0], sizes[1], sizes[2], pointer<const T>(a[0]),
             pointer<const float>(a[1]), pointer<const float>(a[2]), pointer<const double>(a[3]),
             pointer<const double>(a[4]), pointer<const double>(a[5]), pointer<const double>(a[6]),
             pointer<const double>(a[7]), pointer<const uint8_t>(a[8]), pointer<double>(a[9]),
             pointer<float>(a[10]), pointer<float>(a[11]), threads});
    });
}

// On addresses, where checks of views would cost more than small problems take.
void define_raw(nb::module_& m) {
    m.def("project_at", project_at, "is_double"_a, "x"_a, "y"_a, "shape"_a, "axis"_a, "k"_a, "tau"_a,
          "threads"_a, "curve"_a = 0);
    m.def("backward_at", backward_at, "is_double"_a, "y"_a, "v"_a, "grad"_a, "shape"_a, "axis"_a, "tau"_a,
          "threads"_a, "curve"_a = 0);
    m.def("loss_at", loss_at, "is_double"_a, "shape"_a, "strides"_a, "x"_a, "labels"_a, "ignored"_a,
          "dense"_a, "k"_a, "k_is_fraction"_a, "taus"_a, "tau"_a, "weight"_a, "mean"_a, "grad"_a, "mu"_a,
          "k_used"_a, "threads"_a);
    m.def("track_at", track_at, "is_double"_a, "mu"_a, "k"_a, "classes"_a, "samples"_a, "size"_a, "least"_a,
          "with_share"_a, "threshold"_a, "seen"_a, "share"_a, "samples_seen"_a);
    m.def("objective_at", objective_at, "is_double"_a, "step"_a, "sizes"_a, "addresses"_a, "threads"_a);
}

}    // namespace

NB_MODULE(_kernel, m) {
    m.doc() =
        "The compiled kernel of hypersimplex. Private: call hypersimplex or hypersimplex.torch instead.";
    m.def("variant", [] { return std::string(variant().name); }, "The SIMD variant in use.");
    m.def(
        "constants",
        [] {
            nb::typed<nb::dict, nb::str, int> all;
            for (const Constant* c = variant().constants; c->name; ++c) all[c->name] = c->value;
            return all;
        },
        "The sizes at which the kernel changes its way of working.");
    m.def(
        "xla_handlers",
        [] {
            nb::typed<nb::dict, nb::str, nb::object> handlers;
            auto add = [&](const char* name, xla::Error* (*handler)(xla::Frame*)) {
                handlers[name] = nb::capsule(reinterpret_cast<void*>(handler));
            };
            add("hypersimplex_project", xla::project_handler);
            add("hypersimplex_centered", xla::centered_handler);
            add("hypersimplex_box", xla::box_handler);
            add("hypersimplex_box_centered", xla::box_centered_handler);
            return handlers;
        },
        "What jax.ffi.register_ffi_target takes, by name.");
    m.def("xla_compatible", xla::compatible,
          "Whether the XLA at which the handlers were registered can call them.");
    m.def(
        "lies_evenly",
        [](const Sizes& shape, const Sizes& strides, int64_t axis) {
            return lay_out(shape, strides, axis).has_value();
        },
        "shape"_a, "strides"_a, "axis"_a, "Whether the other functions take an array that lies so.");

    m.def("project", project, "x"_a, "k"_a, "tau"_a, "y"_a.noconvert() = nb::none(),
          "mu"_a.noconvert() = nb::none(), "ks"_a.noconvert() = nb::none(), "taus"_a.noconvert() = nb::none(),
          "axis"_a = -1, "threads"_a = 1, "curve"_a = 0,
          "Write the projection into y and the thresholds into mu; None, or (what, slice, limit) if a slice "
          "failed.");
    m.def("backward", backward, "y"_a, "v"_a, "tau"_a, "grad"_a.noconvert() = nb::none(),
          "grad_k"_a.noconvert() = nb::none(), "grad_tau"_a.noconvert() = nb::none(),
          "taus"_a.noconvert() = nb::none(), "axis"_a = -1, "threads"_a = 1, "curve"_a = 0,
          "Write the gradients of sum(v * y) to x, k and tau.");
    m.def("binary", binary, "x"_a, "k"_a, "y"_a.noconvert(), "ks"_a.noconvert() = nb::none(), "axis"_a = -1,
          "threads"_a = 1, "Write exactly k ones into every slice of y.");
    m.def("at_thresholds", at_thresholds, "x"_a.noconvert(), "labels"_a.noconvert().none(),
          "dense"_a.noconvert().none(), "ignored"_a, "mu"_a.noconvert(), "low"_a.noconvert(),
          "tau"_a.noconvert(), "mean"_a.noconvert() = nb::none(), "factor"_a.noconvert() = nb::none(),
          "sums"_a.noconvert() = nb::none(), "grad"_a.noconvert() = nb::none(), "threads"_a = 1,
          "One rank's sums of every class at the thresholds mu + low, or its gradient there.");
    define_budgets(m);
    define_raw(m);
}
