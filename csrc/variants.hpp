// The variants that were compiled, the best first.
#pragma once
#include "kernel.hpp"

namespace hs {

namespace baseline {
extern const Variant table;
}
#if defined(HS_X86_VARIANTS)
namespace avx2 {
extern const Variant table;
}
#if !defined(HS_WITHOUT_AVX512)
namespace avx512 {
extern const Variant table;
}
#endif
#endif

inline const Variant* const variants[] = {
#if defined(HS_X86_VARIANTS)
#if !defined(HS_WITHOUT_AVX512)
    &avx512::table,
#endif
    &avx2::table,
#endif
    &baseline::table,
};

}    // namespace hs
