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

static inline void check_block(vec a, vec b, ul_utf8_state *state) {
    const bool ascii = _mm256_movemask_epi8(_mm256_or_si256(a, b)) == 0;
    if (!ascii || state->inside) ul_check_block(a, b, ascii, state);
}

/* Less than a block, with spaces behind it: they show where text ends inside a character. */
static inline void last_block(const uint8_t *text, size_t n, uint8_t block[64]) {
    memset(block, ' ', 64);
    memcpy(block, text, n);
}

int ul_is_utf8_avx2(const uint8_t *text, size_t n) {
    ul_utf8_state state = ul_utf8_start();
    uint8_t last[64];
    size_t i = 0;
    for (; n - i >= 64; i += 64) check_block(load(text + i), load(text + i + 32), &state);
    last_block(text + i, n - i, last);
    check_block(load(last), load(last + 32), &state);
    return ul_is_sound(&state);
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
    ul_utf8_state utf8;
    vec lowest; /* the least of the bytes that do not become two */
    uint32_t sum;
} run_state;

static inline void count_block(const uint8_t *at, size_t block, run_state *state) {
    const vec a = load(at), b = load(at + 32);
    const vec in_a = ul_short_escapes(a), in_b = ul_short_escapes(b);
    const vec others = _mm256_min_epu8(_mm256_or_si256(a, in_a), _mm256_or_si256(b, in_b));
    const uint64_t special =
        (uint32_t)_mm256_movemask_epi8(in_a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(in_b) << 32;
    check_block(a, b, &state->utf8);
    state->lowest = _mm256_min_epu8(state->lowest, others);
    state->special[block] = special;
    state->before[block] = state->sum;
    state->sum += (uint32_t)_mm_popcnt_u64(special);
}

int ul_utf8_run_avx2(const uint8_t *text, const uint32_t *bounds, size_t n, uint64_t *lengths) {
    const vec space = _mm256_set1_epi8(' ');
    const size_t whole = bounds[n] / 64;
    uint8_t last[64];
    run_state state;
    state.utf8 = ul_utf8_start();
    state.lowest = space;
    state.sum = 0;
    for (size_t block = 0; block < whole; block++) {
        prefetch(text + block * 64);
        count_block(text + block * 64, block, &state);
    }
    last_block(text + whole * 64, bounds[n] % 64, last);
    count_block(last, whole, &state);
    /* A byte that becomes six has no bit: that is left to others. */
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(state.lowest, space)) != -1 || !ul_is_sound(&state.utf8))
        return 0;
    if (!state.utf8.ascii && !ul_begin_characters(text, bounds, n)) return 0;
    ul_share_out(state.special, state.before, bounds, n, lengths);
    return 1;
}
