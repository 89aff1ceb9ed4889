// Lanes for compilers without vector types (MSVC): the register is an array, vectorised as the compiler can.
#pragma once

namespace hs::HS_VARIANT {

template <class E, int W>
struct Row {
    E v[W];
    template <class F>
    static Row each(F f) {
        Row out;
        for (int l = 0; l < W; ++l) out.v[l] = f(l);
        return out;
    }
    E operator[](int l) const { return v[l]; }
    Row operator+(Row o) const {
        return each([&](int l) { return v[l] + o.v[l]; });
    }
    Row operator-(Row o) const {
        return each([&](int l) { return v[l] - o.v[l]; });
    }
    Row operator*(Row o) const {
        return each([&](int l) { return v[l] * o.v[l]; });
    }
    Row operator/(Row o) const {
        return each([&](int l) { return v[l] / o.v[l]; });
    }
    Row operator|(Row o) const {
        return each([&](int l) { return v[l] | o.v[l]; });
    }
    Row operator&(Row o) const {
        return each([&](int l) { return v[l] & o.v[l]; });
    }
    Row operator^(Row o) const {
        return each([&](int l) { return v[l] ^ o.v[l]; });
    }
    Row operator~() const {
        return each([&](int l) { return ~v[l]; });
    }
    Row operator<<(int bits) const {
        return each(
            [&](int l) { return static_cast<E>(static_cast<std::make_unsigned_t<E>>(v[l]) << bits); });
    }
    Row& operator+=(Row o) { return *this = *this + o; }
    Row& operator-=(Row o) { return *this = *this - o; }
};

template <class T>
struct Lanes {
    static constexpr int width = 32 / sizeof(T);
    static constexpr bool masks = false;
    using Vec = Row<T, width>;
    using Int = Row<IntOf<T>, width>;
    using Wide = Row<double, width>;

    static Wide widen(Vec v) {
        return Wide::each([&](int l) { return static_cast<double>(v.v[l]); });
    }
    static void add_to(double* p, Vec v) {
        for (int l = 0; l < width; ++l) p[l] += static_cast<double>(v.v[l]);
    }
    static double total(Wide v) {
        double s = 0;
        for (int l = 0; l < width; ++l) s += v.v[l];
        return s;
    }
    static void store_parts(double* p, Vec v) {
        for (int l = 0; l < 4; ++l) p[l] = 0;
        for (int l = 0; l < width; ++l) p[l % 4] += static_cast<double>(v.v[l]);
    }
    static Vec to_numbers(Int v) {
        return Vec::each([&](int l) { return static_cast<T>(v.v[l]); });
    }
    static int64_t total_int(Int v) {
        int64_t s = 0;
        for (int l = 0; l < width; ++l) s += v.v[l];
        return s;
    }

    static Vec load(const T* p) {
        return Vec::each([&](int l) { return p[l]; });
    }
    static Int load_int(const IntOf<T>* p) {
        return Int::each([&](int l) { return p[l]; });
    }
    static void store(T* p, Vec v) { std::memcpy(p, v.v, sizeof v.v); }
    static void store_int(IntOf<T>* p, Int v) { std::memcpy(p, v.v, sizeof v.v); }
    static Vec load_first(const T* p, int64_t n) {
        return Vec::each([&](int l) { return l < n ? p[l] : T(0); });
    }
    static void store_first(T* p, int64_t n, Vec v) {
        std::memcpy(p, v.v, static_cast<size_t>(n) * sizeof(T));
    }
    static Vec splat(T value) {
        return Vec::each([&](int) { return value; });
    }
    static Int splat_int(IntOf<T> value) {
        return Int::each([&](int) { return value; });
    }
    static Int equal(Int a, Int b) {
        return Int::each([&](int l) { return a.v[l] == b.v[l] ? IntOf<T>(-1) : IntOf<T>(0); });
    }
    static Vec keep(Vec v, Int mask) {
        return Vec::each([&](int l) { return mask.v[l] ? v.v[l] : T(0); });
    }
    static Vec drop(Vec v, Int mask) {
        return Vec::each([&](int l) { return mask.v[l] ? T(0) : v.v[l]; });
    }
    static Vec add_unless(Int mask, Vec sum, Vec v) { return sum + drop(v, mask); }
    static Vec add_where(Int mask, Vec sum, Vec v) { return sum + keep(v, mask); }
    static Vec magnitude(Vec v) {
        return Vec::each([&](int l) { return std::fabs(v.v[l]); });
    }
    static Vec with_sign(Vec size, Vec sign) {
        return Vec::each([&](int l) { return std::copysign(size.v[l], sign.v[l]); });
    }
    static bool all(Int mask) { return total_int(mask) == -width; }
    static Vec clip(Vec v, Vec top) { return min(top, max(splat(0), v)); }
    static Int tally(Int mask, Int counts) { return counts - mask; }
    static Int tally_unclipped(Vec v, Vec, Vec clipped, Int counts) { return tally(clipped == v, counts); }
    static Vec pick(Int mask, Vec yes, Vec no) {
        return Vec::each([&](int l) { return mask.v[l] ? yes.v[l] : no.v[l]; });
    }
    static Vec fused(Vec a, Vec b, Vec c) { return a * b - c; }
    static Vec plus_product(Vec c, Vec a, Vec b) { return c + a * b; }

    static Vec max(Vec a, Vec b) {
        return Vec::each([&](int l) { return a.v[l] > b.v[l] ? a.v[l] : b.v[l]; });
    }
    static Vec min(Vec a, Vec b) {
        return Vec::each([&](int l) { return a.v[l] < b.v[l] ? a.v[l] : b.v[l]; });
    }
};

template <class T, int W>
Row<IntOf<T>, W> operator>(Row<T, W> a, Row<T, W> b) {
    return Row<IntOf<T>, W>::each([&](int l) { return a.v[l] > b.v[l] ? IntOf<T>(-1) : IntOf<T>(0); });
}
template <class T, int W>
Row<IntOf<T>, W> operator<(Row<T, W> a, Row<T, W> b) {
    return b > a;
}
template <class T, int W>
Row<IntOf<T>, W> operator>=(Row<T, W> a, Row<T, W> b) {
    return Row<IntOf<T>, W>::each([&](int l) { return a.v[l] >= b.v[l] ? IntOf<T>(-1) : IntOf<T>(0); });
}

template <class T, int W>
Row<IntOf<T>, W> operator==(Row<T, W> a, Row<T, W> b) {
    return Row<IntOf<T>, W>::each([&](int l) { return a.v[l] == b.v[l] ? IntOf<T>(-1) : IntOf<T>(0); });
}

}    // namespace hs::HS_VARIANT
