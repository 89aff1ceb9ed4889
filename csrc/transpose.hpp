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

// Sixteen bytes at p, at p + step, and so on, one behind the other. Of fewer `rows` and `columns` from p on
// the rest is 0.
template <class T, class Vec = typename Lanes<T>::Vec>
HS_INLINE Vec load_pieces(const T* p, int64_t step, int rows, int columns) {
#if defined(__AVX512F__)
    int singles = columns * static_cast<int>(sizeof(T) / 4);
    auto mask = static_cast<__mmask8>(singles <= 0 ? 0 : (1 << singles) - 1);
    auto piece = [&](int i) HS_INLINED {
        if (i * static_cast<int>(16 / sizeof(T)) >= rows) return _mm_setzero_ps();
        const float* at = reinterpret_cast<const float*>(p + i * step);
        return singles >= 4 ? _mm_loadu_ps(at) : _mm_maskz_loadu_ps(mask, at);
    };
    __m512 v = _mm512_insertf32x4(_mm512_castps128_ps512(piece(0)), piece(1), 1);
    return (Vec)_mm512_insertf32x4(_mm512_insertf32x4(v, piece(2), 2), piece(3), 3);
#elif defined(__AVX2__)
    (void)rows, (void)columns;    // all are there
    const float *low = reinterpret_cast<const float*>(p), *high = reinterpret_cast<const float*>(p + step);
    return (Vec)_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
#else
    (void)step, (void)rows, (void)columns;
    return Lanes<T>::load(p);
#endif
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
    // Loads bring the pieces of 16 bytes where they belong: what is left are shuffles within them.
    constexpr int g = 16 / sizeof(T);
    std::make_index_sequence<W> lanes;
    typename L::Vec r[W], next[W];
    for (int l = 0; l < W; ++l)
        r[l] = load_pieces(from + l % g * from_step + l / g * g, g * from_step, rows - l % g,
                           columns - l / g * g);
    for (int round = 1; round < g; round *= 2) {
        for (int i = 0; i < W / 2; ++i) {
            int at = i / (g / 2) * g + i % (g / 2), to = i / (g / 2) * g + i % (g / 2) * 2;
            next[to] = interleave<0>(r[at], r[at + g / 2], lanes);
            next[to + 1] = interleave<1>(r[at], r[at + g / 2], lanes);
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
