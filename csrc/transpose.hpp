// A block of columns as rows, and back: in blocks that stay in the cache this is cheaper than passes across
// memory.
#pragma once
#include <utility>

#include "lanes.hpp"

namespace hs::HS_VARIANT {

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) && !defined(HS_PLAIN_LANES)
#define HS_SHUFFLE
// Of every 16 bytes the lower half of a and of b, lane by lane; with `half`, the upper.
template <int half, class Vec, size_t... l>
HS_INLINE Vec interleave(Vec a, Vec b, std::index_sequence<l...>) {
    constexpr size_t W = sizeof...(l), g = 16 * W / sizeof(Vec);
    return __builtin_shufflevector(a, b, (l / g * g + l % g / 2 + half * g / 2 + l % 2 * W)...);
}
// Every second 16 bytes of a, then of b, from the first on; with `odd`, from the second.
template <int odd, class Vec, size_t... l>
HS_INLINE Vec every_second(Vec a, Vec b, std::index_sequence<l...>) {
    constexpr size_t W = sizeof...(l), g = 16 * W / sizeof(Vec);
    return __builtin_shufflevector(a, b, (2 * (l / g) * g % W + odd * g + l % g + l / (W / 2) * W)...);
}

// The transpose of W registers: first within 16 bytes, then of pieces of 16 bytes. Other ways need shuffles
// across the whole register in every step, which are slower.
template <class T>
HS_INLINE void transpose_registers(typename Lanes<T>::Vec* r) {
    constexpr int W = Lanes<T>::width, g = 16 / sizeof(T), pieces = W / g;
    std::make_index_sequence<W> lanes;
    typename Lanes<T>::Vec next[W];
    for (int round = 1; round < g; round *= 2) {
        for (int i = 0; i < W / 2; ++i) {
            int at = i / (g / 2) * g + i % (g / 2), to = i / (g / 2) * g + i % (g / 2) * 2;
            next[to] = interleave<0>(r[at], r[at + g / 2], lanes);
            next[to + 1] = interleave<1>(r[at], r[at + g / 2], lanes);
        }
        for (int i = 0; i < W; ++i) r[i] = next[i];
    }
    // Register p * g + q holds pieces of column q; those of one q change places.
    if constexpr (pieces > 1)
        for (int round = 1; round < pieces; round *= 2) {
            for (int p = 0; p < pieces / 2; ++p)
                for (int q = 0; q < g; ++q) {
                    next[p * g + q] = every_second<0>(r[2 * p * g + q], r[(2 * p + 1) * g + q], lanes);
                    next[(p + pieces / 2) * g + q] =
                        every_second<1>(r[2 * p * g + q], r[(2 * p + 1) * g + q], lanes);
                }
            for (int i = 0; i < W; ++i) r[i] = next[i];
        }
}
#endif
#endif

// A W x W corner of a row-major array, transposed. With masks, of fewer rows and columns as well.
template <class T>
HS_INLINE void transpose_corner(const T* from, int64_t from_step, T* to, int64_t to_step,
                                int rows = Lanes<T>::width, int columns = Lanes<T>::width) {
#if defined(HS_SHUFFLE)
    using L = Lanes<T>;
    constexpr int W = L::width;
    typename L::Vec r[W];
    for (int l = 0; l < W; ++l) {
        if (l >= rows) r[l] = typename L::Vec{};
        else
            r[l] = columns < W ? L::load_first(from + l * from_step, columns) : L::load(from + l * from_step);
    }
    transpose_registers<T>(r);
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
