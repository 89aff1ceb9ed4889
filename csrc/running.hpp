// The running averages of a loss module: for a few classes, calls of a framework would cost more than the
// loss itself.
#pragma once
#include <cmath>
#include <cstdint>

namespace hs {

template <class T>
struct Running {
    T *threshold, *seen, *share, *samples_seen;    // per class; `samples_seen` is one number

    // size: the weight of this batch in the plain average. least: its weight in the running one at least, 0
    // for the plain average. A class without a positive or without a negative has no threshold in this batch.
    void add(const double* mu, const double* k, int64_t classes, int64_t samples, double size, double least,
             bool with_share) {
        double n = static_cast<double>(samples);
        for (int64_t c = 0; c < classes; ++c) {
            if (!(k[c] > 0 && k[c] < n && std::isfinite(mu[c]))) continue;
            seen[c] += static_cast<T>(size);
            move(threshold[c], mu[c], size / static_cast<double>(seen[c]), least);
        }
        if (!with_share) return;
        *samples_seen += static_cast<T>(size);
        double rate = size / static_cast<double>(*samples_seen);
        for (int64_t c = 0; c < classes; ++c) move(share[c], k[c] / n, rate, least);
    }

    static void move(T& average, double value, double rate, double least) {
        if (rate < least) rate = least;
        average =
            static_cast<T>(static_cast<double>(average) + rate * (value - static_cast<double>(average)));
    }
};

}    // namespace hs
