// The nearest point to x/tau within bounds and on a weighted budget, for rows: the search of newton.hpp with
// another sum. sum(w clip((x - mu w)/tau, lower, upper)) falls as mu rises, along pieces of slope
// -(sum of w^2 over the free entries)/tau.
#pragma once
#include "box_passes.hpp"

namespace hs::HS_VARIANT {

// The number with as many floating-point numbers above it, up to b, as below it, down to a.
inline double halfway(double a, double b) {
    auto key = [](double v) {
        int64_t bits;
        std::memcpy(&bits, &v, sizeof v);
        return bits < 0 ? std::numeric_limits<int64_t>::min() - bits : bits;
    };
    int64_t from = key(a), to = key(b), middle = (from & to) + ((from ^ to) >> 1);
    middle = middle < 0 ? std::numeric_limits<int64_t>::min() - middle : middle;
    double out;
    std::memcpy(&out, &middle, sizeof out);
    return out;
}

template <class T>
class BoxSolver {
  public:
    BoxSolver(const Box<T>& problem, int64_t row, int threads_within)
        : p(problem),
          slice(row),
          threads(threads_within),
          total(p.total[row]),
          tau(p.tau[row]),
          row(box_row(p, p.x, row)) {}

    void run(Result& result) {
        BoxSurvey found = survey<true>();
        if (!std::isfinite(found.size + found.ww + found.xx) || found.wrong > 0) found = survey<false>();
        if (found.wrong > 0) return complain(result);
        double eps = static_cast<double>(std::numeric_limits<T>::epsilon()), room = 4 * eps * found.size;
        if (found.nan > 0) found.most = std::numeric_limits<double>::infinity();
        bool enough = p.at_most || total <= found.most + room;
        if (!(total >= found.least - room && enough)) return fail(result, Status::bad_total, slice);
        if (found.nan > 0) return fill_nan();
        if (found.certain > 0 && found.least + found.certain > total) return share(result);
        solve(found);
    }

  private:
    T* out() const { return p.y + slice * p.n; }

    template <bool finite>
    BoxSurvey survey() const {
        return sum_blocks<BoxSurvey>(p.n, threads, [&](int64_t from, int64_t to) {
            return add_entries<BoxSurvey>(row, from, to, Surveyor<finite>{});
        });
    }

    BoxSums sums(double mu, double low) const {
        return sum_blocks<BoxSums>(p.n, threads, [&](int64_t from, int64_t to) {
            return add_entries<BoxSums>(row, from, to, BoxAdder{{mu, low, row.inverse}});
        });
    }

    void write(double mu, double low, double slack) const {
        in_blocks(p.n, threads,
                  [&](int64_t from, int64_t to) { write_box(row, out(), from, to, mu, low, slack); });
        p.mu[slice] = mu + low;
    }

    void solve(const BoxSurvey& found) const {
        double inf = std::numeric_limits<double>::infinity(), rounding = 1e-15 * found.size;
        if (p.at_most && !(residual(sums(0, 0)) > rounding)) return write(0, 0, 0);
        if (total <= found.least + rounding) return saturate(row.lower, inf);
        if (total >= found.most - rounding) return saturate(row.upper, -inf);
        Search s = start(found);
        BoxSums last = hunt(s, [&](double mu, double low) { return sums(mu, low); });
        if (s.settled) return finish(s.mu, s.low, last);
        // Two neighbors among the numbers have the solution between them: measured from the nearer one.
        double gap = s.hi - s.lo;
        bool up = residual(sums(s.hi, -gap / 2)) > 0;
        double origin = up ? s.hi : s.lo;
        Search within = start_at(up ? -gap / 4 : gap / 4, gap);
        within.lo = up ? -gap / 2 : 0;
        within.hi = up ? 0 : gap / 2;
        last = hunt(within, [&](double mu, double low) { return sums(origin, mu + low); });
        finish(origin, within.mu + within.low, last);
    }

    double residual(const BoxSums& at) const { return at.free_sum - (total - at.fixed); }

