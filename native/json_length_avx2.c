/* json_length_avx2.c: the escaped length of text, 32 bytes at a time.
 *
 * All kernels come down to one question about a vector of bytes: what does each add to the length beyond
 * itself?  Wider units are first packed into bytes with saturation, so that everything from U+00FF on looks
 * like 0xFF, and what their UTF-8 form adds is counted beside it.  The order of the lanes is never of
 * interest, only their sum; that is why the packing instructions may interleave as they like.
 *
 * Costs are kept negative, as comparisons deliver them (-1 where true), and taken away from a sum. */
#include "avx2.h"
#include "json_length_internal.h"

#include <string.h>

typedef __m256i vec;

/* Vectors that one sum of byte lanes can take before a lane may pass 255. */
#define SUMS_MAX (255 / UL_ESCAPE_MAX)

/* Bytes read ahead of the counting; it nearly doubles the speed on text that is in no cache. */
#define PREFETCH 4096

static inline vec load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

/* The address may lie past the text: no prefetch faults, but arithmetic on pointers must not go there. */
static inline void prefetch(const void *p) {
    _mm_prefetch((const char *)((uintptr_t)p + PREFETCH), _MM_HINT_T0);
}

/* The sum of byte lanes as four 64-bit lanes, and of those as a number. */
static inline vec widen(vec bytes) {
    return _mm256_sad_epu8(bytes, _mm256_setzero_si256());
}

static inline uint64_t total(vec quads) {
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(quads), _mm256_extracti128_si256(quads, 1));
    return (uint64_t)_mm_cvtsi128_si64(_mm_add_epi64(half, _mm_unpackhi_epi64(half, half)));
}

/* -1 for what becomes two bytes, -5 for what becomes six. */
static inline vec escapes(vec x) {
    const vec is_control = _mm256_cmpeq_epi8(_mm256_min_epu8(x, _mm256_set1_epi8(0x1F)), x);
    return _mm256_or_si256(ul_short_escapes(x),
                           _mm256_and_si256(is_control, _mm256_set1_epi8(-UL_ESCAPE_MAX)));
}

static inline vec byte_cost(vec x, bool latin1) {
    if (!latin1) return escapes(x);
    return _mm256_or_si256(escapes(x), _mm256_cmpgt_epi8(_mm256_setzero_si256(), x));
}

/* Fewer than 32 bytes, followed by zeros.  Nothing past them is read: a masked load does not touch the lanes
 * that its mask leaves out. */
static inline vec load_part(const uint8_t *p, size_t bytes) {
    const vec lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const vec whole = _mm256_set1_epi32((int)(bytes / 4));
    uint32_t rest = 0;
    if (bytes >= 4) {
        memcpy(&rest, p + bytes - 4, 4);
        rest = (uint32_t)((uint64_t)rest >> (32 - bytes % 4 * 8));
    } else if (bytes > 0) {
        rest = p[0] | (uint32_t)p[bytes / 2] << bytes / 2 * 8 | (uint32_t)p[bytes - 1] << (bytes - 1) * 8;
    }
    const vec words = _mm256_maskload_epi32((const int *)(const void *)p, _mm256_cmpgt_epi32(whole, lane));
    const vec behind = _mm256_and_si256(_mm256_cmpeq_epi32(lane, whole), _mm256_set1_epi32((int)rest));
    return _mm256_or_si256(words, behind);
}

/* ---- One byte a unit ---- */

static inline uint64_t short_length(const uint8_t *text, size_t n, bool latin1) {
    const vec cost = byte_cost(load_part(text, n), latin1);
    return n + total(widen(_mm256_sub_epi8(_mm256_setzero_si256(), cost))) - UL_ESCAPE_MAX * (32 - n);
}

static inline uint64_t byte_length(const uint8_t *text, size_t n, bool latin1) {
    static const uint8_t keep[64] = {
        [32] = 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255,        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
    };
    if (n < 32) return short_length(text, n, latin1);

    const vec zero = _mm256_setzero_si256();
    vec quads = zero;
    size_t i = 0;
    while (n - i >= 128) {
        size_t rounds = (n - i) / 128;
        if (rounds > SUMS_MAX / 2) rounds = SUMS_MAX / 2;
        vec even = zero, odd = zero;
        for (; rounds > 0; rounds--, i += 128) {
            prefetch(text + i);
            prefetch(text + i + 64);
            even = _mm256_sub_epi8(even, byte_cost(load(text + i), latin1));
            odd = _mm256_sub_epi8(odd, byte_cost(load(text + i + 32), latin1));
            even = _mm256_sub_epi8(even, byte_cost(load(text + i + 64), latin1));
            odd = _mm256_sub_epi8(odd, byte_cost(load(text + i + 96), latin1));
        }
        quads = _mm256_add_epi64(quads, _mm256_add_epi64(widen(even), widen(odd)));
    }
    vec last = zero;
    for (; n - i >= 32; i += 32) last = _mm256_sub_epi8(last, byte_cost(load(text + i), latin1));
    if (i < n) {
        /* The last 32 bytes once more, of which only those not yet counted are kept. */
        const vec cost = byte_cost(load(text + n - 32), latin1);
        last = _mm256_sub_epi8(last, _mm256_and_si256(cost, load(keep + (n - i))));
    }
    return n + total(_mm256_add_epi64(quads, widen(last)));
}

static uint64_t utf8_length(const uint8_t *text, size_t n) {
    return byte_length(text, n, false);
}

static uint64_t latin1_length(const uint8_t *text, size_t n) {
    return byte_length(text, n, true);
}

/* ---- Two bytes a unit ---- */

