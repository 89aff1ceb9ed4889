// From checked numbers and addresses to the kernel: the GIL is released around it, and what failed is told as
// a tuple.
#pragma once
#include <nanobind/nanobind.h>

#include <chrono>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "kernel.hpp"

namespace hs {

namespace nb = nanobind;

// What failed, where, and the limit that was passed.
using Answer = std::optional<nb::typed<nb::tuple, nb::str, int, int>>;

inline Answer tell(const Result& r) {
    if (r.status == Status::ok) return std::nullopt;
    if (r.status == Status::no_memory) throw std::bad_alloc();
    const char* names[] = {"ok",    "no memory", "k",      "tau",   "masked",
                           "label", "weight",    "bounds", "total", "offsets"};
    return Answer(nb::make_tuple(names[static_cast<int>(r.status)], r.slice, r.limit));
}

// An interpreter that is going down takes no thread back: it unwinds it, which would end the process at the
// first function that lets nothing through. The thread stays here instead, until the process is gone.
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

// A call of the kernel, in double or in single precision: f is given a zero for its type.
template <class F>
Answer run(bool is_double, F f) {
    return tell(without_gil([&] { return is_double ? f(0.0) : f(0.0f); }));
}

template <class T>
T* pointer(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

inline Curve curve_of(int curve) {
    if (curve < 0 || curve >= curves) throw std::invalid_argument("curve must be 0, 1, 2 or 3");
    return static_cast<Curve>(curve);
}

inline PerSlice per_slice(uintptr_t address, double scalar) {
    return {pointer<const double>(address), scalar};
}

inline Answer run_project(bool is_double, const Layout& l, PerSlice k, PerSlice tau, uintptr_t x, uintptr_t y,
                          uintptr_t mu, int threads, Curve curve) {
    return run(is_double, [&](auto zero) {
        using T = decltype(zero);
        T* room = on_large_pages(pointer<T>(y), l.slices() * l.n);
        return functions<T>().project(
            {l, k, tau, pointer<const T>(x), room, pointer<double>(mu), threads, curve});
    });
}

inline Answer run_backward(bool is_double, const Layout& l, PerSlice tau, uintptr_t y, uintptr_t v,
                           uintptr_t grad, uintptr_t grad_k, uintptr_t grad_tau, int threads, Curve curve) {
    return run(is_double, [&](auto zero) {
        using T = decltype(zero);
        T* room = on_large_pages(pointer<T>(grad), l.slices() * l.n);
        return functions<T>().backward({l, tau, pointer<const T>(y), pointer<const T>(v), room,
                                        pointer<double>(grad_k), pointer<double>(grad_tau), threads, curve});
    });
}

}    // namespace hs
