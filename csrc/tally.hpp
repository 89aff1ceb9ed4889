// What a pass over one row counts, besides the sum of the active entries.
#pragma once
#include "lanes.hpp"

namespace hs::HS_VARIANT {

// Which lanes are positive, and which of those are below 1. By what does not hold, so that a NaN is among
// them: it reaches the sum and is noticed there.
#if defined(__AVX512F__)
template <class T>
struct Places {
    using Mask = std::conditional_t<sizeof(T) == 4, __mmask16, __mmask8>;
    using Vec = typename Lanes<T>::Vec;
    using Int = typename Lanes<T>::Int;
    Mask up, on;

    Places() = default;
    HS_INLINE explicit Places(Vec t) {
        if constexpr (sizeof(T) == 4) {
            up = _mm512_cmp_ps_mask((__m512)t, _mm512_setzero_ps(), _CMP_NLE_UQ);
            on = _mm512_mask_cmp_ps_mask(up, (__m512)t, _mm512_set1_ps(1), _CMP_NGE_UQ);
        } else {
            up = _mm512_cmp_pd_mask((__m512d)t, _mm512_setzero_pd(), _CMP_NLE_UQ);
            on = _mm512_mask_cmp_pd_mask(up, (__m512d)t, _mm512_set1_pd(1), _CMP_NGE_UQ);
        }
    }
    HS_INLINE Vec add(Vec sum, Vec v) const {
        if constexpr (sizeof(T) == 4) return (Vec)_mm512_mask_add_ps((__m512)sum, on, (__m512)sum, (__m512)v);
        else return (Vec)_mm512_mask_add_pd((__m512d)sum, on, (__m512d)sum, (__m512d)v);
    }
    HS_INLINE Vec keep(Vec v) const {
        if constexpr (sizeof(T) == 4) return (Vec)_mm512_maskz_mov_ps(on, (__m512)v);
        else return (Vec)_mm512_maskz_mov_pd(on, (__m512d)v);
    }
    static HS_INLINE Int tally(Mask mask, Int counts) {
        if constexpr (sizeof(T) == 4)
            return (Int)_mm512_mask_add_epi32((__m512i)counts, mask, (__m512i)counts, _mm512_set1_epi32(1));
        else return (Int)_mm512_mask_add_epi64((__m512i)counts, mask, (__m512i)counts, _mm512_set1_epi64(1));
    }
};
#else
template <class T>
struct Places {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    Int up, on;

    Places() = default;
    HS_INLINE explicit Places(Vec t) : up(~(L::splat(0) >= t)), on(up & ~(t >= L::splat(1))) {}
    HS_INLINE Vec add(Vec sum, Vec v) const { return L::add_where(on, sum, v); }
    HS_INLINE Vec keep(Vec v) const { return L::keep(v, on); }
    static HS_INLINE Int tally(Int mask, Int counts) { return L::tally(mask, counts); }
};
#endif

// How many lanes some masks have in all. With AVX-512 a mask's bits are counted outside the vector unit, and
// no lanes have to be added at the end; as numbers of 64 bits: those of 16 take an instruction more.
template <class T, bool masks = Lanes<T>::masks>
struct Counter {
    int64_t number = 0;
    HS_INLINE void add(uint64_t mask) { number += __builtin_popcountll(mask); }
    HS_INLINE int64_t total() const { return number; }
};

template <class T>
struct Counter<T, false> {
    typename Lanes<T>::Int number{};
    HS_INLINE void add(typename Lanes<T>::Int mask) { number = Lanes<T>::tally(mask, number); }
    HS_INLINE int64_t total() const { return Lanes<T>::total_int(number); }
};

// Every lane's own counts: the entries above 0, and those of them that are active, or without masks those
// that are 1, which is one operation less.
template <class T>
struct LaneTally {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    using Int = typename L::Int;
    Int above{}, part{};

    LaneTally() = default;
    HS_INLINE LaneTally(Int active, Int ones) : above(active + ones), part(L::masks ? active : ones) {}
    HS_INLINE Int active() const { return L::masks ? part : above - part; }
    HS_INLINE Int ones() const { return L::masks ? above - part : part; }

    // Adds t to the sum where it is between 0 and 1; returns what is positive of it. A NaN is not >= 1, so it
    // reaches the sum and is noticed there.
    HS_INLINE Vec add(Vec t, Vec& sum) {
        Vec positive = L::max(L::splat(0), t);
        if constexpr (L::masks) {
            const Places<T> places(t);
            sum = places.add(sum, t);
            above = places.tally(places.up, above);
            part = places.tally(places.on, part);
        } else {
            Int full = t >= L::splat(1);
            sum = L::add_unless(full, sum, positive);
            above = L::tally(t > L::splat(0), above);
            part = L::tally(full, part);
        }
        return positive;
    }
};

struct Counts {
    int64_t active, ones;
};

// The counts of all lanes.
template <class T, bool masks = Lanes<T>::masks>
struct Tally {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    Counter<T> above, between;

    HS_INLINE Vec add(Vec t, Vec& sum) {
        const Places<T> places(t);
        sum = places.add(sum, t);
        above.add(places.up);
        between.add(places.on);
        return L::max(L::splat(0), t);
    }
    HS_INLINE Counts counts() const { return {between.total(), above.total() - between.total()}; }
};

template <class T>
struct Tally<T, false> {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    LaneTally<T> lanes;

    HS_INLINE Vec add(Vec t, Vec& sum) { return lanes.add(t, sum); }
    HS_INLINE Counts counts() const { return {L::total_int(lanes.active()), L::total_int(lanes.ones())}; }
};

}    // namespace hs::HS_VARIANT
