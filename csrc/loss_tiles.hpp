// The batch of a loss: its labels as the lanes compare them, and tiles of classes brought into contiguous
// rows.
#pragma once
#include "arrangement.hpp"
#include "loss_rows.hpp"
#include "transpose.hpp"

namespace hs::HS_VARIANT {

template <class T>
struct LossBatch {
    const Loss<T>& p;
    int64_t all, n;              // samples times positions; those that are kept
    Scratch<IntOf<T>> labels;    // of those that are kept
    Scratch<int64_t> places;     // and where they are

    explicit LossBatch(const Loss<T>& problem) : p(problem), all(p.samples * p.positions), n(all) {}

    bool contiguous() const { return n == all && ((p.positions == 1 && p.sample_stride == 1) || n == 1); }

    // Without the ignored ones; counts[c], if asked for, is how many there are of class c.
    Result read_labels(double* counts) {
        if (!p.labels) return {};
        if (!labels.take(all) || !places.take(all)) return {Status::no_memory, 0, 0};
        n = 0;
        for (int64_t i = 0; i < all; ++i) {
            int64_t label = p.labels[i];
            if (label == p.ignored) continue;
            if (label < 0 || label >= p.classes) return {Status::bad_label, i, label};
            labels.data[n] = static_cast<IntOf<T>>(label);
            places.data[n++] = i;
            if (counts) counts[label] += 1;
        }
        return {};
    }

    // work(class, place) for every entry of the logits.
    template <class F>
    void each_entry(F work) const {
        for (int64_t s = 0; s < p.samples; ++s)
            for (int64_t c = 0; c < p.classes; ++c)
                for (int64_t i = 0; i < p.positions; ++i)
                    work(c, s * p.sample_stride + c * p.class_stride + i * p.position_stride);
    }

    // Which one of all entry i of those that are kept is, and where one of all lies in class 0.
    int64_t place(int64_t i) const { return n < all ? places.data[i] : i; }
    int64_t offset(int64_t which) const {
        return which / p.positions * p.sample_stride + which % p.positions * p.position_stride;
    }

    // The gradient of what is left out.
    void clear_ignored() const {
        if (!p.grad || n == all) return;
        for (int64_t which = 0, i = 0; which < all; ++which) {
            if (i < n && places.data[i] == which) {
                ++i;
                continue;
            }
            T* at = p.grad + offset(which);
            for (int64_t c = 0; c < p.classes; ++c) at[c * p.class_stride] = 0;
        }
    }

    // How many classes are brought into rows at a time. A tile stays in the cache, and a wide one reads more
    // of every row of memory; of long columns only one or a few are brought together.
    Tiles tiles() const {
        int64_t bytes = n * static_cast<int64_t>(sizeof(T)), fit = transposed_bytes / bytes;
        int64_t across = most_classes_together * bytes <= transposed_bytes / 2 ? most_classes_together
                         : fit < 1                                             ? 1
                         : fit > transposed_tile                               ? transposed_tile
                                                                               : fit;
        return {p.classes, for_each_thread<T>(across, p.classes, n * p.classes, p.threads)};
    }
};

constexpr int64_t gathered = 64;    // entries whose places are found at a time

template <class T>
struct LossTile {
    const LossBatch<T>& batch;
    int64_t first, count, from, n;    // of the classes; of the entries that are kept
    int64_t spacing;
    bool direct = false;    // the classes are rows where they lie
    T *x = nullptr, *dense = nullptr;
    Scratch<T> rows;

    LossTile(const LossBatch<T>& b, int64_t first_class, int64_t classes, int64_t begin, int64_t end)
        : batch(b),
          first(first_class),
          count(classes),
          from(begin),
          n(end - begin),
          spacing((n + 15) / 16 * 16 + 16) {}

    LossTile(const LossBatch<T>& b, int64_t first_class, int64_t classes)
        : LossTile(b, first_class, classes, 0, b.n) {
        const Loss<T>& p = b.p;
        direct = b.contiguous();
        if (!direct) return;
        spacing = p.class_stride;
        x = const_cast<T*>(p.x) + first * p.class_stride;
        if (p.dense) dense = const_cast<T*>(p.dense) + first * p.class_stride;
    }

    bool load(int threads) {
        if (direct) return true;
        const Loss<T>& p = batch.p;
        if (!rows.take((p.dense ? 2 : 1) * spacing * count)) return false;
        move<false>(const_cast<T*>(p.x), x = rows.data, threads);
        if (p.dense) move<false>(const_cast<T*>(p.dense), dense = rows.data + spacing * count, threads);
        return true;
    }
    void store(T* array, int threads) {
        if (!direct) move<true>(array, x, threads);
    }
    Targets<T> targets(int64_t j) const {
        return {batch.labels.data ? batch.labels.data + from : nullptr, static_cast<IntOf<T>>(first + j),
                dense ? dense + j * spacing : nullptr};
    }

  private:
    // Between an array like the logits and contiguous rows of the entries that are kept.
    template <bool out>
    void move(T* array, T* to, int threads) const {
        in_blocks(n, threads, [&](int64_t begin, int64_t end) { move_part<out>(array, to, begin, end); });
    }

    template <bool out>
    void move_part(T* array, T* to, int64_t begin, int64_t end) const {
        const Loss<T>& p = batch.p;
        if (batch.n == batch.all && p.positions == 1 && p.class_stride == 1) {
            T* there = array + first + (from + begin) * p.sample_stride;
            if constexpr (out)
                return transpose<T>(to + begin, spacing, there, p.sample_stride, count, end - begin);
            else return transpose<T>(there, p.sample_stride, to + begin, spacing, end - begin, count);
        }
        for (int64_t i = begin; i < end; i += gathered)
            move_some<out>(array + first * p.class_stride, to + i, from + i,
                           end - i < gathered ? end - i : gathered);
    }

    // A few entries: where they lie is found once for all classes. What lies together is moved together: the
    // classes of an entry, or entries of a class.
    template <bool out>
    void move_some(T* array, T* to, int64_t entry, int64_t number) const {
        int64_t stride = batch.p.class_stride;
        T *at[gathered], block[gathered * most_classes_together];
        for (int64_t i = 0; i < number; ++i) at[i] = array + batch.offset(batch.place(entry + i));
        if (stride == 1) {
            if constexpr (out) transpose<T>(to, spacing, block, count, count, number);
            for (int64_t i = 0; i < number; ++i) copy<out>(at[i], block + i * count, count);
            if constexpr (!out) transpose<T>(block, count, to, spacing, number, count);
            return;
        }
        for (int64_t i = 0, run = 1; i < number; i += run, run = 1) {
            while (i + run < number && at[i + run] == at[i] + run) ++run;
            for (int64_t j = 0; j < count; ++j) copy<out>(at[i] + j * stride, to + j * spacing + i, run);
        }
    }

    template <bool out>
    static HS_INLINE void copy(T* there, T* here, int64_t number) {
        std::memcpy(out ? there : here, out ? here : there, static_cast<size_t>(number) * sizeof(T));
    }
};

}    // namespace hs::HS_VARIANT
