// The search for a threshold by itself: how soon it ends, which no result shows.
#pragma once
#include <vector>

#include "checks.hpp"
#include "problems.hpp"
#pragma push_macro("HS_VARIANT")    // some builds have one variant, and give its name
#undef HS_VARIANT
#define HS_VARIANT tested
#include "../lane_search.hpp"
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

// Rows side by side that their own search does not settle are right all the same, but slow.
template <class T>
void test_lanes_settle(double scale, double offset, double share) {
    constexpr int W = tested::Lanes<T>::width, n = 64;
    Random random(1);
    context = "rows side by side";
    int settled = 0, all = 0;
    for (int number = 0; number < 200; ++number) {
        std::vector<T> x(n * W);
        for (T& v : x) v = static_cast<T>(offset) + value<T>(Kind::normal, scale, random);
        T k[W], rest[W], tau[W], guess[W], width[W], c[W], d[W], active[W], ones[W];
        tested::IntOf<T> done[W];
        for (int l = 0; l < W; ++l) {
            k[l] = static_cast<T>(1 + number % 40);
            rest[l] = static_cast<T>(number % 2) / 2;
            tau[l] = 1;
            guess[l] = static_cast<T>(offset + scale * tested::quantile(static_cast<double>(k[l]), n) - 0.5);
            width[l] = static_cast<T>(0.5 + scale / 8);
        }
        tested::LaneSearch<T> search;
        search.start(k, rest, tau, tau, guess, width);
        for (int pass = 0; pass < tested::rough_passes && !search.approach(x.data(), W, n, pass);) ++pass;
        search.unsettle();
        for (int pass = 0; pass < tested::precise_passes && !search.arrive(x.data(), W, n);) ++pass;
        search.store(c, d, active, ones, done);
        for (int l = 0; l < W; ++l) settled += done[l] != 0;
        all += W;
    }
    check(settled >= share * all, "settled", settled, share * all);
}

inline void test_lanes() {
    for (double scale : {0.01, 1.0, 10.0, 100.0}) {
        test_lanes_settle<float>(scale, 0, 0.95);
        test_lanes_settle<double>(scale, 0, 0.95);
    }
    test_lanes_settle<float>(1, 1000, 0.95);    // thresholds that single precision does not hold
    test_lanes_settle<double>(10, 1e6, 0.95);
}

}    // namespace hs::searches
