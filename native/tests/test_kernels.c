/* test_kernels.c: every implementation of the text kernels gives what the scalar one gives. */
#include "check.h"
#include "ullage.h"

#define LONGEST 700

static const ul_text_kernels *scalar;

static void check_utf8(const ul_text_kernels *kernels, const uint8_t *text, size_t n) {
    uint8_t *copy = exact_copy(text, n);
    CHECK(kernels->utf8(copy, n) == scalar->utf8(copy, n), "%s, %zu bytes", kernels->name, n);
    CHECK(kernels->latin1(copy, n) == scalar->latin1(copy, n), "%s, %zu bytes", kernels->name, n);
    free(copy);
}

static void check_ucs2(const ul_text_kernels *kernels, const uint16_t *text, size_t n) {
    uint16_t *copy = exact_copy(text, n * sizeof *text);
    CHECK(kernels->ucs2(copy, n) == scalar->ucs2(copy, n), "%s, %zu units", kernels->name, n);
    free(copy);
}

static void check_ucs4(const ul_text_kernels *kernels, const uint32_t *text, size_t n) {
    uint32_t *copy = exact_copy(text, n * sizeof *text);
    CHECK(kernels->ucs4(copy, n) == scalar->ucs4(copy, n), "%s, %zu units", kernels->name, n);
    free(copy);
}

/* The scalar kernels against lengths worked out by hand. */
static void scalar_lengths_are_right(void) {
    for (unsigned c = 0; c < 0x110000; c++) {
        const uint32_t unit = c;
        uint64_t want = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (c < 0x20) want = 6;
        if (c != 0 && c < 0x80 && strchr("\"\\\b\t\n\f\r", (int)c)) want = 2;
        if (c >= 0xD800 && c <= 0xDFFF) want = UL_NOT_TEXT;
        CHECK(scalar->ucs4(&unit, 1) == want, "U+%04X", c);
        if (c < 0x10000) CHECK(scalar->ucs2(&(uint16_t){(uint16_t)c}, 1) == want, "U+%04X", c);
        if (c < 0x100) CHECK(scalar->latin1(&(uint8_t){(uint8_t)c}, 1) == want, "U+%04X", c);
        if (c < 0x100)
            CHECK(scalar->utf8(&(uint8_t){(uint8_t)c}, 1) == (c < 0x80 ? want : 1), "byte %02X", c);
    }
}

/* All units of one value: every value of two bytes, and with them every sum of lanes at its greatest. */
static void every_unit_costs_the_same(const ul_text_kernels *kernels) {
    uint8_t bytes[LONGEST];
    uint16_t words[LONGEST];
    uint32_t quads[LONGEST];
    for (uint32_t c = 0; c < 0x10000; c++) {
        const size_t n = 32 + c % 64;
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)c;
            words[i] = (uint16_t)c;
            quads[i] = c < 0x800 || c % 2 == 0 ? c : c << 4 | 7;
        }
        if (c < 0x100) check_utf8(kernels, bytes, n);
        check_ucs2(kernels, words, n);
        check_ucs4(kernels, quads, n);
    }
}

/* One special unit at every place of texts of every length. */
static void special_units_are_found_anywhere(const ul_text_kernels *kernels) {
    static const uint32_t special[] = {0,      7,      8,      0x0B,   0x0C,    0x0D,    0x1F,
                                       0x20,   '"',    '[',    '\\',   ']',     0x7F,    0x80,
                                       0xFF,   0x100,  0x7FF,  0x800,  0xD7FF,  0xD800,  0xDBFF,
                                       0xDC00, 0xDFFF, 0xE000, 0xFFFF, 0x10000, 0x1D800, 0x10FFFF};
    uint8_t bytes[LONGEST];
    uint16_t words[LONGEST];
    uint32_t quads[LONGEST];
    for (size_t s = 0; s < sizeof special / sizeof *special; s++) {
        for (size_t n = 1; n <= 200; n++) {
            for (size_t i = 0; i < n; i++) {
                bytes[i] = 'x';
                words[i] = (uint16_t)(i % 3 == 0 ? 0x4E00 : 'x');
                quads[i] = i % 3 == 0 ? 0x1F600 : 'x';
            }
            const size_t step = n < 70 ? 1 : 3;
            for (size_t at = n % step; at < n; at += step) {
                const uint16_t word = words[at];
                const uint32_t quad = quads[at];
                bytes[at] = (uint8_t)special[s];
                words[at] = (uint16_t)special[s];
                quads[at] = special[s];
                if (special[s] < 0x100) check_utf8(kernels, bytes, n);
                check_ucs2(kernels, words, n);
                check_ucs4(kernels, quads, n);
                bytes[at] = 'x';
                words[at] = word;
                quads[at] = quad;
            }
        }
    }
}

