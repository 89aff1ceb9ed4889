// Arrays from Python, and what must hold before the kernel may read or write them.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel.hpp"

namespace hs {

namespace nb = nanobind;

using Sizes = std::vector<int64_t>;
using Shape = nb::typed<nb::tuple, int, nb::ellipsis>;    // torch.Size is one: nothing is copied
using Array = nb::ndarray<nb::ro, nb::device::cpu>;
using Output = nb::ndarray<nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<double, nb::c_contig, nb::device::cpu>;
using Integers = nb::ndarray<int64_t, nb::c_contig, nb::device::cpu>;
using Labels = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;

template <class Text>    // a literal becomes a string only if it is needed
void demand(bool holds, const Text& rule) {
    if (!holds) throw std::invalid_argument(rule);
}

inline size_t place_of(int64_t axis, size_t dims) {
    int64_t count = static_cast<int64_t>(dims);
    demand(axis >= -count && axis < count, "axis is out of range");
    return static_cast<size_t>(axis < 0 ? axis + count : axis);
}

// An array without gaps, in the order of its dims.
inline Layout lay_out(const Shape& shape, int64_t axis) {
    size_t along = place_of(axis, shape.size());
    int64_t outer = 1, n = 0, inner = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
        int64_t size = 0;
        demand(nb::try_cast(shape[d], size), "shape must be whole numbers");
        if (d == along) {
            n = size;
        } else {
            (d < along ? outer : inner) *= size;
        }
    }
    if (n == 1) return {outer * inner, 1, 1, 1, 1, 0};
    return {outer, n, inner, n * inner, inner, 1};
}

// The dims other than `axis` as one or two evenly spaced groups, or nothing if they need more.
inline std::optional<Layout> lay_out(const Sizes& shape, const Sizes& strides, int64_t axis) {
    demand(shape.size() == strides.size() && !shape.empty(), "shape and strides must match");
    size_t along = place_of(axis, shape.size());
    struct {
        int64_t size, stride;
    } groups[2] = {{1, 0}, {1, 0}};
    int used = 0;
    bool empty = false;
    for (size_t d = 0; d < shape.size(); ++d) {
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

inline Layout need(std::optional<Layout> layout) {
    demand(layout.has_value(), "the dims other than axis must lie evenly in memory");
    return *layout;
}

inline Sizes shape_of(const Array& x) {
    Sizes shape(x.ndim());
    for (size_t d = 0; d < x.ndim(); ++d) shape[d] = static_cast<int64_t>(x.shape(d));
    return shape;
}

inline Sizes strides_of(const Array& x) {
    Sizes strides(x.ndim());
    for (size_t d = 0; d < x.ndim(); ++d) strides[d] = x.stride(d);
    return strides;
}

template <class A>
bool is_double(const A& x, const char* name = "x") {
    if (x.dtype() == nb::dtype<double>()) return true;
    if (x.dtype() == nb::dtype<float>()) return false;
    throw nb::type_error((std::string(name) + " must be float32 or float64").c_str());
}

inline Layout layout_of(const Array& x, int64_t axis) {
    demand(x.ndim() > 0, "x must have at least one dimension");
    return need(lay_out(shape_of(x), strides_of(x), axis));
}

// The kernel reads whole numbers of T: an address between two of them is no array's.
template <class A>
uintptr_t aligned(const A& array, const char* name) {
    auto address = reinterpret_cast<uintptr_t>(array.data());
    demand(address % array.itemsize() == 0, std::string(name) + " must be aligned");
    return address;
}

// What is read or written through x's layout must lie exactly as x does; if written, no element may stand
// twice.
template <class A>
uintptr_t lying_as(const A& y, const Array& x, const char* name, bool written) {
    std::string who(name);
    if (y.dtype() != x.dtype()) throw nb::type_error((who + " must have the dtype of x").c_str());
    demand(y.ndim() == x.ndim(), who + " must have the shape of x");
    for (size_t d = 0; d < x.ndim(); ++d) {
        demand(y.shape(d) == x.shape(d), who + " must have the shape of x");
        if (x.size() == 0 || x.shape(d) <= 1) continue;
        demand(y.stride(d) == x.stride(d), who + " must have the strides of x");
        demand(!written || y.stride(d) != 0, who + " must not repeat its elements");
    }
    return aligned(y, name);
}

// `count` numbers, or a null pointer where none are given.
template <class A>
uintptr_t numbers(const std::optional<A>& values, int64_t count, const char* name, const char* of = "slice") {
    if (!values) return 0;
    demand(static_cast<int64_t>(values->size()) == count,
           std::string(name) + " must have one number per " + of);
    return aligned(*values, name);
}

}    // namespace hs
