// Box sections of many sizes, and segments against one row at a time.
#pragma once
#include "boxes.hpp"

namespace budgets {

template <class T>
void check_segments(const Variant& v, int threads, Random& random) {
    context = std::string(v.name) + ", segments on " + std::to_string(threads) + " threads";
    std::vector<int64_t> offsets{0};
    std::vector<double> k, tau;
    for (int64_t n : {0, 1, 2, 33, 0, 200, 2049}) {
        offsets.push_back(offsets.back() + n);
        k.push_back(static_cast<double>(n) * uniform(random));
        tau.push_back(0.1 + uniform(random));
    }
    int64_t rows = static_cast<int64_t>(k.size()), size = offsets.back();
    std::vector<T> x, pull, y(static_cast<size_t>(size)), grad = y;
    for (int64_t i = 0; i < 2 * size; ++i) (i < size ? x : pull).push_back(value<T>(Kind::normal, 1, random));
    std::vector<double> to_k(k.size()), to_tau(k.size());
    const Functions<T>& f = functions<T>(v);
    Segments<T> p{rows,    size,     offsets.data(), {k.data(), 0}, {tau.data(), 0}, x.data(),
                  nullptr, y.data(), nullptr,        nullptr,       threads};
    check(f.segments(p).status == Status::ok, "status");
    Segments<T> back{rows,        size,        offsets.data(), {nullptr, 0},  {tau.data(), 0}, y.data(),
                     pull.data(), grad.data(), to_k.data(),    to_tau.data(), threads};
    check(f.segments(back).status == Status::ok, "status");
    for (size_t s = 0; s < k.size(); ++s) {
        auto part = [&](const std::vector<T>& all) {
            return Slice(all.begin() + offsets[s], all.begin() + offsets[s + 1]);
        };
        Slice expected = part(x).empty() ? Slice() : reference::project(part(x), k[s], tau[s]).y,
              got = part(y), g = part(grad);
        reference::Gradients gradients = reference::backward(got, part(pull), tau[s]);
        for (size_t i = 0; i < got.size(); ++i) {
            check_near(got[i], expected[i], 2 * eps<T> + 1e-12, "segment");
            check_near(g[i], gradients.x[i], 64 * eps<T> / tau[s], "gradient of a segment");
        }
        check_near(to_k[s], gradients.k, 64 * eps<T>, "gradient to k");
        check_near(to_tau[s], gradients.tau, 64 * eps<T> * static_cast<double>(got.size()) / tau[s],
                   "gradient to tau");
    }
    auto refused = [&](size_t at, int64_t wrong) {
        std::vector<int64_t> other = offsets;
        other[at] = wrong;
        p.offsets = other.data();
        Result r = f.segments(p);
        check(r.status == Status::bad_offsets && r.limit == wrong, "refusal of offsets");
    };
    refused(0, 1), refused(2, -1), refused(7, size - 1), refused(7, size + 1);
}

template <class T>
void test_all(const Variant& v) {
    Random random(7);
    for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 255, 256, 257, 513, 1000})
        for (int64_t rows : {1, 5, 33}) {
            check_rows<T>(v, rows, n, 2, random);
            check_gradients<T>(v, rows, n, 2, random);
        }
    for (int threads = 1; threads <= 4; ++threads) {
        check_rows<T>(v, 1, (1 << 17) + 1, threads, random);
        check_rows<T>(v, 40, 2000, threads, random);
        check_gradients<T>(v, 1, (1 << 17) + 1, threads, random);
        check_gradients<T>(v, 40, 2000, threads, random);
        check_segments<T>(v, threads, random);
    }
    check_broadcast<T>(v);
}

}    // namespace budgets
