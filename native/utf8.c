/* utf8.c: where text stops being valid UTF-8. */
#include "bits.h"
#include "ullage.h"

static inline bool is_continuation(uint8_t byte) {
    return byte >> 6 == 2;
}

/* The length of the valid sequence that the non-ASCII byte at `p` leads, or 0.  RFC 3629, section 4: the lead
 * byte says how long it is and, for four of them, narrows the second byte so that no code point has two forms
 * (E0, F0), none is a surrogate (ED) and none lies above U+10FFFF (F4). */
static inline size_t sequence_length(const uint8_t *p, size_t n) {
    const uint8_t lead = p[0];
    if (lead < 0xC2 || lead > 0xF4) return 0;
    if (lead < 0xE0) return n >= 2 && is_continuation(p[1]) ? 2 : 0;
    if (n < 3 || !is_continuation(p[1]) || !is_continuation(p[2])) return 0;
    if (lead < 0xF0) {
        if (lead == 0xE0 && p[1] < 0xA0) return 0;
        if (lead == 0xED && p[1] > 0x9F) return 0;
        return 3;
    }
    if (n < 4 || !is_continuation(p[3])) return 0;
    if (lead == 0xF0 && p[1] < 0x90) return 0;
    if (lead == 0xF4 && p[1] > 0x8F) return 0;
    return 4;
}

size_t ul_utf8_check(const uint8_t *text, size_t n) {
    size_t i = 0;
    while (i < n) {
        if (text[i] < 0x80) {
            while (n - i >= 8 && (ul_load64(text + i) & UL_HIGH_BITS) == 0) i += 8;
            while (i < n && text[i] < 0x80) i++;
            continue;
        }
        const size_t length = sequence_length(text + i, n - i);
        if (length == 0) return i;
        i += length;
    }
    return n;
}
