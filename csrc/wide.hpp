// Registers of double precision, loaded from numbers of any type.
#pragma once
#include "lanes.hpp"

namespace hs::HS_VARIANT {

using Wide = Lanes<double>;
constexpr int together = Wide::width;

template <class S>
HS_INLINE typename Wide::Vec load_wide(const S* p) {
    if constexpr (sizeof(S) == 8) return Wide::load(p);
    double wide[together];
    for (int l = 0; l < together; ++l) wide[l] = static_cast<double>(p[l]);
    return Wide::load(wide);
}

}    // namespace hs::HS_VARIANT
