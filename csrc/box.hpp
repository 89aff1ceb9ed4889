// The nearest point to x/tau within bounds and on a weighted budget, for rows: the search of newton.hpp with
// another sum. sum(w clip((x - mu w)/tau, lower, upper)) falls as mu rises, along pieces of slope
// -(sum of w^2 over the free entries)/tau.
#pragma once
#include <optional>

#include "box_glance.hpp"

namespace hs::HS_VARIANT {

constexpr int most_narrow = 8;

// One row, a pass at a time: begin() looks at it, advance() makes a pass. Both say whether any is left to do.
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

    bool begin(Result& result) {
        BoxSurvey found;
        if (glance(found)) return solve(found);
        found = survey<true>();
        if (!std::isfinite(found.size + found.ww + found.xx) || found.wrong > 0) found = survey<false>();
        if (found.wrong > 0) return complain(result);
        double eps = static_cast<double>(std::numeric_limits<T>::epsilon()), room = 4 * eps * found.size;
        if (found.nan > 0) found.most = std::numeric_limits<double>::infinity();
        bool enough = p.at_most || total <= found.most + room;
        if (!(total >= found.least - room && enough)) return refuse(result, Status::bad_total, 0);
        if (found.nan > 0) return fill_nan();
        if (found.certain > 0 && found.least + found.certain > total) return share(result);
        return solve(found);
    }

    bool advance() {
        if (narrow_left > 0) return approach();
        Hunt found = hunt();
        if (found == Hunt::cornered && !within) return look_between();
        if (found == Hunt::cornered) write(here(), slack(sums(here())));
        if (found != Hunt::unsettled) p.mu[slice] = origin + (s.mu + s.low);
        return found == Hunt::unsettled;
    }

  private:
    enum class Hunt { unsettled, settled, cornered };

    T* out() const { return p.y + slice * p.n; }

    template <bool finite>
    BoxSurvey survey() const {
        return sum_blocks<BoxSurvey>(p.n, threads, [&](int64_t from, int64_t to) {
            return add_entries<BoxSurvey>(row, from, to, [] { return Surveyor<finite>{}; });
        });
    }

    // Whether everything is finite and right, and the total well within what the bounds allow.
    bool glance(BoxSurvey& found) const {
        if constexpr (sizeof(T) == 4) {
            if (p.n == 0 || !NarrowRow::serves(row)) return false;
            NarrowRow narrow(row);
            found = sum_blocks<BoxSurvey>(p.n, threads, [&](int64_t from, int64_t to) {
                return narrow.add<BoxSurvey>(from, to, [] { return Glancer{}; });
            });
            double room = 1e-5 * found.size, n = static_cast<double>(p.n);
            return std::isfinite(found.size + found.ww + found.xx) && -found.wrong == n &&
                   total > found.least + room && total < found.most - room;
        }
        return false;
    }

    BoxSums sums(const BoxPlace& at) const {
        return sum_blocks<BoxSums>(p.n, threads, [&](int64_t from, int64_t to) {
            return add_entries<BoxSums>(row, from, to, [&] { return BoxAdder<true>{at}; });
        });
    }

    // The same but for the bulk, and writes y.
    BoxSums write(const BoxPlace& at, double room) const {
        return sum_blocks<BoxSums>(p.n, threads, [&](int64_t from, int64_t to) {
            return write_box(row, out(), from, to, at, room);
        });
    }

    static double slack(const BoxSums& at) { return at.free > 0 ? 1e-15 * at.bulk / at.free : 0; }

    BoxPlace place(double mu, double low) const { return {mu, low, row.inverse}; }
    BoxPlace here() const { return within ? place(origin, s.mu + s.low) : place(s.mu, s.low); }

    double residual(const BoxSums& at) const { return at.free_sum - (total - at.fixed); }

    bool solve(const BoxSurvey& found) {
        double inf = std::numeric_limits<double>::infinity(), rounding = 1e-15 * found.size;
        if (p.at_most && !(residual(write(place(0, 0), 0)) > rounding)) {
            p.mu[slice] = 0;
            return false;
        }
        if (total <= found.least + rounding) return saturate(row.lower, inf);
        if (total >= found.most - rounding) return saturate(row.upper, -inf);
        s = start(found);
        double span = found.most - found.least, widest = std::isfinite(span) ? span : total;
        each = widest * widest / (static_cast<double>(p.n) * found.ww);
        if constexpr (sizeof(T) == 4) {
            bool carries = row.inverse <= static_cast<double>(std::numeric_limits<float>::max());
            narrow_left = carries && NarrowRow::serves(row) ? most_narrow : 0;
        }
        return true;
    }

    // Two neighbors among the numbers have the solution between them: measured from the nearer one.
    bool look_between() {
        double gap = s.hi - s.lo;
        bool up = residual(sums(place(s.hi, -gap / 2))) > 0;
        origin = up ? s.hi : s.lo;
        s = start_at(up ? -gap / 4 : gap / 4, gap);
        s.lo = up ? -gap / 2 : 0;
        s.hi = up ? 0 : gap / 2;
        within = true, near = false, pass = 0;
        return true;
    }

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

    // Whether a Newton step from here will very likely end between the same breakpoints as the solution: r
    // over what an entry may add is how many change sides on the way, and what is left is a square of that.
    bool is_close(double r, double free) const { return r * r <= 0.3 * each * free; }

