// Columns of a long array, searched in step: one pass over the rows of memory serves all of them.
#pragma once
#include "columns.hpp"
#include "lockstep.hpp"
#include "solve.hpp"

namespace hs::HS_VARIANT {

template <class T>
class ColumnSearch : public Lockstep {
    static constexpr int W = Lanes<T>::width;

  public:
    ColumnSearch(const Layout& l, int columns, int shared_by)
        : layout(l), lay(l, columns), chunks(lay.chunks()), threads(chunks.number > 1 ? shared_by : 1) {
        count = columns;
        parts.take(chunks.number + 1);
    }
    bool ready() const { return parts.data != nullptr; }

    // With y, the projections are there when this returns. Columns left unsettled are stuck.
    void run(const T* x, T* y) {
        double n = static_cast<double>(layout.n);
        start_from_sample(x, n);
        for (int j = 0; j < count; ++j)
            if (at_edge(k[j], n, static_cast<T>(1 / tau[j]))) settled[j] = stuck[j] = near[j] = 1;
        int64_t whole = layout.n - lay.rest;
        for (int64_t i = 0; i < lay.rows * count; ++i)
            tail[0][i] =
                i < lay.rest * count ? x[whole * layout.stride + i] : -std::numeric_limits<T>::infinity();
        bool written = false;
        for (int number = 0; number < most_passes; ++number) {
            written = y && number > 0 && all_near();
            pass(x, written ? y : nullptr);
            if (update<T>(0, count, n, 1, number >= late_pass)) break;
        }
        for (int j = 0; j < count; ++j) stuck[j] |= !settled[j];
        if (y && !written) pass(x, y);
        if (y)
            std::memcpy(y + whole * layout.stride, tail[1],
                        static_cast<size_t>(lay.rest * count) * sizeof(T));
    }

  private:
    void place() {
        for (int l = 0; l < lay.lanes(); ++l) {
            int j = lay.column[l];
            Split<T> at = split<T>(mu[j], low[j]);
            lane.c[l] = at.c;
            lane.d[l] = at.d;
            lane.inverse[l] = static_cast<T>(1 / tau[j]);
        }
    }

    void collect(int64_t number) {
        double keep = lay.several_lanes_a_column() ? 1 : 0;
        for (int l = 0; l < lay.lanes(); ++l)
            for (int64_t c = 1; c < number; ++c) {
                parts.data[0].sum[l] += parts.data[c].sum[l];
                parts.data[0].active[l] += parts.data[c].active[l];
                parts.data[0].ones[l] += parts.data[c].ones[l];
            }
        for (int j = 0; j < count; ++j) active_sum[j] = active[j] = ones[j] = 0;
        for (int l = 0; l < lay.lanes(); ++l) {
            int j = lay.column[l];
            active_sum[j] = keep * active_sum[j] + parts.data[0].sum[l];
            active[j] = keep * active[j] + static_cast<double>(parts.data[0].active[l]);
            ones[j] = keep * ones[j] + static_cast<double>(parts.data[0].ones[l]);
        }
    }

    void pass_part(const T* x, T* y, int64_t groups, int64_t step, int64_t part) {
        LaneSums<T>& out = parts.data[part];
        out.clear(lay.lanes());
        if (y) pass_columns<T, true>(lay, x, y, groups, step, lane, out);
        else pass_columns<T, false>(lay, x, y, groups, step, lane, out);
    }

    // All groups, chunk by chunk, and the rows of memory behind them, which are filled up to a group.
    void pass(const T* x, T* y) {
        place();
        take_blocks(threads, chunks.number, [&](int64_t c) {
            int64_t at = chunks.from(c) * lay.step, groups = chunks.to(c) - chunks.from(c);
            pass_part(x + at, y ? y + at : nullptr, groups, lay.step, c);
        });
        if (lay.rest > 0) pass_part(tail[0], y ? tail[1] : nullptr, 1, 0, chunks.number);
        collect(chunks.number + (lay.rest > 0));
    }

    void start_from_sample(const T* x, double n) {
        int64_t skip = lay.groups * lay.rows / 512, groups = lay.groups / skip, step = lay.step * skip;
        double m = static_cast<double>(groups * lay.rows);
        start_from_moments(x, groups, step, n);
        for (int number = 0; number < 6; ++number) {
            place();
            pass_part(x, nullptr, groups, step, 0);
            collect(1);
            if (update<T>(0, count, m, m / n) || all_near()) break;
        }
        for (int j = 0; j < count; ++j) start(j, mu[j], width[j]);
    }

    // Starts every column at the threshold a normal slice of its mean and variance would have.
    void start_from_moments(const T* x, int64_t groups, int64_t step, double n) {
        double second[most_lanes] = {}, first[most_slices] = {}, two[most_slices] = {}, m[most_slices] = {};
        LaneSums<T>& sums = parts.data[0];
        sums.clear(lay.lanes());
        for (int l = 0; l < lay.lanes(); ++l) {
            T v = x[lay.offset[l / W] + l % W];
            lane.c[l] = std::isfinite(v) ? v : T(0);
        }
        moments_columns(lay, x, groups, step, lane.c, sums, second);
        for (int l = 0; l < lay.lanes(); ++l) {
            int j = lay.column[l];
            double shift = static_cast<double>(lane.c[l]), entries = static_cast<double>(sums.active[l]);
            double mean = entries > 0 ? sums.sum[l] / entries : 0;
            double spread = entries > 0 ? second[l] / entries - mean * mean : 0;
            // Lanes of one column are merged by their weights; the spread between them is small beside the
            // guess.
            first[j] += entries * (shift + mean);
            two[j] += entries * (spread > 0 ? spread : 0);
            m[j] += entries;
        }
        for (int j = 0; j < count; ++j) {
            double mean = m[j] > 0 ? first[j] / m[j] : 0, variance = m[j] > 0 ? two[j] / m[j] : 0;
            set(j, start_near(mean, variance, quantile(k[j], n), tau[j]));
        }
    }

    const Layout& layout;
    ColumnLanes<T> lay;
    Blocks chunks;
    int threads;
    Scratch<LaneSums<T>> parts;    // per chunk, and one for the rows behind them
    LaneThresholds<T> lane;
    T tail[2][most_lanes];
};

}    // namespace hs::HS_VARIANT
