// One SIMD register of T. Every variant compiles this file anew in its own namespace.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace hs::HS_VARIANT {

template <class T>
using IntOf = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

#if defined(__GNUC__) && !defined(HS_PLAIN_LANES)
#define HS_INLINE inline __attribute__((always_inline))
#define HS_INLINED __attribute__((always_inline))    // of a lambda
#define HS_APART __attribute__((noinline))
#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

template <class T>
struct Lanes {
    static constexpr int width = register_bytes / sizeof(T);
#if defined(__AVX512F__)
    static constexpr bool masks = true;    // a part of a register is loaded and stored as fast as the whole
#else
    static constexpr bool masks = false;
#endif
    typedef T Vec __attribute__((vector_size(register_bytes)));
    typedef IntOf<T> Int __attribute__((vector_size(register_bytes)));
    typedef double Wide __attribute__((vector_size(register_bytes)));

    // Intrinsics, because the compiler converts vectors piece by piece.
    static HS_INLINE void halves(Vec v, Wide* half) {
#if defined(__AVX512DQ__)
        half[0] = (Wide)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
        half[1] = (Wide)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1));
#elif defined(__AVX2__)
        half[0] = (Wide)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v));
        half[1] = (Wide)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1));
#else
        typedef T Half __attribute__((vector_size(register_bytes / 2)));
        Half part[2];
        std::memcpy(part, &v, sizeof v);
        half[0] = __builtin_convertvector(part[0], Wide);
        half[1] = __builtin_convertvector(part[1], Wide);
