// Compiled once for each instruction set, with HS_VARIANT naming its namespace. Only headers whose inline
// functions live in that namespace are used here: a shared inline function compiled for AVX2 must not be
// linked into the rest.
#include "at_thresholds.hpp"
#include "backward.hpp"
#include "box.hpp"
#include "box_backward.hpp"
#include "coactive.hpp"
#include "column_graph.hpp"
#include "kernel.hpp"
#include "loss.hpp"
#include "objective.hpp"
#include "project_tasks.hpp"
#include "segments.hpp"

namespace hs {
Result binary_f32(const Binary<float>&);
Result binary_f64(const Binary<double>&);

namespace HS_VARIANT {

static bool supported() {
#if defined(__x86_64__) && defined(__GNUC__) && defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
#elif defined(__x86_64__) && defined(__GNUC__) && defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

static const Constant constants[] = {
    {"float32_lanes", Lanes<float>::width},
    {"float64_lanes", Lanes<double>::width},
    {"rows_side_by_side_longest", longest_side_by_side<float>},
    {"rows_side_by_side_longest_double", longest_side_by_side<double>},
    {"rows_side_by_side_run", precise_run},
    {"rows_side_by_side_most", most_side_by_side},
    {"short_row", short_row},
    {"task_rows", task_rows},
    {"task_entries", task_entries},
    {"sampled_row", sampled_row},
    {"parallel_row", parallel_row},
    {"parallel_worth", parallel_worth},
    {"block_entries", block_entries},
    {"most_blocks", most_blocks},
    {"most_threads", most_threads},
    {"transposed_bytes", transposed_bytes},
    {"transposed_columns", transposed_tile},
    {"column_tile", most_slices},
    {"column_chunks", most_chunks},
    {"narrow_columns", narrow_columns},
    {"loss_wide_tile", most_classes_together},
    {"loss_gathered", gathered},
    {"backward_held", most_held * Lanes<float>::width},
    {"backward_held_double", most_held * Lanes<double>::width},
    {"backward_rows_bytes", rows_bytes},
    {"backward_rows_most", most_rows},
    {"backward_fetched", fetched_row},
    {"binary_task", binary_task},
    {"binary_worth", binary_worth},
    {"task_segments", task_segments},
    {"curve_rows_most", most_curve_rows},
    {"curve_rows_entries", curve_rows_entries},
    {"box_rows", box_rows},
    {"box_rows_entries", box_rows_entries},
    {"box_room", box_room},
    {"coactive_rows", coactive_rows},
    {"coactive_blocks", coactive_blocks},
    {"coactive_gathered", coactive_gathered},
    {nullptr, 0},
};

#define HS_TEXT_(x) #x
#define HS_TEXT(x) HS_TEXT_(x)
extern const Variant table;
const Variant table = {
    HS_TEXT(HS_VARIANT),
    supported,
    constants,
    {project<float>, backward<float>, binary_f32, loss<float>, loss_at<float>, objective<float>, box<float>,
     box_backward<float>, segments<float>, coactive<float>},
    {project<double>, backward<double>, binary_f64, loss<double>, loss_at<double>, objective<double>,
     box<double>, box_backward<double>, segments<double>, coactive<double>},
    column_step,
    column_inverse,
    column_parts};

}    // namespace HS_VARIANT
}    // namespace hs
