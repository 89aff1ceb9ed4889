// What does not depend on the instruction set: choosing a variant, threads, pages, and exact selection.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "kernel.hpp"
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace hs {

namespace baseline { extern const Variant table; }
#if defined(HS_X86_VARIANTS)
namespace avx2 { extern const Variant table; }
namespace avx512 { extern const Variant table; }
#endif

const Variant& variant() {
    static const Variant& chosen = []() -> const Variant& {
#if defined(HS_X86_VARIANTS)
        const Variant* all[] = {&avx512::table, &avx2::table, &baseline::table};
#else
        const Variant* all[] = {&baseline::table};
#endif
        const char* wanted = std::getenv("HYPERSIMPLEX_SIMD");
        for (const Variant* v : all)
            if (v->supported() && (!wanted || std::strcmp(wanted, v->name) == 0)) return *v;
        return baseline::table;
    }();
    return chosen;
}

namespace {

// Members meet between passes of some ten microseconds: spin briefly, then give the processor away.
template <class Done>
void wait_until(Done done) {
    for (int spins = 0; !done(); ++spins)
        if (spins > 2000) std::this_thread::yield();
}

class Barrier {
  public:
    explicit Barrier(int size) : size_(size) {}
    void wait() {
        int round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        wait_until([&] { return round_.load(std::memory_order_acquire) != round; });
    }

  private:
    int size_;
    std::atomic<int> arrived_{0}, round_{0};
};

// Workers that sleep between jobs: starting threads would cost more than most jobs. One caller at a time; the pool is
// never destroyed, because its workers may outlive everything else.
class Pool {
  public:
    using Body = void (*)(void*, int, const Team&);

    void run(int threads, Body body, void* context) {
        std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
        if (!mine.owns_lock()) return alone(body, context);
        while (workers_ < threads - 1 && start()) {
        }
        int size = workers_ + 1 < threads ? workers_ + 1 : threads;
        if (size == 1) return alone(body, context);
        Barrier barrier(size);
        Team team{size, &barrier};
        {
            std::lock_guard<std::mutex> lock(sleep_);
            body_ = body, context_ = context, team_ = &team, size_ = size;
            running_.store(size - 1, std::memory_order_relaxed);
            job_.fetch_add(1, std::memory_order_release);
        }
        wake_.notify_all();
        body(context, 0, team);
        wait_until([&] { return running_.load(std::memory_order_acquire) == 0; });
    }

  private:
    static void alone(Body body, void* context) {
        Barrier barrier(1);
        body(context, 0, Team{1, &barrier});
    }

    bool start() {
        try {
            int id = workers_ + 1;
            unsigned seen = job_.load();
            std::thread([this, id, seen] { work(id, seen); }).detach();
            ++workers_;
            return true;
        } catch (const std::exception&) {
            return false;    // a thread that cannot be had is done without
        }
    }

    void work(int id, unsigned seen) {
        for (;;) {
            for (int spins = 0; spins < 4000 && job_.load(std::memory_order_acquire) == seen; ++spins) {
            }
            Body body;
            void* context;
            const Team* team;
            {
                std::unique_lock<std::mutex> lock(sleep_);
                wake_.wait(lock, [&] { return job_.load(std::memory_order_acquire) != seen; });
                seen = job_.load();
                body = body_, context = context_, team = team_;
                if (id >= size_) continue;    // not asked for this job: it may be over, and its team gone
            }
            body(context, id, *team);
            running_.fetch_sub(1, std::memory_order_acq_rel);
        }
    }

    std::mutex busy_, sleep_;
    std::condition_variable wake_;
    std::atomic<unsigned> job_{0};
    std::atomic<int> running_{0};
    int workers_ = 0, size_ = 0;
    Body body_ = nullptr;
    void* context_ = nullptr;
    const Team* team_ = nullptr;
};

std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
    Pool* found = the_pool.load(std::memory_order_acquire);
    if (found) return *found;
    auto* made = new Pool;
    if (the_pool.compare_exchange_strong(found, made)) {
#if !defined(_WIN32)
        // The workers do not live on in a forked child: it gets a pool of its own.
        static bool registered = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); }) == 0;
        (void)registered;
#endif
        return *made;
    }
    delete made;
    return *found;
}

}  // namespace

void Team::wait() const { static_cast<Barrier*>(barrier)->wait(); }

void parallel(int threads, void (*body)(void*, int, const Team&), void* context) {
    pool().run(threads, body, context);
}

void advise_large_pages(void* address, int64_t bytes) {
#if defined(__linux__)
    constexpr uintptr_t page = 2u << 20;
    uintptr_t from = (reinterpret_cast<uintptr_t>(address) + page - 1) / page * page;
    uintptr_t to = (reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes)) / page * page;
    if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
    (void)address, (void)bytes;
#endif
}

namespace {

// Exactly k ones among the largest entries, ties to the lower index, by selection of the k-th largest.
template <class T>
Result binary(const Binary<T>& p) {
    const Layout& l = p.layout;
    std::unique_ptr<T[]> copy(new (std::nothrow) T[static_cast<size_t>(l.n) + 1]);
    if (!copy) return {Status::no_memory, 0, 0};
    for (int64_t s = 0; s < l.slices(); ++s) {
        double k = p.k[s];
        if (!(k >= 0 && k <= static_cast<double>(l.n)) || k != std::floor(k)) return {Status::bad_k, s, 0};
        const T* x = p.x + l.origin(s);
        T* y = p.y + l.origin(s);
        bool nan = false;
        int64_t usable = 0, ones = static_cast<int64_t>(k);
        for (int64_t i = 0; i < l.n; ++i) {
            T v = x[i * l.stride];
            copy[static_cast<size_t>(i)] = v;
            nan = nan || v != v;
            usable += v != -std::numeric_limits<T>::infinity();
        }
        if (!nan && ones > usable) return {Status::masked_k, s, usable};
        T edge = std::numeric_limits<T>::infinity();
        if (!nan && ones > 0) {
            std::nth_element(copy.get(), copy.get() + ones - 1, copy.get() + l.n, [](T a, T b) { return a > b; });
            edge = copy[static_cast<size_t>(ones - 1)];
        }
        int64_t above = 0;
        for (int64_t i = 0; i < l.n; ++i) above += x[i * l.stride] > edge;
        int64_t ties = ones - above;
        for (int64_t i = 0; i < l.n; ++i) {
            T v = x[i * l.stride];
            bool one = v > edge || (v == edge && ties-- > 0);
            y[i * l.stride] = nan ? std::numeric_limits<T>::quiet_NaN() : one ? T(1) : T(0);
        }
    }
    return {};
}

}  // namespace

Result binary_f32(const Binary<float>& p) { return binary(p); }
Result binary_f64(const Binary<double>& p) { return binary(p); }

}  // namespace hs
