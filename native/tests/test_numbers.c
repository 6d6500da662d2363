/* test_numbers.c: the lengths of integers and doubles. */
#include "check.h"
#include "shortest.h"
#include "ullage.h"

#include <inttypes.h>
#include <stdbool.h>

static void check_integer(uint64_t v) {
    char text[24];
    CHECK(ul_u64_length(v) == (unsigned)snprintf(text, sizeof text, "%" PRIu64, v), "%s", text);
    const int64_t s = (int64_t)v;
    CHECK(ul_i64_length(s) == (unsigned)snprintf(text, sizeof text, "%" PRId64, s), "%s", text);
}

static void integers_have_their_digits(void) {
    check_integer(0);
    check_integer(UINT64_MAX);
    check_integer((uint64_t)INT64_MIN);
    for (uint64_t power = 1; power <= UINT64_MAX / 10; power *= 10) {
        for (uint64_t v = power - 1; v <= power + 1; v++) {
            check_integer(v);
            check_integer(0 - v);
            check_integer(v * 10);
        }
    }
    for (int i = 0; i < 100000; i++) check_integer(random_bits() >> random_below(64));
}

static void known_doubles_are_right(void) {
    static const struct {
        double x;
        const char *text;
    } known[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {-1.5, "-1.5"},
        {0.1, "0.1"},
        {0.30000000000000004, "0.30000000000000004"},
        {1e15, "1000000000000000.0"},
        {9999999999999998.0, "9999999999999998.0"},
        {1e16, "1e+16"},
        {1.5e16, "1.5e+16"},
        {1e17, "1e+17"},
        {1e22, "1e+22"},
        {1e23, "1e+23"},
        {1e100, "1e+100"},
        {0.0001, "0.0001"},
        {0.00001, "0.00001"},
        {0.0000123, "0.0000123"},
        {9.999999999999999e-6, "9.999999999999999e-6"},
        {0.000001, "1e-6"},
        {1e-7, "1e-7"},
        {1.5e-7, "1.5e-7"},
        {-1.25e-10, "-1.25e-10"},
        {5e-324, "5e-324"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const unsigned quick = ul_double_length_quick(known[i].x);
        CHECK(shortest_length(known[i].x) == strlen(known[i].text), "%s", known[i].text);
        CHECK(quick == 0 || quick == strlen(known[i].text), "%s: %u", known[i].text, quick);
    }
}

/* Where the quick way decides, it is right; and it decides all decimals that people write. */
static void check_quick(double x, bool decides) {
    const unsigned quick = ul_double_length_quick(x);
    CHECK(!decides || quick != 0, "%.17g is left undecided", x);
    CHECK(quick == 0 || quick == shortest_length(x), "%.17g: %u, not %u", x, quick, shortest_length(x));
}

static void quick_lengths_are_the_shortest(void) {
    static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
    for (uint32_t i = 0; i < 40000; i++) check_quick(i / 1000.0, true);
    for (int i = 0; i < 60000; i++) {
        const double digits = (double)(random_bits() >> (14 + random_below(50))); /* below 2^50 */
        const double x = digits / powers[random_below(13)];
        check_quick(x, digits < 1e15);
        check_quick(-x, digits < 1e15);
        check_quick(nextafter(x, 0), false);
        check_quick(nextafter(x, 1e300), false);
    }
    for (int i = 0; i < 60000; i++) {
        const uint64_t bits = random_bits();
        double x;
        memcpy(&x, &bits, sizeof x);
        if (isfinite(x)) check_quick(x, false);
        check_quick(ldexp((double)(bits >> 11), (int)random_below(160) - 120), false);
    }
}

/* Both ends of every binade and decade that the quick way covers or stops at. */
static void quick_lengths_hold_at_boundaries(void) {
    for (int e = -1074; e < 1024; e++) {
        const double x = ldexp(1, e);
        check_quick(x, false);
        check_quick(nextafter(x, 0), false);
        check_quick(nextafter(x, INFINITY) < INFINITY ? nextafter(x, INFINITY) : x, false);
    }
    for (int e = -320; e <= 308; e++) {
        char text[16];
        snprintf(text, sizeof text, "1e%d", e);
        const double x = strtod(text, NULL);
        check_quick(x, e >= -22 && e <= 36);
        check_quick(nextafter(x, 0), false);
        check_quick(nextafter(x, INFINITY), false);
        check_quick(x * 9, false);
    }
}

static void lengths_from_digits_are_right(void) {
    static const struct {
        unsigned n;
        int point;
        unsigned length;
    } known[] = {
        {1, 1, 3},   {2, 1, 3},   {1, 16, 18},  {16, 16, 18},  {17, 16, 18}, {1, 17, 5},     {2, 17, 7},
        {1, 0, 3},   {1, -4, 7},  {17, -4, 23}, {1, -5, 4},    {2, -5, 6},   {1, -8, 4},     {1, -9, 5},
        {1, 10, 12}, {1, 100, 5}, {1, 101, 6},  {17, 309, 23}, {1, -323, 6}, {17, -307, 23},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const unsigned length = ul_decimal_length(0, known[i].n, known[i].point);
        CHECK(length == known[i].length, "%u digits, point %d: %u", known[i].n, known[i].point, length);
        CHECK(ul_decimal_length(1, known[i].n, known[i].point) == length + 1, "and negative");
    }
}

int main(void) {
    integers_have_their_digits();
    known_doubles_are_right();
    lengths_from_digits_are_right();
    quick_lengths_are_the_shortest();
    quick_lengths_hold_at_boundaries();
    return checks_done();
}
