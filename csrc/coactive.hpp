// Which columns of a matrix are active together: for soft_assignment, whose Newton steps need an experts x
// experts matrix of the few entries between two limits.
#pragma once
#include "blocks.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t coactive_rows = 256, coactive_blocks = 16;
constexpr int64_t coactive_gathered = 64;    // dense rows that are added together

// One block's part. A row with r active entries adds 1/r for each pair of them, above the diagonal; what lies
// below it is not read.
template <class T>
struct CoactivePart {
    using L = Lanes<T>;
    const Coactive<T>& c;
    int64_t stride;    // of the pairs: whole registers, an even number of them
    double* sums;
    T* pairs;
    T* masks;    // of the rows gathered; each ends in zeros
    int64_t* active;

    int64_t find(const T* row, T* mask) const {
        T low = static_cast<T>(c.low), high = static_cast<T>(c.high);
        IntOf<T> count = 0;
        for (int64_t j = 0; j < c.columns; ++j) {
            IntOf<T> in = (row[j] > low) & (row[j] < high);
            mask[j] = in ? T(1) : T(0);
            count += in;
        }
        return count;
    }

    void list(int64_t count, const T* mask) const {
        constexpr int run = 4;    // the stride is a multiple of it
        for (int64_t j = 0, found = 0; found < count; j += run) {
            if (mask[j] + mask[j + 1] + mask[j + 2] + mask[j + 3] == 0) continue;
            for (int64_t l = j; l < j + run; ++l) {
                active[found] = l;
                found += mask[l] != 0;
            }
        }
    }

    // Few entries are written one by one, more of them by whole registers.
    void add(int64_t count, const T* mask) const {
        if (count < 2) return;
        list(count, mask);
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

    // Rows of many entries, whose masks hold the root of 1/r: a product of matrices, with sums in registers.
    void add_gathered(int64_t rows) const {
        for (int64_t i = 0; i < c.columns; i += 4)
            for (int64_t j = i / (2 * L::width) * (2 * L::width); j < stride; j += 2 * L::width) {
                typename L::Vec sum[4][2] = {};
                for (int64_t r = 0; r < rows; ++r) {
                    const T* mask = masks + r * stride;
                    auto left = L::load(mask + j), right = L::load(mask + j + L::width);
                    for (int a = 0; a < 4; ++a) {
                        auto one = L::splat(mask[i + a]);
                        sum[a][0] = L::plus_product(sum[a][0], one, left);
                        sum[a][1] = L::plus_product(sum[a][1], one, right);
                    }
                }
                for (int a = 0; a < 4; ++a)
                    for (int b = 0; b < 2; ++b) {
                        T* to = pairs + (i + a) * stride + j + b * L::width;
                        L::store(to, L::load(to) + sum[a][b]);
                    }
            }
    }

    void run(int64_t from, int64_t to) const {
        int64_t gathered = 0;
        for (int64_t r = from; r < to; ++r) {
            const T* row = c.v + r * c.columns;
            for (int64_t j = 0; sums && j < c.columns; ++j) sums[j] += row[j] == row[j] ? row[j] : T(0);
            if (!c.matrix) continue;
            T* mask = masks + gathered * stride;
            int64_t count = find(row, mask);
            if (5 * count < c.columns || count < 2) {
                add(count, mask);
                continue;
            }
            T root = std::sqrt(T(1) / static_cast<T>(count));
            for (int64_t j = 0; j < c.columns; ++j) mask[j] *= root;
            if (++gathered == coactive_gathered) {
                add_gathered(gathered);
                gathered = 0;
            }
        }
        if (gathered) add_gathered(gathered);
    }
};

template <class T>
Result coactive(const Coactive<T>& c) {
    int64_t n = c.columns, most = n > 512 ? 2 : coactive_blocks, wanted = c.rows / coactive_rows;
    int64_t number = wanted < 1 ? 1 : wanted < most ? wanted : most, size = (c.rows + number - 1) / number;
    int64_t width = 2 * Lanes<T>::width, stride = (n + width - 1) / width * width;
    int64_t cells = c.matrix ? (n + 3) / 4 * 4 * stride : 0, room = c.matrix ? coactive_gathered * stride : 0;
    Scratch<double> sums;
    Scratch<T> pairs, masks;
    Scratch<int64_t> active;
    if (!sums.take(number * n) || !pairs.take(number * cells) || !masks.take(number * room) ||
        !active.take(number * (n + 1)))
        return {Status::no_memory, 0, 0};
    std::memset(sums.data, 0, static_cast<size_t>(number * n) * sizeof(double));
    take_blocks(c.rows * n < parallel_worth ? 1 : c.threads, number, [&](int64_t b) {
        T* own = pairs.data + b * cells;
        std::memset(own, 0, static_cast<size_t>(cells) * sizeof(T));
        std::memset(masks.data + b * room, 0, static_cast<size_t>(room) * sizeof(T));
        CoactivePart<T> part{c,
                             stride,
                             c.sums ? sums.data + b * n : nullptr,
                             own,
                             masks.data + b * room,
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