    // A Newton step in single precision.
    bool approach() {
        if constexpr (sizeof(T) == 4) {
            NarrowRow narrow(row);
            NarrowSums at = sum_blocks<NarrowSums>(p.n, threads, [&](int64_t from, int64_t to) {
                return narrow.add<NarrowSums>(from, to, [&] { return NarrowAdder(s.mu, row.inverse); });
            });
            double r = at.sum - total, change = r * tau / at.free;
            bool close = is_close(r, at.free) && at.free > 0;
            if (close) s.mu += change;
            else if (std::isfinite(r)) follow(s, r, change, at.free > 0);
            s.low = 0;
            --narrow_left;
            if (close || !narrow_left || !std::isfinite(r)) start_again();
        }
        return true;
    }

    // What sums in single precision say of the bracket may be wrong.
    void start_again() {
        s = start_at(s.mu, s.width);
        narrow_left = 0;
        if (p.at_most) s.lo = 0, s.r_lo = 1;
    }

    // A Newton step. Settled, y is written. After some steps every other one halves what is left, until two
    // neighbors are the bracket.
    Hunt hunt() {
        constexpr double most = std::numeric_limits<double>::max();
        BoxSums found = near ? write(here(), slack(before)) : sums(here());
        if (near) found.bulk = before.bulk;
        double r = residual(found), size = std::fabs(r), change = r * tau / found.free;
        bool noise = size <= 2e-14 * found.bulk && size > s.last / 2;
        // A step that crossed no breakpoint is exact.
        bool exact = found.free == before.free && found.fixed == before.fixed && size <= 4e-15 * found.bulk;
        if (!(size > 4e-16 * found.bulk) || noise || exact || s.low + change == s.low) {
            if (!near) write(here(), slack(found));
            return Hunt::settled;
        }
        near = is_close(r, found.free);
        before = found;
        s.last = size;
        follow(s, r, change, found.free > 0);
        if (pass++ < most_passes || pass % 2 == 0) return Hunt::unsettled;
        s.lo = s.lo > -most ? s.lo : -most;
        s.hi = s.hi < most ? s.hi : most;
        s.mu = halfway(s.lo, s.hi);
        s.low = 0;
        return s.mu <= s.lo || s.mu >= s.hi ? Hunt::cornered : Hunt::unsettled;
    }

    // Every entry at its bound, but for those that are masked.
    bool saturate(const Series& bound, double mu) const {
        T* y = out();
        for (int64_t i = 0; i < p.n; ++i) {
            bool masked = row.x[i] == -std::numeric_limits<T>::infinity();
            y[i] = static_cast<T>(masked ? row.lower[i] : bound[i]);
        }
        p.mu[slice] = mu;
        return false;
    }

    // More entries at +inf than there is budget: they share it as equals would, and the others have nothing.
    bool share(Result& result) const {
        Scratch<T> equals;
        if (!equals.take(p.n)) return refuse(result, Status::no_memory, 0);
        constexpr T inf = std::numeric_limits<T>::infinity();
        for (int64_t i = 0; i < p.n; ++i) equals.data[i] = row.x[i] == inf ? T(0) : -inf;
        Box<T> other = p;
        other.x = equals.data - slice * p.n;
        other.at_most = false;    // what they would have without it is not in their x
        BoxSolver<T> solver(other, slice, threads);
        for (bool more = solver.begin(result); more;) more = solver.advance();
        p.mu[slice] = inf;
        return false;
    }

    bool fill_nan() const {
        T* y = out();
        for (int64_t i = 0; i < p.n; ++i) y[i] = std::numeric_limits<T>::quiet_NaN();
        p.mu[slice] = std::numeric_limits<double>::quiet_NaN();
        return false;
    }

    bool complain(Result& result) const {
        for (int64_t i = 0; i < p.n; ++i) {
            double w = row.weight[i];
            if (!(w > 0 && std::isfinite(w))) return refuse(result, Status::bad_weight, i);
            if (!(row.lower[i] <= row.upper[i])) return refuse(result, Status::bad_bounds, i);
        }
        return false;
    }

    bool refuse(Result& result, Status status, int64_t entry) const {
        fail(result, status, slice, entry);
        return false;
    }

    const Box<T>& p;
    int64_t slice;
    int threads;
    double total, tau;
    BoxRow<T> row;
    Search s{};
    double origin = 0, each = 0;      // each: the square of what an entry may add over that of its weight
    BoxSums before{0, 0, 0, 0};       // of the last pass
    int narrow_left = 0, pass = 0;    // passes in single precision still allowed; passes in double so far
    bool near = false;                // the next pass is very likely the last, so it writes
    bool within = false;              // s is measured from the origin
};

// Short rows in step, a pass of each in turn: by itself a row would wait for its sums.
constexpr int64_t box_rows = 16, box_rows_entries = 1 << 12;

template <class T>
struct BoxTasks {
    const Box<T>& p;
    Tiles tiles;
    explicit BoxTasks(const Box<T>& problem) : p(problem), tiles(box_tiles(p)) {}
    void run(int64_t task, int threads, Result& result) const {
        int64_t end = tiles.first(task) + tiles.width(task), most = box_rows_entries / (p.n + 1) + 1;
        int64_t together = most < box_rows ? most : box_rows;
        for (int64_t r = tiles.first(task); r < end; r += together)
            solve_rows(r, r + together < end ? r + together : end, threads, result);
    }

    void solve_rows(int64_t from, int64_t to, int threads, Result& result) const {
        std::optional<BoxSolver<T>> rows[box_rows];
        int open = 0;
        for (int64_t r = from; r < to; ++r) {
            rows[open].emplace(p, r, threads);
            open += rows[open]->begin(result);
        }
        bool more[box_rows];
        for (int r = 0; r < open; ++r) more[r] = true;
        for (int left = open; left > 0;)
            for (int r = 0; r < open; ++r)
                if (more[r] && !rows[r]->advance()) more[r] = false, --left;
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
