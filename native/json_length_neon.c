/* json_length_neon.c: the escaped length of text, 16 bytes at a time, on any 64-bit Arm.
 *
 * The same plan as json_length_avx2.c, where it is explained.  Here one table look-up tells all controls
 * apart, since an index past the table gives zero; so costs are kept positive. */
#include "json_length_internal.h"

#if defined(UL_HAVE_NEON)

#include "bits.h"

#include <arm_neon.h>

typedef uint8x16_t vec;

/* Vectors that one sum of byte lanes can take before a lane may pass 255. */
#define SUMS_MAX (255 / UL_ESCAPE_MAX)

static const uint8_t control_cost[32] = {
    5, 5, 5, 5, 5, 5, 5, 5, 1, 1, 1, 5, 1, 1, 5, 5, /* short names: \b \t \n, \f \r */
    5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,
};

static inline vec byte_cost(vec x, bool latin1) {
    const uint8x16x2_t table = {{vld1q_u8(control_cost), vld1q_u8(control_cost + 16)}};
    vec cost = vqtbl2q_u8(table, x);
    cost = vsubq_u8(cost, vceqq_u8(x, vdupq_n_u8('"')));
    cost = vsubq_u8(cost, vceqq_u8(x, vdupq_n_u8('\\')));
    return latin1 ? vsraq_n_u8(cost, x, 7) : cost;
}

/* Fewer than 16 bytes, followed by zeros. */
static inline vec load_part(const uint8_t *p, size_t bytes) {
    const uint64_t low = bytes < 8 ? ul_load_part(p, bytes) : ul_load64(p);
    const uint64_t high = bytes < 8 ? 0 : ul_load_part(p + 8, bytes - 8);
    return vcombine_u8(vcreate_u8(low), vcreate_u8(high));
}

/* ---- One byte a unit ---- */

static inline uint64_t byte_length(const uint8_t *text, size_t n, bool latin1) {
    uint64_t length = n;
    size_t i = 0;
    while (n - i >= 32) {
        size_t rounds = (n - i) / 32;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        vec even = vdupq_n_u8(0), odd = even;
        for (; rounds > 0; rounds--, i += 32) {
            even = vaddq_u8(even, byte_cost(vld1q_u8(text + i), latin1));
            odd = vaddq_u8(odd, byte_cost(vld1q_u8(text + i + 16), latin1));
        }
        length += (uint64_t)vaddlvq_u8(even) + vaddlvq_u8(odd);
    }
    if (n - i >= 16) {
        length += vaddlvq_u8(byte_cost(vld1q_u8(text + i), latin1));
        i += 16;
    }
    if (i < n) {
        length += vaddlvq_u8(byte_cost(load_part(text + i, n - i), latin1));
        length -= UL_ESCAPE_MAX * (16 - (n - i));
    }
    return length;
}

static uint64_t utf8_length(const uint8_t *text, size_t n) {
    return byte_length(text, n, false);
}

static uint64_t latin1_length(const uint8_t *text, size_t n) {
    return byte_length(text, n, true);
}

/* ---- Two bytes a unit ---- */

/* The cost of 16 units beyond one byte each; lanes of `bad` are set for surrogates. */
static inline vec unit_cost(uint16x8_t a, uint16x8_t b, vec *bad) {
    const vec x = vcombine_u8(vqmovn_u16(a), vqmovn_u16(b));
    const vec top = vcombine_u8(vshrn_n_u16(a, 8), vshrn_n_u16(b, 8));
    *bad = vorrq_u8(*bad, vceqq_u8(vshrq_n_u8(top, 3), vdupq_n_u8(0xD8 >> 3)));
    return vsubq_u8(byte_cost(x, true), vcgeq_u8(top, vdupq_n_u8(0x08)));
}

static inline bool any(vec lanes) {
    return vmaxvq_u8(lanes) != 0;
}

/* Eight units from `i` on, with zeros for those from n on. */
static inline uint16x8_t load8(const uint16_t *text, size_t i, size_t n) {
    if (i >= n) return vdupq_n_u16(0);
    if (n - i >= 8) return vld1q_u16(text + i);
    return vreinterpretq_u16_u8(load_part((const uint8_t *)(text + i), (n - i) * 2));
}

static uint64_t ucs2_length(const uint16_t *text, size_t n) {
    uint64_t length = n;
    vec bad = vdupq_n_u8(0);
    size_t i = 0;
    while (n - i >= 16) {
        size_t rounds = (n - i) / 16;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        vec sum = vdupq_n_u8(0);
        for (; rounds > 0; rounds--, i += 16) {
            sum = vaddq_u8(sum, unit_cost(vld1q_u16(text + i), vld1q_u16(text + i + 8), &bad));
        }
        length += vaddlvq_u8(sum);
    }
    if (i < n) {
        length += vaddlvq_u8(unit_cost(load8(text, i, n), load8(text, i + 8, n), &bad));
        length -= UL_ESCAPE_MAX * (16 - (n - i));
    }
    return any(bad) ? UL_NOT_TEXT : length;
}

/* ---- Four bytes a unit ---- */

/* The cost of 16 units beyond one byte each.  Those above U+FFFF are narrowed to U+FFFF, which costs three
 * bytes, and counted for the fourth. */
static inline vec wide_cost(const uint32x4_t u[4], vec *bad) {
    const uint16x8_t low = vcombine_u16(vqmovn_u32(u[0]), vqmovn_u32(u[1]));
    const uint16x8_t high = vcombine_u16(vqmovn_u32(u[2]), vqmovn_u32(u[3]));
    const uint16x8_t planes_low = vcombine_u16(vshrn_n_u32(u[0], 16), vshrn_n_u32(u[1], 16));
    const uint16x8_t planes_high = vcombine_u16(vshrn_n_u32(u[2], 16), vshrn_n_u32(u[3], 16));
    const vec planes = vcombine_u8(vqmovn_u16(planes_low), vqmovn_u16(planes_high));
    return vsubq_u8(unit_cost(low, high, bad), vtstq_u8(planes, planes));
}

/* Four units from `i` on, with zeros for those from n on. */
static inline uint32x4_t load4(const uint32_t *text, size_t i, size_t n) {
    if (i >= n) return vdupq_n_u32(0);
    if (n - i >= 4) return vld1q_u32(text + i);
    return vreinterpretq_u32_u8(load_part((const uint8_t *)(text + i), (n - i) * 4));
}

static uint64_t ucs4_length(const uint32_t *text, size_t n) {
    uint64_t length = n;
    vec bad = vdupq_n_u8(0);
    size_t i = 0;
    while (n - i >= 16) {
        size_t rounds = (n - i) / 16;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        vec sum = vdupq_n_u8(0);
        for (; rounds > 0; rounds--, i += 16) {
            const uint32x4_t u[4] = {vld1q_u32(text + i), vld1q_u32(text + i + 4), vld1q_u32(text + i + 8),
                                     vld1q_u32(text + i + 12)};
            sum = vaddq_u8(sum, wide_cost(u, &bad));
        }
        length += vaddlvq_u8(sum);
    }
    if (i < n) {
        const uint32x4_t u[4] = {load4(text, i, n), load4(text, i + 4, n), load4(text, i + 8, n),
                                 load4(text, i + 12, n)};
        length += vaddlvq_u8(wide_cost(u, &bad));
        length -= UL_ESCAPE_MAX * (16 - (n - i));
    }
    return any(bad) ? UL_NOT_TEXT : length;
}

const ul_text_kernels ul_neon_kernels = {"neon",      utf8_length, latin1_length, ucs2_length,
                                         ucs4_length, ul_is_utf8,  NULL};

#endif
