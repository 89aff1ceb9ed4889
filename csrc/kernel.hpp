// What the bindings see: problems in numbers and pointers, and one table of functions per SIMD variant.
#pragma once
#include <atomic>
#include <cstdint>

namespace hs {

// Element i of slice (o, j) lies at o * outer_stride + i * stride + j * inner_stride, in elements.
struct Layout {
    int64_t outer, n, inner;
    int64_t outer_stride, stride, inner_stride;
    int64_t slices() const { return outer * inner; }
    int64_t origin(int64_t slice) const {
        if (inner == 1) return slice * outer_stride;
        return slice / inner * outer_stride + slice % inner * inner_stride;
    }
};

// A number for every slice, or one for all of them.
struct PerSlice {
    const double* values;
    double scalar;
    double operator[](int64_t slice) const { return values ? values[slice] : scalar; }
};

// How an entry rises from 0 to 1: y = S((x - mu)/tau), see curves.hpp.
enum class Curve : int { ramp, exp, logistic, laplace };
constexpr int curves = 4;

enum class Status : int {
    ok,
    no_memory,
    bad_k,
    bad_tau,
    masked_k,
    bad_label,
    bad_weight,
    bad_bounds,
    bad_total,
    bad_offsets
};

struct Result {
    Status status = Status::ok;
    int64_t slice = -1;    // the first slice that failed
    int64_t limit = 0;     // masked_k: how many entries are not -inf; bad_label: the label
};

template <class T>
struct Project {
    Layout layout;
    PerSlice k, tau;
    const T* x;
    T* y;          // may be null: thresholds only
    double* mu;    // may be null: projection only
    int threads;
    Curve curve = Curve::ramp;
};

template <class T>
struct Backward {
    Layout layout;
    PerSlice tau;
    const T* y;
    const T* v;
    T* grad;             // may be null
    double* grad_k;      // may be null
    double* grad_tau;    // may be null
    int threads;
    Curve curve = Curve::ramp;
};

// Selection is worth a task of its own, and worth other threads, from so many entries on.
constexpr int64_t binary_task = 1 << 12, binary_worth = 1 << 13;

template <class T>
struct Binary {
    Layout layout;
    PerSlice k;
    const T* x;
    T* y;
    int threads;
};

// The HyperSimplex loss: for every class the logits of all samples and positions are projected, with k the
// number of its labels unless given, and one half of the squared distance to the labels is summed.
template <class T>
struct Loss {
    int64_t samples, classes, positions;
    int64_t sample_stride, class_stride, position_stride;    // of x, grad and dense
    const T* x;
    const int64_t* labels;    // samples x positions, or null
    int64_t ignored;          // the label of rows that are left out
    const T* dense;           // targets where x is, or null
    const double* k;          // per class, or null: the sums of the targets
    bool k_is_fraction;       // of the samples
    PerSlice tau, weight;
    bool mean;         // the gradient is of the mean over the samples, not of the sum
    T* grad;           // may be null
    double* mu;        // per class
    double* k_used;    // per class
    double* loss;      // one number: the sum, not the mean
    int64_t* kept;     // one number: samples that count
    int threads;
};

// Passes over columns of scores for an objective of boosted trees: see objective.hpp.
enum class ObjectiveStep : int { count, sums, gap, write };

template <class T>
struct Objective {
    ObjectiveStep step;
    int64_t n, classes, stride;    // a column of x is contiguous; the next one lies a stride further
    const T* x;
    const float* labels;     // may be null for sums
    const float* weights;    // may be null
    const double* mu;        // this and the following: per class
    const double* tau;
    const double* mean;    // the mean error of the active rows
    const double* on;      // the hessian of an active row, of any other
    const double* off;
    const uint8_t* skip;    // classes without interest, or null
    // count: the weight of every class, then of all rows. gap: two numbers a class. sums: five a class, of
    // weights: the active projections, the active rows, the ones, the active targets, the squared errors.
    double* sums;
    float* grad;
    float* hess;
    int threads;
};

// One rank's part of a loss over many ranks' samples, at the thresholds loss.mu + low: see at_thresholds.hpp.
constexpr int loss_sums = 5;

template <class T>
struct LossAt {
    Loss<T> loss;          // with grad, or without: then sums are wanted
    const double* low;     // this and the following: per class
    const double* mean;    // the mean error of the active entries of all ranks; read with grad
    double* sums;    // rows of classes: the active projections, the active entries, the ones, their errors,
                     // the squares
};

// Numbers for the entries of rows: entry i of row r lies at r * row_stride + i * step, step being 0 or 1, in
// double precision or, if singles are given, in single.
struct PerEntry {
    const double* values;
    int64_t row_stride, step;
    const float* singles = nullptr;
};

// The nearest point to x/tau with lower <= y <= upper and sum(weight * y) = total, for contiguous rows: see
// box.hpp.
template <class T>
struct Box {
    int64_t rows, n;
    PerSlice total, tau;
    PerEntry lower, upper, weight;
    bool at_most;    // the sum may be smaller
    const T* x;
    T* y;
    double* mu;    // y = clip((x - mu weight)/tau, lower, upper)
    int threads;
};

// The gradients of sum(v y), y a box section: see box_backward.hpp. What is null is not wanted; what is for
// entries has the shape of y, though what it is for may have been one number.
template <class T>
struct BoxBackward {
    int64_t rows, n;
    PerSlice tau;
    PerEntry lower, upper, weight;
    bool at_most;
    const T* y;
    const T* v;
    const double* mu;
    T *grad, *to_lower, *to_upper, *to_weight;
    double *to_total, *to_tau;
    int threads;
    bool one_v = false;    // v is one number for all entries
};

// Rows of different lengths one after the other, the projection of each: see segments.hpp. Offsets: one more
// than there are rows.
template <class T>
struct Segments {
    int64_t rows, size;
    const int64_t* offsets;
    PerSlice k, tau;
    const T* x;    // with v: the projection
    const T* v;    // null: the projection is wanted. Else its gradients
    T* y;          // the projection, or the gradient to x; this and the following may be null with v
    double* grad_k;
    double* grad_tau;
    int threads;
    Curve curve = Curve::ramp;
};

// Rows of `columns` entries: their sums, and for each pair of columns the sum of 1/r over the rows where both
// lie between low and high, r the number of entries of the row that do. 0 on the diagonal. NaN counts for
// nothing.
template <class T>
struct Coactive {
    int64_t rows, columns;
    const T* v;
    double low, high;
    double* sums;      // may be null
    double* matrix;    // may be null
    int threads;
};

// The links between columns, a symmetric matrix whose diagonal is not read, and their biases: see
// column_graph.hpp.
struct ColumnGraph {
    int64_t columns;
    const double* links;
    const double* bias;    // parts do without
};

struct ColumnMoved {
    bool complete;    // the model has a minimum: a part of the graph that is too full as a whole has not
    double longest, deviation;
};

struct ColumnStep {
    ColumnGraph graph;
    const double* excess;    // over the capacity
    const double* capacity;
    double slack;    // that is no excess, relative to the capacity
    double* move;
    ColumnMoved* moved;
};

template <class T>
struct Functions {
    Result (*project)(const Project<T>&);
    Result (*backward)(const Backward<T>&);
    Result (*binary)(const Binary<T>&);
    Result (*loss)(const Loss<T>&);
    Result (*loss_at)(const LossAt<T>&);
    Result (*objective)(const Objective<T>&);
    Result (*box)(const Box<T>&);
    Result (*box_backward)(const BoxBackward<T>&);
    Result (*segments)(const Segments<T>&);
    Result (*coactive)(const Coactive<T>&);
};

// A size at which the kernel changes its way of working: tests are built around them.
struct Constant {
    const char* name;
    int64_t value;
};

struct Variant {
    const char* name;
    bool (*supported)();
    const Constant* constants;    // the last one has no name
    Functions<float> f32;
    Functions<double> f64;
    Result (*column_step)(const ColumnStep&);
    Result (*column_inverse)(const ColumnGraph&, double* inverse);
    Result (*column_parts)(const ColumnGraph&, int64_t* parts);    // the least column of each one's part
};

// The best variant this processor runs, or the one named by HYPERSIMPLEX_SIMD.
const Variant& variant();

template <class T>
const Functions<T>& functions(const Variant& v = variant()) {
    if constexpr (sizeof(T) == 4) return v.f32;
    else return v.f64;
}

constexpr int most_threads = 64;

// Runs work(context, block) once for each of `blocks` blocks, by the caller and up to `threads` - 1 others.
// Each begins with its own part of the blocks and then takes from the others', so a thread that is not
// scheduled holds up nobody, but for the block it holds.
void each_block(int threads, int64_t blocks, void (*work)(void* context, int64_t block), void* context);

// The failure with the lowest slice, whoever reports it first.
struct Failure {
    Result first;
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    void add(const Result& other);
};

constexpr int64_t large_page = 2 << 20;    // bytes

void advise_large_pages(void* address, int64_t bytes);

// Asks the system for large pages under a fresh output array that may hold one: page faults would cost more
// than the arithmetic.
template <class T>
T* on_large_pages(T* output, int64_t entries) {
    int64_t bytes = entries * static_cast<int64_t>(sizeof(T));
    if (output && bytes >= large_page) advise_large_pages(output, bytes);
    return output;
}

}    // namespace hs
