/* avx2.h: what the files compiled for AVX2 share. */
#ifndef ULLAGE_AVX2_H
#define ULLAGE_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define UL_TWICE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)

/* -1 for a byte that JSON escapes with two.
 *
 * The seven of them are recognised by looking up their low four bits and comparing.  Form feed (0x0C) and
 * backslash (0x5C) would share an entry; capping the index at 0x5B moves the backslash, and with it all higher
 * bytes, to the entry that the vertical tab leaves free. */
static inline __m256i ul_short_escapes(__m256i x) {
    const __m256i named = UL_TWICE(1, 0, '"', 0, 0, 0, 0, 0, '\b', '\t', '\n', '\\', '\f', '\r', 0, 0);
    const __m256i index = _mm256_min_epu8(x, _mm256_set1_epi8('\\' - 1));
    return _mm256_cmpeq_epi8(_mm256_shuffle_epi8(named, index), x);
}

/* ---- UTF-8 ----
 *
 * The method is that of J. Keiser and D. Lemire, "Validating UTF-8 in less than one instruction per byte",
 * Software: Practice and Experience 51 (2021).  Whatever is wrong within two bytes shows in three of their four
 * half bytes: the two of the first, and the upper one of the second.  Each of the three is looked up in a table
 * that tells, a bit for each kind of fault, which faults it allows; what all three allow is there.  One of these
 * bits, two continuations in a row, is no fault where the second is the third or fourth byte of a character. */

enum {
    UL_TOO_SHORT = 1 << 0,  /* a lead byte, and no continuation behind it */
    UL_TOO_LONG = 1 << 1,   /* a continuation behind ASCII */
    UL_OVERLONG_3 = 1 << 2, /* E0 80 to E0 9F */
    UL_TOO_LARGE = 1 << 3,  /* F4 90 and on, F5 90 and on, and so forth */
    UL_SURROGATE = 1 << 4,  /* ED A0 to ED BF */
    UL_OVERLONG_2 = 1 << 5, /* C0 and C1 */
    UL_OVERLONG_4 = 1 << 6, /* F0 80 to F0 8F */
    UL_FAR_TOO_LARGE = 1
        << 6,              /* F5 80 to F5 8F and so forth: shares a bit, since no first half byte has both */
    UL_CONTINUED = 1 << 7, /* two continuations in a row */
    UL_ANY_FIRST = UL_TOO_SHORT | UL_TOO_LONG | UL_CONTINUED, /* whatever the lower half of the first byte */
    UL_BEYOND = UL_ANY_FIRST | UL_TOO_LARGE | UL_FAR_TOO_LARGE
};

#define UL_ENTRY(bits) ((char)(bits))
#define UL_FOUR(bits) UL_ENTRY(bits), UL_ENTRY(bits), UL_ENTRY(bits), UL_ENTRY(bits)

static inline __m256i ul_lower_half(__m256i x) {
    return _mm256_and_si256(x, _mm256_set1_epi8(0x0F));
}

static inline __m256i ul_upper_half(__m256i x) {
    return ul_lower_half(_mm256_srli_epi16(x, 4));
}

/* What may be wrong between each byte and the one before it. */
static inline __m256i ul_pair_faults(__m256i first, __m256i second) {
    const __m256i by_upper =
        UL_TWICE(UL_FOUR(UL_TOO_LONG), UL_FOUR(UL_TOO_LONG), UL_FOUR(UL_CONTINUED),
                 UL_ENTRY(UL_TOO_SHORT | UL_OVERLONG_2), UL_ENTRY(UL_TOO_SHORT),
                 UL_ENTRY(UL_TOO_SHORT | UL_OVERLONG_3 | UL_SURROGATE),
                 UL_ENTRY(UL_TOO_SHORT | UL_TOO_LARGE | UL_FAR_TOO_LARGE | UL_OVERLONG_4));
    const __m256i by_lower =
        UL_TWICE(UL_ENTRY(UL_ANY_FIRST | UL_OVERLONG_2 | UL_OVERLONG_3 | UL_OVERLONG_4),
                 UL_ENTRY(UL_ANY_FIRST | UL_OVERLONG_2), UL_ENTRY(UL_ANY_FIRST), UL_ENTRY(UL_ANY_FIRST),
                 UL_ENTRY(UL_ANY_FIRST | UL_TOO_LARGE), UL_ENTRY(UL_BEYOND), UL_ENTRY(UL_BEYOND),
                 UL_ENTRY(UL_BEYOND), UL_FOUR(UL_BEYOND), UL_ENTRY(UL_BEYOND),
                 UL_ENTRY(UL_BEYOND | UL_SURROGATE), UL_ENTRY(UL_BEYOND), UL_ENTRY(UL_BEYOND));
    const __m256i by_second =
        UL_TWICE(UL_FOUR(UL_TOO_SHORT), UL_FOUR(UL_TOO_SHORT),
                 UL_ENTRY(UL_TOO_LONG | UL_CONTINUED | UL_OVERLONG_2 | UL_OVERLONG_3 | UL_OVERLONG_4),
                 UL_ENTRY(UL_TOO_LONG | UL_CONTINUED | UL_OVERLONG_2 | UL_OVERLONG_3 | UL_TOO_LARGE),
                 UL_ENTRY(UL_TOO_LONG | UL_CONTINUED | UL_OVERLONG_2 | UL_SURROGATE | UL_TOO_LARGE),
                 UL_ENTRY(UL_TOO_LONG | UL_CONTINUED | UL_OVERLONG_2 | UL_SURROGATE | UL_TOO_LARGE),
                 UL_FOUR(UL_TOO_SHORT));
    return _mm256_and_si256(_mm256_and_si256(_mm256_shuffle_epi8(by_upper, ul_upper_half(first)),
                                             _mm256_shuffle_epi8(by_lower, ul_lower_half(first))),
                            _mm256_shuffle_epi8(by_second, ul_upper_half(second)));
}

