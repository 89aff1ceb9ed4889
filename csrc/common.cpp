// What does not depend on the instruction set: choosing a variant, pages, and exact selection.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#include "variants.hpp"
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace hs {

const Variant& variant() {
    static const Variant& chosen = []() -> const Variant& {
        const char* wanted = std::getenv("HYPERSIMPLEX_SIMD");
        if (wanted && !*wanted) wanted = nullptr;
        for (const Variant* v : variants)
            if (v->supported() && (!wanted || std::strcmp(wanted, v->name) == 0)) return *v;
        return baseline::table;
    }();
    return chosen;
}

void advise_large_pages(void* address, int64_t bytes) {
#if defined(__linux__)
    constexpr uintptr_t page = large_page;
    uintptr_t from = (reinterpret_cast<uintptr_t>(address) + page - 1) / page * page;
    uintptr_t to = (reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes)) / page * page;
    if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
    (void)address, (void)bytes;
#endif
}

namespace {

// Exactly k ones among the largest entries, ties to the lower index, by selection of the k-th largest.
template <class T>
Result binary_slice(const Binary<T>& p, int64_t s) {
    const int64_t n = p.layout.n, stride = p.layout.stride;
    const T* x = p.x + p.layout.origin(s);
    T* y = p.y + p.layout.origin(s);
    std::unique_ptr<T[]> copy(new (std::nothrow) T[static_cast<size_t>(n) + 1]);
    if (!copy) return {Status::no_memory, s, 0};
    bool nan = false;
    int64_t usable = 0, ones = static_cast<int64_t>(p.k[s]);
    for (int64_t i = 0; i < n; ++i) {
        T v = x[i * stride];
        copy[static_cast<size_t>(i)] = v;
        nan = nan || v != v;
        usable += v != -std::numeric_limits<T>::infinity();
    }
    if (!nan && ones > usable) return {Status::masked_k, s, usable};
    T edge = std::numeric_limits<T>::infinity();
    if (!nan && ones > 0) {
        std::nth_element(copy.get(), copy.get() + ones - 1, copy.get() + n, [](T a, T b) { return a > b; });
        edge = copy[static_cast<size_t>(ones - 1)];
    }
    int64_t above = 0;
    for (int64_t i = 0; i < n; ++i) above += x[i * stride] > edge;
    int64_t ties = ones - above;
    for (int64_t i = 0; i < n; ++i) {
        T v = x[i * stride];
        bool one = v > edge || (v == edge && ties-- > 0);
        y[i * stride] = nan ? std::numeric_limits<T>::quiet_NaN() : one ? T(1) : T(0);
    }
    return {};
}

template <class T>
Result binary(const Binary<T>& p) {
    const Layout& l = p.layout;
    auto bad = [&](double k) { return !(k >= 0 && k <= static_cast<double>(l.n)) || k != std::floor(k); };
    if (!p.k.values && bad(p.k.scalar)) return {Status::bad_k, 0, 0};
    for (int64_t s = 0; p.k.values && s < l.slices(); ++s)
        if (bad(p.k[s])) return {Status::bad_k, s, 0};
    struct Job {
        const Binary<T>& p;
        int64_t each;
        Failure failure;
    } job{p, l.n < binary_task ? binary_task / (l.n + 1) : 1, {}};
    auto work = [](void* context, int64_t task) {
        auto* j = static_cast<Job*>(context);
        int64_t slices = j->p.layout.slices(), end = (task + 1) * j->each;
        for (int64_t s = task * j->each; s < end && s < slices; ++s) {
            Result result = binary_slice(j->p, s);
            if (result.status != Status::ok) j->failure.add(result);
        }
    };
    int threads = l.slices() * l.n < binary_worth ? 1 : p.threads;
    each_block(threads, (l.slices() + job.each - 1) / job.each, work, &job);
    return job.failure.first;
}

}    // namespace

Result binary_f32(const Binary<float>& p) { return binary(p); }
Result binary_f64(const Binary<double>& p) { return binary(p); }

}    // namespace hs
