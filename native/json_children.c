/* json_children.c: where the members of an object or the elements of an array lie in accepted text. */
#include "ullage.h"

#include <stdbool.h>

static bool is_white(uint8_t c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static size_t skip_white(const uint8_t *text, size_t n, size_t i) {
    while (i < n && is_white(text[i])) i++;
    return i;
}

/* From behind a string's opening quote to its closing one. */
static size_t string_end(const uint8_t *text, size_t n, size_t i) {
    while (i < n && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    return i < n ? i : n;
}

/* From a value's first byte to behind its last. */
static size_t value_end(const uint8_t *text, size_t n, size_t i) {
    for (size_t depth = 0; i < n; i++) {
        const uint8_t c = text[i];
        if (c == '"') {
            i = string_end(text, n, i + 1);
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0) return i;
            depth--;
        } else if (depth == 0 && (c == ',' || is_white(c))) {
            return i;
        }
    }
    return n;
}

size_t ul_json_children(const uint8_t *text, size_t n, size_t start, ul_json_span *spans, size_t capacity) {
    size_t count = 0;
    if (start >= n) return 0;
    const bool object = text[start] == '{';
    size_t i = skip_white(text, n, start + 1);
    while (i < n && text[i] != '}' && text[i] != ']') {
        ul_json_span span = {i, i, i, i};
        if (object) {
            span.key_start = i + 1;
            span.key_end = string_end(text, n, i + 1);
            const size_t colon = skip_white(text, n, span.key_end + 1);
            i = skip_white(text, n, colon + 1);
        }
        span.value_start = i;
        span.value_end = i = value_end(text, n, i);
        if (count < capacity) spans[count] = span;
        count++;
        i = skip_white(text, n, i);
        if (i < n && text[i] == ',') i = skip_white(text, n, i + 1);
    }
    return count;
}
