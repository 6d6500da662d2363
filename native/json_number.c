/* json_number.c: numbers in JSON text and their canonical length.
 *
 * A number of at most 15 significant digits, well inside the range of normal doubles, needs no conversion:
 * such decimals lie further apart than doubles, so each is the shortest that reads back as its double. */
#include "bits.h"
#include "checked.h"
#include "json_scan.h"

/* A number as written: d1 d2 ... dn, without zeros around them, times a power of ten. */
typedef struct {
    bool negative;
    uint64_t digits; /* 0 for zero */
    int64_t point;   /* the value is 0.d1d2...dn * 10^point */
} decimal;

/* Exponents beyond this are all the same: too far for any number of digits that fits in memory to make up. */
#define FAR_EXPONENT (INT64_C(1) << 61)

static inline bool is_digit(const ul_scan *scan, const uint8_t *at) {
    return at < scan->end && (uint8_t)(*at - '0') < 10;
}

/* At least one digit. */
static const uint8_t *scan_digits(ul_scan *scan, const uint8_t *at) {
    if (!is_digit(scan, at)) return ul_fail(scan, at == scan->end ? UL_JSON_END : UL_JSON_SYNTAX, at);
    do at++;
    while (is_digit(scan, at));
    return at;
}

/* The exponent from behind its `e`. */
static const uint8_t *scan_exponent(ul_scan *scan, const uint8_t *at, int64_t *exponent) {
    const bool negative = at < scan->end && *at == '-';
    if (at < scan->end && (*at == '-' || *at == '+')) at++;
    const uint8_t *end = scan_digits(scan, at);
    if (end == NULL) return NULL;
    int64_t value = 0;
    for (; at < end; at++) {
        if (value < FAR_EXPONENT / 10) value = value * 10 + (*at - '0');
        else value = FAR_EXPONENT;
    }
    *exponent = negative ? -value : value;
    return end;
}

/* The length of an integer that 64 bits hold, or 0 for others; start to end are digits only. */
static unsigned integer_length(bool negative, const uint8_t *start, const uint8_t *end) {
    const size_t n = (size_t)(end - start);
    if (negative && *start == '0') return 0; /* -0 is a double's zero */
    if (n < 19) return (unsigned)n + negative;
    if (n > 20) return 0;
    uint64_t value = 0;
    for (const uint8_t *at = start; at < end; at++) {
        if (!ul_mul(value, 10, &value) || !ul_add(value, (uint64_t)(*at - '0'), &value)) return 0;
    }
    if (negative && value > UINT64_C(1) << 63) return 0;
    return (unsigned)n + negative;
}

/* The digits between start and end, of which those before `point` are before the decimal point; the point
 * itself may stand among them. */
static decimal read_decimal(bool negative, const uint8_t *start, const uint8_t *point, const uint8_t *end) {
    const uint8_t *first = start;
    while (first < end && (*first == '0' || *first == '.')) first++;
    if (first == end) return (decimal){.negative = negative};
    const uint8_t *last = end - 1;
    while (*last == '0' || *last == '.') last--;

    decimal d = {.negative = negative, .digits = (uint64_t)(last - first) + 1};
    if (first < point && point < last) d.digits--;
    d.point = first < point ? point - first : point - first + 1;
    return d;
}

/* The length of a number that is read as a double, written from start to end. */
static unsigned double_length(ul_scan *scan, decimal d, const uint8_t *start, const uint8_t *end) {
    enum {
        DIGITS_SURE = 15,   /* DBL_DIG */
        POINT_SURE = 300,   /* between 10^-301 and 10^300 no double is subnormal or infinite */
        POINT_OVER = 310,   /* at least 10^309: above the largest double, 1.8 * 10^308 */
        POINT_UNDER = -324, /* less than 10^-324: below half the smallest, 2.5 * 10^-324 */
    };
    if (d.digits == 0 || d.point <= POINT_UNDER) return ul_decimal_length(d.negative, 1, 1);
    if (d.point >= POINT_OVER) return 0;
    if (d.digits <= DIGITS_SURE && d.point > -POINT_SURE && d.point <= POINT_SURE) {
        return ul_decimal_length(d.negative, (unsigned)d.digits, (int)d.point);
    }
    const ul_json_scanner *scanner = scan->scanner;
    return scanner->number_length(scanner->context, (const char *)start, (size_t)(end - start));
}

/* A number with a fraction or an exponent, or an integer that 64 bits do not hold; `point` is where its first
 * digits end. */
static const uint8_t *scan_double(ul_scan *scan, const uint8_t *start, const uint8_t *point) {
    const uint8_t *at = point;
    int64_t exponent = 0;
    if (at < scan->end && *at == '.') {
        at = scan_digits(scan, at + 1);
        if (at == NULL) return NULL;
    }
    const uint8_t *digits_end = at;
    if (at < scan->end && (*at | 0x20) == 'e') {
        at = scan_exponent(scan, at + 1, &exponent);
        if (at == NULL) return NULL;
    }
    const bool negative = *start == '-';
    decimal d = read_decimal(negative, start + negative, point, digits_end);
    d.point += exponent;
    const unsigned length = double_length(scan, d, start, at);
    if (length == 0) return ul_fail(scan, UL_JSON_NUMBER, start);
    scan->length += length;
    return at;
}

const uint8_t *ul_scan_number(ul_scan *scan, const uint8_t *start) {
    const bool negative = *start == '-';
    const uint8_t *digits = start + negative;
    const uint8_t *at = scan_digits(scan, digits);
    if (at == NULL) return NULL;
    if (*digits == '0') at = digits + 1; /* nothing may follow a leading zero; the caller sees what does */
    if (at < scan->end && (*at == '.' || (*at | 0x20) == 'e')) return scan_double(scan, start, at);

    const unsigned length = integer_length(negative, digits, at);
    if (length == 0) return scan_double(scan, start, at);
    scan->length += length;
    return at;
}