/* The bytes that stand so many places before those of x; `before` is the vector before it. */
#define UL_PLACES_BEFORE(x, before, places)                                                                  \
    _mm256_alignr_epi8(x, _mm256_permute2x128_si256(before, x, 0x21), 16 - (places))

/* Lanes that are not zero where a vector is wrong, given the one before it. */
static inline __m256i ul_vector_faults(__m256i x, __m256i before) {
    const __m256i third =
        _mm256_subs_epu8(UL_PLACES_BEFORE(x, before, 2), _mm256_set1_epi8((char)(0xE0 - 0x80)));
    const __m256i fourth =
        _mm256_subs_epu8(UL_PLACES_BEFORE(x, before, 3), _mm256_set1_epi8((char)(0xF0 - 0x80)));
    const __m256i must_continue =
        _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(UL_ENTRY(UL_CONTINUED)));
    return _mm256_xor_si256(must_continue, ul_pair_faults(UL_PLACES_BEFORE(x, before, 1), x));
}

/* What is known of all blocks of 64 bytes so far. */
typedef struct {
    __m256i before; /* the last vector of the block before, unless all of that was ASCII */
    __m256i faults; /* lanes that are not zero where something is wrong */
    bool inside;    /* whether a character may go on from the block before */
    bool ascii;
} ul_utf8_state;

static inline ul_utf8_state ul_utf8_start(void) {
    const __m256i zero = _mm256_setzero_si256();
    return (ul_utf8_state){.before = zero, .faults = zero, .ascii = true};
}

static inline bool ul_is_sound(const ul_utf8_state *state) {
    return _mm256_testz_si256(state->faults, state->faults);
}

/* Takes the next block, of two vectors.  What is ASCII need not be taken, unless it may cut a character. */
static inline void ul_check_block(__m256i a, __m256i b, bool ascii, ul_utf8_state *state) {
    const __m256i faults = _mm256_or_si256(ul_vector_faults(a, state->before), ul_vector_faults(b, a));
    state->faults = _mm256_or_si256(state->faults, faults);
    state->before = b;
    state->inside = !ascii;
    state->ascii = false;
}

/* ---- Texts that stand one behind the other ---- */

/* Whether no text begins inside a character: then each is valid if all of it together is. */
static inline bool ul_begin_characters(const uint8_t *text, const uint32_t *bounds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bounds[i] < bounds[n] && (text[bounds[i]] & 0xC0) == 0x80) return false;
    }
    return true;
}

/* The lengths of texts of which bytes become two that have a bit in `special`, one word for each block of 64;
 * `before` is how many there are in all blocks before. */
static inline void ul_share_out(const uint64_t *special, const uint32_t *before, const uint32_t *bounds,
                                size_t n, uint64_t *lengths) {
    uint32_t start = 0, passed = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t end = bounds[i + 1], block = end / 64;
        const uint64_t in_block = special[block] & ((UINT64_C(1) << end % 64) - 1);
        const uint32_t up_to = before[block] + (uint32_t)_mm_popcnt_u64(in_block);
        lengths[i] = end - start + up_to - passed;
        start = end;
        passed = up_to;
    }
}

#endif
