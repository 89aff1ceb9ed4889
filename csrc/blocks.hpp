// Work in blocks whose borders depend on the problem alone. Threads take the next block as they come; what
// the blocks add up to is added in their order, so that no bit depends on how many threads there were or who
// came first.
#pragma once
#include <cstdlib>

#include "kernel.hpp"
#include "lanes.hpp"

namespace hs::HS_VARIANT {

// Fewer entries than are worth it take about as long as waking a thread.
constexpr int64_t block_entries = 1 << 15, parallel_row = 1 << 17, parallel_worth = 1 << 17;
constexpr int most_blocks = 256;

// Memory for one task, or nothing. Freed by its owner's destructor: tasks end in many places.
template <class E>
struct Scratch {
    E* data = nullptr;
    bool take(int64_t size) {
        data = static_cast<E*>(std::malloc(static_cast<size_t>(size > 0 ? size : 1) * sizeof(E)));
        return data != nullptr;
    }
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { std::free(data); }
};

// `count` things of `weight` entries each: one block if they are few, else up to `most` of block_entries and
// more.
struct Blocks {
    int64_t n, size, number;
    explicit Blocks(int64_t count, int64_t weight = 1, int64_t most = most_blocks)
        : n(count), size(n), number(1) {
        if (n * weight < parallel_row) return;
        int64_t wanted = n * weight / block_entries;
        size = (n / (wanted < most ? wanted : most) + 64) / 64 * 64;
        number = (n + size - 1) / size;
    }
    int64_t from(int64_t block) const { return block * size; }
    int64_t to(int64_t block) const { return block + 1 < number ? (block + 1) * size : n; }
};

// work(block) for every block of [0, number).
template <class F>
void take_blocks(int threads, int64_t number, F&& work) {
    using Work = std::remove_reference_t<F>;
    each_block(
        threads, number, [](void* context, int64_t block) { (*static_cast<Work*>(context))(block); }, &work);
}

// The long way, apart from the short one: its arrays would burden every caller.
template <class F>
HS_APART void in_long_blocks(int64_t n, int threads, F& work) {
    Blocks blocks(n);
    take_blocks(threads, blocks.number, [&](int64_t b) { work(blocks.from(b), blocks.to(b)); });
}

template <class Sum, class F>
HS_APART Sum sum_long_blocks(int64_t n, int threads, F& work) {
    Blocks blocks(n);
    Sum parts[most_blocks];
    take_blocks(threads, blocks.number, [&](int64_t b) { parts[b] = work(blocks.from(b), blocks.to(b)); });
    for (int64_t b = 1; b < blocks.number; ++b) parts[0].add(parts[b]);
    return parts[0];
}

// work(from, to) for all of n entries. Only a copy of it is given away: what work holds by value stays in
// registers on the short way.
template <class F>
HS_INLINE void in_blocks(int64_t n, int threads, F work) {
    if (n < parallel_row) return work(int64_t{0}, n);
    F given = work;
    in_long_blocks(n, threads, given);
}

// The same, where work returns what its part adds.
template <class Sum, class F>
HS_INLINE Sum sum_blocks(int64_t n, int threads, F work) {
    if (n < parallel_row) return work(int64_t{0}, n);
    F given = work;
    return sum_long_blocks<Sum>(n, threads, given);
}

inline void fail(Result& result, Status status, int64_t slice, int64_t limit = 0) {
    if (result.status == Status::ok) result = {status, slice, limit};
}

// work.run(task, threads within the task, result) for every task. Of few tasks that are long every thread
// takes a part.
template <class W>
Result run_tasks(const W& work, int64_t number, int64_t entries, int wanted) {
    int threads = entries < parallel_worth || wanted < 1 ? 1 : wanted > most_threads ? most_threads : wanted;
    bool within = number < 4 * threads && entries / number >= parallel_row;
    Failure failure;
    take_blocks(within ? 1 : threads, number, [&](int64_t task) {
        Result result;
        work.run(task, within ? threads : 1, result);
        if (result.status != Status::ok) failure.add(result);
    });
    return failure.first;
}

}    // namespace hs::HS_VARIANT
