/* json_scan.h: what the files that read JSON text share.
 *
 * All of them work on one ul_scan.  Functions that read take the place where they start and return the place
 * where they stop, or NULL after recording a fault. */
#ifndef ULLAGE_JSON_SCAN_H
#define ULLAGE_JSON_SCAN_H

#include "bits.h"
#include "ullage.h"

#include <stdbool.h>

/* ---- Members of open objects: json_members.c ---- */

typedef struct {
    uint64_t hash; /* of the decoded key */
    size_t key;    /* the key's offset in the text, behind its quote */
    uint64_t cost; /* what the member adds to the length, with its colon and one comma */
} ul_member;

/* Objects of so many members are searched one by one, and so many members need no scratch memory. */
#define UL_FEW_MEMBERS 64

/* An array or object that is being read. */
typedef struct {
    bool is_object;
    size_t first;    /* its first member's index; the members of open objects form one stack */
    uint64_t seen;   /* bit hash % 64 is set for every key so far, so that most new keys need no search */
    size_t slots;    /* of its hash table: a power of two, or 0 while it has few members */
    size_t current;  /* the member whose value is being read */
    uint64_t before; /* the length when that member began */
} ul_frame;

/* The stack lies in `few` until that is full and then at the low end of the scratch memory; hash tables lie
 * at the high end, that of the innermost object lowest.  `limit` is where the tables begin. */
typedef struct {
    ul_member *members;
    size_t count;
    void *limit;
    ul_member few[UL_FEW_MEMBERS];
} ul_members;

/* ---- The scan ---- */

typedef struct {
    const uint8_t *text, *end;
    const ul_json_scanner *scanner;
    uint64_t length;
    ul_json_status status;
    const uint8_t *fault;
    uint64_t key_secret; /* the second half of the hash's secret; the first is the scanner's seed */
    ul_members members;
    ul_frame frames[UL_MAX_DEPTH];
} ul_scan;

static inline const uint8_t *ul_fail(ul_scan *scan, ul_json_status status, const uint8_t *fault) {
    scan->status = status;
    scan->fault = fault;
    return NULL;
}

/* Takes the key with this hash, at this offset, to the frame's members and makes it the current one.  Where
 * the object has the key already, the old member's cost is taken off the length.  False if memory ran out. */
bool ul_enter_member(ul_scan *scan, ul_frame *frame, uint64_t hash, size_t key);

/* Forgets the members of an object that has been read. */
void ul_leave_object(ul_scan *scan, const ul_frame *frame);

/* ---- Strings: json_string.c ---- */

/* Reads a string from behind its opening quote to behind its closing one; `*length` is what it takes between
 * the quotes, `*escaped` whether it has escapes. */
const uint8_t *ul_scan_string(ul_scan *scan, const uint8_t *at, uint64_t *length, bool *escaped);

/* The hash of a key's decoded text; n bytes as written. */
uint64_t ul_key_hash(const ul_scan *scan, const uint8_t *key, size_t n, bool escaped);

/* Whether two keys, from behind their opening quotes, have the same decoded text. */
bool ul_same_key(const uint8_t *a, const uint8_t *b);

/* Where a word has a quote, a backslash or a control character: bit 7 of the byte.  Bytes above the first
 * such one may be marked wrongly, since the subtractions borrow; the first never is. */
static inline uint64_t ul_special_bytes(uint64_t word) {
    const uint64_t quote = word ^ UL_ONES * '"';
    const uint64_t backslash = word ^ UL_ONES * '\\';
    const uint64_t below_space = (word - UL_ONES * ' ') & ~word;
    return (below_space | ((quote - UL_ONES) & ~quote) | ((backslash - UL_ONES) & ~backslash)) & UL_HIGH_BITS;
}

/* The hash takes a key's bytes by eights, closed by 0xFF, which no UTF-8 text contains.  It multiplies by a
 * secret, so that keys which collide cannot be worked out without it. */
static inline uint64_t ul_hash_word(const ul_scan *scan, uint64_t hash, uint64_t word) {
    return ul_fold_multiply(hash ^ word, scan->key_secret);
}

static inline uint64_t ul_hash_last_word(const ul_scan *scan, uint64_t hash, uint64_t word, unsigned bits) {
    return ul_hash_word(scan, hash, word | UINT64_C(0xFF) << bits);
}

/* What most strings need: the closing quote of one that is short and ASCII without escapes, and its hash as a
 * key.  NULL leaves all others, and those within a word of the end, to the functions above.  Where the hash is
 * not used, the compiler leaves it out. */
static inline const uint8_t *ul_plain_string(const ul_scan *scan, const uint8_t *at, uint64_t *hash) {
    *hash = scan->scanner->seed;
    for (int words = 0; words < 4 && scan->end - at >= 8; words++, at += 8) {
        const uint64_t word = ul_load64(at);
        const uint64_t stop = ul_special_bytes(word) | (word & UL_HIGH_BITS);
        if (stop != 0) {
            const unsigned bits = ul_lowest_bit(stop) & ~7u;
            *hash = ul_hash_last_word(scan, *hash, word & ((UINT64_C(1) << bits) - 1), bits);
            at += bits / 8;
            return *at == '"' ? at : NULL;
        }
        *hash = ul_hash_word(scan, *hash, word);
    }
    return NULL;
}

/* ---- Numbers: json_number.c ---- */

/* Reads a number and adds its length. */
const uint8_t *ul_scan_number(ul_scan *scan, const uint8_t *at);

#endif
