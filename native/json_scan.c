/* json_scan.c: reads JSON text for its canonical length.
 *
 * One pass over the text and no recursion: arrays and objects being read are frames in an array. */
#include "json_scan.h"

#include <string.h>

static inline const uint8_t *skip_white(const ul_scan *scan, const uint8_t *at) {
    while (at < scan->end && *at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

static const uint8_t *fail_here(ul_scan *scan, const uint8_t *at) {
    return ul_fail(scan, at == scan->end ? UL_JSON_END : UL_JSON_SYNTAX, at);
}

static const uint8_t *scan_literal(ul_scan *scan, const uint8_t *at, const char *literal) {
    for (; *literal != '\0'; literal++, at++, scan->length++) {
        if (at == scan->end || *at != (uint8_t)*literal) return fail_here(scan, at);
    }
    return at;
}

/* A string value, from behind its opening quote. */
static inline const uint8_t *scan_string(ul_scan *scan, const uint8_t *start) {
    uint64_t length, hash;
    bool escaped;
    const uint8_t *at = ul_plain_string(scan, start, &hash);
    if (at != NULL) {
        scan->length += (uint64_t)(at - start) + 2;
        return at + 1;
    }
    at = ul_scan_string(scan, start, &length, &escaped);
    if (at != NULL) scan->length += length + 2;
    return at;
}

/* A value that is neither array nor object. */
static const uint8_t *scan_scalar(ul_scan *scan, const uint8_t *at) {
    switch (*at) {
    case '"':
        return scan_string(scan, at + 1);
    case 't':
        return scan_literal(scan, at, "true");
    case 'f':
        return scan_literal(scan, at, "false");
    case 'n':
        return scan_literal(scan, at, "null");
    default:
        if (*at == '-' || (*at >= '0' && *at <= '9')) return ul_scan_number(scan, at);
        return fail_here(scan, at);
    }
}

/* A key, from behind its opening quote to behind its closing one. */
static inline const uint8_t *scan_key(ul_scan *scan, const uint8_t *key, uint64_t *length, uint64_t *hash) {
    bool escaped;
    const uint8_t *at = ul_plain_string(scan, key, hash);
    if (at != NULL) {
        *length = (uint64_t)(at - key);
        return at + 1;
    }
    at = ul_scan_string(scan, key, length, &escaped);
    if (at != NULL) *hash = ul_key_hash(scan, key, (size_t)(at - 1 - key), escaped);
    return at;
}

/* A member as far as its value.  It counts with a comma; closing the object takes one off again. */
static const uint8_t *scan_member(ul_scan *scan, ul_frame *frame, const uint8_t *at) {
    uint64_t length, hash;
    at = skip_white(scan, at);
    if (at == scan->end || *at != '"') return fail_here(scan, at);
    const uint8_t *key = at + 1;
    at = scan_key(scan, key, &length, &hash);
    if (at == NULL) return NULL;
    const size_t offset = (size_t)(key - scan->text);
    if (!ul_enter_member(scan, frame, hash, offset)) return ul_fail(scan, UL_JSON_SCRATCH, key);
    scan->length += length + 4; /* quotes, colon and comma */
    at = skip_white(scan, at);
    if (at == scan->end || *at != ':') return fail_here(scan, at);
    return at + 1;
}

static inline bool closes(const ul_scan *scan, const ul_frame *frame, const uint8_t *at) {
    return at < scan->end && *at == (frame->is_object ? '}' : ']');
}

/* Enters an array or object, as far as its first value; an empty one is passed over, `*depth` left alone. */
static const uint8_t *open_frame(ul_scan *scan, size_t *depth, const uint8_t *at) {
    if (*depth == UL_MAX_DEPTH) return ul_fail(scan, UL_JSON_DEPTH, at);
    ul_frame *frame = &scan->frames[*depth];
    frame->is_object = *at == '{';
    scan->length += 2;
    at = skip_white(scan, at + 1);
    if (closes(scan, frame, at)) return at + 1;
    ++*depth;
    if (!frame->is_object) return at;
    frame->first = scan->members.count;
    frame->seen = 0;
    frame->slots = 0;
    return scan_member(scan, frame, at);
}

/* What follows a value: a comma and, in an object, the next key; or the end of the array or object, which
 * then is a value itself.  Lowers `*depth` for each end; returns where the next value is, or behind all. */
static const uint8_t *after_value(ul_scan *scan, size_t *depth, const uint8_t *at) {
    for (; *depth > 0; --*depth, at++) {
        ul_frame *frame = &scan->frames[*depth - 1];
        at = skip_white(scan, at);
        if (frame->is_object) scan->members.members[frame->current].cost = scan->length - frame->before;
        if (at < scan->end && *at == ',') {
            if (frame->is_object) return scan_member(scan, frame, at + 1);
            scan->length++;
            return at + 1;
        }
        if (!closes(scan, frame, at)) return fail_here(scan, at);
        if (frame->is_object) {
            scan->length--;
            ul_leave_object(scan, frame);
        }
    }
    return at;
}

static const uint8_t *scan_value(ul_scan *scan, const uint8_t *at) {
    size_t depth = 0;
    do {
        at = skip_white(scan, at);
        if (at == scan->end) return fail_here(scan, at);
        const size_t outer = depth;
        at = *at == '{' || *at == '[' ? open_frame(scan, &depth, at) : scan_scalar(scan, at);
        if (at != NULL && depth == outer) at = after_value(scan, &depth, at);
    } while (at != NULL && depth > 0);
    return at;
}

static ul_json_kind kind_of(uint8_t first) {
    switch (first) {
    case '{':
        return UL_KIND_OBJECT;
    case '[':
        return UL_KIND_ARRAY;
    case '"':
        return UL_KIND_STRING;
    case 't':
    case 'f':
        return UL_KIND_BOOL;
    case 'n':
        return UL_KIND_NULL;
    default:
        return UL_KIND_NUMBER;
    }
}

/* Doubling keeps all attempts together linear in the text. */
static size_t more_scratch(size_t size) {
    const size_t least = 16384;
    if (size < least) return least;
    return size <= SIZE_MAX / 2 ? size * 2 : SIZE_MAX;
}

ul_json_status ul_json_text_length(const uint8_t *text, size_t n, const ul_json_scanner *scanner,
                                   ul_json_result *result) {
    /* Mostly memory that is written before it is read; clearing it would cost more than most scans. */
    ul_scan scan;
    scan.text = text;
    scan.end = text + n;
    scan.scanner = scanner;
    scan.length = 0;
    scan.status = UL_JSON_OK;
    scan.key_secret = (scanner->seed ^ UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xBF58476D1CE4E5B9) | 1;
    scan.members.members = scan.members.few;
    scan.members.count = 0;
    scan.members.limit = scan.members.few + UL_FEW_MEMBERS;

    const uint8_t *start = skip_white(&scan, text);
    const uint8_t *at = scan_value(&scan, start);
    if (at != NULL) {
        at = skip_white(&scan, at);
        if (at < scan.end) ul_fail(&scan, UL_JSON_TRAILING, at);
    }
    if (scan.status != UL_JSON_OK) {
        result->offset = (size_t)(scan.fault - text);
        result->wanted = scan.status == UL_JSON_SCRATCH ? more_scratch(scanner->scratch_size) : 0;
        return scan.status;
    }
    result->length = scan.length;
    result->kind = kind_of(*start);
    return UL_JSON_OK;
}

const char *ul_json_reason(ul_json_status status) {
    switch (status) {
    case UL_JSON_OK:
        return "the text is valid JSON";
    case UL_JSON_SCRATCH:
        return "more scratch memory is needed";
    case UL_JSON_END:
        return "the text ends inside a value";
    case UL_JSON_SYNTAX:
        return "this byte cannot stand here";
    case UL_JSON_TRAILING:
        return "something follows the value";
    case UL_JSON_CONTROL:
        return "a control character in a string must be escaped";
    case UL_JSON_ESCAPE:
        return "an unknown or broken escape";
    case UL_JSON_SURROGATE:
        return "an escape for a lone surrogate";
    case UL_JSON_UTF8:
        return "the bytes are not UTF-8";
    case UL_JSON_NUMBER:
        return "the number is too large for a double";
    case UL_JSON_DEPTH:
        return "more than 127 nested arrays and objects";
    }
    return "an unknown status";
}
