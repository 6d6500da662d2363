/* json_string.c: strings in JSON text, their canonical length and the identity of keys. */
#include "json_length_internal.h"
#include "json_scan.h"

/* ---- Reading ---- */

/* Passes over text that stands for itself; `*high` collects the top bits of all of it.
 *
 * A run that has lasted a while usually lasts longer.  Then the kernels help: a block whose length as Latin-1
 * is its size has nothing to escape and is ASCII. */
static const uint8_t *plain_run(const ul_scan *scan, const uint8_t *at, uint64_t *high) {
    enum { PATIENCE = 64, BLOCK = 256 };
    const uint8_t *start = at;
    while (scan->end - at >= 8) {
        const uint64_t word = ul_load64(at);
        const uint64_t special = ul_special_bytes(word);
        if (special != 0) {
            const unsigned bits = ul_lowest_bit(special) & ~7u;
            *high |= word & ((UINT64_C(1) << bits) - 1);
            return at + bits / 8;
        }
        *high |= word;
        at += 8;
        if (at - start < PATIENCE) continue;
        while (scan->end - at >= BLOCK && scan->scanner->text->latin1(at, BLOCK) == BLOCK) at += BLOCK;
        start = at;
    }
    while (at < scan->end && *at >= 0x20 && *at != '"' && *at != '\\') *high |= *at++;
    return at;
}

/* One more than the value of a hexadecimal digit; 0 for any other byte. */
static const uint8_t digit_after[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

/* The value of four hexadecimal digits. */
static inline uint32_t hex4(const uint8_t *at) {
    return (digit_after[at[0]] - 1u) << 12 | (digit_after[at[1]] - 1u) << 8 | (digit_after[at[2]] - 1u) << 4 |
           (digit_after[at[3]] - 1u);
}

/* The four digits of a \u escape. */
static inline const uint8_t *scan_hex4(ul_scan *scan, const uint8_t *at, uint32_t *unit) {
    if (scan->end - at >= 4) {
        *unit = hex4(at); /* with a bit above the sixteenth where one is no digit */
        if (*unit <= 0xFFFF) return at + 4;
    }
    while (at < scan->end && digit_after[*at] != 0) at++;
    return ul_fail(scan, at == scan->end ? UL_JSON_END : UL_JSON_ESCAPE, at);
}

/* A \u escape, or two of them for a code point above U+FFFF. */
static const uint8_t *scan_unicode_escape(ul_scan *scan, const uint8_t *at, uint32_t *code_point) {
    const uint8_t *backslash = at;
    uint32_t low;
    at = scan_hex4(scan, at + 2, code_point);
    if (at == NULL || !ul_is_surrogate(*code_point)) return at;
    if (*code_point >= 0xDC00) return ul_fail(scan, UL_JSON_SURROGATE, backslash);
    for (int i = 0; i < 2; i++, at++) {
        if (at == scan->end) return ul_fail(scan, UL_JSON_END, at);
        if (*at != "\\u"[i]) return ul_fail(scan, UL_JSON_SURROGATE, backslash);
    }
    at = scan_hex4(scan, at, &low);
    if (at == NULL) return NULL;
    if (low < 0xDC00 || low > 0xDFFF) return ul_fail(scan, UL_JSON_SURROGATE, backslash);
    *code_point = 0x10000 + ((*code_point - 0xD800) << 10) + (low - 0xDC00);
    return at;
}

/* An escape from its backslash on; `*length` is what its character takes in canonical text. */
static const uint8_t *scan_escape(ul_scan *scan, const uint8_t *at, unsigned *length) {
    uint32_t code_point;
    if (scan->end - at < 2) return ul_fail(scan, UL_JSON_END, scan->end);
    switch (at[1]) {
    case '"':
    case '\\':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        *length = 2;
        return at + 2;
    case '/':
        *length = 1;
        return at + 2;
    case 'u':
        at = scan_unicode_escape(scan, at, &code_point);
        if (at != NULL) *length = ul_code_point_length(code_point);
        return at;
    default:
        return ul_fail(scan, UL_JSON_ESCAPE, at + 1);
    }
}

/* Passes over \u escapes of one unit each, as text outside ASCII has them one after the other; adds what
 * their characters take to `*length`. */
static inline const uint8_t *plain_escapes(const ul_scan *scan, const uint8_t *at, uint64_t *length) {
    while (scan->end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        const uint32_t unit = hex4(at + 2);
        if (unit > 0xFFFF || ul_is_surrogate(unit)) break;
        *length += ul_code_point_length(unit);
        at += 6;
    }
    return at;
}

/* Reports the bytes that are not UTF-8, if any come before the fault found. */
static const uint8_t *fail_in_string(ul_scan *scan, const uint8_t *start) {
    const uint8_t *invalid = start + ul_utf8_check(start, (size_t)(scan->fault - start));
    return invalid < scan->fault ? ul_fail(scan, UL_JSON_UTF8, invalid) : NULL;
}

const uint8_t *ul_scan_string(ul_scan *scan, const uint8_t *start, uint64_t *length, bool *escaped) {
    uint64_t high = 0;    /* bit 7 of any byte: not all is ASCII */
    uint64_t written = 0; /* bytes of escapes in this text */
    uint64_t needed = 0;  /* and in canonical text */
    const uint8_t *at = start;
    for (;;) {
        unsigned canonical;
        at = plain_run(scan, at, &high);
        if (at == scan->end) {
            ul_fail(scan, UL_JSON_END, at);
            return fail_in_string(scan, start);
        }
        if (*at == '"') break;
        if (*at != '\\') {
            ul_fail(scan, UL_JSON_CONTROL, at);
            return fail_in_string(scan, start);
        }
        const uint8_t *escape = at;
        at = plain_escapes(scan, at, &needed);
        if (at != escape) {
            written += (uint64_t)(at - escape);
            continue;
        }
        at = scan_escape(scan, at, &canonical);
        if (at == NULL) return fail_in_string(scan, start);
        written += (uint64_t)(at - escape);
        needed += canonical;
    }
    const size_t n = (size_t)(at - start);
    if ((high & UL_HIGH_BITS) != 0) {
        const size_t valid = ul_utf8_check(start, n);
        if (valid < n) return ul_fail(scan, UL_JSON_UTF8, start + valid);
    }
    *length = n - written + needed;
    *escaped = written > 0;
    return at + 1;
}

/* ---- Keys ---- */

/* The decoded bytes of a string that has been read without fault, one by one. */
typedef struct {
    const uint8_t *at;
    uint8_t utf8[4]; /* of the last escape, those still to come at the end */
    unsigned left;
} decoder;

/* Puts the code point's UTF-8 form at the end of `utf8`. */
static void encode(decoder *d, uint32_t code_point) {
    static const uint8_t lead[5] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    const unsigned n = 1u + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000);
    for (unsigned i = 3; i > 4 - n; i--, code_point >>= 6) d->utf8[i] = (uint8_t)(0x80 | (code_point & 0x3F));
    d->utf8[4 - n] = (uint8_t)(lead[n] | code_point);
    d->left = n;
}

