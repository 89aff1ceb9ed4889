// The search for a threshold by itself: how soon it ends, which no result shows.
#pragma once
#include <vector>

#include "checks.hpp"
#include "problems.hpp"
#pragma push_macro("HS_VARIANT")    // some builds have one variant, and give its name
#undef HS_VARIANT
#define HS_VARIANT tested
#include "../newton.hpp"
#pragma pop_macro("HS_VARIANT")

namespace hs::searches {

inline tested::Sums sums_at(const std::vector<double>& x, double mu, double tau) {
    tested::Sums sums{0, 0, 0};
    for (double v : x) {
        double t = (v - mu) / tau;
        if (t >= 1) sums.ones += 1;
        else if (t > 0) sums.active_sum += t, sums.active += 1;
    }
    return sums;
}

// Of entries that lie about a tau apart, some rows used to send a search from one end of its bracket to the
// other and back, until it gave up.
inline void test_few_active_entries() {
    Random random(0);
    context = "a search among few active entries";
    for (int64_t n : {16, 64, 128})
        for (int number = 0; number < 2000; ++number) {
            std::vector<double> x(static_cast<size_t>(n));
            double sum = 0, square = 0, count = static_cast<double>(n), k = std::floor(count / 10);
            for (double& v : x) v = value<float>(Kind::normal, 10, random), sum += v, square += v * v;
            double mean = sum / count, variance = square / count - mean * mean;
            tested::Search s = tested::start_near(mean, variance, tested::quantile(k, count), 1);
            int passes = 0;
            for (; passes < tested::most_passes && !s.settled; ++passes)
                tested::advance<float>(s, sums_at(x, s.mu + s.low, 1), k, count, 1);
            check(s.settled, "passes", passes, tested::most_passes);
        }
}

}    // namespace hs::searches
