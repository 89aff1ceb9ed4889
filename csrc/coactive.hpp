// Which columns of a matrix are active together: for soft_assignment, whose Newton steps need an experts x
// experts matrix of the few entries between two limits.
#pragma once
#include "blocks.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t coactive_rows = 256, coactive_blocks = 16;

// One block's part. A row with r active entries adds 1/r for each pair of them, above the diagonal; what lies
// below it is not read.
template <class T>
struct CoactivePart {
    using L = Lanes<T>;
    const Coactive<T>& c;
    int64_t stride;    // of the pairs: whole registers
    double* sums;
    T* pairs;
    T* mask;    // ends in zeros
    int64_t* active;

    int64_t find(const T* row) const {
        T low = static_cast<T>(c.low), high = static_cast<T>(c.high);
        constexpr int64_t run = 16;
        int64_t count = 0;
        for (int64_t from = 0; from < c.columns; from += run) {
            int64_t to = from + run < c.columns ? from + run : c.columns;
            IntOf<T> any = 0;
            for (int64_t j = from; j < to; ++j) {
                IntOf<T> in = (row[j] > low) & (row[j] < high);
                mask[j] = in ? T(1) : T(0);
                any |= in;
            }
            if (!any) continue;
            for (int64_t j = from; j < to; ++j) {
                active[count] = j;
                count += mask[j] != 0;
            }
        }
        return count;
    }

    // Few entries are written one by one, many by whole registers.
    void add(int64_t count) const {
        T share = T(1) / static_cast<T>(count);
        if (4 * count <= c.columns / L::width) {
            for (int64_t a = 0; a < count; ++a)
                for (int64_t b = a + 1; b < count; ++b) pairs[active[a] * stride + active[b]] += share;
            return;
        }
        auto all = L::splat(share);
        for (int64_t a = 0; a < count; ++a) {
            T* to = pairs + active[a] * stride;
            for (int64_t j = active[a] / L::width * L::width; j < stride; j += L::width)
                L::store(to + j, L::load(to + j) + all * L::load(mask + j));
        }
    }

    void run(int64_t from, int64_t to) const {
        for (int64_t r = from; r < to; ++r) {
            const T* row = c.v + r * c.columns;
            for (int64_t j = 0; sums && j < c.columns; ++j) sums[j] += row[j] == row[j] ? row[j] : T(0);
            if (c.matrix) add(find(row));
        }
    }
};

template <class T>
Result coactive(const Coactive<T>& c) {
    int64_t n = c.columns, most = n > 512 ? 2 : coactive_blocks, wanted = c.rows / coactive_rows;
    int64_t number = wanted < 1 ? 1 : wanted < most ? wanted : most, size = (c.rows + number - 1) / number;
    int64_t width = Lanes<T>::width, stride = (n + width - 1) / width * width,
            cells = c.matrix ? n * stride : 0;
    Scratch<double> sums;
    Scratch<T> pairs, mask;
    Scratch<int64_t> active;
    if (!sums.take(number * n) || !pairs.take(number * cells) || !mask.take(number * stride) ||
        !active.take(number * (n + 1)))
        return {Status::no_memory, 0, 0};
    std::memset(sums.data, 0, static_cast<size_t>(number * n) * sizeof(double));
    std::memset(mask.data, 0, static_cast<size_t>(number * stride) * sizeof(T));
    take_blocks(c.rows * n < parallel_worth ? 1 : c.threads, number, [&](int64_t b) {
        T* own = pairs.data + b * cells;
        std::memset(own, 0, static_cast<size_t>(cells) * sizeof(T));
        CoactivePart<T> part{c,
                             stride,
                             c.sums ? sums.data + b * n : nullptr,
                             own,
                             mask.data + b * stride,
                             active.data + b * (n + 1)};
        part.run(b * size, (b + 1) * size < c.rows ? (b + 1) * size : c.rows);
    });
    for (int64_t j = 0; c.sums && j < n; ++j) {
        c.sums[j] = 0;
        for (int64_t b = 0; b < number; ++b) c.sums[j] += sums.data[b * n + j];
    }
    for (int64_t i = 0; c.matrix && i < n; ++i) {
        c.matrix[i * n + i] = 0;
        for (int64_t j = i + 1; j < n; ++j) {
            double total = 0;
            for (int64_t b = 0; b < number; ++b) total += pairs.data[b * cells + i * stride + j];
            c.matrix[i * n + j] = c.matrix[j * n + i] = total;
        }
    }
    return {};
}

}    // namespace hs::HS_VARIANT
