// Threads: every entry that is long uses those it is given, and the bits are the same for any number of them,
// also when several callers come at once.
#pragma once
#include <cstring>
#include <functional>
#include <thread>

#include "losses.hpp"
#include "problems.hpp"
namespace hs::threads {

// What the entries read, drawn once. One row or two are long enough to be cut into blocks.
template <class T>
struct Given {
    static constexpr int64_t n = (1 << 18) + 512;
    std::vector<T> x, v;
    std::vector<int64_t> labels;
    std::vector<float> targets, weights;

    Given() {
        Random random(3);
        std::normal_distribution<double> normal;
        for (int64_t i = 0; i < 2 * n; ++i) x.push_back(static_cast<T>(normal(random)));
        for (int64_t i = 0; i < n; ++i) {
            v.push_back(static_cast<T>(normal(random)));
            labels.push_back(static_cast<int64_t>(random() % 2));
            targets.push_back(static_cast<float>(labels.back()));
            weights.push_back(static_cast<float>(random() % 4));
        }
    }
};

// One call of each entry of the table, into arrays of its own.
template <class T>
struct Entries {
    static constexpr int64_t n = Given<T>::n, classes = 2, most = 4096;    // slices at most
    static constexpr PerSlice one{nullptr, 1};
    const Functions<T>& f;
    const Given<T>& given;
    std::vector<T> y, grad;
    std::vector<float> small_grad, hess;
    std::vector<double> numbers;
    int64_t kept = 0;

    Entries(const Functions<T>& table, const Given<T>& all)
        : f(table), given(all), y(n), grad(2 * n), small_grad(n), hess(n), numbers(3 * most) {}

    bool same_bits(const Entries& other) const {
        auto same = [](const auto& a, const auto& b) {
            return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
        };
        return same(y, other.y) && same(grad, other.grad) && same(small_grad, other.small_grad) &&
               same(hess, other.hess) && same(numbers, other.numbers) && kept == other.kept;
    }

    void project(Layout l, int threads) {
        PerSlice k{nullptr, 0.3 * static_cast<double>(l.n)};
        f.project({l, k, one, given.x.data(), y.data(), numbers.data(), threads});
    }
    void backward(Layout l, int threads) {
        project(l, threads);
        double *to_k = numbers.data() + most, *to_tau = to_k + most;
        f.backward({l, one, y.data(), given.v.data(), grad.data(), to_k, to_tau, threads});
    }
    void binary(Layout l, int threads) {
        double k = std::floor(0.3 * static_cast<double>(l.n));
        f.binary({l, {nullptr, k}, given.x.data(), y.data(), threads});
    }
    Loss<T> batch(int64_t c, bool by_row, double* mu, int threads) {
        Loss<T> p = losses::batch(n / c, c, given.x.data(), given.labels.data(), threads);
        if (!by_row) p.sample_stride = 1, p.class_stride = p.samples;
        p.grad = grad.data(), p.mu = mu;
        p.k_used = numbers.data() + most, p.loss = numbers.data() + 2 * most, p.kept = &kept;
        return p;
    }
    void loss(int64_t c, bool by_row, int threads) { f.loss(batch(c, by_row, numbers.data(), threads)); }
    void loss_at(bool with_grad, int threads) {
        double mu[classes] = {0.1, -0.2}, low[classes] = {}, mean[classes] = {0.01, 0.02},
               sums[loss_sums * classes];
        Loss<T> part = batch(classes, true, mu, threads);
        if (!with_grad) part.grad = nullptr;
        f.loss_at({part, low, mean, with_grad ? nullptr : sums});
        for (int i = 0; !with_grad && i < loss_sums * classes; ++i) numbers[static_cast<size_t>(i)] = sums[i];
    }
    void objective(ObjectiveStep step, bool weighted, int threads) {
        double mu = 0.1, tau = 0.8, mean = 0.05, on = 1.5, off = 0.25;
        const float* weight = weighted ? given.weights.data() : nullptr;
        f.objective({step, n, 1, n, given.x.data(), given.targets.data(), weight, &mu, &tau, &mean, &on, &off,
                     nullptr, numbers.data(), small_grad.data(), hess.data(), threads});
    }
};

template <class T>
using Call = std::function<void(Entries<T>&, int threads)>;

template <class T>
std::vector<std::pair<std::string, Call<T>>> calls() {
    constexpr int64_t n = Entries<T>::n;
    // The last but one is too long to be transposed, the last is not.
    Layout row{1, n, 1, n, 1, 0}, rows{2, n / 2, 1, n / 2, 1, 0}, short_rows{4000, 64, 1, 64, 1, 0};
    Layout apart{1, n / 2, 1, 0, 2, 2}, narrow{1, n / 2, 2, 0, 2, 1}, wide{1, n / 16, 16, 0, 16, 1},
        transposed{1, 1000, 250, 0, 250, 1};
    std::vector<std::pair<std::string, Call<T>>> all;
    auto add = [&](const std::string& name, Call<T> call) { all.push_back({name, std::move(call)}); };
    for (Layout l : {row, rows, short_rows, apart, narrow, wide, transposed}) {
        std::string shape = std::to_string(l.n) + " x " + std::to_string(l.slices());
        add("project " + shape, [=](Entries<T>& e, int threads) { e.project(l, threads); });
        add("backward " + shape, [=](Entries<T>& e, int threads) { e.backward(l, threads); });
    }
    for (Layout l : {rows, short_rows})
        add("binary", [=](Entries<T>& e, int threads) { e.binary(l, threads); });
    for (int64_t c : {1, 2, 64})
        for (bool by_row : {true, false})
            add((by_row ? "loss of rows of " : "loss of columns, ") + std::to_string(c),
                [=](Entries<T>& e, int threads) { e.loss(c, by_row, threads); });
    for (bool grad : {false, true})
        add("loss at thresholds", [=](Entries<T>& e, int threads) { e.loss_at(grad, threads); });
    for (ObjectiveStep step :
         {ObjectiveStep::count, ObjectiveStep::sums, ObjectiveStep::gap, ObjectiveStep::write})
        for (bool weighted : {false, true})
            add("objective", [=](Entries<T>& e, int threads) { e.objective(step, weighted, threads); });
    return all;
}

template <class T>
void test_all(const Variant& v) {
    const Given<T> given;
    const Functions<T>& f = functions<T>(v);
    for (const auto& [name, call] : calls<T>()) {
        context =
            std::string(v.name) + ", " + name + " of " + std::to_string(sizeof(T)) + " bytes on threads";
        Entries<T> alone(f, given), shared(f, given), first(f, given), second(f, given);
        call(alone, 1);
        for (int threads : {2, 3, 5}) {
            call(shared, threads);
            check(shared.same_bits(alone), "the same bits on threads", threads);
        }
        std::thread other([&, &call = call] {
            for (int i = 0; i < 3; ++i) call(first, 2);
        });
        for (int i = 0; i < 3; ++i) call(second, 3);
        other.join();
        check(first.same_bits(alone) && second.same_bits(alone), "the same bits for two callers at once");
    }
}

}    // namespace hs::threads
