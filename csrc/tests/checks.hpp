// What the tests say when something is wrong.
#pragma once
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "kernel.hpp"

namespace hs {

inline std::string context;
inline int failures = 0;

inline void check(bool good, const char* what, double got = 0, double expected = 0) {
    if (good || ++failures > 20) return;
    std::printf("%s: %s: got %.17g, expected %.17g\n", context.c_str(), what, got, expected);
}

inline void check_near(double got, double expected, double tolerance, const char* what) {
    bool same = got == expected || (got != got && expected != expected);
    check(same || std::fabs(got - expected) <= tolerance, what, got, expected);
}

template <class T>
constexpr double eps = static_cast<double>(std::numeric_limits<T>::epsilon());

}    // namespace hs