#endif
    }

    // The lanes in double precision, two to a lane if T is float.
    static HS_INLINE Wide widen(Vec v) {
        if constexpr (sizeof(T) == 8) {
            return v;
        } else {
            Wide half[2];
            halves(v, half);
            return half[0] + half[1];
        }
    }
    static HS_INLINE void add_to(double* p, Vec v) {
        if constexpr (sizeof(T) == 8) {
            store(p, load(p) + v);
        } else {
            Wide at[2], half[2];
            halves(v, half);
            std::memcpy(at, p, sizeof at);
            at[0] += half[0];
            at[1] += half[1];
            std::memcpy(p, at, sizeof at);
        }
    }
    static HS_INLINE double total(Wide v) { return fold<double>(v); }

    // The lanes as four sums, in double precision: the rest of the way is shorter for many rows at once.
    static HS_INLINE void store_parts(double* p, Vec v) { parts_of(v, p); }
    template <class V>
    static HS_INLINE void parts_of(V v, double* p) {
        constexpr int lanes = sizeof(V) / sizeof(T);
        if constexpr (lanes > 4) {
            typedef T Half __attribute__((vector_size(sizeof(V) / 2)));
            Half half[2];
            std::memcpy(half, &v, sizeof v);
            parts_of(half[0] + half[1], p);
        } else {
#if defined(__AVX2__)
            if constexpr (sizeof(T) == 4) return _mm256_storeu_pd(p, _mm256_cvtps_pd((__m128)v));
#endif
            for (int l = 0; l < 4; ++l) p[l] = l < lanes ? static_cast<double>(v[l]) : 0;
        }
    }
    static HS_INLINE Vec to_numbers(Int v) { return __builtin_convertvector(v, Vec); }
    static HS_INLINE int64_t total_int(Int v) { return static_cast<int64_t>(fold<IntOf<T>>(v)); }

    // Halves are added until one register of 16 bytes is left: shorter chains than lane by lane.
    template <class E, class V>
    static HS_INLINE E fold(V v) {
        if constexpr (sizeof(V) > 16) {
            typedef E Half __attribute__((vector_size(sizeof(V) / 2)));
            Half half[2];
            std::memcpy(half, &v, sizeof v);
            return fold<E>(half[0] + half[1]);
        } else {
            if constexpr (sizeof(E) == 8) return v[0] + v[1];
            // Two counts at a time, in the halves of one number: neither comes near 2^32.
            uint64_t pair[2];
            std::memcpy(pair, &v, sizeof v);
            uint64_t sum = pair[0] + pair[1];
            return static_cast<E>(sum + (sum >> 32));
        }
    }

    static HS_INLINE Vec load(const T* p) {
        Vec v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
    static HS_INLINE Int load_int(const IntOf<T>* p) {
        Int v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
    static HS_INLINE void store(T* p, Vec v) { std::memcpy(p, &v, sizeof v); }
    static HS_INLINE void store_int(IntOf<T>* p, Int v) { std::memcpy(p, &v, sizeof v); }
    // The first n lanes, n < width (n <= width with masks); what is loaded beside them is 0. Not by memcpy:
    // of so few it is slow.
    static HS_INLINE Vec load_first(const T* p, int64_t n) {
#if defined(__AVX512F__)
        auto mask = static_cast<uint16_t>((1u << n) - 1);
        if constexpr (sizeof(T) == 4) return (Vec)_mm512_maskz_loadu_ps(mask, p);
        else return (Vec)_mm512_maskz_loadu_pd(static_cast<uint8_t>(mask), p);
#else
        Vec v = {};
        for (int l = 0; l + 1 < width; ++l)
            if (l < n) v[l] = p[l];
        return v;
#endif
    }
    static HS_INLINE void store_first(T* p, int64_t n, Vec v) {
#if defined(__AVX512F__)
        auto mask = static_cast<uint16_t>((1u << n) - 1);
        if constexpr (sizeof(T) == 4) _mm512_mask_storeu_ps(p, mask, (__m512)v);
        else _mm512_mask_storeu_pd(p, static_cast<uint8_t>(mask), (__m512d)v);
#else
        for (int l = 0; l + 1 < width; ++l)
            if (l < n) p[l] = v[l];
#endif
    }
    static HS_INLINE Vec splat(T value) { return value - Vec{}; }
    static HS_INLINE Int splat_int(IntOf<T> value) { return value - Int{}; }
    static HS_INLINE Int equal(Int a, Int b) { return a == b; }
    static HS_INLINE Vec keep(Vec v, Int mask) { return (Vec)((Int)v & mask); }
    // An intrinsic, because the compiler turns v & ~(a >= b) into a blend, which is slower.
    static HS_INLINE Vec drop(Vec v, Int mask) {
#if defined(__AVX2__) && !defined(__AVX512F__)
        return (Vec)_mm256_andnot_si256((__m256i)mask, (__m256i)v);
#elif defined(__SSE2__) && !defined(__AVX512F__)
        return (Vec)_mm_andnot_si128((__m128i)mask, (__m128i)v);
#else
        return (Vec)((Int)v & ~mask);
#endif
    }
    // With AVX-512 a mask goes into the addition itself.
    static HS_INLINE Vec add_unless(Int mask, Vec sum, Vec v) {
#if defined(__AVX512F__)
        return mask ? sum : sum + v;
#else
        return sum + drop(v, mask);
#endif
    }
    static HS_INLINE Vec add_where(Int mask, Vec sum, Vec v) {
#if defined(__AVX512F__)
        return mask ? sum + v : sum;
#else
        return sum + keep(v, mask);
#endif
    }
    static HS_INLINE Vec magnitude(Vec v) {
        return (Vec)((Int)v & splat_int(std::numeric_limits<IntOf<T>>::max()));
    }
    static HS_INLINE Vec with_sign(Vec size, Vec sign) {
        return (Vec)((Int)size | ((Int)sign & splat_int(std::numeric_limits<IntOf<T>>::min())));
    }
    static HS_INLINE bool all(Int mask) {
#if defined(__AVX512DQ__)
        if constexpr (sizeof(T) == 4) return _mm512_movepi32_mask((__m512i)mask) == 0xffff;
        else return _mm512_movepi64_mask((__m512i)mask) == 0xff;
#elif defined(__AVX2__)
        return _mm256_movemask_epi8((__m256i)mask) == -1;
#else
        return total_int(tally(mask, Int{})) == width;
#endif
    }
    // min(top, max(0, v)) of numbers, top not negative. As integers, which positive numbers order alike:
    // those have more units than additions, which the processor would otherwise wait for.
    static HS_INLINE Vec clip(Vec v, Vec top) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4)
            return (Vec)_mm512_min_epi32((__m512i)top, _mm512_max_epi32((__m512i)v, _mm512_setzero_si512()));
        else return (Vec)_mm512_min_epi64((__m512i)top, _mm512_max_epi64((__m512i)v, _mm512_setzero_si512()));
#else
        return min(top, max(splat(0), v));
#endif
    }
    // Counts where clip left v as it was. As integers without a sign, in which negative numbers are the
    // largest; by an intrinsic, because the compiler takes two instructions.
    static HS_INLINE Int tally_unclipped(Vec v, Vec top, Vec clipped, Int counts) {
#if defined(__AVX512F__)
        (void)clipped;
        __m512i a = (__m512i)v, b = (__m512i)top, n = (__m512i)counts;
        if constexpr (sizeof(T) == 4)
            return (Int)_mm512_mask_add_epi32(n, _mm512_cmple_epu32_mask(a, b), n, _mm512_set1_epi32(1));
        else return (Int)_mm512_mask_add_epi64(n, _mm512_cmple_epu64_mask(a, b), n, _mm512_set1_epi64(1));
#else
        (void)top;
        return tally(clipped == v, counts);
#endif
    }
    static HS_INLINE Int tally(Int mask, Int counts) {
#if defined(__AVX512F__)
        return mask ? counts + 1 : counts;
#else
        return counts - mask;
#endif
    }
    static HS_INLINE Vec pick(Int mask, Vec yes, Vec no) { return mask ? yes : no; }
    // a * b - c, rounded once where the processor can.
    static HS_INLINE Vec fused(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)c);
        else return (Vec)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__) && defined(__FMA__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)c);
        else return (Vec)_mm256_fmsub_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
        return a * b - c;
#endif
    }
    // c + a * b, rounded once or twice, whichever is fast.
    static HS_INLINE Vec plus_product(Vec c, Vec a, Vec b) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
        else return (Vec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__) && defined(__FMA__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
        else return (Vec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
        return c + a * b;
#endif
    }

    // Both return the second argument when either is NaN, so a NaN given second survives.
    static HS_INLINE Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
        else return (Vec)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
        else return (Vec)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(__SSE2__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm_max_ps((__m128)a, (__m128)b);
        else return (Vec)_mm_max_pd((__m128d)a, (__m128d)b);
#else
        return a > b ? a : b;
#endif
    }
    static HS_INLINE Vec min(Vec a, Vec b) {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm512_min_ps((__m512)a, (__m512)b);
        else return (Vec)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
        else return (Vec)_mm256_min_pd((__m256d)a, (__m256d)b);
#elif defined(__SSE2__)
        if constexpr (sizeof(T) == 4) return (Vec)_mm_min_ps((__m128)a, (__m128)b);
        else return (Vec)_mm_min_pd((__m128d)a, (__m128d)b);
#else
        return a < b ? a : b;
#endif
    }
};
#else
#define HS_INLINE inline
#define HS_INLINED
#define HS_APART
#endif

}    // namespace hs::HS_VARIANT

#if !defined(__GNUC__) || defined(HS_PLAIN_LANES)
#include "lanes_plain.hpp"
#endif
