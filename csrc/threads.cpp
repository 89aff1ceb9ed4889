// Threads: those of an OpenMP runtime that is there already, or a pool of our own.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "kernel.hpp"
#if defined(__linux__)
#include <dlfcn.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace hs {

namespace {

// Members meet between passes of some ten microseconds: spin briefly, then give the processor away.
template <class Done>
void wait_until(Done done) {
    for (int spins = 0; !done(); ++spins)
        if (spins > 2000) std::this_thread::yield();
}

class Barrier {
  public:
    void wait(int size) {
        int round = round_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        wait_until([&] { return round_.load(std::memory_order_acquire) != round; });
    }

  private:
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
        Barrier barrier;
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
        Barrier barrier;
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

// The threads of an OpenMP runtime that is in the process already: torch's. They wait for work where torch's own
// operations left them, while a second set of threads would compete with them for the processors.
struct OpenMP {
    void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
    int (*size)();
    int (*id)();
};

std::atomic<const OpenMP*> the_openmp{nullptr};
std::atomic<Pool*> the_pool{nullptr};

struct Call {
    Pool::Body body;
    void* context;
    const OpenMP* openmp;
    Barrier barrier;

    static void member(void* call) {
        auto* c = static_cast<Call*>(call);
        c->body(c->context, c->openmp->id(), Team{c->openmp->size(), &c->barrier});
    }
};

// No thread lives on in a forked child: it gets a pool of its own, and OpenMP's may not be used there.
void watch_forks() {
#if !defined(_WIN32)
    static bool registered = pthread_atfork(nullptr, nullptr, [] {
        the_pool.store(nullptr);
        the_openmp.store(nullptr);
    }) == 0;
    (void)registered;
#endif
}

Pool& pool() {
    Pool* found = the_pool.load(std::memory_order_acquire);
    if (found) return *found;
    auto* made = new Pool;
    if (the_pool.compare_exchange_strong(found, made)) {
        watch_forks();
        return *made;
    }
    delete made;
    return *found;
}

}  // namespace

void Team::wait() const { static_cast<Barrier*>(barrier)->wait(size); }

void parallel(int threads, void (*body)(void*, int, const Team&), void* context) {
    if (const OpenMP* openmp = the_openmp.load(std::memory_order_acquire)) {
        Call call{body, context, openmp, {}};
        openmp->parallel(Call::member, &call, static_cast<unsigned>(threads), 0);
    } else {
        pool().run(threads, body, context);
    }
}

// Waking a thread that sleeps takes longer than handing work to one that waits.
int64_t parallel_worth() { return the_openmp.load(std::memory_order_relaxed) ? 1 << 15 : 1 << 16; }

bool use_openmp() {
#if defined(__linux__)
    static OpenMP found;
    static bool complete = [] {
        auto find = [](auto& function, const char* name) {
            void* symbol = dlsym(RTLD_DEFAULT, name);
            std::memcpy(&function, &symbol, sizeof symbol);
            return symbol != nullptr;
        };
        return find(found.parallel, "GOMP_parallel") && find(found.size, "omp_get_num_threads") &&
               find(found.id, "omp_get_thread_num");
    }();
    if (!complete) return false;
    watch_forks();
    the_openmp.store(&found, std::memory_order_release);
    return true;
#else
    return false;
#endif
}

}  // namespace hs
