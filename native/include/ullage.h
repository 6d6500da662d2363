/* ullage.h: the whole native interface of ullage.
 *
 * Plain C11: no Python, no global state that changes, no allocation.  Whatever
 * a function needs beyond its arguments (scratch memory, the digits of a hard
 * double) the caller brings.  Every function may be called from any number of
 * threads at once, as long as they do not share an output or scratch memory.
 *
 * Lengths are bytes of compact UTF-8 JSON, counts of text are code units of the
 * stated size, token figures are unsigned 64-bit.  A function that can fail says
 * so and says how; the others cannot fail.
 */
#ifndef ULLAGE_H
#define ULLAGE_H

#include <stddef.h>
#include <stdint.h>

/* ---- Escaped length of text ------------------------------------------------
 *
 * The bytes that a text takes between the quotes of a JSON string in UTF-8:
 * `"`, `\`, backspace, tab, line feed, form feed and carriage return take two,
 * every other unit below 0x20 takes six, all else takes its UTF-8 length.
 */

/* Returned for text that has no UTF-8 form: a surrogate code point. */
#define UL_NOT_TEXT UINT64_MAX

/* One implementation of the four kernels.  `n` counts units, not bytes; no
 * pointer needs alignment beyond its unit's; nothing past unit n - 1 is read.
 *
 *   utf8    valid UTF-8, ASCII included; the bytes are not checked
 *   latin1  code points up to U+00FF, one byte each
 *   ucs2    code points up to U+FFFF, two bytes each; UL_NOT_TEXT on a surrogate
 *   ucs4    code points up to U+10FFFF, four bytes each; UL_NOT_TEXT likewise
 */
typedef struct {
    const char *name; /* "scalar", "sse2", "avx2" or "neon" */
    uint64_t (*utf8)(const uint8_t *text, size_t n);
    uint64_t (*latin1)(const uint8_t *text, size_t n);
    uint64_t (*ucs2)(const uint16_t *text, size_t n);
    uint64_t (*ucs4)(const uint32_t *text, size_t n);
} ul_text_kernels;

/* The fastest kernels that this processor runs.  Constant data, valid for the
 * life of the program; never NULL.  This is the only dispatch point. */
const ul_text_kernels *ul_text_kernels_best(void);

/* The kernels of that name, or NULL where this build or processor lacks them. */
const ul_text_kernels *ul_text_kernels_named(const char *name);

/* The offset of the first byte that is not valid UTF-8 (RFC 3629: shortest form,
 * no surrogates, nothing above U+10FFFF), or n where all of it is. */
size_t ul_utf8_check(const uint8_t *text, size_t n);

/* ---- Length of numbers -----------------------------------------------------*/

/* Decimal digits of v: 1 to 20. */
unsigned ul_u64_length(uint64_t v);

/* Decimal digits of v and its sign: 1 to 20. */
unsigned ul_i64_length(int64_t v);

/* The length of a finite double written shortest ("1.0", "1e+16", "1.5e-7",
 * "0.00001", "-0.0"), or 0 where the quick ways do not decide: then the caller
 * takes the shortest digits from elsewhere and calls ul_decimal_length. */
unsigned ul_double_length_quick(double x);

/* The length of a double whose shortest decimal is 0.d1d2...dn * 10^point, with
 * d1 and dn not zero, or n = 1, d1 = 0, point = 1 for zero. */
unsigned ul_decimal_length(int negative, unsigned n, int point);

/* ---- Canonical length of JSON text -----------------------------------------
 *
 * The text is read strictly (RFC 8259, valid UTF-8, no lone surrogate escapes,
 * no number that overflows a double) and its canonical compact length is found
 * without building it: no white space, the shortest escapes and numbers, and of
 * a repeated key only the last member.
 */

typedef enum {
    UL_JSON_OK = 0,
    UL_JSON_SCRATCH,        /* the scratch memory is too small; see `wanted` */
    UL_JSON_END,            /* the text ends inside a value */
    UL_JSON_SYNTAX,         /* a byte that cannot stand here */
    UL_JSON_TRAILING,       /* something follows the value */
    UL_JSON_CONTROL,        /* a raw control character in a string */
    UL_JSON_ESCAPE,         /* an unknown or broken escape */
    UL_JSON_SURROGATE,      /* an escape for a lone surrogate */
    UL_JSON_UTF8,           /* bytes that are not UTF-8 */
    UL_JSON_NUMBER,         /* a number that overflows a double */
    UL_JSON_DEPTH           /* more than UL_MAX_DEPTH nested arrays and objects */
} ul_json_status;

