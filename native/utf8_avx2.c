/* utf8_avx2.c: whether text is valid UTF-8, and the lengths of many texts that nobody has checked. */
#include "avx2.h"
#include "json_length_internal.h"

#include <string.h>

typedef __m256i vec;

static inline vec load(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* Bytes read ahead of the counting, into the second cache: what comes behind a run is read a little later. */
#define PREFETCH 6144

/* The address may lie past the text: no prefetch faults, but arithmetic on pointers must not go there. */
static inline void prefetch(const uint8_t *p) {
    _mm_prefetch((const char *)((uintptr_t)p + PREFETCH), _MM_HINT_T1);
}

/* ---- The check ---- */

/* What is known of all blocks of 64 bytes so far. */
typedef struct {
    vec before;  /* the last vector of the block before, unless all of that was ASCII */
    vec faults;  /* lanes that are not zero where something is wrong */
    bool inside; /* whether a character may go on from the block before */
    bool ascii;
} utf8_state;

static inline utf8_state utf8_start(void) {
    const vec zero = _mm256_setzero_si256();
    return (utf8_state){.before = zero, .faults = zero, .ascii = true};
}

/* What is ASCII needs no check, unless it cuts a character. */
static inline void check_block(vec a, vec b, utf8_state *state) {
    const bool ascii = _mm256_movemask_epi8(_mm256_or_si256(a, b)) == 0;
    if (ascii && !state->inside) return;
    const vec faults = _mm256_or_si256(ul_vector_faults(a, state->before), ul_vector_faults(b, a));
    state->faults = _mm256_or_si256(state->faults, faults);
    state->before = b;
    state->inside = !ascii;
    state->ascii = false;
}

/* Less than a block, with spaces behind it: they show where text ends inside a character. */
static inline void last_block(const uint8_t *text, size_t n, uint8_t block[64]) {
    memset(block, ' ', 64);
    memcpy(block, text, n);
}

int ul_is_utf8_avx2(const uint8_t *text, size_t n) {
    utf8_state state = utf8_start();
    uint8_t last[64];
    size_t i = 0;
    for (; n - i >= 64; i += 64) check_block(load(text + i), load(text + i + 32), &state);
    last_block(text + i, n - i, last);
    check_block(load(last), load(last + 32), &state);
    return _mm256_testz_si256(state.faults, state.faults);
}

/* ---- Many texts, one behind the other ----
 *
 * Short texts are slow one by one: each ends somewhere in a vector, and no processor foresees where.  Blocks of
 * 64 bytes are the same for all.  So special bytes are counted block by block, whoever's they are; those of a
 * text are the ones before its end less the ones before its start. */

enum { BLOCKS = UL_RUN_BYTES / 64 + 1 };

typedef struct {
    uint64_t special[BLOCKS]; /* a bit for each byte that becomes two */
    uint32_t before[BLOCKS];  /* how many of them there are in all blocks before */
    bool ascii;
} block_counts;

/* What count_blocks knows of all blocks so far. */
typedef struct {
    utf8_state utf8;
    vec lowest; /* the least of the bytes that do not become two */
    uint32_t sum;
} count_state;

static inline void count_block(const uint8_t *at, size_t block, block_counts *counts, count_state *state) {
    const vec a = load(at), b = load(at + 32);
    const vec in_a = ul_short_escapes(a), in_b = ul_short_escapes(b);
    const vec others = _mm256_min_epu8(_mm256_or_si256(a, in_a), _mm256_or_si256(b, in_b));
    const uint64_t special =
        (uint32_t)_mm256_movemask_epi8(in_a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(in_b) << 32;
    check_block(a, b, &state->utf8);
    state->lowest = _mm256_min_epu8(state->lowest, others);
    counts->special[block] = special;
    counts->before[block] = state->sum;
    state->sum += (uint32_t)_mm_popcnt_u64(special);
}

/* False where the text is not UTF-8, or has a byte that becomes six, for which there are no bits. */
static bool count_blocks(const uint8_t *text, size_t n, block_counts *counts) {
    const vec space = _mm256_set1_epi8(' ');
    const size_t whole = n / 64;
    count_state state = {utf8_start(), space, 0};
    uint8_t last[64];
    for (size_t block = 0; block < whole; block++) {
        prefetch(text + block * 64);
        count_block(text + block * 64, block, counts, &state);
    }
    last_block(text + whole * 64, n % 64, last);
    count_block(last, whole, counts, &state);
    counts->ascii = state.utf8.ascii;
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(state.lowest, space)) == -1 &&
           _mm256_testz_si256(state.utf8.faults, state.utf8.faults);
}

/* Whether no text begins inside a character: then each is valid if all of it together is. */
static bool begin_characters(const uint8_t *text, const uint32_t *bounds, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bounds[i] < bounds[n] && (text[bounds[i]] & 0xC0) == 0x80) return false;
    }
    return true;
}

int ul_utf8_run_avx2(const uint8_t *text, const uint32_t *bounds, size_t n, uint64_t *lengths) {
    block_counts counts;
    if (!count_blocks(text, bounds[n], &counts)) return 0;
    if (!counts.ascii && !begin_characters(text, bounds, n)) return 0;

    uint32_t start = 0, before = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t end = bounds[i + 1], block = end / 64;
        const uint64_t in_block = counts.special[block] & ((UINT64_C(1) << end % 64) - 1);
        const uint32_t up_to = counts.before[block] + (uint32_t)_mm_popcnt_u64(in_block);
        lengths[i] = end - start + up_to - before;
        start = end;
        before = up_to;
    }
    return 1;
}
