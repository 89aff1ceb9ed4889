// Registers of double precision, loaded from numbers of any type and stored as such.
#pragma once
#include "lanes.hpp"

namespace hs::HS_VARIANT {

using Wide = Lanes<double>;
constexpr int together = Wide::width;

#if defined(__GNUC__) && !defined(HS_PLAIN_LANES) && \
    (defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__)))
constexpr bool wide_fuses = true;    // Wide::fused rounds once
#else
constexpr bool wide_fuses = false;
#endif

// Half of the digits, so few that a product of two such numbers is exact.
HS_INLINE typename Wide::Vec upper_digits(typename Wide::Vec v) {
    typename Wide::Int bits;
    std::memcpy(&bits, &v, sizeof v);
    bits = bits & Wide::splat_int(-(int64_t{1} << 27));
    std::memcpy(&v, &bits, sizeof v);
    return v;
}

// A factor of differences a b - c that are rounded once: near a bound the rounding of the product would be
// all that is left. Where the processor cannot, what the product loses is found from those of half the
// digits.
class Factor {
  public:
    using Vec = typename Wide::Vec;
    explicit Factor(double value) : all(Wide::splat(value)), high(upper_digits(all)), low(all - high) {}
    HS_INLINE Vec times_minus(Vec b, Vec c) const {
        if constexpr (wide_fuses) return Wide::fused(all, b, c);
        Vec product = all * b, first = upper_digits(b), second = b - first;
        Vec lost = ((high * first - product) + high * second + low * first) + low * second;
        return (product - c) + Wide::keep(lost, lost == lost);    // of an infinite product nothing is lost
    }

  private:
    Vec all, high, low;
};

// Intrinsics, because the compiler converts piece by piece.
template <class S>
HS_INLINE typename Wide::Vec load_wide(const S* p) {
    if constexpr (sizeof(S) == 8) return Wide::load(p);
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(HS_PLAIN_LANES)
    else return (typename Wide::Vec)_mm512_cvtps_pd(_mm256_loadu_ps(p));
#elif defined(__AVX2__) && defined(__GNUC__) && !defined(HS_PLAIN_LANES)
    else return (typename Wide::Vec)_mm256_cvtps_pd(_mm_loadu_ps(p));
#else
    double wide[together];
    for (int l = 0; l < together; ++l) wide[l] = static_cast<double>(p[l]);
    return Wide::load(wide);
#endif
}

template <class S>
HS_INLINE void store_wide(S* p, typename Wide::Vec v) {
    if constexpr (sizeof(S) == 8) return Wide::store(p, v);
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(HS_PLAIN_LANES)
    else _mm256_storeu_ps(p, _mm512_cvtpd_ps((__m512d)v));
#elif defined(__AVX2__) && defined(__GNUC__) && !defined(HS_PLAIN_LANES)
    else _mm_storeu_ps(p, _mm256_cvtpd_ps((__m256d)v));
#else
    double wide[together];
    Wide::store(wide, v);
    for (int l = 0; l < together; ++l) p[l] = static_cast<S>(wide[l]);
#endif
}

// The first `count` of them, fewer than a register; what is beside them is 0.
template <class S>
HS_INLINE typename Wide::Vec load_some(const S* p, int64_t count) {
    if constexpr (sizeof(S) == 8) return Wide::load_first(p, count);
    S part[Lanes<S>::width];
    Lanes<S>::store(part, Lanes<S>::load_first(p, count));
    return load_wide(part);
}

// The first lanes of v; what is beside them is 0.
template <class T>
HS_INLINE typename Lanes<T>::Vec first_lanes(typename Lanes<T>::Vec v, int64_t count) {
    T all[Lanes<T>::width];
    Lanes<T>::store(all, v);
    return Lanes<T>::load_first(all, count);
}

// As S holds them.
template <class S>
HS_INLINE typename Wide::Vec rounded(typename Wide::Vec v) {
    if constexpr (sizeof(S) == 8) return v;
    S narrow[together];
    store_wide(narrow, v);
    return load_wide(narrow);
}

// The first `count` of them.
template <class S>
void store_some(S* p, typename Wide::Vec v, int64_t count) {
    S all[together];
    store_wide(all, v);
    std::memcpy(p, all, static_cast<size_t>(count) * sizeof(S));
}

}    // namespace hs::HS_VARIANT
