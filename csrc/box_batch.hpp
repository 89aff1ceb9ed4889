// Rows of box sections in single precision, short ones in step: by itself a row would wait for its sums. Sums
// in single precision lead near the solution; two passes in double end there. What is not plain is left to
// box.hpp.
#pragma once
#include "box_glance.hpp"

namespace hs::HS_VARIANT {

constexpr int most_narrow = 8, most_exact = 4;
constexpr int64_t box_rows = 16, box_rows_entries = 1 << 12;

// A total may lie beyond what the bounds allow by so many eps of the row's own precision, of the bounds'
// size: each product of a weight and a bound is rounded twice, and ten times 0.1 is not 1. More would hide a
// mistake.
constexpr int64_t box_room = 4;

// Where a search begins: as if x/w were normal and the bounds even.
struct BoxGuess {
    double mu, width;
    double each;    // the square of what an entry may add over that of its weight
};

HS_INLINE BoxGuess guess_box(const BoxSurvey& found, double n, double total, double tau) {
    double per = 1 / found.ww, mean = found.wx * per, spread = found.xx * per - mean * mean;
    double range = found.most - found.least, span = range * per;
    double middle = (found.most / 2 + found.least / 2) * per, variance = spread > 0 ? spread : 0;
    double z = quantile(total - found.least, range);
    return {mean - tau * middle + std::sqrt(variance + tau * tau * span * span / 12) * z,
            tau + std::sqrt(variance) / 4, range * range * per / n};
}

// Whether a Newton step from here will very likely end between the same breakpoints as the solution: r over
// what an entry may add is how many change sides on the way, and what is left is a square of that.
HS_INLINE bool is_close(double r, double each, double free) { return r * r <= 0.3 * each * free; }

// At some mu: sum(w y), and the sum of w^2 over the free entries.
struct ExactSums {
    double sum, free;
    void add(const ExactSums& o) { sum += o.sum, free += o.free; }
};

struct ExactAdder {
    using Vec = typename Wide::Vec;
    BoxPlace place;
    Vec all = {}, free = {};
    HS_INLINE void add(const Entries& e) {
        Vec t = place.of(e);
        all = Wide::plus_product(all, e.weight, Wide::min(e.upper, Wide::max(e.lower, t)));
        free = Wide::pick((t > e.lower) & (t < e.upper), Wide::plus_product(free, e.weight, e.weight), free);
    }
    HS_INLINE void join(const ExactAdder& o) { all += o.all, free += o.free; }
    ExactSums sum() const { return {Wide::total(all), Wide::total(free)}; }
};

// Of what was written.
struct WrittenSum {
    double sum;
    void add(const WrittenSum& o) { sum += o.sum; }
};

struct Written {
    typename Wide::Vec y, weight;
};

struct WrittenAdder {
    typename Wide::Vec all = {};
    HS_INLINE void add(const Written& e) { all = Wide::plus_product(all, e.weight, e.y); }
    HS_INLINE void join(const WrittenAdder& o) { all += o.all; }
    WrittenSum sum() const { return {Wide::total(all)}; }
};

template <Given given>
class BoxBatch {
  public:
    BoxBatch(const Box<float>& problem, int threads_within) : p(problem), threads(threads_within) {}

    // Solves rows [from, from + number), box_rows at most. Whether it leaves any, and which.
    bool run(int64_t from, int number, bool* left) {
        first = from, count = number;
        for (int j = 0; j < count; ++j) look(j);
        start();
        for (int j = 0; p.at_most && j < count; ++j)
            if (stage[j] == Stage::far) stay(j);
        bool more = true;
        for (int pass = 0; more && pass < most_narrow; ++pass) more = approach(pass == 0);
        more = true;
        for (int pass = 0; more && pass < most_exact; ++pass) {
            step();
            more = misses(pass ? 4e-15 : 1e-15);
        }
        bool any = false;
        for (int j = 0; j < count; ++j) any |= left[j] = stage[j] != Stage::settled;
        return any;
    }

  private:
    enum class Stage : int8_t { far, near, settled, strange };

    HS_INLINE BoxRow<float> row(int j) const { return box_row(p, p.x, first + j); }

    template <class Sum, class Make>
    HS_INLINE Sum narrow_sums(int j, Make make) const {
        return sum_blocks<Sum>(p.n, threads,
                               [make, narrow = NarrowRow(row(j))](int64_t from, int64_t to)
                                   HS_INLINED { return narrow.template add<given, Sum>(from, to, make); });
    }

    void look(int j) {
        total[j] = p.total[first + j], tau[j] = p.tau[first + j];
        BoxSurvey f = narrow_sums<BoxSurvey>(j, [] { return Glancer{}; });
        least[j] = f.least, most[j] = f.most, size[j] = f.size;
        wx[j] = f.wx, ww[j] = f.ww, xx[j] = f.xx;
    }

    // All rows at once. Those are strange whose numbers are not all finite and right, or whose total is not
    // well within what the bounds allow.
    void start() {
        constexpr double limit = std::numeric_limits<double>::max();
        double n = static_cast<double>(p.n);
        for (int j = 0; j < box_rows; ++j) {
            BoxSurvey f{least[j], most[j], 0, size[j], wx[j], ww[j], xx[j], 0, 0};
            BoxGuess guess = guess_box(f, n, total[j], tau[j]);
            mu[j] = guess.mu, width[j] = guess.width, close_by[j] = guess.each;
            inverse[j] = 1 / tau[j], low[j] = slack[j] = 0;
        }
        for (int j = 0; j < count; ++j) {
            double room = 1e-5 * size[j];
            bool plain = (ww[j] <= limit) & (xx[j] <= limit) & (std::fabs(mu[j]) <= limit) &
                         (total[j] > least[j] + room) & (total[j] < most[j] - room) &
                         (inverse[j] <= static_cast<double>(std::numeric_limits<float>::max()));
            stage[j] = plain ? Stage::far : Stage::strange;
        }
    }