static uint32_t random_unit(void) {
    switch (random_below(6)) {
    case 0:
        return (uint32_t)random_below(0x20);
    case 1:
        return random_below(2) ? '"' : '\\';
    case 2:
        return (uint32_t)random_below(0x800);
    case 3:
        return (uint32_t)random_below(0xD800);
    case 4:
        return 0x10000 + (uint32_t)random_below(0x100000);
    default:
        return ' ' + (uint32_t)random_below(95);
    }
}

static void random_texts_agree(const ul_text_kernels *kernels) {
    static uint8_t bytes[LONGEST];
    static uint16_t words[LONGEST];
    static uint32_t quads[LONGEST];
    for (int round = 0; round < 4; round++) {
        for (size_t n = 0; n <= LONGEST; n++) {
            for (size_t i = 0; i < n; i++) {
                quads[i] = random_unit();
                bytes[i] = (uint8_t)quads[i];
                words[i] = (uint16_t)(quads[i] < 0xD800 ? quads[i] : quads[i] % 0xD800);
            }
            check_utf8(kernels, bytes, n);
            check_ucs2(kernels, words, n);
            check_ucs4(kernels, quads, n);
        }
    }
}

/* The dearest units over a length at which no sum in lanes may be forgotten or overflow. */
static void long_texts_do_not_overflow(const ul_text_kernels *kernels) {
    const size_t n = 100003;
    uint32_t *quads = malloc(n * sizeof *quads);
    if (quads == NULL) abort();
    memset(quads, 0, n * sizeof *quads);
    check_utf8(kernels, (const uint8_t *)quads, n);
    check_ucs2(kernels, (const uint16_t *)quads, n);
    check_ucs4(kernels, quads, n);
    for (size_t i = 0; i < n; i++) quads[i] = 0x10FFFF;
    check_ucs4(kernels, quads, n);
    memset(quads, 0xFF, n * sizeof *quads);
    check_utf8(kernels, (const uint8_t *)quads, n);
    check_ucs2(kernels, (const uint16_t *)quads, n);
    free(quads);
}

/* No place in memory is special: texts may begin anywhere. */
static void alignment_does_not_matter(const ul_text_kernels *kernels) {
    static uint32_t quads[300];
    for (size_t i = 0; i < 300; i++) quads[i] = (uint32_t)random_below(0xD800);
    for (size_t from = 0; from < 32; from++) {
        for (size_t n = 0; n < 200; n++) {
            const uint8_t *bytes = (const uint8_t *)quads + from;
            const uint16_t *words = (const uint16_t *)quads + from;
            CHECK(kernels->utf8(bytes, n) == scalar->utf8(bytes, n), "%s, %zu bytes", kernels->name, n);
            CHECK(kernels->latin1(bytes, n) == scalar->latin1(bytes, n), "%s, %zu bytes", kernels->name, n);
            CHECK(kernels->ucs2(words, n) == scalar->ucs2(words, n), "%s, %zu units", kernels->name, n);
            CHECK(kernels->ucs4(quads + from, n) == scalar->ucs4(quads + from, n), "%s, %zu units",
                  kernels->name, n);
        }
    }
}

int main(void) {
    static const char *names[] = {"scalar", "sse2", "avx2", "neon"};
    scalar = ul_text_kernels_named("scalar");
    CHECK(ul_text_kernels_named("no such") == NULL, "a name that does not exist");
    CHECK(ul_text_kernels_named(ul_text_kernels_best()->name) == ul_text_kernels_best(),
          "the best is known by name");

    scalar_lengths_are_right();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ul_text_kernels *kernels = ul_text_kernels_named(names[i]);
        if (kernels == NULL) {
            printf("%s: not here\n", names[i]);
            continue;
        }
        CHECK(strcmp(kernels->name, names[i]) == 0, "%s is called %s", names[i], kernels->name);
        if (kernels == scalar) continue;
        every_unit_costs_the_same(kernels);
        special_units_are_found_anywhere(kernels);
        random_texts_agree(kernels);
        long_texts_do_not_overflow(kernels);
        alignment_does_not_matter(kernels);
    }
    return checks_done();
}