/* The cost of 32 units beyond one byte each.  The top five bits of a unit are zero below U+0800 and 0x1B in a
 * surrogate; lanes of `bad` are set where there is one. */
static inline vec unit_cost(vec a, vec b, vec *bad) {
    const vec byte_max = _mm256_set1_epi16(0xFF);
    const vec x = _mm256_packus_epi16(_mm256_min_epu16(a, byte_max), _mm256_min_epu16(b, byte_max));
    const vec top = _mm256_packus_epi16(_mm256_srli_epi16(a, 11), _mm256_srli_epi16(b, 11));
    *bad = _mm256_or_si256(*bad, _mm256_cmpeq_epi8(top, _mm256_set1_epi8(0xD800 >> 11)));
    return _mm256_add_epi8(byte_cost(x, true), _mm256_cmpgt_epi8(top, _mm256_setzero_si256()));
}

static inline bool any(vec lanes) {
    return !_mm256_testz_si256(lanes, lanes);
}

static uint64_t ucs2_length(const uint16_t *text, size_t n) {
    const vec zero = _mm256_setzero_si256();
    vec quads = zero, bad = zero;
    size_t i = 0;
    while (n - i >= 32) {
        size_t rounds = (n - i) / 32;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        vec sum = zero;
        for (; rounds > 0; rounds--, i += 32) {
            prefetch(text + i);
            sum = _mm256_sub_epi8(sum, unit_cost(load(text + i), load(text + i + 16), &bad));
        }
        quads = _mm256_add_epi64(quads, widen(sum));
    }
    uint64_t padding = 0;
    if (i < n) {
        const uint8_t *rest = (const uint8_t *)(text + i);
        const size_t bytes = (n - i) * 2;
        const vec a = bytes < 32 ? load_part(rest, bytes) : load(rest);
        const vec b = bytes > 32 ? load_part(rest + 32, bytes - 32) : zero;
        quads = _mm256_add_epi64(quads, widen(_mm256_sub_epi8(zero, unit_cost(a, b, &bad))));
        padding = 32 - (n - i);
    }
    return any(bad) ? UL_NOT_TEXT : n + total(quads) - UL_ESCAPE_MAX * padding;
}

/* ---- Four bytes a unit ---- */

/* 32 units.  Those above U+FFFF are packed into U+FFFF, for three bytes, and counted for the fourth. */
typedef struct {
    vec a, b, c, d;
} units4;

static inline vec units4_cost(units4 u, vec *bad) {
    return unit_cost(_mm256_packus_epi32(u.a, u.b), _mm256_packus_epi32(u.c, u.d), bad);
}

static inline vec units4_above(units4 u) {
    const vec two_bytes = _mm256_set1_epi32(0xFFFF);
    const vec ab = _mm256_add_epi32(_mm256_cmpgt_epi32(u.a, two_bytes), _mm256_cmpgt_epi32(u.b, two_bytes));
    const vec cd = _mm256_add_epi32(_mm256_cmpgt_epi32(u.c, two_bytes), _mm256_cmpgt_epi32(u.d, two_bytes));
    return _mm256_add_epi32(ab, cd);
}

/* n < 32 units and zeros after them; see load_part. */
static inline units4 units4_part(const uint32_t *text, size_t n) {
    const vec lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const vec count = _mm256_set1_epi32((int)n);
    const int *p = (const int *)(const void *)text;
    const vec eight = _mm256_set1_epi32(8);
    const vec lane_b = _mm256_add_epi32(lane, eight);
    const vec lane_c = _mm256_add_epi32(lane_b, eight);
    const vec lane_d = _mm256_add_epi32(lane_c, eight);
    return (units4){_mm256_maskload_epi32(p, _mm256_cmpgt_epi32(count, lane)),
                    _mm256_maskload_epi32(p + 8, _mm256_cmpgt_epi32(count, lane_b)),
                    _mm256_maskload_epi32(p + 16, _mm256_cmpgt_epi32(count, lane_c)),
                    _mm256_maskload_epi32(p + 24, _mm256_cmpgt_epi32(count, lane_d))};
}

static uint64_t ucs4_length(const uint32_t *text, size_t n) {
    const vec zero = _mm256_setzero_si256();
    vec quads = zero, bad = zero;
    size_t i = 0;
    while (n - i >= 32) {
        size_t rounds = (n - i) / 32;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        /* `above` holds at most four a round in a 32-bit lane: below 255, so that it widens like bytes. */
        vec sum = zero, above = zero;
        for (; rounds > 0; rounds--, i += 32) {
            prefetch(text + i);
            prefetch(text + i + 16);
            const units4 u = {load(text + i), load(text + i + 8), load(text + i + 16), load(text + i + 24)};
            sum = _mm256_sub_epi8(sum, units4_cost(u, &bad));
            above = _mm256_sub_epi32(above, units4_above(u));
        }
        quads = _mm256_add_epi64(quads, _mm256_add_epi64(widen(sum), widen(above)));
    }
    uint64_t padding = 0;
    if (i < n) {
        const units4 u = units4_part(text + i, n - i);
        const vec sum = _mm256_sub_epi8(zero, units4_cost(u, &bad));
        const vec above = _mm256_sub_epi32(zero, units4_above(u));
        quads = _mm256_add_epi64(quads, _mm256_add_epi64(widen(sum), widen(above)));
        padding = 32 - (n - i);
    }
    return any(bad) ? UL_NOT_TEXT : n + total(quads) - UL_ESCAPE_MAX * padding;
}

const ul_text_kernels ul_avx2_kernels = {"avx2",      utf8_length,     latin1_length,   ucs2_length,
                                         ucs4_length, ul_is_utf8_avx2, ul_utf8_run_avx2};
