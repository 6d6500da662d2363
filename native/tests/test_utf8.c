/* test_utf8.c: the UTF-8 check against a decoder that knows only code points. */
#include "check.h"
#include "ullage.h"

#include <stdbool.h>

static size_t encode(uint32_t c, unsigned n, uint8_t *out) {
    if (n == 1) {
        out[0] = (uint8_t)c;
        return 1;
    }
    for (unsigned i = n - 1; i > 0; i--, c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3F));
    out[0] = (uint8_t)((0xF00 >> n) | c);
    return n;
}

/* Decodes by the bit patterns alone and judges the code point: shortest form, in range, no surrogate. */
static size_t valid_sequence(const uint8_t *text, size_t n) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned length = text[0] < 0x80         ? 1
                            : text[0] >> 5 == 0x06 ? 2
                            : text[0] >> 4 == 0x0E ? 3
                            : text[0] >> 3 == 0x1E ? 4
                                                   : 0;
    if (length == 0 || length > n) return 0;
    uint32_t c = length == 1 ? text[0] : text[0] & (0x7Fu >> length);
    for (unsigned i = 1; i < length; i++) {
        if (text[i] >> 6 != 2) return 0;
        c = c << 6 | (text[i] & 0x3F);
    }
    return c >= least[length] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF) ? length : 0;
}

static size_t reference_check(const uint8_t *text, size_t n) {
    size_t i = 0;
    while (i < n) {
        const size_t length = valid_sequence(text + i, n - i);
        if (length == 0) return i;
        i += length;
    }
    return n;
}

static void check(const uint8_t *text, size_t n) {
    uint8_t *copy = exact_copy(text, n);
    const size_t got = ul_utf8_check(copy, n), want = reference_check(text, n);
    CHECK(got == want, "%zu bytes from %02X: %zu, not %zu", n, n > 0 ? text[0] : 0, got, want);
    free(copy);
}

/* Every code point in every form that can hold it, the forbidden ones included. */
static void every_code_point_is_judged(void) {
    uint8_t text[8];
    for (uint32_t c = 0; c < 0x200000; c += c < 0x11000 ? 1 : 61) {
        if (c < 0x80) check(text, encode(c, 1, text));
        if (c < 0x800) check(text, encode(c, 2, text));
        if (c < 0x10000) check(text, encode(c, 3, text));
        check(text, encode(c, 4, text));
    }
}

static void every_start_is_judged(void) {
    static const uint8_t edges[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF};
    enum { EDGES = sizeof edges };
    for (unsigned lead = 0; lead < 256; lead++) {
        for (unsigned i = 0; i < EDGES * EDGES * EDGES; i++) {
            const uint8_t text[4] = {(uint8_t)lead, edges[i % EDGES], edges[i / EDGES % EDGES],
                                     edges[i / EDGES / EDGES]};
            for (size_t n = 1; n <= 4; n++) check(text, n);
        }
    }
}

static void random_texts_are_judged(void) {
    uint8_t text[200];
    for (int round = 0; round < 60000; round++) {
        const size_t wanted = random_below(120);
        size_t n = 0;
        while (n < wanted) {
            if (random_below(3) > 0) {
                text[n++] = (uint8_t)random_below(0x80);
                continue;
            }
            uint32_t c = (uint32_t)random_below(0x110000) >> random_below(14);
            if (c >= 0xD800 && c <= 0xDFFF) c = 0xE000;
            n += encode(c, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, text + n);
        }
        check(text, n);
        if (n == 0) continue;
        text[random_below(n)] = (uint8_t)random_bits();
        check(text, n);
        check(text, random_below(n));
    }
}

int main(void) {
    check((const uint8_t *)"", 0);
    every_code_point_is_judged();
    every_start_is_judged();
    random_texts_are_judged();
    return checks_done();
}