static void decode_escape(decoder *d) {
    static const char names[] = "bfnrt", meant[] = "\b\f\n\r\t";
    const uint8_t name = d->at[1];
    if (name == 'u') {
        uint32_t code_point = hex4(d->at + 2);
        d->at += 6;
        if (ul_is_surrogate(code_point)) {
            code_point = 0x10000 + ((code_point - 0xD800) << 10) + (hex4(d->at + 2) - 0xDC00);
            d->at += 6;
        }
        encode(d, code_point);
        return;
    }
    uint8_t byte = name; /* a quote, backslash or slash is its own name */
    for (int i = 0; names[i] != '\0'; i++) {
        if (name == (uint8_t)names[i]) byte = (uint8_t)meant[i];
    }
    d->at += 2;
    encode(d, byte);
}

/* The next byte, or -1 at the end. */
static int next_byte(decoder *d) {
    if (d->left == 0) {
        if (*d->at == '"') return -1;
        if (*d->at != '\\') return *d->at++;
        decode_escape(d);
    }
    return d->utf8[4 - d->left--];
}

bool ul_same_key(const uint8_t *a, const uint8_t *b) {
    decoder left = {.at = a}, right = {.at = b};
    for (;;) {
        const int byte = next_byte(&left);
        if (byte != next_byte(&right)) return false;
        if (byte < 0) return true;
    }
}

static uint64_t hash_escaped(const ul_scan *scan, const uint8_t *key) {
    decoder d = {.at = key};
    uint64_t hash = scan->scanner->seed, word = 0;
    unsigned bits = 0;
    for (int byte; (byte = next_byte(&d)) >= 0;) {
        word |= (uint64_t)byte << bits;
        bits = (bits + 8) % 64;
        if (bits > 0) continue;
        hash = ul_hash_word(scan, hash, word);
        word = 0;
    }
    return ul_hash_last_word(scan, hash, word, bits);
}

uint64_t ul_key_hash(const ul_scan *scan, const uint8_t *key, size_t n, bool escaped) {
    if (escaped) return hash_escaped(scan, key);
    uint64_t hash = scan->scanner->seed;
    for (; n >= 8; n -= 8, key += 8) hash = ul_hash_word(scan, hash, ul_load64(key));
    return ul_hash_last_word(scan, hash, ul_load_part(key, n), (unsigned)n * 8);
}
