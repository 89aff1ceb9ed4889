// The smooth curves: that y and its threshold define each other, that y sums to k, and what y says of the
// gradients.
#pragma once
#include "checks.hpp"
#include "problems.hpp"

namespace hs::smooth {

inline void check_threshold(int curve, const Slice& x, double k, double tau, double mu, double tolerance) {
    if (!std::isfinite(mu)) return;
    double count = static_cast<double>(x.size());
    check_near(reference::curve_sum(curve, x, mu, tau), k, count * tolerance, "sum by the threshold");
    if (x.size() > 40) return;
    double right = reference::bisect(curve, x, k, tau);
    for (double v : x)
        check_near(reference::rise(curve, (v - mu) / tau), reference::rise(curve, (v - right) / tau),
                   tolerance, "y by bisection");
}

template <class T>
void check_slice(int curve, const Slice& x, double k, double tau, const Slice& y, double mu) {
    double sum = 0, most = 1, infinite = 0, usable = 0, count = static_cast<double>(x.size());
    for (double v : x) {
        infinite += v == inf;
        usable += v != -inf;
        if (std::isfinite(v)) most = std::max(most, std::fabs(v) / tau);
    }
    double tolerance = (sizeof(T) == 4 ? 4e-7 : 1e-12) * (sizeof(T) == 4 ? most : 1) + 8 * eps<double> * most;
    if (reference::has_nan(x)) {
        for (double each : y) check(each != each, "a slice with a NaN", each, reference::nan);
        return check(mu != mu, "the threshold of a slice with a NaN", mu, reference::nan);
    }
    for (size_t i = 0; i < x.size(); ++i) {
        double right = infinite > k  ? (x[i] == inf ? k / infinite : 0)
                       : k == usable ? (x[i] == -inf ? 0 : 1)
                                     : reference::rise(curve, (x[i] - mu) / tau);
        if (k == infinite && k != usable) right = x[i] == inf ? 1 : 0;
        check_near(y[i], right, tolerance, "y by its threshold");
        sum += y[i];
    }
    // Added one by one, equal numbers round to the same side.
    check_near(sum, k, (8 * eps<T> + count * eps<double>)*std::max(k, 1.0), "sum");
    if (infinite < k && k < usable) check_threshold(curve, x, k, tau, mu, tolerance);
    if (k == usable && infinite < k) {
        double least = inf;
        for (double v : x) least = v > -inf ? std::min(least, v) : least;
        check_near(mu, curve == 1 ? least : -inf, 0, "the threshold where all are 1");
    }
}

template <class T>
void check_problem(const Functions<T>& f, const Problem<T>& p, int curve, int threads, Random& random) {
    const Layout& l = p.place.layout;
    std::vector<T> y = p.output(), v = p.output(), grad = p.output();
    std::vector<double> mu(p.k.size()), alone(p.k.size()), to_k(p.k.size()), to_tau(p.k.size());
    PerSlice k{p.k.data(), 0}, tau{p.tau.data(), 0};
    Curve own = static_cast<Curve>(curve);
    check(f.project({l, k, tau, p.x.data(), y.data(), mu.data(), threads, own}).status == Status::ok,
          "status");
    check(f.project({l, k, tau, p.x.data(), nullptr, alone.data(), 1, own}).status == Status::ok, "status");
    for (T& e : v) e = static_cast<T>(std::normal_distribution<double>()(random));
    f.backward({l, tau, y.data(), v.data(), grad.data(), to_k.data(), to_tau.data(), threads, own});
    for (size_t s = 0; s < mu.size(); ++s) {
        int64_t slice = static_cast<int64_t>(s);
        Slice found = p.slice(y, slice), got = p.slice(grad, slice);
        check_slice<T>(curve, p.slice(p.x, slice), p.k[s], p.tau[s], found, mu[s]);
        check_near(alone[s], mu[s], 0, "the threshold alone");
        reference::Gradients expected = reference::backward(curve, found, p.slice(v, slice), p.tau[s]);
        double tolerance = 64 * eps<T>, count = static_cast<double>(l.n);
        for (size_t i = 0; i < got.size(); ++i)
            check_near(got[i], expected.x[i], tolerance / p.tau[s], "gradient to x");
        // Of slopes that are next to nothing, the type holds a few digits only.
        if (expected.slopes > std::pow(eps<T>, 4) || expected.slopes == 0)
            check_near(to_k[s], expected.k, tolerance, "gradient to k");
        check_near(to_tau[s], expected.tau, tolerance * count / p.tau[s], "gradient to tau");
    }
}

template <class T>
void test_everywhere(const Variant& v) {
    Random random(3);
    int round = 0;
    for (const Place& place : places<T>())
        for (int kind = 0; kind < static_cast<int>(Kind::count); ++kind) {
            int curve = 1 + round % 3, threads = 1 + round / 3 % 4;
            if (++round % 4 && place.size() > 50000) continue;
            context = std::string(v.name) + ", curve " + std::to_string(curve) + ", " + place.name + " of " +
                      std::to_string(sizeof(T)) + " bytes, n = " + std::to_string(place.layout.n) +
                      ", columns = " + std::to_string(place.layout.inner) + ", kind " + std::to_string(kind);
            Problem<T> p(place, static_cast<Kind>(kind), random);
            check_problem(functions<T>(v), p, curve, threads, random);
            p.spoil(random);
            check_problem(functions<T>(v), p, curve, threads, random);
        }
}

// The same bits for every number of threads: rows cut into blocks, many rows, columns.
template <class T>
void test_threads(const Variant& v) {
    for (Place place : {Place{"one row", {1, 150001, 1, 0, 1, 0}}, Place{"rows", {64, 2000, 1, 2000, 1, 0}},
                        Place{"columns", {1, 20000, 9, 0, 9, 1}}})
        for (int curve = 1; curve < curves; ++curve) {
            context = std::string(v.name) + ", curve " + std::to_string(curve) + " on threads, " + place.name;
            Random random(4);
            Problem<T> p(place, Kind::normal, random);
            std::vector<T> first;
            for (int threads = 1; threads <= 3; ++threads) {
                std::vector<T> y = p.output();
                functions<T>(v).project({place.layout,
                                         {p.k.data(), 0},
                                         {p.tau.data(), 0},
                                         p.x.data(),
                                         y.data(),
                                         nullptr,
                                         threads,
                                         static_cast<Curve>(curve)});
                if (threads == 1) first = y;
                check(y == first, "bits", threads);
            }
        }
}

template <class T>
void test_all(const Variant& v) {
    test_everywhere<T>(v);
    test_threads<T>(v);
}

}    // namespace hs::smooth
