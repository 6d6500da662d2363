/* json_length_sse2.c: the escaped length of text, 16 bytes at a time, on any x86-64.
 *
 * The same plan as json_length_avx2.c, where it is explained.  SSE2 has no table look-up by byte, so the
 * seven bytes with short escapes are found by comparing, and unsigned words are clamped by subtracting. */
#include "json_length_internal.h"

#if defined(UL_HAVE_SSE2)

#include "bits.h"

#include <emmintrin.h>

typedef __m128i vec;

/* Vectors that one sum of byte lanes can take before a lane may pass 255. */
#define SUMS_MAX (255 / UL_ESCAPE_MAX)

static inline vec load(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

static inline vec widen(vec bytes) {
    return _mm_sad_epu8(bytes, _mm_setzero_si128());
}

static inline uint64_t total(vec quads) {
    return (uint64_t)_mm_cvtsi128_si64(_mm_add_epi64(quads, _mm_unpackhi_epi64(quads, quads)));
}

static inline bool any(vec lanes) {
    return _mm_movemask_epi8(lanes) != 0;
}

static inline vec equal(vec x, char c) {
    return _mm_cmpeq_epi8(x, _mm_set1_epi8(c));
}

/* Lanes of x that are at most `limit`, unsigned. */
static inline vec at_most(vec x, char limit) {
    return _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(limit)), x);
}

/* -1 for what becomes two bytes, -5 for what becomes six. */
static inline vec escapes(vec x) {
    const vec in_row = at_most(_mm_sub_epi8(x, _mm_set1_epi8('\b')), '\r' - '\b');
    const vec quoted = _mm_or_si128(equal(x, '"'), equal(x, '\\'));
    const vec is_named = _mm_or_si128(_mm_andnot_si128(equal(x, '\v'), in_row), quoted);
    const vec is_control = at_most(x, 0x1F);
    return _mm_or_si128(is_named, _mm_and_si128(is_control, _mm_set1_epi8(-UL_ESCAPE_MAX)));
}

static inline vec byte_cost(vec x, bool latin1) {
    if (!latin1) return escapes(x);
    return _mm_or_si128(escapes(x), _mm_cmpgt_epi8(_mm_setzero_si128(), x));
}

/* Fewer than 16 bytes, followed by zeros. */
static inline vec load_part(const uint8_t *p, size_t bytes) {
    if (bytes < 8) return _mm_cvtsi64_si128((long long)ul_load_part(p, bytes));
    return _mm_set_epi64x((long long)ul_load_part(p + 8, bytes - 8), (long long)ul_load64(p));
}

/* ---- One byte a unit ---- */

static inline uint64_t byte_length(const uint8_t *text, size_t n, bool latin1) {
    const vec zero = _mm_setzero_si128();
    vec quads = zero;
    size_t i = 0;
    while (n - i >= 32) {
        size_t rounds = (n - i) / 32;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        vec even = zero, odd = zero;
        for (; rounds > 0; rounds--, i += 32) {
            even = _mm_sub_epi8(even, byte_cost(load(text + i), latin1));
            odd = _mm_sub_epi8(odd, byte_cost(load(text + i + 16), latin1));
        }
        quads = _mm_add_epi64(quads, _mm_add_epi64(widen(even), widen(odd)));
    }
    vec last = zero;
    if (n - i >= 16) {
        last = _mm_sub_epi8(last, byte_cost(load(text + i), latin1));
        i += 16;
    }
    uint64_t padding = 0;
    if (i < n) {
        last = _mm_sub_epi8(last, byte_cost(load_part(text + i, n - i), latin1));
        padding = 16 - (n - i);
    }
    return n + total(_mm_add_epi64(quads, widen(last))) - UL_ESCAPE_MAX * padding;
}

static uint64_t utf8_length(const uint8_t *text, size_t n) {
    return byte_length(text, n, false);
}

static uint64_t latin1_length(const uint8_t *text, size_t n) {
    return byte_length(text, n, true);
}

/* ---- Two bytes a unit ---- */

/* x, but at most 0xFF in every lane. */
static inline vec clamp_to_byte(vec x) {
    return _mm_sub_epi16(x, _mm_subs_epu16(x, _mm_set1_epi16(0xFF)));
}

/* The cost of 16 units beyond one byte each; lanes of `bad` are set for surrogates. */
static inline vec unit_cost(vec a, vec b, vec *bad) {
    const vec x = _mm_packus_epi16(clamp_to_byte(a), clamp_to_byte(b));
    const vec top = _mm_packus_epi16(_mm_srli_epi16(a, 11), _mm_srli_epi16(b, 11));
    *bad = _mm_or_si128(*bad, _mm_cmpeq_epi8(top, _mm_set1_epi8(0xD800 >> 11)));
    return _mm_add_epi8(byte_cost(x, true), _mm_cmpgt_epi8(top, _mm_setzero_si128()));
}

