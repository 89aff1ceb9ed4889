// The nearest point to x/tau within bounds and on a weighted budget, for rows: the search of newton.hpp with
// another sum. sum(w clip((x - mu w)/tau, lower, upper)) falls as mu rises, along pieces of slope
// -(sum of w^2 over the free entries)/tau.
#pragma once
#include <optional>

#include "box_batch.hpp"

namespace hs::HS_VARIANT {

constexpr int newton_alone = 14;    // steps after which every other one halves the bracket

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
        BoxSurvey found = survey<true>();
        if (!std::isfinite(found.size + found.ww + found.xx) || found.wrong > 0) found = survey<false>();
        if (found.wrong > 0) return complain(result);
        double eps = static_cast<double>(std::numeric_limits<T>::epsilon()),
               room = box_room * eps * found.size;
        if (found.nan > 0) found.most = std::numeric_limits<double>::infinity();
        bool enough = p.at_most || total <= found.most + room;
        if (!(total >= found.least - room && enough)) return refuse(result, Status::bad_total, 0);
        if (found.nan > 0) return fill_nan();
        if (found.certain > 0 && found.least + found.certain > total) return share(result);
        return solve(found);
    }

    bool advance() {
        Hunt found = hunt();
        if (found == Hunt::cornered && !within) return look_between();
        if (found == Hunt::cornered) write_between();
        if (found != Hunt::unsettled) p.mu[slice] = origin + (s.mu + s.low);
        return found == Hunt::unsettled;
    }

  private:
    enum class Hunt { unsettled, settled, cornered };
    static constexpr double most = std::numeric_limits<double>::max();

    T* out() const { return p.y + slice * p.n; }

    template <bool finite>
    BoxSurvey survey() const {
        return sum_blocks<BoxSurvey>(p.n, threads, [&](int64_t from, int64_t to) {
            return add_entries<BoxSurvey>(row, from, to, [] { return Surveyor<finite>{}; });
        });
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
    BoxPlace here() const { return within ? place(origin, s.mu) : place(s.mu, s.low); }

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
        return true;
    }

    // Two neighbors among the numbers have the solution between them: measured from the nearer one.
    bool look_between() {
        double gap = s.hi - s.lo;
        bool up = residual(sums(place(s.hi, -gap / 2))) > 0;
        measure_from(up ? s.hi : s.lo, up ? -gap / 4 : gap / 4);
        (up ? s.lo : s.hi) = up ? -gap / 2 : gap / 2;
        return true;
    }

    void measure_from(double at, double mu) {
        origin = at, s.lo -= at, s.hi -= at, s.mu = mu, s.low = 0;
        s.last = std::numeric_limits<double>::infinity();
        within = true, near = false, pass = 0;
    }

    // Between two neighbors an entry goes all its way from bound to bound: y is as much of either side as
    // makes the total. It is measured from the side that is nearer, lest an infinite bound swallow it.
    void write_between() {
        BoxPlace more = place(origin, s.lo), less = place(origin, s.hi);
        double above = residual(sums(more)), below = -residual(sums(less));
        bool up = below < above;
        double share = (up ? below : above) / (above + below);
        share = share > 0 ? share : 0;
        in_blocks(p.n, threads, [&](int64_t from, int64_t to) {
            write_mixture(row, out(), from, to, up ? more : less, up ? less : more, share);
        });
    }

    // Where there are no bounds, as if every entry were free.
    Search start(const BoxSurvey& found) const {
        BoxGuess guess = guess_box(found, static_cast<double>(p.n), total, tau);
        bool bounded = std::isfinite(found.most - found.least);
        double mu = bounded ? guess.mu : (found.wx - tau * total) / found.ww;
        Search s = start_at(std::isfinite(mu) ? mu : 0, std::isfinite(guess.width) ? guess.width : tau + 1);
        if (p.at_most) {    // at 0 the sum is too large
            s.lo = 0;
            s.mu = s.mu > 0 ? s.mu : s.width;
            s.r_lo = 1;
        }
        return s;
    }

    // A Newton step. Settled, y is written. In the end two neighbors are the bracket.
    Hunt hunt() {
        BoxSums found = near ? write(here(), slack(before)) : sums(here());
        // A bulk of next to nothing says nothing of where the step led.
        if (near) found.bulk = std::max(before.bulk, std::fabs(found.free_sum) + std::fabs(found.fixed));
        double r = residual(found), size = std::fabs(r), change = r * tau / found.free;
        // Another mu is another rounding of mu w.
        bool noise = size <= 2e-14 * found.bulk && size > s.last / 2 && s.mu == last_mu;
        // A step that crossed no breakpoint is exact.
        bool exact = found.free == before.free && found.fixed == before.fixed && size <= 4e-15 * found.bulk;
        if (!(size > 4e-16 * found.bulk) || noise || exact) {
            if (!near) write(here(), slack(found));
            return Hunt::settled;
        }
        near = is_close(r, each, found.free);
        before = found;
        s.last = size, last_mu = s.mu;
        if (!within && s.low + change == s.low) measure_from(s.mu, s.low);
        narrow(r, change, found.free > 0);
        bool halve = pass++ >= newton_alone && pass % 2;
        if (halve) {
            s.lo = s.lo > -most ? s.lo : -most;
            s.hi = s.hi < most ? s.hi : most;
            s.mu = halfway(s.lo, s.hi);
            s.low = 0;
        }
        bool closed = within ? s.hi <= std::nextafter(s.lo, most) : halve && (s.mu <= s.lo || s.mu >= s.hi);
        return closed ? Hunt::cornered : Hunt::unsettled;
    }

    // follow(), for ends without low digits: where those point out of the bracket, it ends one number
    // further. What is measured from the origin has none; a step of less than a digit is one of a digit.
    void narrow(double r, double change, bool active) {
        double lo = s.lo, hi = s.hi, mu = s.mu, low = s.low, next = r > 0 ? most : -most;
        follow(s, r, change, active);
        if (r > 0 && low < 0) s.lo = std::max(lo, std::nextafter(mu, -most));
        if (!(r > 0) && low > 0) s.hi = std::min(hi, std::nextafter(mu, most));
        if (!within) return;
        s.low = 0;
        if (s.mu == mu) s.mu = std::nextafter(mu, next);
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
        return fill_nan();
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
    double origin = 0, each = 0;    // each: the square of what an entry may add over that of its weight
    BoxSums before{0, 0, 0, 0};     // of the last pass
    double last_mu = 0;             // its mu
    int pass = 0;                   // passes so far
    bool near = false;              // the next pass is very likely the last, so it writes
    bool within = false;            // s is measured from the origin
};

