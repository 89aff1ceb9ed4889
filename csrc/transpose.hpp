// A block of columns as rows, and back: in blocks that stay in the cache this is cheaper than passes across
// memory.
#pragma once
#include <utility>

#include "lanes.hpp"

namespace hs::HS_VARIANT {

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) && !defined(HS_PLAIN_LANES)
#define HS_SHUFFLE
template <class Vec, size_t... l>
HS_INLINE Vec interleave_low(Vec a, Vec b, std::index_sequence<l...>) {
    return __builtin_shufflevector(a, b, (l / 2 + (l & 1) * sizeof...(l))...);
}
template <class Vec, size_t... l>
HS_INLINE Vec interleave_high(Vec a, Vec b, std::index_sequence<l...>) {
    return __builtin_shufflevector(a, b, (sizeof...(l) / 2 + l / 2 + (l & 1) * sizeof...(l))...);
}
#endif
#endif

// A W x W corner of a row-major array, transposed: log2(W) rounds of interleaving. With masks, of fewer rows
// and columns as well.
template <class T>
HS_INLINE void transpose_corner(const T* from, int64_t from_step, T* to, int64_t to_step,
                                int rows = Lanes<T>::width, int columns = Lanes<T>::width) {
#if defined(HS_SHUFFLE)
    using L = Lanes<T>;
    constexpr int W = L::width;
    std::make_index_sequence<W> lanes;
    typename L::Vec r[W], next[W];
    for (int l = 0; l < W; ++l) {
        if (l >= rows) r[l] = typename L::Vec{};
        else
            r[l] = columns < W ? L::load_first(from + l * from_step, columns) : L::load(from + l * from_step);
    }
    for (int round = 1; round < W; round *= 2) {
        for (int i = 0; i < W / 2; ++i) {
            next[2 * i] = interleave_low(r[i], r[i + W / 2], lanes);
            next[2 * i + 1] = interleave_high(r[i], r[i + W / 2], lanes);
        }
        for (int i = 0; i < W; ++i) r[i] = next[i];
    }
    for (int l = 0; l < W; ++l) {
        if (l >= columns) return;
        if (rows < W) L::store_first(to + l * to_step, rows, r[l]);
        else L::store(to + l * to_step, r[l]);
    }
#else
    for (int i = 0; i < rows; ++i)
        for (int l = 0; l < columns; ++l) to[l * to_step + i] = from[i * from_step + l];
#endif
}

template <class T>
HS_INLINE void prefetch(const T* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

// The array of `rows` x `columns` at `from` becomes one of `columns` x `rows` at `to`.
template <class T>
void transpose(const T* from, int64_t from_step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
    constexpr int W = Lanes<T>::width;
    int64_t i = 0, whole = columns / W * W;
    if (columns >= W)
        for (; i + W <= rows; i += W) {
            // Rows lie pages apart, where no hardware prefetcher follows.
            if (i + 4 * W <= rows)
                for (int l = 0; l < W; ++l) prefetch(from + (i + 3 * W + l) * from_step);
            for (int64_t j = 0; j < whole; j += W)
                transpose_corner(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
            // The last corner overlaps the one before.
            int64_t j = columns - W;
            if (whole < columns)
                transpose_corner(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
        }
    if constexpr (Lanes<T>::masks)
        // Of fewer, one by one is faster.
        for (; rows - i >= W / 4 && columns >= W / 4; i += W)
            for (int64_t j = 0; j < columns; j += W)
                transpose_corner(from + i * from_step + j, from_step, to + j * to_step + i, to_step,
                                 static_cast<int>(rows - i < W ? rows - i : W),
                                 static_cast<int>(columns - j < W ? columns - j : W));
    for (; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) to[j * to_step + i] = from[i * from_step + j];
}

}    // namespace hs::HS_VARIANT
