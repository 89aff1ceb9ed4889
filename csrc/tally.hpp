// What a pass over one row counts, besides the sum of the active entries.
#pragma once
#include "lanes.hpp"

namespace hs::HS_VARIANT {

// Adds t where it is between 0 and 1, every lane to its own sum and counts; returns what is positive of it.
// A NaN is not >= 1, so it reaches the sum and is noticed there.
template <class T>
HS_INLINE typename Lanes<T>::Vec add_active(typename Lanes<T>::Vec t, typename Lanes<T>::Vec& sum,
                                            typename Lanes<T>::Int& above, typename Lanes<T>::Int& ones) {
    using L = Lanes<T>;
    typename L::Vec zero = L::splat(0), positive = L::max(zero, t);
    typename L::Int full = t >= L::splat(1);
    sum = L::add_unless(full, sum, positive);
    above = L::tally(t > zero, above);
    ones = L::tally(full, ones);
    return positive;
}

struct Counts {
    int64_t active, ones;
};

template <class T, bool masks = Lanes<T>::masks>
struct Tally {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    typename L::Int above{}, full{};

    HS_INLINE Vec add(Vec t, Vec& sum) { return add_active<T>(t, sum, above, full); }
    HS_INLINE Counts counts() const { return {L::total_int(above - full), L::total_int(full)}; }
};

#if defined(__AVX512F__)
// A mask's bits are counted outside the vector unit, and no lanes have to be added at the end. Conditions by
// what does not hold, so that a NaN is active.
template <class T>
struct Tally<T, true> {
    using L = Lanes<T>;
    using Vec = typename L::Vec;
    int64_t above = 0, between = 0;

    HS_INLINE Vec add(Vec t, Vec& sum) {
        if constexpr (sizeof(T) == 4) {
            auto up = _mm512_cmp_ps_mask((__m512)t, _mm512_setzero_ps(), _CMP_NLE_UQ);
            auto on = _mm512_mask_cmp_ps_mask(up, (__m512)t, _mm512_set1_ps(1), _CMP_NGE_UQ);
            sum = (Vec)_mm512_mask_add_ps((__m512)sum, on, (__m512)sum, (__m512)t);
            count(up, on);
        } else {
            auto up = _mm512_cmp_pd_mask((__m512d)t, _mm512_setzero_pd(), _CMP_NLE_UQ);
            auto on = _mm512_mask_cmp_pd_mask(up, (__m512d)t, _mm512_set1_pd(1), _CMP_NGE_UQ);
            sum = (Vec)_mm512_mask_add_pd((__m512d)sum, on, (__m512d)sum, (__m512d)t);
            count(up, on);
        }
        return L::max(L::splat(0), t);
    }
    HS_INLINE Counts counts() const { return {between, above - between}; }

  private:
    // As numbers of 64 bits: those of 16 take an instruction more.
    HS_INLINE void count(uint64_t up, uint64_t on) {
        above += __builtin_popcountll(up);
        between += __builtin_popcountll(on);
    }
};
#endif

}    // namespace hs::HS_VARIANT
