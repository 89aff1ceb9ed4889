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
    constexpr uintptr_t page = 2u << 20;
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
Result binary(const Binary<T>& p) {
    const Layout& l = p.layout;
    std::unique_ptr<T[]> copy(new (std::nothrow) T[static_cast<size_t>(l.n) + 1]);
    if (!copy) return {Status::no_memory, 0, 0};
    auto bad = [&](double k) { return !(k >= 0 && k <= static_cast<double>(l.n)) || k != std::floor(k); };
    if (!p.k.values && bad(p.k.scalar)) return {Status::bad_k, 0, 0};
    for (int64_t s = 0; s < l.slices(); ++s) {
        double k = p.k[s];
        if (bad(k)) return {Status::bad_k, s, 0};
        const T* x = p.x + l.origin(s);
        T* y = p.y + l.origin(s);
        bool nan = false;
        int64_t usable = 0, ones = static_cast<int64_t>(k);
        for (int64_t i = 0; i < l.n; ++i) {
            T v = x[i * l.stride];
            copy[static_cast<size_t>(i)] = v;
            nan = nan || v != v;
            usable += v != -std::numeric_limits<T>::infinity();
        }
        if (!nan && ones > usable) return {Status::masked_k, s, usable};
        T edge = std::numeric_limits<T>::infinity();
        if (!nan && ones > 0) {
            std::nth_element(copy.get(), copy.get() + ones - 1, copy.get() + l.n, [](T a, T b) { return a > b; });
            edge = copy[static_cast<size_t>(ones - 1)];
        }
        int64_t above = 0;
        for (int64_t i = 0; i < l.n; ++i) above += x[i * l.stride] > edge;
        int64_t ties = ones - above;
        for (int64_t i = 0; i < l.n; ++i) {
            T v = x[i * l.stride];
            bool one = v > edge || (v == edge && ties-- > 0);
            y[i * l.stride] = nan ? std::numeric_limits<T>::quiet_NaN() : one ? T(1) : T(0);
        }
    }
    return {};
}

}  // namespace

Result binary_f32(const Binary<float>& p) { return binary(p); }
Result binary_f64(const Binary<double>& p) { return binary(p); }

}  // namespace hs