#define UL_MAX_DEPTH 127

typedef enum {
    UL_KIND_NULL, UL_KIND_BOOL, UL_KIND_NUMBER, UL_KIND_STRING, UL_KIND_ARRAY, UL_KIND_OBJECT
} ul_json_kind;

/* What a scan takes from its caller. */
typedef struct {
    const ul_text_kernels *text;
    /* The length of the shortest decimal of the double nearest to `digits` (n
     * bytes of JSON number grammar, not terminated), or 0 where it overflows.
     * Called only where the digits alone do not decide; `context` is handed
     * through. */
    unsigned (*number_length)(void *context, const char *digits, size_t n);
    void *context;
    uint64_t seed;    /* unpredictable, so that keys cannot be made to collide */
    void *scratch;    /* aligned for uint64_t; may be NULL where size is 0 */
    size_t scratch_size; /* bytes */
} ul_json_scanner;

typedef struct {
    uint64_t length;   /* canonical bytes, where the status is UL_JSON_OK */
    ul_json_kind kind; /* of the outermost value, likewise */
    size_t offset;     /* the byte at fault, for every other status */
    size_t wanted;     /* scratch bytes to try again with, for UL_JSON_SCRATCH */
} ul_json_result;

/* Reads n bytes of JSON text.  Time is linear in n, whatever the keys. */
ul_json_status ul_json_text_length(const uint8_t *text, size_t n, const ul_json_scanner *scanner,
                                   ul_json_result *result);

/* A sentence for a status, lower case, without a full stop. */
const char *ul_json_reason(ul_json_status status);

/* One member of an object or element of an array, as byte ranges of the text.
 * Keys are ranges between the quotes, as written; elements have an empty key. */
typedef struct {
    size_t key_start, key_end;
    size_t value_start, value_end;
} ul_json_span;

/* The members or elements of the object or array at `start` of a text that
 * ul_json_text_length has accepted (this function only skips, it does not
 * check again, but never reads past n).  Fills up to `capacity` spans and
 * returns how many there are, which may be more. */
size_t ul_json_children(const uint8_t *text, size_t n, size_t start, ul_json_span *spans, size_t capacity);

/* ---- Trimming whole turns --------------------------------------------------*/

typedef enum {
    UL_TRIM_FITS = 0,
    UL_TRIM_DOES_NOT_FIT,    /* nothing more may be removed */
    UL_TRIM_COUNT_LIMIT,     /* max_counts attempts were made */
    UL_TRIM_MESSAGES_OVERFLOW, /* the sum of message tokens passes 2^64 - 1 */
    UL_TRIM_TOTAL_OVERFLOW,  /* the four parts, or those and `reserved`, do */
    UL_TRIM_ZERO             /* a candidate of no tokens at all */
} ul_trim_status;

typedef struct {
    size_t turns;                  /* oldest first */
    const uint64_t *turn_tokens;   /* of each turn's messages */
    const uint8_t *turn_protected; /* not zero: never removed */
    uint64_t system;               /* the fixed parts of every candidate, in tokens */
    uint64_t current;
    uint64_t constraint;
    uint64_t template_tokens;
    uint64_t reserved;             /* output reserve and safety margin */
    uint64_t window;
    uint64_t max_counts;           /* attempts allowed, at least 1 */
} ul_trim_task;

typedef struct {
    size_t attempts; /* candidates counted, the last one included */
    size_t removed;  /* the first so many unprotected turns are gone */
} ul_trim_result;

/* Removes the oldest unprotected turn until the request fits.  A candidate's
 * messages cost `current` plus the tokens of the turns still there; it fits
 * where all parts and `reserved` together are at most `window`.
 *
 * attempt_messages: the message tokens of each attempt, one more than `turns`
 * entries at most; may be NULL.
 *
 * Attempts whose totals fail (overflow, zero) are not counted in `attempts`.
 * O(turns); no allocation. */
ul_trim_status ul_trim(const ul_trim_task *task, uint64_t *attempt_messages, ul_trim_result *result);

#endif
