// The running averages of a loss module: for a few classes, calls of a framework would cost more than the
// loss itself.
#pragma once
#include <cmath>
#include <cstdint>

namespace hs {

template <class T>
struct Running {
    T *threshold, *seen, *share, *batches;    // per class; `batches` is one number

    // momentum 0: the plain average. A class without a positive or without a negative has no threshold in
    // this batch.
    void add(const double* mu, const double* k, int64_t classes, int64_t samples, double momentum,
             bool with_share) {
        double n = static_cast<double>(samples);
        for (int64_t c = 0; c < classes; ++c) {
            if (!(k[c] > 0 && k[c] < n && std::isfinite(mu[c]))) continue;
            seen[c] += 1;
            move(threshold[c], mu[c], seen[c], momentum);
        }
        if (!with_share) return;
        *batches += 1;
        for (int64_t c = 0; c < classes; ++c) move(share[c], k[c] / n, *batches, momentum);
    }

    static void move(T& average, double value, T count, double momentum) {
        double rate = 1 / static_cast<double>(count);
        if (rate < momentum) rate = momentum;
        average =
            static_cast<T>(static_cast<double>(average) + rate * (value - static_cast<double>(average)));
    }
};

}    // namespace hs