template <class T>
struct BoxTasks {
    const Box<T>& p;
    Tiles tiles;
    explicit BoxTasks(const Box<T>& problem) : p(problem), tiles(box_tiles(p)) {}
    void run(int64_t task, int threads, Result& result) const {
        if constexpr (sizeof(T) == 4) {
            if (p.n > 0 && NarrowRow::serves(box_row(p, p.x, 0)))
                return as_given(box_row(p, p.x, 0).given(),
                                [&](auto how) { run_batches<how.value>(task, threads, result); });
        }
        in_step(task, [&](int64_t from, int64_t to) { solve_rows(from, to, threads, nullptr, result); });
    }

    template <Given how>
    void run_batches(int64_t task, int threads, Result& result) const {
        BoxBatch<how> batch(p, threads);
        in_step(task, [&](int64_t from, int64_t to) {
            bool left[box_rows];
            if (batch.run(from, static_cast<int>(to - from), left))
                solve_rows(from, to, threads, left, result);
        });
    }

    template <class F>
    void in_step(int64_t task, F solve) const {
        int64_t end = tiles.first(task) + tiles.width(task), most = box_rows_entries / (p.n + 1) + 1;
        int64_t together = most < box_rows ? most : box_rows;
        for (int64_t r = tiles.first(task); r < end; r += together)
            solve(r, r + together < end ? r + together : end);
    }

    // `left`: which of them, or null for all.
    void solve_rows(int64_t from, int64_t to, int threads, const bool* left, Result& result) const {
        std::optional<BoxSolver<T>> rows[box_rows];
        int open = 0;
        for (int64_t r = from; r < to; ++r) {
            if (left && !left[r - from]) continue;
            rows[open].emplace(p, r, threads);
            open += rows[open]->begin(result);
        }
        bool more[box_rows];
        for (int r = 0; r < open; ++r) more[r] = true;
        for (int unsolved = open; unsolved > 0;)
            for (int r = 0; r < open; ++r)
                if (more[r] && !rows[r]->advance()) more[r] = false, --unsolved;
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
