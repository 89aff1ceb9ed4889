// Rows of different lengths, one after the other: each is the projection of one row, or its derivative.
#pragma once
#include "backward.hpp"
#include "project.hpp"

namespace hs::HS_VARIANT {

constexpr int64_t task_segments = 64;

template <class T>
struct SegmentTasks {
    const Segments<T>& p;
    Tiles tiles;
    explicit SegmentTasks(const Segments<T>& problem) : p(problem), tiles(p.rows, task_segments) {}

    void run(int64_t task, int threads, Result& result) const {
        int64_t first = tiles.first(task);
        for (int64_t s = first; s < first + tiles.width(task); ++s)
            p.v ? pull(s, threads) : project(s, threads, result);
    }

  private:
    Layout layout(int64_t s) const {
        int64_t n = p.offsets[s + 1] - p.offsets[s];
        return {1, n, 1, n, 1, 0};
    }

    void project(int64_t s, int threads, Result& result) const {
        int64_t at = p.offsets[s];
        Project<T> row{
            layout(s), {nullptr, p.k[s]}, {nullptr, p.tau[s]}, p.x + at, p.y + at, nullptr, threads, p.curve};
        int64_t n = row.layout.n;
        if (n == 0) return;
        Result found;
        if (row.curve != Curve::ramp) {
            project_rows(row, 0, 1, row.x, row.y, n, threads, found);
        } else {
            ProjectSink<T> sink{row, 0, n, row.y, threads, found};
            solve_row(Rows<T>{row.x, n, n, 0, 1, row.k, row.tau, threads}, 0, sink);
        }
        if (found.status != Status::ok) fail(result, found.status, s, found.limit);
    }

    void pull(int64_t s, int threads) const {
        int64_t at = p.offsets[s];
        Backward<T> row{layout(s),
                        {nullptr, p.tau[s]},
                        p.x + at,
                        p.v + at,
                        p.y ? p.y + at : nullptr,
                        p.grad_k ? p.grad_k + s : nullptr,
                        p.grad_tau ? p.grad_tau + s : nullptr,
                        threads,
                        p.curve};
        backward(row);
    }
};

template <class T>
Result segments(const Segments<T>& p) {
    if (p.offsets[0] != 0) return {Status::bad_offsets, 0, p.offsets[0]};
    for (int64_t s = 0; s < p.rows; ++s)
        if (p.offsets[s + 1] < p.offsets[s]) return {Status::bad_offsets, s + 1, p.offsets[s + 1]};
    if (p.offsets[p.rows] != p.size) return {Status::bad_offsets, p.rows, p.offsets[p.rows]};
    for (int64_t s = 0; s < p.rows && !p.v; ++s) {
        double n = static_cast<double>(p.offsets[s + 1] - p.offsets[s]);
        if (!(p.tau[s] > 0) || !std::isfinite(p.tau[s])) return {Status::bad_tau, s, 0};
        if (!(p.k[s] >= 0 && p.k[s] <= n)) return {Status::bad_k, s, 0};
    }
    if (p.rows == 0) return {};
    SegmentTasks<T> tasks(p);
    return run_tasks(tasks, tasks.tiles.number, p.size, p.threads);
}

}    // namespace hs::HS_VARIANT