    // As if x/w were normal and the bounds even; where there are none, as if every entry were free.
    Search start(const BoxSurvey& found) const {
        double each = found.ww > 0 ? 1 / found.ww : 0, mean = found.wx * each;
        double variance = found.xx * each > mean * mean ? found.xx * each - mean * mean : 0;
        double span = (found.most - found.least) * each, middle = (found.most / 2 + found.least / 2) * each;
        double mu = mean - tau * total * each;
        if (std::isfinite(span)) {
            double z = quantile(total - found.least, found.most - found.least);
            mu = mean - tau * middle + std::sqrt(variance + tau * tau * span * span / 12) * z;
        }
        Search s = start_at(std::isfinite(mu) ? mu : 0,
                            tau + (std::isfinite(variance) ? std::sqrt(variance) / 4 : 1));
        if (p.at_most) {    // at 0 the sum is too large
            s.lo = 0;
            s.mu = s.mu > 0 ? s.mu : s.width;
            s.r_lo = 1;
        }
        return s;
    }

    // Ends settled, or with neighbors for a bracket: after some steps every other one halves what is left.
    template <class F>
    BoxSums hunt(Search& s, F at) const {
        constexpr double most = std::numeric_limits<double>::max();
        BoxSums found{0, 0, 0, 0};
        for (int pass = 0;; ++pass) {
            found = at(s.mu, s.low);
            double r = residual(found), size = std::fabs(r);
            bool noise = size <= 2e-14 * found.bulk && size > s.last / 2;
            s.settled = !(size > 4e-16 * found.bulk) || noise;
            if (s.settled) return found;
            double change = r * tau / found.free;
            s.settled = found.free > 0 && s.low + change == s.low;    // nothing better exists
            if (s.settled) return found;
            s.last = size;
            follow(s, r, change, found.free > 0);
            if (pass < most_passes || pass % 2) continue;
            s.lo = s.lo > -most ? s.lo : -most;
            s.hi = s.hi < most ? s.hi : most;
            s.mu = halfway(s.lo, s.hi);
            s.low = 0;
            if (s.mu <= s.lo || s.mu >= s.hi) return found;
        }
    }

    void finish(double mu, double low, const BoxSums& at) const {
        double each = at.free > 0 ? 1e-15 * at.bulk / at.free : 0;
        write(mu, low, each);
    }

    // Every entry at its bound, but for those that are masked.
    void saturate(const Series& bound, double mu) const {
        T* y = out();
        for (int64_t i = 0; i < p.n; ++i) {
            bool masked = row.x[i] == -std::numeric_limits<T>::infinity();
            y[i] = static_cast<T>(masked ? row.lower[i] : bound[i]);
        }
        p.mu[slice] = mu;
    }

    // More entries at +inf than there is budget: they share it as equals would, and the others have nothing.
    void share(Result& result) const {
        Scratch<T> equals;
        if (!equals.take(p.n)) return fail(result, Status::no_memory, slice);
        constexpr T inf = std::numeric_limits<T>::infinity();
        for (int64_t i = 0; i < p.n; ++i) equals.data[i] = row.x[i] == inf ? T(0) : -inf;
        Box<T> other = p;
        other.x = equals.data - slice * p.n;
        other.at_most = false;    // what they would have without it is not in their x
        BoxSolver<T>(other, slice, threads).run(result);
        p.mu[slice] = inf;
    }

    void fill_nan() const {
        T* y = out();
        for (int64_t i = 0; i < p.n; ++i) y[i] = std::numeric_limits<T>::quiet_NaN();
        p.mu[slice] = std::numeric_limits<double>::quiet_NaN();
    }

    void complain(Result& result) const {
        for (int64_t i = 0; i < p.n; ++i) {
            double w = row.weight[i];
            if (!(w > 0 && std::isfinite(w))) return fail(result, Status::bad_weight, slice, i);
            if (!(row.lower[i] <= row.upper[i])) return fail(result, Status::bad_bounds, slice, i);
        }
    }

    const Box<T>& p;
    int64_t slice;
    int threads;
    double total, tau;
    BoxRow<T> row;
};

template <class T>
struct BoxTasks {
    const Box<T>& p;
    Tiles tiles;
    explicit BoxTasks(const Box<T>& problem) : p(problem), tiles(box_tiles(p)) {}
    void run(int64_t task, int threads, Result& result) const {
        int64_t first = tiles.first(task);
        for (int64_t r = first; r < first + tiles.width(task); ++r) BoxSolver<T>(p, r, threads).run(result);
    }
};

template <class T>
Result box(const Box<T>& p) {
    for (int64_t s = 0; s < p.rows; ++s)
        if (!(p.tau[s] > 0) || !std::isfinite(p.tau[s])) return {Status::bad_tau, s, 0};
    if (p.rows == 0) return {};
    BoxTasks<T> tasks(p);
    return run_tasks(tasks, tasks.tiles.number, p.rows * p.n, p.threads);
}

}    // namespace hs::HS_VARIANT
