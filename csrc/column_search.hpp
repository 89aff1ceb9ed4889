// Columns of a long array, searched in step: one pass over the rows of memory serves all of them.
#pragma once
#include "columns.hpp"
#include "lockstep.hpp"

namespace hs::HS_VARIANT {

constexpr int most_lanes = 256, narrow_columns = 16;

template <class T>
struct ColumnSearch : Lockstep {
    static constexpr int W = Lanes<T>::width;
    T c[most_lanes], d[most_lanes], inv[most_lanes];
    double lane_sum[most_lanes];
    IntOf<T> lane_active[most_lanes], lane_ones[most_lanes];
    int column[most_lanes], offset[most_lanes / W];
    int slots, rows;

    void lay_out(int columns, bool narrow) {
        count = columns;
        rows = 1;
        if (narrow)
            while (rows * count % W) ++rows;
        int across = rows * count;
        slots = (across + W - 1) / W;
        for (int s = 0; s < slots; ++s) {
            offset[s] = s * W + W <= across ? s * W : across - W;
            for (int l = 0; l < W; ++l) column[s * W + l] = (offset[s] + l) % count;
        }
    }

    void place() {
        for (int l = 0; l < slots * W; ++l) {
            int j = column[l];
            Split<T> at = split<T>(mu[j], low[j]);
            c[l] = at.c;
            d[l] = at.d;
            inv[l] = static_cast<T>(1 / tau[j]);
        }
    }

    void clear() {
        std::memset(lane_sum, 0, sizeof(double) * static_cast<size_t>(slots * W));
        std::memset(lane_active, 0, sizeof(T) * static_cast<size_t>(slots * W));
        std::memset(lane_ones, 0, sizeof(T) * static_cast<size_t>(slots * W));
    }

    // Wide lanes that overlap hold the same column twice: the later one counts.
    void collect() {
        for (int j = 0; j < count; ++j) active_sum[j] = active[j] = ones[j] = 0;
        for (int l = 0; l < slots * W; ++l) {
            int j = column[l];
            double keep = rows > 1 ? 1 : 0;
            active_sum[j] = keep * active_sum[j] + lane_sum[l];
            active[j] = keep * active[j] + static_cast<double>(lane_active[l]);
            ones[j] = keep * ones[j] + static_cast<double>(lane_ones[l]);
        }
    }

    template <bool write>
    void pass(const Block<T>* blocks, int number) {
        place();
        clear();
        for (int b = 0; b < number; ++b)
            pass_columns<T, write>(blocks[b], c, d, inv, {lane_sum, lane_active, lane_ones});
        collect();
    }

    // Starts every column at the threshold a normal slice of its mean and variance would have.
    void begin(const Block<T>& block, double n) {
        double second[most_lanes] = {};
        clear();
        for (int s = 0; s < slots; ++s)
            for (int l = 0; l < W; ++l) {
                T v = block.x[offset[s] + l];
                c[s * W + l] = std::isfinite(v) ? v : T(0);
            }
        moments_columns(block, c, lane_sum, second, lane_active);
        double first[most_slices], two[most_slices], m[most_slices];
        for (int j = 0; j < count; ++j) first[j] = two[j] = m[j] = 0;
        for (int l = 0; l < slots * W; ++l) {
            int j = column[l];
            double shift = static_cast<double>(c[l]), entries = static_cast<double>(lane_active[l]);
            double mean = entries > 0 ? lane_sum[l] / entries : 0;
            double spread = entries > 0 ? second[l] / entries - mean * mean : 0;
            // Lanes of one column are merged by their weights; the spread between them is small beside the guess.
            first[j] += entries * (shift + mean);
            two[j] += entries * (spread > 0 ? spread : 0);
            m[j] += entries;
        }
        for (int j = 0; j < count; ++j) {
            double mean = m[j] > 0 ? first[j] / m[j] : 0, variance = m[j] > 0 ? two[j] / m[j] : 0;
            start(j, guess(mean, variance, quantile(k[j], n), tau[j]), tau[j] + std::sqrt(variance) / 4);
        }
    }

    // Solves the columns of the blocks; with `write` their projections are in y when this returns.
    // Columns left unsettled after the last pass are stuck.
    void solve(const Block<T>* blocks, int number, double n, double share, bool write, int passes) {
        bool written = false;
        for (int pass_number = 0; pass_number < passes; ++pass_number) {
            written = write && pass_number > 0 && all_near();
            if (written) pass<true>(blocks, number);
            else pass<false>(blocks, number);
            if (update<T>(n, share)) break;
            if (!write && passes < most_passes && all_near()) return;
        }
        for (int j = 0; j < count; ++j) stuck[j] |= !settled[j];
        if (write && !written) pass<true>(blocks, number);
    }
};

}  // namespace hs::HS_VARIANT