    HS_INLINE BoxPlace place(int j) const { return {mu[j], low[j], inverse[j]}; }

    HS_INLINE ExactSums exact_sums(int j) const {
        return sum_blocks<ExactSums>(
            p.n, threads, [adder = ExactAdder{place(j)}, own = row(j)](int64_t from, int64_t to) HS_INLINED {
                return add_chains<ExactSums>(
                    from, to, [&]() HS_INLINED { return adder; },
                    [&](int64_t i) HS_INLINED { return own.template load<given>(i); },
                    [&](int64_t i, int64_t stop) HS_INLINED { return own.rest(i, stop); });
            });
    }

    // Writes y, and returns sum(w y).
    HS_INLINE double write(int j, const BoxPlace& at) const {
        BoxWriter<float> writer(at, slack[j]);
        auto part = [writer, own = row(j), y = p.y + (first + j) * p.n](int64_t from, int64_t to) HS_INLINED {
            return add_chains<WrittenSum>(
                from, to, []() HS_INLINED { return WrittenAdder{}; },
                [&](int64_t i) HS_INLINED {
                    Entries e = own.template load<given>(i);
                    Written out{writer.of(e), e.weight};
                    store_wide(y + i, out.y);
                    return out;
                },
                [&](int64_t i, int64_t stop) HS_INLINED {
                    Entries e = own.rest(i, stop);
                    Written out{writer.of(e), e.weight};
                    store_some(y + i, out.y, stop - i);
                    return out;
                });
        };
        return sum_blocks<WrittenSum>(p.n, threads, part).sum;
    }

    // A total that may be missed is, if the clipped entries cost less.
    void stay(int j) {
        if (write(j, {0, 0, inverse[j]}) - total[j] > 1e-15 * size[j]) return;
        p.mu[first + j] = 0;
        stage[j] = Stage::settled;
    }

    // Newton steps in single precision; whether another one is needed.
    bool approach(bool is_first) {
        for (int j = 0; j < count; ++j) {
            if (stage[j] != Stage::far) continue;
            NarrowSums at =
                narrow_sums<NarrowSums>(j, [adder = NarrowAdder(mu[j], inverse[j])] { return adder; });
            sum[j] = at.sum, bulk[j] = at.bulk, free[j] = at.free;
        }
        double residual[box_rows], change[box_rows];
        for (int j = 0; j < box_rows; ++j) {
            residual[j] = sum[j] - total[j];
            change[j] = residual[j] * tau[j] / free[j];
        }
        bool more = false;
        for (int j = 0; j < count; ++j) {
            if (stage[j] != Stage::far) continue;
            bool flat = !(free[j] > 0);
            if (flat ? std::fabs(residual[j]) <= 1e-6 * bulk[j]
                     : is_close(residual[j], close_by[j], free[j])) {
                mu[j] += flat ? 0 : change[j], stage[j] = Stage::near;
                continue;
            }
            if (is_first) search[j] = start_at(mu[j], width[j]);
            follow(search[j], residual[j], change[j], !flat);
            mu[j] = search[j].mu, search[j].low = 0;
            more = true;
        }
        return more;
    }

    // Newton steps in double precision.
    void step() {
        for (int j = 0; j < count; ++j) {
            if (stage[j] != Stage::near) continue;
            ExactSums at = exact_sums(j);
            sum[j] = at.sum, free[j] = at.free;
        }
        for (int j = 0; j < box_rows; ++j) {
            bool flat = !(free[j] > 0);
            double change = (sum[j] - total[j]) * tau[j] / free[j], room = 1e-15 * bulk[j] / free[j];
            double moved = low[j] + (flat ? 0 : change), next = mu[j] + moved, back = next - mu[j];
            low[j] = (mu[j] - (next - back)) + (moved - back);
            mu[j] = next;
            slack[j] = flat ? 0 : room;
        }
    }

    // Writes y; whether the sum of some row is not right yet, but for a part of its bulk that is rounding.
    bool misses(double rounding) {
        for (int j = 0; j < count; ++j)
            if (stage[j] == Stage::near) sum[j] = write(j, place(j));
        bool more = false;
        for (int j = 0; j < count; ++j) {
            if (stage[j] != Stage::near) continue;
            if (std::fabs(sum[j] - total[j]) <= rounding * bulk[j])
                stage[j] = Stage::settled, p.mu[first + j] = mu[j] + low[j];
            else more = true;
        }
        return more;
    }

    const Box<float>& p;
    int threads;
    int64_t first = 0;
    int count = 0;
    Stage stage[box_rows];
    Search search[box_rows];
    // A number for each row.
    using Numbers = double[box_rows];
    Numbers total = {}, tau = {}, inverse = {}, size = {}, least = {}, most = {}, wx = {}, ww = {}, xx = {};
    Numbers mu = {}, low = {}, width = {}, close_by = {}, slack = {}, sum = {}, bulk = {}, free = {};
};

}    // namespace hs::HS_VARIANT
