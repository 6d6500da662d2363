/* number_length.c: how long a number is when written down, without writing it.
 *
 * Doubles look as Python's repr has them, with two differences: the decimal exponent -5 is written out
 * ("0.00001") and exponents have no leading zero ("1e-7").
 *
 * The arithmetic on doubles asks for IEEE 754 without excess precision and for rounding to nearest, which is
 * what every C program starts with. */
#include "bits.h"
#include "ullage.h"

#include <string.h>

static const uint64_t integer_powers[] = {
    UINT64_C(1),
    UINT64_C(10),
    UINT64_C(100),
    UINT64_C(1000),
    UINT64_C(10000),
    UINT64_C(100000),
    UINT64_C(1000000),
    UINT64_C(10000000),
    UINT64_C(100000000),
    UINT64_C(1000000000),
    UINT64_C(10000000000),
    UINT64_C(100000000000),
    UINT64_C(1000000000000),
    UINT64_C(10000000000000),
    UINT64_C(100000000000000),
    UINT64_C(1000000000000000),
    UINT64_C(10000000000000000),
    UINT64_C(100000000000000000),
    UINT64_C(1000000000000000000),
    UINT64_C(10000000000000000000),
};

/* The powers of ten that a double holds exactly. */
#define POWER_MAX 22
static const double exact_powers[POWER_MAX + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
};

unsigned ul_u64_length(uint64_t v) {
    /* 1233 / 4096 is log10(2), just below; the estimate is the length or one less.  Zero counts as one. */
    const uint64_t positive = v | 1;
    const unsigned estimate = ul_bit_length(positive) * 1233 >> 12;
    return estimate + (positive >= integer_powers[estimate]);
}

unsigned ul_i64_length(int64_t v) {
    return v < 0 ? 1 + ul_u64_length(0 - (uint64_t)v) : ul_u64_length((uint64_t)v);
}

unsigned ul_decimal_length(int negative, unsigned n, int point) {
    const unsigned sign = negative != 0;
    if (point < -4 || point > 16) { /* d.ddde+X */
        const unsigned exponent = point > 0 ? (unsigned)point - 1 : 1 - (unsigned)point;
        return sign + n + (n > 1) + 2 + ul_u64_length(exponent);
    }
    if (point <= 0) return sign + 2 + (0 - (unsigned)point) + n; /* 0.000ddd */
    if ((unsigned)point < n) return sign + n + 1;                /* dd.ddd */
    return sign + (unsigned)point + 2;                           /* ddd000.0 */
}

static unsigned trailing_zeros(uint64_t v) {
    unsigned zeros = 0;
    for (unsigned step = 8; step > 0; step /= 2) {
        if (v % integer_powers[step] != 0) continue;
        v /= integer_powers[step];
        zeros += step;
    }
    return zeros;
}

/* x * 10^power, rounded once. */
static inline double scaled(double x, int power) {
    return power >= 0 ? x * exact_powers[power] : x / exact_powers[-power];
}

/* Looks for the one decimal of at most 15 digits that reads back as x, if there is any.
 *
 * x is scaled to 15 digits before the point, or as many as an exact power of ten gives, and rounded to an
 * integer.  Scaling back is exact but for one rounding to nearest, because the integer and the power are both
 * exact; so if it gives x, then reading that decimal gives x.  Decimals of up to 15 digits lie further apart
 * than doubles, hence no other one does, and none shorter.  Scaling up errs by less than a quarter, so the
 * decimal is not missed either. */
static unsigned fifteen_digits_length(int negative, double x, int binary_exponent) {
    /* x is below 2^(binary_exponent + 1), which bounds the digits before its point; where that bound is too
     * high, the loop makes up for it. */
    int power = 14 - (binary_exponent + 1) * 1233 / 4096;
    if (power < -POWER_MAX) return 0;
    if (power > POWER_MAX) power = POWER_MAX;
    double shifted = scaled(x, power);
    while (shifted < 1e14 && power < POWER_MAX) shifted = scaled(x, ++power);

    const uint64_t digits = (uint64_t)(shifted + 0.5);
    if (digits > integer_powers[15] || scaled((double)digits, -power) != x) return 0;

    const unsigned length = ul_u64_length(digits);
    return ul_decimal_length(negative, length - trailing_zeros(digits), (int)length - power);
}

unsigned ul_double_length_quick(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int negative = (int)(bits >> 63);
    const double magnitude = negative ? -x : x;
    if (magnitude < 1e16 && (double)(uint64_t)magnitude == magnitude) {
        return (unsigned)negative + ul_u64_length((uint64_t)magnitude) + 2;
    }
    return fifteen_digits_length(negative, magnitude, (int)(bits >> 52 & 0x7FF) - 1023);
}
