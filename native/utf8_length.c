/* utf8_length.c: the UTF-8 length of text in code units.
 *
 * Loops that compilers turn into SIMD: sums are as wide as a unit, so that as many units go into one step as a
 * vector holds, and are emptied before they can overflow.
 */
#include "ullage.h"

static inline size_t block(size_t n, size_t most) {
    return n < most ? n : most;
}

uint64_t ul_utf8_length_latin1(const uint8_t *text, size_t n) {
    uint64_t length = n;
    while (n > 0) {
        const size_t units = block(n, UINT8_MAX);
        uint8_t more = 0;
        for (size_t i = 0; i < units; i++) more = (uint8_t)(more + (text[i] >> 7));
        length += more;
        text += units;
        n -= units;
    }
    return length;
}

uint64_t ul_utf8_length_ucs2(const uint16_t *text, size_t n) {
    uint64_t length = n;
    uint16_t surrogates = 0;
    while (n > 0) {
        const size_t units = block(n, UINT16_MAX / 2);
        uint16_t more = 0;
        for (size_t i = 0; i < units; i++) {
            more = (uint16_t)(more + (uint16_t)(text[i] > 0x7F));
            more = (uint16_t)(more + (uint16_t)(text[i] > 0x7FF));
            surrogates = (uint16_t)(surrogates | (uint16_t)((text[i] & 0xF800) == 0xD800));
        }
        length += more;
        text += units;
        n -= units;
    }
    return surrogates ? UL_NOT_TEXT : length;
}

uint64_t ul_utf8_length_ucs4(const uint32_t *text, size_t n) {
    uint64_t length = n;
    uint32_t surrogates = 0;
    while (n > 0) {
        const size_t units = block(n, UINT32_MAX / 3);
        uint32_t more = 0;
        for (size_t i = 0; i < units; i++) {
            more += (uint32_t)(text[i] > 0x7F) + (uint32_t)(text[i] > 0x7FF) + (uint32_t)(text[i] > 0xFFFF);
            surrogates |= (uint32_t)(text[i] >> 11 == 0x1B);
        }
        length += more;
        text += units;
        n -= units;
    }
    return surrogates ? UL_NOT_TEXT : length;
}
