// A pool of threads that take work; nobody waits for one that has taken none.
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "kernel.hpp"
#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace hs {

namespace {

void pause() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#endif
}

// Spinning is for what takes microseconds: the next pass over a row, the last block of this one.
template <class Done>
bool soon(Done done, int spins) {
    for (int i = 0; i < spins; ++i) {
        if (done()) return true;
        pause();
    }
    return done();
}

constexpr int spins_for_work = 1500, spins_for_others = 3000;

// One job at a time: a caller who finds the pool busy works alone. The pool is never destroyed, because its
// workers may outlive everything else.
class Pool {
  public:
    using Work = void (*)(void*, int64_t);

    void run(int threads, int64_t blocks, Work work, void* context) {
        std::unique_lock<std::mutex> mine(busy_, std::try_to_lock);
        if (mine.owns_lock())
            while (workers_ < threads - 1 && start()) {
            }
        if (!mine.owns_lock() || workers_ == 0) {
            for (int64_t b = 0; b < blocks; ++b) work(context, b);
            return;
        }
        work_ = work, context_ = context, blocks_ = blocks;
        next_.store(0, std::memory_order_relaxed);
        free_.store(threads - 1, std::memory_order_relaxed);
        // The serial number tells this job from the last; from here on workers may enter.
        state_.fetch_add(one_job + open, std::memory_order_seq_cst);
        if (asleep_.load(std::memory_order_seq_cst) > 0) wake(threads - 1);
        take_blocks();
        if ((state_.fetch_sub(open, std::memory_order_acq_rel) & inside) > 0) wait_for_others();
    }

  private:
    // The state in one number, so that entering an open job is one step: workers inside, whether more may
    // enter, and the serial number of the job.
    static constexpr uint64_t inside = 0xffff, open = 0x10000, one_job = 0x20000;

    void take_blocks() {
        for (int64_t b; (b = next_.fetch_add(1, std::memory_order_relaxed)) < blocks_;) work_(context_, b);
    }

    void wake(int wanted) {
        {
            std::lock_guard<std::mutex> lock(sleep_);
        }
        for (int i = 0; i < wanted; ++i) wake_.notify_one();
    }

    // Those inside hold a block each. One that is not scheduled would be held up by our spinning too: we
    // sleep.
    void wait_for_others() {
        auto gone = [&] { return (state_.load(std::memory_order_acquire) & inside) == 0; };
        if (soon(gone, spins_for_others)) return;
        std::unique_lock<std::mutex> lock(sleep_);
        done_.wait(lock, gone);
    }

    bool start() {
        try {
            std::thread([this] { work(); }).detach();
            ++workers_;
            return true;
        } catch (const std::exception&) {
            return false;    // a thread that cannot be had is done without
        }
    }

    bool enter(uint64_t& seen) {
        uint64_t state = state_.load(std::memory_order_seq_cst);
        while ((state & open) && state / one_job != seen) {
            if (free_.load(std::memory_order_relaxed) <= static_cast<int>(state & inside)) return false;
            if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
            seen = state / one_job;
            return true;
        }
        return false;
    }

    void work() {
        uint64_t seen = 0;
        for (;;) {
            if (!soon([&] { return enter(seen); }, spins_for_work)) {
                std::unique_lock<std::mutex> lock(sleep_);
                asleep_.fetch_add(1, std::memory_order_seq_cst);
                wake_.wait(lock, [&] { return enter(seen); });
                asleep_.fetch_sub(1, std::memory_order_relaxed);
            }
            take_blocks();
            // The last one out of a closed job tells the caller, who may be asleep.
            if ((state_.fetch_sub(1, std::memory_order_acq_rel) & (inside | open)) == 1) {
                {
                    std::lock_guard<std::mutex> lock(sleep_);
                }
                done_.notify_one();
            }
        }
    }

    std::mutex busy_, sleep_;
    std::condition_variable wake_, done_;
    std::atomic<uint64_t> state_{0};
    std::atomic<int64_t> next_{0};
    std::atomic<int> asleep_{0}, free_{0};
    int workers_ = 0;
    Work work_ = nullptr;
    void* context_ = nullptr;
    int64_t blocks_ = 0;
};

std::atomic<Pool*> the_pool{nullptr};

// No thread lives on in a forked child: it gets a pool of its own.
void watch_forks() {
#if !defined(_WIN32)
    static bool registered = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); }) == 0;
    (void)registered;
#endif
}

Pool* pool() {
    Pool* found = the_pool.load(std::memory_order_acquire);
    if (found) return found;
    auto* made = new (std::nothrow) Pool;
    if (!made) return nullptr;
    if (the_pool.compare_exchange_strong(found, made)) {
        watch_forks();
        return made;
    }
    delete made;
    return found;
}

}    // namespace

void each_block(int threads, int64_t blocks, void (*work)(void*, int64_t), void* context) {
    Pool* threads_of_ours = threads > 1 && blocks > 1 ? pool() : nullptr;
    if (threads_of_ours)
        return threads_of_ours->run(threads < blocks ? threads : static_cast<int>(blocks), blocks, work,
                                    context);
    for (int64_t b = 0; b < blocks; ++b) work(context, b);
}

void Failure::add(const Result& other) {
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
    if (first.status == Status::ok || other.slice < first.slice) first = other;
    busy.clear(std::memory_order_release);
}

}    // namespace hs