static uint64_t ucs2_length(const uint16_t *text, size_t n) {
    const vec zero = _mm_setzero_si128();
    vec quads = zero, bad = zero;
    size_t i = 0;
    while (n - i >= 16) {
        size_t rounds = (n - i) / 16;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        vec sum = zero;
        for (; rounds > 0; rounds--, i += 16) {
            sum = _mm_sub_epi8(sum, unit_cost(load(text + i), load(text + i + 8), &bad));
        }
        quads = _mm_add_epi64(quads, widen(sum));
    }
    uint64_t padding = 0;
    if (i < n) {
        const uint8_t *rest = (const uint8_t *)(text + i);
        const size_t bytes = (n - i) * 2;
        const vec a = bytes < 16 ? load_part(rest, bytes) : load(rest);
        const vec b = bytes > 16 ? load_part(rest + 16, bytes - 16) : zero;
        quads = _mm_add_epi64(quads, widen(_mm_sub_epi8(zero, unit_cost(a, b, &bad))));
        padding = 16 - (n - i);
    }
    return any(bad) ? UL_NOT_TEXT : n + total(quads) - UL_ESCAPE_MAX * padding;
}

/* ---- Four bytes a unit ---- */

typedef struct {
    vec low, high; /* eight units each, those above U+FFFF packed into U+FFFF */
    vec above;     /* minus the number of those, in lanes of 32 bits */
} packed16;

/* SSE2 packs signed words only: shift the range down, pack with saturation, shift it back. */
static inline vec pack_units(vec a, vec b) {
    const vec middle = _mm_set1_epi32(0x8000);
    const vec packed = _mm_packs_epi32(_mm_sub_epi32(a, middle), _mm_sub_epi32(b, middle));
    return _mm_xor_si128(packed, _mm_set1_epi16((short)0x8000));
}

static inline packed16 pack16(const vec u[4]) {
    const vec two_bytes = _mm_set1_epi32(0xFFFF);
    const vec ab = _mm_add_epi32(_mm_cmpgt_epi32(u[0], two_bytes), _mm_cmpgt_epi32(u[1], two_bytes));
    const vec cd = _mm_add_epi32(_mm_cmpgt_epi32(u[2], two_bytes), _mm_cmpgt_epi32(u[3], two_bytes));
    return (packed16){pack_units(u[0], u[1]), pack_units(u[2], u[3]), _mm_add_epi32(ab, cd)};
}

/* Four units from `i` on, with zeros for those from n on. */
static inline vec load4(const uint32_t *text, size_t i, size_t n) {
    if (i >= n) return _mm_setzero_si128();
    return n - i < 4 ? load_part((const uint8_t *)(text + i), (n - i) * 4) : load(text + i);
}

static uint64_t ucs4_length(const uint32_t *text, size_t n) {
    const vec zero = _mm_setzero_si128();
    vec quads = zero, bad = zero;
    size_t i = 0;
    while (n - i >= 16) {
        size_t rounds = (n - i) / 16;
        if (rounds > SUMS_MAX) rounds = SUMS_MAX;
        /* `above` holds at most four a round in a 32-bit lane: below 255, so that it widens like bytes. */
        vec sum = zero, above = zero;
        for (; rounds > 0; rounds--, i += 16) {
            const vec loaded[4] = {load(text + i), load(text + i + 4), load(text + i + 8),
                                   load(text + i + 12)};
            const packed16 u = pack16(loaded);
            sum = _mm_sub_epi8(sum, unit_cost(u.low, u.high, &bad));
            above = _mm_sub_epi32(above, u.above);
        }
        quads = _mm_add_epi64(quads, _mm_add_epi64(widen(sum), widen(above)));
    }
    uint64_t padding = 0;
    if (i < n) {
        const vec loaded[4] = {load4(text, i, n), load4(text, i + 4, n), load4(text, i + 8, n),
                               load4(text, i + 12, n)};
        const packed16 u = pack16(loaded);
        const vec sum = _mm_sub_epi8(zero, unit_cost(u.low, u.high, &bad));
        quads = _mm_add_epi64(quads, _mm_add_epi64(widen(sum), widen(_mm_sub_epi32(zero, u.above))));
        padding = 16 - (n - i);
    }
    return any(bad) ? UL_NOT_TEXT : n + total(quads) - UL_ESCAPE_MAX * padding;
}

const ul_text_kernels ul_sse2_kernels = {"sse2",      utf8_length, latin1_length, ucs2_length,
                                         ucs4_length, ul_is_utf8,  NULL};

#endif
