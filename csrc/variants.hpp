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
namespace avx512 {
extern const Variant table;
}
inline const Variant* const variants[] = {&avx512::table, &avx2::table, &baseline::table};
#else
inline const Variant* const variants[] = {&baseline::table};
#endif

}    // namespace hs
