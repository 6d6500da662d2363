/* utf8_length.c: the UTF-8 length of text in code units.  Plain loops that compilers turn into SIMD. */
#include "ullage.h"

/* Sums are 32 bits wide within a block, so that as many units go into one step as there are. */
enum { BLOCK = 1 << 16 };

static inline size_t block_end(size_t i, size_t n) {
    return n - i > BLOCK ? i + BLOCK : n;
}

uint64_t ul_utf8_length_latin1(const uint8_t *text, size_t n) {
    uint64_t more = 0;
    for (size_t i = 0; i < n;) {
        uint32_t high = 0;
        for (const size_t end = block_end(i, n); i < end; i++) high += text[i] >> 7;
        more += high;
    }
    return n + more;
}

uint64_t ul_utf8_length_ucs2(const uint16_t *text, size_t n) {
    uint64_t more = 0;
    uint32_t surrogates = 0;
    for (size_t i = 0; i < n;) {
        uint32_t high = 0;
        for (const size_t end = block_end(i, n); i < end; i++) {
            high += (uint32_t)(text[i] >= 0x80) + (uint32_t)(text[i] >= 0x800);
            surrogates |= (uint32_t)((text[i] & 0xF800) == 0xD800);
        }
        more += high;
    }
    return surrogates ? UL_NOT_TEXT : n + more;
}

uint64_t ul_utf8_length_ucs4(const uint32_t *text, size_t n) {
    uint64_t more = 0;
    uint32_t surrogates = 0;
    for (size_t i = 0; i < n;) {
        uint32_t high = 0;
        for (const size_t end = block_end(i, n); i < end; i++) {
            high += (uint32_t)(text[i] >= 0x80) + (uint32_t)(text[i] >= 0x800) + (uint32_t)(text[i] >= 0x10000);
            surrogates |= (uint32_t)((text[i] & 0xFFFFF800) == 0xD800);
        }
        more += high;
    }
    return surrogates ? UL_NOT_TEXT : n + more;
}
