// The kernel as functions that XLA calls: x, y and v are (outer, n, inner) arrays, and everything else is one
// number per slice or one for all slices, but for the bounds and weights of box sections. A slice without a
// solution is NaN: jit has no other way to say it.
#include "xla_ffi.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <new>
#include <vector>

#include "kernel.hpp"

namespace hs::xla {

namespace {

std::atomic<bool> same_frames{false};

Error* fail(const Frame& frame, int code, const char* message) {
    ErrorArguments arguments{sizeof(ErrorArguments), nullptr, message, code};
    return frame.api->create_error(&arguments);
}

// Whether this call only asks for the version; if so, it is answered.
bool answered(const Frame& frame) {
    auto* extension = frame.extensions;
    if (!extension || extension->type != metadata_extension) return false;
    Metadata& metadata = *reinterpret_cast<MetadataExtension*>(extension)->metadata;
    metadata.version.major = major_version;
    metadata.version.minor = minor_version;
    metadata.traits = 0;
    same_frames = frame.struct_size >= offsetof(Frame, attributes) + sizeof(Attributes);
    return true;
}

Layout layout_of(const Buffer& x) {
    int64_t n = x.sizes[1], inner = x.sizes[2];
    // Contiguous rows are told from columns by an inner size of 1.
    if (inner == 1) return {x.sizes[0], n, 1, n, 1, 0};
    return {x.sizes[0], n, inner, n * inner, inner, 1};
}

int64_t size_of(const Buffer& b) {
    int64_t size = 1;
    for (int64_t d = 0; d < b.rank; ++d) size *= b.sizes[d];
    return size;
}

template <class T>
T* data(const Buffers& buffers, int64_t i) {
    return static_cast<T*>(buffers.items[i]->data);
}

template <class T>
std::vector<double> numbers(const Buffer& b) {
    const T* from = static_cast<const T*>(b.data);
    return std::vector<double>(from, from + size_of(b));
}

PerSlice per_slice(const std::vector<double>& values) {
    if (values.size() == 1) return {nullptr, values[0]};
    return {values.data(), 0};
}

// Attributes come in the order of their names: at_most, if there is one, then threads.
int attribute(const Frame& frame, int64_t i) {
    return *static_cast<const int32_t*>(frame.attributes.items[i]->value);
}

int threads_of(const Frame& frame) { return attribute(frame, frame.attributes.count - 1); }

// The first result, which has the size of the first argument.
template <class T>
T* output(const Frame& frame) {
    return on_large_pages(data<T>(frame.results, 0), size_of(*frame.results.items[0]));
}

bool solvable(double k, double tau, int64_t n) {
    return k >= 0 && k <= static_cast<double>(n) && tau > 0 && std::isfinite(tau);
}

// Whether k asks for more entries than are not -inf. If the slice has a NaN as well, it is NaN anyway.
template <class T>
bool over_masked(const Project<T>& p, int64_t slice) {
    const T* x = p.x + p.layout.origin(slice);
    int64_t usable = 0;
    for (int64_t i = 0; i < p.layout.n; ++i)
        usable += x[i * p.layout.stride] != -std::numeric_limits<T>::infinity();
    return p.k[slice] > static_cast<double>(usable);
}

template <class T>
void spoil(const Project<T>& p, int64_t slice) {
    T* y = p.y + p.layout.origin(slice);
    for (int64_t i = 0; i < p.layout.n; ++i) y[i * p.layout.stride] = std::numeric_limits<T>::quiet_NaN();
    p.mu[slice] = std::numeric_limits<double>::quiet_NaN();
}

// x, k, what x's type rounds away from k, tau -> y, mu.
template <class T>
Error* project(const Frame& frame) {
    const Buffers& in = frame.arguments;
    Layout layout = layout_of(*in.items[0]);
    std::vector<double> k = numbers<T>(*in.items[1]), rest = numbers<T>(*in.items[2]);
    std::vector<double> tau = numbers<T>(*in.items[3]);
    for (size_t s = 0; s < k.size(); ++s) k[s] += rest[s];
    std::vector<double> given_k = k, given_tau = tau, mu(static_cast<size_t>(layout.slices()));
    for (double& value : k) value = solvable(value, 1, layout.n) ? value : 0;
    for (double& value : tau) value = solvable(0, value, layout.n) ? value : 1;
    Project<T> p{};
    p.layout = layout;
    p.k = per_slice(k);
    p.tau = per_slice(tau);
    p.x = data<const T>(in, 0);
    p.y = output<T>(frame);
    p.mu = mu.data();
    p.threads = threads_of(frame);
    Status status = functions<T>().project(p).status;
    if (status == Status::no_memory)
        return fail(frame, resource_exhausted, "hypersimplex: no memory for the search");
    PerSlice ks = per_slice(given_k), taus = per_slice(given_tau);
    T* mu_out = data<T>(frame.results, 1);
    for (int64_t s = 0; s < layout.slices(); ++s) {
        bool masked = status == Status::masked_k && over_masked(p, s);
        if (masked || !solvable(ks[s], taus[s], layout.n)) spoil(p, s);
        mu_out[s] = static_cast<T>(mu[static_cast<size_t>(s)]);
    }
    return nullptr;
}

// y, v, tau -> (v - mean of v over the active entries)/tau at the active entries, 0 elsewhere.
template <class T>
Error* centered(const Frame& frame) {
    std::vector<double> tau = numbers<T>(*frame.arguments.items[2]);
    Backward<T> p{};
    p.layout = layout_of(*frame.arguments.items[0]);
    p.tau = per_slice(tau);
    p.y = data<const T>(frame.arguments, 0);
    p.v = data<const T>(frame.arguments, 1);
    p.grad = output<T>(frame);
    p.threads = threads_of(frame);
    if (functions<T>().backward(p).status == Status::no_memory)
        return fail(frame, resource_exhausted, "hypersimplex: no memory for the gradient");
    return nullptr;
}

// Numbers for the entries of rows, of shape (rows or 1, n or 1).
template <class T>
PerEntry per_entry(const Buffer& b) {
    int64_t row_stride = b.sizes[0] == 1 ? 0 : b.sizes[1], step = b.sizes[1] == 1 ? 0 : 1;
    if constexpr (sizeof(T) == 4) return {nullptr, row_stride, step, static_cast<const float*>(b.data)};
    else return {static_cast<const double*>(b.data), row_stride, step};
}

// Every row by itself, since some have no solution.
template <class T>
void box_by_rows(const Box<T>& p) {
    for (int64_t r = 0; r < p.rows; ++r) {
        auto of_row = [r](const PerEntry& e) -> PerEntry {
            int64_t at = r * e.row_stride;
            if (e.singles) return {nullptr, 0, e.step, e.singles + at};
            return {e.values + at, 0, e.step};
        };
        Box<T> one = p;
        one.rows = 1;
        one.total = {nullptr, p.total[r]}, one.tau = {nullptr, p.tau[r]};
        one.lower = of_row(p.lower), one.upper = of_row(p.upper), one.weight = of_row(p.weight);
        one.x += r * p.n, one.y += r * p.n, one.mu += r;
        if (functions<T>().box(one).status == Status::ok) continue;
        std::fill_n(one.y, p.n, std::numeric_limits<T>::quiet_NaN());
        *one.mu = std::numeric_limits<double>::quiet_NaN();
    }
}

// x, total, tau, lower, upper, weight -> y, mu.
template <class T>
Error* box(const Frame& frame) {
    const Buffers& in = frame.arguments;
    Layout layout = layout_of(*in.items[0]);
    std::vector<double> total = numbers<T>(*in.items[1]), tau = numbers<T>(*in.items[2]);
    std::vector<double> mu(static_cast<size_t>(layout.outer));
    Box<T> p{};
    p.rows = layout.outer, p.n = layout.n;
    p.total = per_slice(total), p.tau = per_slice(tau);
    p.lower = per_entry<T>(*in.items[3]), p.upper = per_entry<T>(*in.items[4]);
    p.weight = per_entry<T>(*in.items[5]);
    p.at_most = attribute(frame, 0) != 0;
    p.x = data<const T>(in, 0), p.y = output<T>(frame), p.mu = mu.data();
    p.threads = threads_of(frame);
    Status status = functions<T>().box(p).status;
    if (status == Status::no_memory)
        return fail(frame, resource_exhausted, "hypersimplex: no memory for the search");
    if (status != Status::ok) box_by_rows(p);
    T* mu_out = data<T>(frame.results, 1);
    for (size_t r = 0; r < mu.size(); ++r) mu_out[r] = static_cast<T>(mu[r]);
    return nullptr;
}

// v, y, mu, tau, lower, upper, weight -> the gradient of sum(v y) to x.
template <class T>
Error* box_centered(const Frame& frame) {
    const Buffers& in = frame.arguments;
    std::vector<double> mu = numbers<T>(*in.items[2]), tau = numbers<T>(*in.items[3]);
    BoxBackward<T> p{};
    Layout layout = layout_of(*in.items[0]);
    p.rows = layout.outer, p.n = layout.n;
    p.tau = per_slice(tau);
    p.lower = per_entry<T>(*in.items[4]), p.upper = per_entry<T>(*in.items[5]);
    p.weight = per_entry<T>(*in.items[6]);
    p.at_most = attribute(frame, 0) != 0;
    p.v = data<const T>(in, 0), p.y = data<const T>(in, 1);
    p.mu = mu.data();
    p.grad = output<T>(frame);
    p.threads = threads_of(frame);
    functions<T>().box_backward(p);
    return nullptr;
}

using Typed = Error* (*)(const Frame&);

struct Expected {
    int64_t arguments, results, attributes;
};

Error* handle(Frame* frame, const Expected& expected, Typed with_float, Typed with_double) {
    if (answered(*frame)) return nullptr;
    const Attributes& attributes = frame->attributes;
    bool known = readable(*frame) && frame->arguments.count == expected.arguments &&
                 frame->results.count == expected.results && attributes.count == expected.attributes &&
                 frame->arguments.items[0]->rank == 3;
    for (int64_t i = 0; known && i < attributes.count; ++i)
        known = attributes.types[i] == scalar_attribute && attributes.items[i]->dtype == type_int32;
    if (!known) return fail(*frame, invalid_argument, "hypersimplex: XLA calls the kernel in an unknown way");
    int dtype = frame->arguments.items[0]->dtype;
    if (dtype != type_float32 && dtype != type_float64)
        return fail(*frame, invalid_argument, "hypersimplex: x must be float32 or float64");
    try {
        return dtype == type_float32 ? with_float(*frame) : with_double(*frame);
    } catch (const std::bad_alloc&) {
        return fail(*frame, resource_exhausted, "hypersimplex: no memory for one number per slice");
    } catch (const std::exception& error) {
        return fail(*frame, internal_error, error.what());
    }
}

}    // namespace

Error* project_handler(Frame* frame) { return handle(frame, {4, 2, 1}, project<float>, project<double>); }
Error* centered_handler(Frame* frame) { return handle(frame, {3, 1, 1}, centered<float>, centered<double>); }
Error* box_handler(Frame* frame) { return handle(frame, {6, 2, 2}, box<float>, box<double>); }
Error* box_centered_handler(Frame* frame) {
    return handle(frame, {7, 1, 2}, box_centered<float>, box_centered<double>);
}

bool compatible() { return same_frames; }

}    // namespace hs::xla
