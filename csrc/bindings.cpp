// Python in, numbers out: shapes, strides and dtypes are settled here, and the GIL is released around the kernel.
// The *_at functions take addresses, for callers that hold a framework's tensor: they trust what they are told.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernel.hpp"
#include "running.hpp"

namespace nb = nanobind;
using namespace hs;

namespace {

using Sizes = std::vector<int64_t>;
using Doubles = nb::ndarray<double, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;

struct Group {
    int64_t size, stride;
};

// The dims other than `axis` as one or two evenly spaced groups, or nothing if they need more.
std::optional<Layout> lay_out(const int64_t* shape, const int64_t* strides, size_t ndim, int64_t axis) {
    int64_t dims = static_cast<int64_t>(ndim);
    if (axis < -dims || axis >= dims) throw std::invalid_argument("axis is out of range");
    size_t along = static_cast<size_t>(axis < 0 ? axis + dims : axis);
    Group groups[2] = {{1, 0}, {1, 0}};
    int used = 0;
    bool empty = false;
    for (size_t d = 0; d < ndim; ++d) {
        if (shape[d] == 0 && d != along) empty = true;
        if (d == along || shape[d] == 1) continue;
        if (used > 0 && groups[used - 1].stride == shape[d] * strides[d]) {
            groups[used - 1] = {groups[used - 1].size * shape[d], strides[d]};
        } else if (used < 2) {
            groups[used++] = {shape[d], strides[d]};
        } else {
            return std::nullopt;
        }
    }
    int64_t n = shape[along], stride = strides[along];
    if (empty) return Layout{0, n, 1, 0, stride, 0};
    if (used == 1 && groups[0].stride == 1 && stride != 1 && n != 1)
        return Layout{1, n, groups[0].size, 0, stride, 1};
    if (used <= 1) return Layout{groups[0].size, n, 1, groups[0].stride, stride, 0};
    return Layout{groups[0].size, n, groups[1].size, groups[0].stride, stride, groups[1].stride};
}

std::optional<Layout> lay_out(const Sizes& shape, const Sizes& strides, int64_t axis) {
    if (shape.size() != strides.size() || shape.empty()) throw std::invalid_argument("shape and strides must match");
    return lay_out(shape.data(), strides.data(), shape.size(), axis);
}

nb::object tell(const Result& r) {
    if (r.status == Status::ok) return nb::none();
    if (r.status == Status::no_memory) throw std::bad_alloc();
    const char* names[] = {"ok", "no memory", "k", "tau", "masked", "label", "weight"};
    return nb::make_tuple(names[static_cast<int>(r.status)], r.slice, r.limit);
}

// An interpreter that is going down takes no thread back: it unwinds it, which would end the process at the first
// function that lets nothing through. The thread stays here instead, until the process is gone.
template <class F>
Result without_gil(F f) {
    PyThreadState* state = PyEval_SaveThread();
    Result result = f();
    try {
        PyEval_RestoreThread(state);
    } catch (...) {
        for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
    return result;
}

template <class T>
const Functions<T>& functions() {
    if constexpr (sizeof(T) == 4) return variant().f32;
    else return variant().f64;
}

template <class T>
T* pointer(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

PerSlice per_slice(uintptr_t address, double scalar) { return {pointer<const double>(address), scalar}; }

Layout need(std::optional<Layout> layout) {
    if (!layout) throw std::invalid_argument("the dims other than axis must lie evenly in memory");
    return *layout;
}

template <class T>
nb::object project_t(const Layout& layout, PerSlice k, PerSlice tau, uintptr_t x, uintptr_t y, uintptr_t mu,
                     uintptr_t start, int threads) {
    int64_t bytes = layout.slices() * layout.n * static_cast<int64_t>(sizeof(T));
    return tell(without_gil([&] {
        if (y && bytes >= (4 << 20)) advise_large_pages(pointer<void>(y), bytes);
        (void)start;
        return functions<T>().project({layout, k, tau, pointer<const T>(x), pointer<T>(y), pointer<double>(mu), threads});
    }));
}

template <class T>
nb::object backward_t(const Layout& layout, PerSlice tau, uintptr_t y, uintptr_t v, uintptr_t grad, uintptr_t grad_k,
                      uintptr_t grad_tau, int threads) {
    int64_t bytes = layout.slices() * layout.n * static_cast<int64_t>(sizeof(T));
    return tell(without_gil([&] {
        if (grad && bytes >= (4 << 20)) advise_large_pages(pointer<void>(grad), bytes);
        return functions<T>().backward({layout, tau, pointer<const T>(y), pointer<const T>(v), pointer<T>(grad),
                                        pointer<double>(grad_k), pointer<double>(grad_tau), threads});
    }));
}

template <class T>
nb::object binary_t(const Layout& layout, PerSlice k, uintptr_t x, uintptr_t y, int threads) {
    return tell(without_gil(
        [&] { return functions<T>().binary({layout, k, pointer<const T>(x), pointer<T>(y), threads}); }));
}

nb::object project_at(bool is_double, uintptr_t x, uintptr_t y, uintptr_t mu, const Sizes& shape, const Sizes& strides,
                      int64_t axis, uintptr_t k_address, double k, uintptr_t tau_address, double tau, uintptr_t start,
                      int threads) {
    Layout layout = need(lay_out(shape, strides, axis));
    auto run = is_double ? project_t<double> : project_t<float>;
    return run(layout, per_slice(k_address, k), per_slice(tau_address, tau), x, y, mu, start, threads);
}

nb::object backward_at(bool is_double, uintptr_t y, uintptr_t v, uintptr_t grad, uintptr_t grad_k, uintptr_t grad_tau,
                       const Sizes& shape, const Sizes& strides, int64_t axis, uintptr_t tau_address, double tau,
                       int threads) {
    Layout layout = need(lay_out(shape, strides, axis));
    auto run = is_double ? backward_t<double> : backward_t<float>;
    return run(layout, per_slice(tau_address, tau), y, v, grad, grad_k, grad_tau, threads);
}

nb::object binary_at(bool is_double, uintptr_t x, uintptr_t y, const Sizes& shape, const Sizes& strides, int64_t axis,
                     uintptr_t k_address, double k, int threads) {
    Layout layout = need(lay_out(shape, strides, axis));
    auto run = is_double ? binary_t<double> : binary_t<float>;
    return run(layout, per_slice(k_address, k), x, y, threads);
}

// Returns (loss, samples that count), or what failed. The address of k may be 0: the sums of the targets.
template <class T>
nb::object loss_t(const Sizes& shape, const Sizes& strides, uintptr_t x, uintptr_t labels, int64_t ignored,
                  uintptr_t dense, uintptr_t k, bool share, PerSlice tau, PerSlice weight, uintptr_t start, double scale, bool mean,
                  uintptr_t grad, uintptr_t mu, uintptr_t k_used, int threads) {
    double value = 0;
    int64_t kept = 0;
    (void)start, (void)scale;
    Result result = without_gil([&] {
        int64_t bytes = shape[0] * shape[1] * shape[2] * static_cast<int64_t>(sizeof(T));
        if (grad && bytes >= (4 << 20)) advise_large_pages(pointer<void>(grad), bytes);
        return functions<T>().loss({shape[0], shape[1], shape[2], strides[0], strides[1], strides[2],
                                    pointer<const T>(x), pointer<const int64_t>(labels), ignored,
                                    pointer<const T>(dense), pointer<const double>(k), share, tau, weight,
                                    mean, pointer<T>(grad), pointer<double>(mu),
                                    pointer<double>(k_used), &value, &kept, threads});
    });
    if (result.status != Status::ok) return tell(result);
    return nb::make_tuple(value, kept);
}

nb::object loss_at(bool is_double, const Sizes& shape, const Sizes& strides, uintptr_t x, uintptr_t labels, int64_t ignored,
                   uintptr_t dense, uintptr_t k, bool share, uintptr_t tau_address, double tau, uintptr_t weight, uintptr_t start,
                   double scale, bool mean, uintptr_t grad, uintptr_t mu, uintptr_t k_used, int threads) {
    if (shape.size() != 3 || strides.size() != 3) throw std::invalid_argument("shape and strides must have three numbers");
    auto run = is_double ? loss_t<double> : loss_t<float>;
    return run(shape, strides, x, labels, ignored, dense, k, share, per_slice(tau_address, tau), per_slice(weight, 1.0), start,
               scale, mean, grad, mu, k_used, threads);
}

// One step of a boosting objective. `addresses`: x, labels, weights, mu, tau, mean, on, off, skip, sums, grad, hess.
template <class T>
Result objective_t(int step, const Sizes& sizes, const std::vector<uintptr_t>& a, int threads) {
    return functions<T>().objective({static_cast<ObjectiveStep>(step), sizes[0], sizes[1], sizes[2], sizes[3],
                                     pointer<const T>(a[0]), pointer<const float>(a[1]), pointer<const float>(a[2]),
                                     pointer<const double>(a[3]), pointer<const double>(a[4]), pointer<const double>(a[5]),
                                     pointer<const double>(a[6]), pointer<const double>(a[7]), pointer<const uint8_t>(a[8]),
                                     pointer<double>(a[9]), pointer<float>(a[10]), pointer<float>(a[11]), threads});
}

nb::object objective_at(bool is_double, int step, const Sizes& sizes, const std::vector<uintptr_t>& addresses, int threads) {
    if (sizes.size() != 4 || addresses.size() != 12) throw std::invalid_argument("expected four sizes and twelve addresses");
    return tell(without_gil([&] { return (is_double ? objective_t<double> : objective_t<float>)(step, sizes, addresses, threads); }));
}

void track_at(bool is_double, uintptr_t mu, uintptr_t k, int64_t classes, int64_t samples, double momentum, bool with_share,
              uintptr_t threshold, uintptr_t seen, uintptr_t share, uintptr_t batches) {
    auto run = [&](auto zero) {
        using T = decltype(zero);
        Running<T>{pointer<T>(threshold), pointer<T>(seen), pointer<T>(share), pointer<T>(batches)}
            .add(pointer<const double>(mu), pointer<const double>(k), classes, samples, momentum, with_share);
    };
    if (is_double) run(0.0); else run(0.0f);
}

// One rank's share of a loss. `addresses`: x, labels, dense, mu, low, tau, weight, mean, sums, grad.
template <class T>
Result share_t(const Sizes& n, const Sizes& strides, int64_t ignored, const std::vector<uintptr_t>& a, double scale, int threads) {
    Loss<T> loss{n[0], n[1], n[2], strides[0], strides[1], strides[2], pointer<const T>(a[0]), pointer<const int64_t>(a[1]),
                 ignored, pointer<const T>(a[2]), nullptr, false, per_slice(a[5], 1), per_slice(a[6], 1), false,
                 pointer<T>(a[9]), pointer<double>(a[3]), nullptr, nullptr, nullptr, threads};
    return functions<T>().loss_at({loss, pointer<const double>(a[4]), pointer<const double>(a[7]), scale, pointer<double>(a[8])});
}

nb::object share_at(bool is_double, const Sizes& shape, const Sizes& strides, int64_t ignored,
                    const std::vector<uintptr_t>& addresses, double scale, int threads) {
    if (shape.size() != 3 || strides.size() != 3 || addresses.size() != 10)
        throw std::invalid_argument("expected three sizes, three strides and ten addresses");
    return tell(without_gil(
        [&] { return (is_double ? share_t<double> : share_t<float>)(shape, strides, ignored, addresses, scale, threads); }));
}

// Arrays: everything is checked.
using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using Output = nb::ndarray<nb::device::cpu>;

bool is_double(const Array& x) {
    if (x.dtype() == nb::dtype<double>()) return true;
    if (x.dtype() == nb::dtype<float>()) return false;
    throw nb::type_error("x must be float32 or float64");
}

Layout layout_of(const Array& x, int64_t axis) {
    if (x.ndim() == 0) throw std::invalid_argument("x must have at least one dimension");
    Sizes shape(x.ndim()), strides(x.ndim());
    for (size_t d = 0; d < x.ndim(); ++d) {
        shape[d] = static_cast<int64_t>(x.shape(d));
        strides[d] = x.stride(d);
    }
    return need(lay_out(shape, strides, axis));
}

// The kernel reads whole numbers of T: an address between two of them is no array's.
template <class A>
uintptr_t aligned(const A& array, const char* name) {
    auto address = reinterpret_cast<uintptr_t>(array.data());
    if (address % array.itemsize()) throw std::invalid_argument(std::string(name) + " must be aligned");
    return address;
}

// An output is written through x's layout, so it must lie exactly as x does, and no element may stand twice.
uintptr_t output_like(const Output& y, const Array& x, const char* name) {
    std::string who(name);
    if (y.dtype() != x.dtype()) throw nb::type_error((who + " must have the dtype of x").c_str());
    if (y.ndim() != x.ndim()) throw std::invalid_argument(who + " must have the shape of x");
    for (size_t d = 0; d < x.ndim(); ++d) {
        if (y.shape(d) != x.shape(d)) throw std::invalid_argument(who + " must have the shape of x");
        if (x.size() > 0 && x.shape(d) > 1 && y.stride(d) != x.stride(d)) throw std::invalid_argument(who + " must have the strides of x");
        if (x.size() > 0 && x.shape(d) > 1 && y.stride(d) == 0) throw std::invalid_argument(who + " must not repeat its elements");
    }
    return aligned(y, name);
}

template <class A>
uintptr_t one_per_slice(const std::optional<A>& values, const Layout& layout, const char* name) {
    if (!values) return 0;
    if (static_cast<int64_t>(values->size()) != layout.slices())
        throw std::invalid_argument(std::string(name) + " must have one number per slice");
    return aligned(*values, name);
}

nb::object project(const Array& x, double k, double tau, const std::optional<Output>& y,
                   const std::optional<Doubles>& mu, const std::optional<Numbers>& ks,
                   const std::optional<Numbers>& taus, int64_t axis, int threads) {
    Layout layout = layout_of(x, axis);
    auto run = is_double(x) ? project_t<double> : project_t<float>;
    return run(layout, per_slice(one_per_slice(ks, layout, "ks"), k), per_slice(one_per_slice(taus, layout, "taus"), tau),
               aligned(x, "x"), y ? output_like(*y, x, "y") : 0, one_per_slice(mu, layout, "mu"),
               0, threads);
}

nb::object binary(const Array& x, double k, const Output& y, const std::optional<Numbers>& ks, int64_t axis, int threads) {
    Layout layout = layout_of(x, axis);
    auto run = is_double(x) ? binary_t<double> : binary_t<float>;
    return run(layout, per_slice(one_per_slice(ks, layout, "ks"), k), aligned(x, "x"),
               output_like(y, x, "y"), threads);
}

}  // namespace

NB_MODULE(_kernel, m) {
    m.doc() = "The compiled kernel of hypersimplex. Private: call hypersimplex or hypersimplex.torch instead.";
    m.def("variant", [] { return std::string(variant().name); }, "The SIMD variant in use.");
    m.def("constants", [] {
        nb::dict all;
        for (const Constant* c = variant().constants; c->name; ++c) all[c->name] = c->value;
        return all;
    }, "The sizes at which the kernel changes its way of working.");
    m.def("lies_evenly", [](const Sizes& shape, const Sizes& strides, int64_t axis) {
        return lay_out(shape, strides, axis).has_value();
    }, nb::arg("shape"), nb::arg("strides"), nb::arg("axis"), "Whether the other functions take an array that lies so.");
    m.def("project", project, nb::arg("x"), nb::arg("k"), nb::arg("tau"), nb::arg("y").noconvert() = nb::none(),
          nb::arg("mu").noconvert() = nb::none(), nb::arg("ks").noconvert() = nb::none(),
          nb::arg("taus").noconvert() = nb::none(), nb::arg("axis") = -1, nb::arg("threads") = 1,
          "Write the projection into y and the thresholds into mu; None, or (what, slice, limit) if a slice failed.");
    m.def("binary", binary, nb::arg("x"), nb::arg("k"), nb::arg("y").noconvert(), nb::arg("ks").noconvert() = nb::none(),
          nb::arg("axis") = -1, nb::arg("threads") = 1, "Write exactly k ones into every slice of y.");
    m.def("project_at", project_at);
    m.def("backward_at", backward_at);
    m.def("binary_at", binary_at);
    m.def("loss_at", loss_at);
    m.def("share_at", share_at);
    m.def("track_at", track_at);
    m.def("objective_at", objective_at);
}
