// A pool of threads that take work; nobody waits for one that has taken none.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "kernel.hpp"
#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sched.h>
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

using Clock = std::chrono::steady_clock;

// Spinning is for what takes microseconds: the next pass over a row, the last block of this one.
template <class Done>
bool soon(Done done, Clock::duration most) {
    for (int i = 0; i < 64; ++i, pause())
        if (done()) return true;
    for (Clock::time_point end = Clock::now() + most; Clock::now() < end;)
        for (int i = 0; i < 16; ++i, pause())
            if (done()) return true;
    return false;
}

constexpr Clock::duration spin_for_work = std::chrono::microseconds(50), spin_for_others = spin_for_work;

using Handle = std::thread::native_handle_type;

constexpr int unknown = -1;    // processor

// A worker on the caller's processor would only take turns with it. The system may leave it there as long as
// the other processors are busy, be it with threads that spin, as those of OpenMP do behind a loop.
#if defined(__linux__)
int processor() { return sched_getcpu(); }

void keep_off(int here, Handle worker) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
    CPU_CLR(here, &allowed);
    if (CPU_COUNT(&allowed) > 0) pthread_setaffinity_np(worker, sizeof(allowed), &allowed);
}
#else
int processor() { return unknown; }
void keep_off(int, Handle) {}
#endif

// A member's blocks from `next` to `end`, the processor it was last seen on and the one it is kept off; on a
// cache line of its own.
struct alignas(64) Member {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
    std::atomic<int> processor{unknown};
    int off = unknown;
    Handle handle{};

    void part_from(int here) {
        int last = processor.load(std::memory_order_relaxed);
        if (last != here && (last != unknown || off == here)) return;
        keep_off(here, handle);
        off = here;
        processor.store(unknown, std::memory_order_relaxed);
    }
};

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
        work_ = work, context_ = context;
        int here = processor();
        for (int m = 0; m < threads; ++m) {
            Member& member = member_[m];
            member.next.store(blocks * m / threads, std::memory_order_relaxed);
            member.end = blocks * (m + 1) / threads;
            if (m > 0 && here != unknown) member.part_from(here);
        }
        members_.store(threads, std::memory_order_relaxed);
        // The serial number tells this job from the last; from here on workers may enter.
        state_.fetch_add(one_job + open, std::memory_order_seq_cst);
        if (asleep_.load(std::memory_order_seq_cst) > 0) wake();
        take_blocks(0, threads);
        if ((state_.fetch_sub(open, std::memory_order_acq_rel) & inside) > 0) wait_for_others();
    }

  private:
    // The state in one number, so that entering an open job is one step: workers inside, whether more may
    // enter, and the serial number of the job.
    static constexpr uint64_t inside = 0xffff, open = 0x10000, one_job = 0x20000;

    // A member's own blocks first: those it had in the last job as well, and in its cache. Then the others'.
    void take_blocks(int member, int members) {
        for (int i = 0; i < members; ++i) {
            Member& from = member_[(member + i) % members];
            for (int64_t b; (b = from.next.fetch_add(1, std::memory_order_relaxed)) < from.end;)
                work_(context_, b);
        }
    }

    void wake() {
        {
            std::lock_guard<std::mutex> lock(sleep_);
        }
        wake_.notify_all();
    }

    // Those inside hold a block each. One that is not scheduled would be held up by our spinning too: we
    // sleep.
    void wait_for_others() {
        auto gone = [&] { return (state_.load(std::memory_order_acquire) & inside) == 0; };
        if (soon(gone, spin_for_others)) return;
        std::unique_lock<std::mutex> lock(sleep_);
        done_.wait(lock, gone);
    }

    bool start() {
        try {
            std::thread worker([this, member = workers_ + 1] { work(member); });
            member_[++workers_].handle = worker.native_handle();
            worker.detach();
            return true;
        } catch (const std::exception&) {
            return false;    // a thread that cannot be had is done without
        }
    }

    bool enter(int member, uint64_t& seen) {
        uint64_t state = state_.load(std::memory_order_seq_cst);
        while ((state & open) && state / one_job != seen) {
            if (members_.load(std::memory_order_relaxed) <= member) return false;
            if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
            seen = state / one_job;
            return true;
        }
        return false;
    }

    void work(int member) {
        uint64_t seen = 0;
        for (;;) {
            if (!soon([&] { return enter(member, seen); }, spin_for_work)) {
                std::unique_lock<std::mutex> lock(sleep_);
                asleep_.fetch_add(1, std::memory_order_seq_cst);
                wake_.wait(lock, [&] { return enter(member, seen); });
                asleep_.fetch_sub(1, std::memory_order_relaxed);
            }
            member_[member].processor.store(processor(), std::memory_order_relaxed);
            take_blocks(member, members_.load(std::memory_order_relaxed));
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
    alignas(64) std::atomic<uint64_t> state_{0};
    alignas(64) std::atomic<int> asleep_{0}, members_{0};
    int workers_ = 0;
    Work work_ = nullptr;
    void* context_ = nullptr;
    Member member_[most_threads];
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
    int64_t members = threads < blocks ? threads : blocks;
    if (members > 1)
        if (Pool* ours = pool()) {
            int most = members < most_threads ? static_cast<int>(members) : most_threads;
            return ours->run(most, blocks, work, context);
        }
    for (int64_t b = 0; b < blocks; ++b) work(context, b);
}

void Failure::add(const Result& other) {
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
    if (first.status == Status::ok || other.slice < first.slice) first = other;
    busy.clear(std::memory_order_release);
}

}    // namespace hs
