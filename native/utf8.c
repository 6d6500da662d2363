/* utf8.c: where text stops being valid UTF-8. */
#include "bits.h"
#include "json_length_internal.h"

/* The length of the valid sequence of two to four bytes at the low end of a word, or 0 where there is none.
 *
 * After RFC 3629, section 4.  The first mask of each asks for the lead byte and its continuations; the second
 * picks the bits that tell whether the code point needs so many bytes, is a surrogate (ED A0 and on) or lies
 * above U+10FFFF (F4 90 and on). */
static inline size_t sequence_length(uint32_t word) {
    if ((word & 0xC0E0) == 0x80C0) return (word & 0x1E) != 0 ? 2 : 0;
    if ((word & 0xC0C0F0) == 0x8080E0) {
        const uint32_t top = word & 0x200F;
        return top != 0 && top != 0x200D ? 3 : 0;
    }
    if ((word & 0xC0C0C0F8) == 0x808080F0) {
        const uint32_t top = word & 0x3007;
        return top != 0 && ((top & 0x04) == 0 || top == 0x04) ? 4 : 0;
    }
    return 0;
}

size_t ul_utf8_check(const uint8_t *text, size_t n) {
    size_t i = 0;
    while (i < n) {
        if (text[i] < 0x80) {
            while (n - i >= 8 && (ul_load64(text + i) & UL_HIGH_BITS) == 0) i += 8;
            while (i < n && text[i] < 0x80) i++;
            continue;
        }
        /* Past the end the word has zeros, which continue nothing. */
        const uint32_t word = n - i >= 4 ? ul_load32(text + i) : (uint32_t)ul_load_part(text + i, n - i);
        const size_t length = sequence_length(word);
        if (length == 0) return i;
        i += length;
    }
    return n;
}

int ul_is_utf8(const uint8_t *text, size_t n) {
    return ul_utf8_check(text, n) == n;
}
