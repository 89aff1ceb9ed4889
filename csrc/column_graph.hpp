// The graph of soft_assignment's columns, for Newton steps on their biases. Two columns are linked by the
// rows that have both inside (0, 1). The second derivative is the Laplacian of the links: their sums on the
// diagonal, less the links elsewhere. Of each part of the graph one column must be held, or a number could be
// added to all of its biases.
#pragma once
#include "blocks.hpp"

namespace hs::HS_VARIANT {

constexpr int most_exchanges = 50;    // of columns held at zero for others

struct Graph {
    int64_t n;
    const double* links;
    const double* bias;
    Scratch<double> degrees, matrix, sides;
    Scratch<int64_t> parts, list, least;
    Scratch<uint8_t> is_free, next;
    int64_t count = 0;    // of free columns, which are listed

    Graph(const ColumnGraph& g) : n(g.columns), links(g.links), bias(g.bias) {}

    double link(int64_t i, int64_t j) const { return links[i * n + j]; }

    // Room for `wide` right sides of the equations.
    bool take(int64_t wide) {
        bool taken = degrees.take(n) && matrix.take(n * n) && sides.take(n * wide) && parts.take(n) &&
                     list.take(n) && least.take(n) && is_free.take(n) && next.take(n);
        if (!taken) return false;
        find_parts();
        for (int64_t i = 0; i < n; ++i) {
            degrees.data[i] = 0;
            for (int64_t j = 0; j < n; ++j) degrees.data[i] += i == j ? 0 : link(i, j);
        }
        return true;
    }

    // For each column the least one of its part.
    void find_parts() {
        for (int64_t i = 0; i < n; ++i) parts.data[i] = -1;
        for (int64_t first = 0; first < n; ++first) {
            if (parts.data[first] >= 0) continue;
            int64_t last = 0;
            auto reach = [&](int64_t i) { parts.data[i] = first, list.data[last++] = i; };
            reach(first);
            for (int64_t at = 0; at < last; ++at)
                for (int64_t j = 0; j < n; ++j)
                    if (parts.data[j] < 0 && link(list.data[at], j) != 0) reach(j);
        }
    }

    // Holds the column that is least by `height` in each part where all are free; the first of equal ones.
    template <class F>
    void ground(uint8_t* free, F height) {
        for (int64_t i = 0; i < n; ++i) least.data[i] = -1;
        for (int64_t i = 0; i < n; ++i)
            if (!free[i]) least.data[parts.data[i]] = n;
        for (int64_t i = 0; i < n; ++i) {
            int64_t& at = least.data[parts.data[i]];
            if (at < 0 || (at < n && height(i) < height(at))) at = i;
        }
        for (int64_t i = 0; i < n; ++i)
            if (least.data[i] >= 0 && least.data[i] < n) free[least.data[i]] = 0;
    }

    void list_free() {
        count = 0;
        for (int64_t i = 0; i < n; ++i)
            if (is_free.data[i]) list.data[count++] = i;
    }

    // Eliminates the equations of the listed columns, whose `wide` right sides become the solutions. The
    // Laplacian outweighs its other entries on the diagonal, so no rows need to change places.
    void solve(int64_t wide) {
        double *a = matrix.data, *b = sides.data;
        auto subtract = [](double* to, const double* from, double times, int64_t size) {
            for (int64_t j = 0; j < size; ++j) to[j] -= times * from[j];
        };
        for (int64_t i = 0; i < count; ++i) {
            a[i * n + i] = degrees.data[list.data[i]];
            for (int64_t j = i + 1; j < count; ++j) a[i * n + j] = -link(list.data[i], list.data[j]);
        }
        for (int64_t k = 0; k < count; ++k) {
            double lowest = 1e-15 * degrees.data[list.data[k]];    // what rounding may leave
            double& pivot = a[k * n + k];
            if (!(pivot > lowest)) pivot = lowest;
            for (int64_t i = k + 1; i < count; ++i) {
                double times = a[k * n + i] / pivot;
                if (times == 0) continue;
                subtract(a + i * n + i, a + k * n + i, times, count - i);
                subtract(b + i * wide, b + k * wide, times, wide);
            }
        }
        for (int64_t k = count - 1; k >= 0; --k) {
            for (int64_t i = k + 1; i < count; ++i) subtract(b + k * wide, b + i * wide, a[k * n + i], wide);
            for (int64_t j = 0; j < wide; ++j) b[k * wide + j] /= a[k * n + k];
        }
    }
};

// The minimum of the quadratic model over bias + move >= 0, by exchanging columns held at zero for others.
struct ColumnStepper {
    const ColumnStep& s;
    Graph graph;
    explicit ColumnStepper(const ColumnStep& step) : s(step), graph(step.graph) {}

