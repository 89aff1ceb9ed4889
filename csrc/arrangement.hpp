// How the slices of an array lie in memory, and how they are cut into tasks.
#pragma once
#include "blocks.hpp"

namespace hs::HS_VARIANT {

constexpr int most_slices = 128, narrow_columns = 16;
constexpr int64_t transposed_bytes = 1 << 20, transposed_tile = 16, task_entries = 1 << 15, task_rows = 256;

// Slices that are contiguous; columns short enough to be transposed in the cache; longer columns, whose rows
// of memory are read as they lie; and anything else.
enum class Arrangement { rows, transposed, columns, scattered };

// Few columns without gaps: several rows of memory fill one register.
inline bool are_narrow(const Layout& l) { return l.inner < narrow_columns && l.stride == l.inner; }

template <class T>
bool are_columns(const Layout& l) {
    return l.inner_stride == 1 && (are_narrow(l) || l.inner >= Lanes<T>::width);
}

template <class T>
Arrangement arrangement(const Layout& l) {
    if (l.stride == 1 || l.n == 1) return Arrangement::rows;
    bool together =
        l.inner_stride == 1 && l.n * transposed_tile * static_cast<int64_t>(sizeof(T)) <= transposed_bytes;
    return together            ? Arrangement::transposed
           : are_columns<T>(l) ? Arrangement::columns
                               : Arrangement::scattered;
}

// Columns in tiles: of one width but for the last, or even, with widths that differ by one at most. Registers
// that lie over columns need the latter: there no tile may be narrower than a register.
struct Tiles {
    int64_t columns, most, number;
    bool even;
    Tiles(int64_t all, int64_t at_most, bool evenly = false)
        : columns(all), most(at_most), number((all + at_most - 1) / at_most), even(evenly) {}
    int64_t first(int64_t tile) const {
        if (!even) return tile * most < columns ? tile * most : columns;
        int64_t wider = columns % number;
        return columns / number * tile + (tile < wider ? tile : wider);
    }
    int64_t width(int64_t tile) const { return first(tile + 1) - first(tile); }
};

// Narrower tiles where otherwise a thread would have none, but not narrower than a register: transposing
// those is slow.
template <class T>
int64_t for_each_thread(int64_t across, int64_t columns, int64_t entries, int threads) {
    int64_t each = (columns + threads - 1) / threads;
    return threads < 2 || entries < parallel_worth || each < Lanes<T>::width || each > across ? across : each;
}

}    // namespace hs::HS_VARIANT
