// The kernel's own tests, for every variant that this processor runs. Prints what failed; the exit code says
// whether.
#include "budgets.hpp"
#include "curves.hpp"
#include "graphs.hpp"
#include "losses.hpp"
#include "problems.hpp"
#include "searches.hpp"
#include "threads.hpp"
#include "variants.hpp"

using namespace hs;

namespace {

// What lies between the slices must be as it was.
template <class T>
void check_untouched(const Problem<T>& p, std::vector<T> y) {
    for (int64_t s = 0; s < p.place.layout.slices(); ++s)
        for (int64_t i = 0; i < p.place.layout.n; ++i) y[p.at(s, i)] = p.untouched;
    for (T v : y) check(v == p.untouched, "an entry between the slices", static_cast<double>(v));
}

// Against the reference, and against the conditions that define the projection.
template <class T>
void check_slice(const Slice& x, double k, double tau, const reference::Solution& expected, const Slice& y,
                 double mu) {
    double size = std::isfinite(expected.mu) ? std::fabs(expected.mu) : 0;
    double tolerance = 2 * eps<T> + 4 * eps<double> * (size / tau + k), sum = 0, active = 1;
    for (size_t i = 0; i < x.size(); ++i) {
        check_near(y[i], expected.y[i], tolerance, "y");
        if (std::isfinite(mu))
            check_near(y[i], reference::clip((x[i] - mu) / tau), tolerance, "y by its threshold");
        sum += y[i];
        active += y[i] > 0 && y[i] < 1;
    }
    check_near(mu, expected.mu, 4 * eps<double> * size + tau * tolerance, "threshold");
    if (mu == mu) check_near(sum, k, active * tolerance, "sum");
}

// The threshold with the projection, and each alone.
template <class T>
void check_project(const Functions<T>& f, const Problem<T>& p, int threads) {
    const Layout& l = p.place.layout;
    std::vector<T> y = p.output(), alone = p.output();
    std::vector<double> mu(p.k.size()), mu_alone(p.k.size());
    PerSlice k{p.k.data(), 0}, tau{p.tau.data(), 0};
    auto run = [&](T* to, double* threshold) {
        check(f.project({l, k, tau, p.x.data(), to, threshold, threads}).status == Status::ok, "status");
    };
    run(y.data(), mu.data());
    run(alone.data(), nullptr);
    run(nullptr, mu_alone.data());
    for (size_t s = 0; s < mu.size(); ++s) {
        int64_t slice = static_cast<int64_t>(s);
        Slice x = p.slice(p.x, slice);
        check_slice<T>(x, p.k[s], p.tau[s], p.expected[s], p.slice(y, slice), mu[s]);
        check_slice<T>(x, p.k[s], p.tau[s], p.expected[s], p.slice(alone, slice), mu_alone[s]);
    }
    check_untouched(p, y);
    check_untouched(p, alone);
}

template <class T>
void check_backward(const Functions<T>& f, const Problem<T>& p, int threads, Random& random) {
    const Layout& l = p.place.layout;
    std::vector<T> y = p.output(), v = p.output(), grad = p.output(), alone = p.output();
    std::vector<double> to_k(p.k.size()), to_tau(p.k.size());
    PerSlice tau{p.tau.data(), 0};
    f.project({l, {p.k.data(), 0}, tau, p.x.data(), y.data(), nullptr, threads});
    for (T& e : v) e = static_cast<T>(std::normal_distribution<double>()(random));
    auto run = [&](T* to_x, double* k, double* own_tau) {
        Backward<T> problem{l, tau, y.data(), v.data(), to_x, k, own_tau, threads};
        check(f.backward(problem).status == Status::ok, "status");
    };
    run(grad.data(), to_k.data(), to_tau.data());
    run(alone.data(), nullptr, nullptr);
    run(nullptr, to_k.data(), nullptr);
    for (size_t s = 0; s < to_k.size(); ++s) {
        int64_t slice = static_cast<int64_t>(s);
        reference::Gradients expected = reference::backward(p.slice(y, slice), p.slice(v, slice), p.tau[s]);
        Slice got = p.slice(grad, slice), again = p.slice(alone, slice);
        double tolerance = 32 * eps<T>;
        for (size_t i = 0; i < got.size(); ++i) {
            check_near(got[i], expected.x[i], tolerance / p.tau[s], "gradient to x");
            check_near(again[i], expected.x[i], tolerance / p.tau[s], "gradient to x alone");
        }
        check_near(to_k[s], expected.k, tolerance, "gradient to k");
        check_near(to_tau[s], expected.tau, tolerance * static_cast<double>(l.n) / p.tau[s],
                   "gradient to tau");
    }
    check_untouched(p, grad);
}

template <class T>
void check_binary(const Functions<T>& f, const Problem<T>& p, int threads) {
    std::vector<T> y = p.output();
    std::vector<double> k = p.k;
    for (double& each : k) each = std::floor(each);
    check(f.binary({p.place.layout, {k.data(), 0}, p.x.data(), y.data(), threads}).status == Status::ok,
          "status");
    for (size_t s = 0; s < k.size(); ++s) {
        int64_t slice = static_cast<int64_t>(s);
        Slice got = p.slice(y, slice), expected = reference::binary(p.slice(p.x, slice), k[s]);
        for (size_t i = 0; i < got.size(); ++i) check_near(got[i], expected[i], 0, "binary");
    }
    check_untouched(p, y);
}

template <class T>
void check_all(const Functions<T>& f, const Problem<T>& p, int threads, Random& random) {
    check_project(f, p, threads);
    check_backward(f, p, threads, random);
    check_binary(f, p, threads);
}

template <class T>
void test_everywhere(const Variant& v) {
    Random random(1);
    int round = 0;
    for (const Place& place : places<T>())
        for (int kind = 0; kind < static_cast<int>(Kind::count); ++kind) {
            const Layout& l = place.layout;
            int threads = 1 + round++ % 4;
            // Of the large ones a few will do.
            if (place.size() > 1000000 ? kind != static_cast<int>(Kind::offset)
                                       : place.size() > 50000 && round % 4)
                continue;
            context = std::string(v.name) + ", " + place.name + " of " + std::to_string(sizeof(T)) +
                      " bytes, n = " + std::to_string(l.n) + ", columns = " + std::to_string(l.inner) +
                      ", kind " + std::to_string(kind) + ", threads = " + std::to_string(threads);
            Problem<T> p(place, static_cast<Kind>(kind), random);
            check_all(functions<T>(v), p, threads, random);
            // A NaN spoils its own slice and no other.
            p.spoil(random);
            check_all(functions<T>(v), p, threads, random);
        }
}

// Long enough to be shared out among threads: rows by parts, rows and columns as wholes.
template <class T>
void test_threads(const Variant& v) {
    for (Place place :
         {Place{"one row", {1, 150001, 1, 0, 1, 0}}, Place{"rows", {64, 2000, 1, 2000, 1, 0}},
          Place{"columns", {1, 20000, 9, 0, 9, 1}}, Place{"scattered", {1, 140003, 1, 0, 2, 2}}})
        for (Kind kind : {Kind::normal, Kind::staircase}) {
            Random random(2);
            Problem<T> p(place, kind, random);
            for (int threads = 1; threads <= 4; ++threads) {
                context =
                    std::string(v.name) + ", " + place.name + " on " + std::to_string(threads) + " threads";
                check_project(functions<T>(v), p, threads);
                check_backward(functions<T>(v), p, threads, random);
            }
        }
}

template <class T>
void test_refusals(const Variant& v) {
    context = std::string(v.name) + " refusals";
    const Functions<T>& f = functions<T>(v);
    std::vector<T> x(12, T(1)), y(12);
    x[8] = x[9] = static_cast<T>(-inf);
    Layout l{3, 4, 1, 4, 1, 0};
    auto project = [&](std::vector<double> k, std::vector<double> tau) {
        return f.project({l, {k.data(), 0}, {tau.data(), 0}, x.data(), y.data(), nullptr, 2});
    };
    auto refused = [&](Result r, Status status, int64_t slice) {
        check(r.status == status && r.slice == slice, "refusal");
    };
    refused(project({1, 4.5, 1}, {1, 1, 1}), Status::bad_k, 1);
    refused(project({1, 1, -0.5}, {1, 1, 1}), Status::bad_k, 2);
    refused(project({reference::nan, 1, 1}, {1, 1, 1}), Status::bad_k, 0);
    refused(project({1, 1, 1}, {1, 0, 1}), Status::bad_tau, 1);
    refused(project({1, 1, 1}, {1, 1, inf}), Status::bad_tau, 2);
    refused(project({1, 1, 3}, {1, 1, 1}), Status::masked_k, 2);
    check(project({1, 1, 3}, {1, 1, 1}).limit == 2, "limit");
    double k[] = {1, 2.5, 1};
    refused(f.binary({l, {k, 0}, x.data(), y.data(), 1}), Status::bad_k, 1);
    for (Layout empty : {Layout{0, 4, 1, 4, 1, 0}, Layout{3, 0, 1, 0, 1, 0}}) {
        double mu[3] = {0, 0, 0}, to_k[3] = {0, 0, 0};
        check(f.project({empty, {nullptr, 0}, {nullptr, 1}, nullptr, nullptr, mu, 2}).status == Status::ok,
              "empty");
        check(f.backward({empty, {nullptr, 1}, nullptr, nullptr, nullptr, to_k, nullptr, 2}).status ==
                  Status::ok,
              "empty");
        for (int s = 0; s < 3; ++s) check(mu[s] == 0 && to_k[s] == 0, "numbers of an empty slice", mu[s]);
    }
}

template <class T>
void test_all(const Variant& v, bool everything) {
    if (everything) {
        test_everywhere<T>(v);
        test_threads<T>(v);
        test_refusals<T>(v);
        losses::test_all<T>(v);
        budgets::test_all<T>(v);
        smooth::test_all<T>(v);
    }
    threads::test_all<T>(v);
}

}    // namespace

// With an argument, only the tests of threads: those are what ThreadSanitizer is for.
int main(int arguments, char**) {
    searches::test_few_active_entries();
    searches::test_lanes();
    for (const Variant* v : variants) {
        if (!v->supported()) {
            std::printf("%s: not supported by this processor\n", v->name);
            continue;
        }
        test_all<float>(*v, arguments == 1);
        test_all<double>(*v, arguments == 1);
        graphs::test_all(*v);
        std::printf("%s: %s\n", v->name, failures ? "FAILED" : "passed");
    }
    return failures != 0;
}
