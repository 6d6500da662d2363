/* test_utf8_length.c: UTF-8 lengths against a sum of one code point after another. */
#include "check.h"
#include "ullage.h"

enum { MOST = 70000 };

static uint64_t slow_length(const uint32_t *points, size_t n) {
    uint64_t length = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t c = points[i];
        if (c >= 0xD800 && c <= 0xDFFF) return UL_NOT_TEXT;
        length += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    }
    return length;
}

static void check_points(const uint32_t *points, size_t n) {
    uint8_t *latin1 = malloc(n);
    uint16_t *ucs2 = malloc(n * sizeof *ucs2);
    uint32_t *ucs4 = exact_copy(points, n * sizeof *points);
    uint32_t most = 0;
    if (n > 0 && (latin1 == NULL || ucs2 == NULL)) abort();
    for (size_t i = 0; i < n; i++) {
        latin1[i] = (uint8_t)points[i];
        ucs2[i] = (uint16_t)points[i];
        if (points[i] > most) most = points[i];
    }
    const uint64_t expected = slow_length(points, n);
    CHECK(ul_utf8_length_ucs4(ucs4, n) == expected, "%zu units", n);
    if (most < 0x10000) CHECK(ul_utf8_length_ucs2(ucs2, n) == expected, "%zu units", n);
    if (most < 0x100) CHECK(ul_utf8_length_latin1(latin1, n) == expected, "%zu units", n);
    free(latin1);
    free(ucs2);
    free(ucs4);
}

static const uint32_t edges[] = {0,      0x7F,   0x80,   0xFF,   0x100,   0x7FF,   0x800,
                                 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF, 0xD800, 0xDFFF};

int main(void) {
    static uint32_t points[MOST];
    const uint32_t kinds = sizeof edges / sizeof *edges;
    for (size_t n = 0; n < 130; n++) {
        for (uint32_t kind = 0; kind < kinds; kind++) {
            for (size_t i = 0; i < n; i++) points[i] = 'a';
            check_points(points, n);
            for (int more = 0; more < 3 && n > 0; more++) points[random_below(n)] = edges[random_below(kind + 1)];
            check_points(points, n);
        }
    }
    for (uint32_t kind = 0; kind < kinds; kind++) { /* across the blocks of a sum */
        for (size_t i = 0; i < MOST; i++) points[i] = edges[kind];
        check_points(points, MOST);
        check_points(points, 65537);
    }
    return checks_done();
}
