/* bits.h: words of text and the arithmetic on them, the same on every processor. */
#ifndef ULLAGE_BITS_H
#define ULLAGE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

#define UL_ONES UINT64_C(0x0101010101010101)
#define UL_HIGH_BITS UINT64_C(0x8080808080808080)

/* The first byte is the lowest whatever the byte order.  Compilers make one load of this. */
static inline uint32_t ul_load32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t ul_load64(const uint8_t *p) {
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

/* n < 8 bytes, zeros above them.  The loads overlap rather than pass the last byte. */
static inline uint64_t ul_load_part(const uint8_t *p, size_t n) {
    if (n >= 4) return ul_load32(p) | (uint64_t)ul_load32(p + n - 4) << (n - 4) * 8;
    if (n == 0) return 0;
    return (uint64_t)p[0] | (uint64_t)p[n / 2] << n / 2 * 8 | (uint64_t)p[n - 1] << (n - 1) * 8;
}

/* The place of the lowest bit set; v is not zero. */
static inline unsigned ul_lowest_bit(uint64_t v) {
#if defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_ctzll(v);
#elif defined(_M_X64) || defined(_M_ARM64)
    unsigned long place;
    _BitScanForward64(&place, v);
    return (unsigned)place;
#else
    unsigned place = 0;
    for (; (v & 1) == 0; v >>= 1) place++;
    return place;
#endif
}

/* The bits that v needs: 64 less its leading zeros.  v is not zero. */
static inline unsigned ul_bit_length(uint64_t v) {
#if defined(__GNUC__) || defined(__clang__)
    return 64 - (unsigned)__builtin_clzll(v);
#elif defined(_M_X64) || defined(_M_ARM64)
    unsigned long place;
    _BitScanReverse64(&place, v);
    return (unsigned)place + 1;
#else
    unsigned bits = 0;
    for (; v != 0; v >>= 1) bits++;
    return bits;
#endif
}

/* Both halves of the 128-bit product, folded into one: every bit of the result depends on most of a and b. */
static inline uint64_t ul_fold_multiply(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 uint128;
    const uint128 product = (uint128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t low = a0 * b0;
    const uint64_t middle = a1 * b0 + (low >> 32);
    const uint64_t cross = a0 * b1 + (uint32_t)middle;
    const uint64_t high = a1 * b1 + (middle >> 32) + (cross >> 32);
    return (cross << 32 | (uint32_t)low) ^ high;
#endif
}

#endif