    double slack(int64_t i) const { return s.slack * (s.capacity[i] > 1 ? s.capacity[i] : 1); }

    void move_free() {
        graph.list_free();
        for (int64_t i = 0; i < graph.n; ++i) s.move[i] = graph.is_free.data[i] ? 0 : -graph.bias[i];
        for (int64_t a = 0; a < graph.count; ++a) graph.sides.data[a] = left(graph.list.data[a]);
        graph.solve(1);
        for (int64_t a = 0; a < graph.count; ++a) s.move[graph.list.data[a]] = graph.sides.data[a];
    }

    // What the model has over the capacity after the move.
    double left(int64_t i) const {
        double total = s.excess[i] - graph.degrees.data[i] * s.move[i];
        for (int64_t j = 0; j < graph.n; ++j) total += i == j ? 0 : graph.link(i, j) * s.move[j];
        return total;
    }

    Result run() {
        if (!graph.take(1)) return {Status::no_memory, 0, 0};
        uint8_t *free = graph.is_free.data, *next = graph.next.data;
        const double* bias = graph.bias;
        for (int64_t i = 0; i < graph.n; ++i) free[i] = bias[i] > 0 || s.excess[i] > 0;
        graph.ground(free, [&](int64_t i) { return bias[i]; });
        bool same = false;
        for (int round = 0; round < most_exchanges && !same; ++round) {
            move_free();
            s.moved->complete = same = true;
            for (int64_t i = 0; i < graph.n; ++i) {
                bool over = !free[i] && left(i) > slack(i);
                next[i] = free[i] ? bias[i] + s.move[i] > 0 : over;
                if (over) s.moved->complete = false;
            }
            graph.ground(next, [&](int64_t i) { return bias[i] + s.move[i]; });
            for (int64_t i = 0; i < graph.n; ++i) {
                same = same && next[i] == free[i];
                free[i] = next[i];
            }
        }
        measure();
        return {};
    }

    void measure() {
        double longest = 0, sum = 0, squares = 0;
        for (int64_t i = 0; i < graph.n; ++i) longest = std::fmax(longest, std::fabs(s.move[i]));
        for (int64_t i = 0; i < graph.n && longest > 0; ++i) sum += s.move[i] / longest;
        double mean = graph.n ? sum / static_cast<double>(graph.n) : 0;
        for (int64_t i = 0; i < graph.n && longest > 0; ++i) {
            double off = s.move[i] / longest - mean;
            squares += off * off;
        }
        s.moved->longest = longest;
        s.moved->deviation = graph.n ? longest * std::sqrt(squares / static_cast<double>(graph.n)) : 0;
    }
};

inline Result column_step(const ColumnStep& s) { return ColumnStepper(s).run(); }

// Of the Laplacian, on the columns with a bias; 0 elsewhere.
inline Result column_inverse(const ColumnGraph& g, double* inverse) {
    Graph graph(g);
    int64_t n = g.columns;
    if (!graph.take(n)) return {Status::no_memory, 0, 0};
    for (int64_t i = 0; i < n; ++i) graph.is_free.data[i] = g.bias[i] > 0;
    graph.ground(graph.is_free.data, [&](int64_t i) { return g.bias[i]; });
    graph.list_free();
    std::memset(graph.sides.data, 0, static_cast<size_t>(n * n) * sizeof(double));
    for (int64_t a = 0; a < graph.count; ++a) graph.sides.data[a * n + graph.list.data[a]] = 1;
    graph.solve(n);
    for (int64_t i = 0, a = 0; i < n; ++i) {
        bool listed = a < graph.count && graph.list.data[a] == i;
        for (int64_t j = 0; j < n; ++j) inverse[i * n + j] = listed ? graph.sides.data[a * n + j] : 0;
        a += listed;
    }
    return {};
}

inline Result column_parts(const ColumnGraph& g, int64_t* parts) {
    Graph graph(g);
    if (!graph.take(0)) return {Status::no_memory, 0, 0};
    for (int64_t i = 0; i < g.columns; ++i) parts[i] = graph.parts.data[i];
    return {};
}

}    // namespace hs::HS_VARIANT
