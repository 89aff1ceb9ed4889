// What the bindings see: problems in numbers and pointers, and one table of functions per SIMD variant.
#pragma once
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

enum class Status : int { ok, no_memory, bad_k, bad_tau, masked_k, bad_label, bad_weight };

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
    T* y;           // may be null: thresholds only
    double* mu;     // may be null: projection only
    const double* start;    // thresholds to start from, or null
    int threads;
};

template <class T>
struct Backward {
    Layout layout;
    PerSlice tau;
    const T* y;
    const T* v;
    T* grad;          // may be null
    double* grad_k;   // may be null
    double* grad_tau; // may be null
    int threads;
};

template <class T>
struct Binary {
    Layout layout;
    PerSlice k;
    const T* x;
    T* y;
    int threads;
};

// The HyperSimplex loss: for every class the logits of all samples and positions are projected, with k the number of
// its labels unless given, and one half of the squared distance to the labels is summed.
template <class T>
struct Loss {
    int64_t samples, classes, positions;
    int64_t sample_stride, class_stride, position_stride;    // of x, grad and dense
    const T* x;
    const int64_t* labels;    // samples x positions, or null
    int64_t ignored;          // the label of rows that are left out
    const T* dense;           // targets where x is, or null
    const double* k;          // per class, or null: the sums of the targets
    bool share;               // k is a share of the samples
    PerSlice tau, weight;
    const double* start;    // thresholds to start from, or null
    double scale;           // the gradient's factor; with `mean` it is divided by the number of samples
    bool mean;
    T* grad;        // may be null
    double* mu;     // per class
    double* k_used; // per class
    double* loss;   // one number: the sum, not the mean
    int64_t* kept;  // one number: samples that count
    int threads;
};

// Passes over columns of scores for an objective of boosted trees: see objective.hpp.
enum class ObjectiveStep : int { count, sums, gap, write };

template <class T>
struct Objective {
    ObjectiveStep step;
    int64_t n, classes, stride, out_stride;    // a column is contiguous; the next one lies a stride further
    const T* x;
    const float* labels;     // may be null for sums
    const float* weights;    // may be null
    const double* mu;        // this and the following: per class
    const double* tau;
    const double* mean;      // the mean error of the active rows
    const double* on;        // the hessian of an active row, of any other
    const double* off;
    const uint8_t* skip;     // classes without interest, or null
    // count: the weight of every class, then of all rows. gap: two numbers a class. sums: five a class, of weights:
    // the active projections, the active rows, the ones, the active targets, the squared errors.
    double* sums;
    float* grad;
    float* hess;
    int threads;
};

// One rank's part of a loss over many ranks' samples, at the thresholds loss.mu + low: see share.hpp.
constexpr int share_numbers = 5;

template <class T>
struct Share {
    Loss<T> loss;          // with grad, or without: then sums are wanted
    const double* low;     // this and the following: per class
    const double* mean;    // the mean error of the active entries of all ranks; read with grad
    double* sums;    // rows of classes: the active projections, the active entries, the ones, their errors, the squares
};

template <class T>
struct Functions {
    Result (*project)(const Project<T>&);
    Result (*backward)(const Backward<T>&);
    Result (*binary)(const Binary<T>&);
    Result (*loss)(const Loss<T>&);
    Result (*share)(const Share<T>&);
    Result (*objective)(const Objective<T>&);
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
};

// The best variant this processor runs, or the one named by HYPERSIMPLEX_SIMD.
const Variant& variant();

// Runs body(context, id, team) on `threads` threads, the caller among them, or on fewer if they cannot be had:
// team.size says how many there are. Fork is safe.
struct Team {
    int size;
    void* barrier;
    void wait() const;
};
void parallel(int threads, void (*body)(void* context, int id, const Team& team), void* context);

// The entries from which on a job is worth sharing out.
int64_t parallel_worth();

// From now on use the threads of the OpenMP runtime in this process; false if there is none.
bool use_openmp();

// Asks the system for large pages under a fresh output array: page faults would cost more than the arithmetic.
void advise_large_pages(void* address, int64_t bytes);

}  // namespace hs
