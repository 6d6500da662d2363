/* arrow_data.h: Arrow arrays made by hand, each buffer as long as it has to be and no longer. */
#ifndef ULLAGE_TESTS_ARROW_DATA_H
#define ULLAGE_TESTS_ARROW_DATA_H

#include "check.h"
#include "ullage.h"

#include <stdbool.h>

/* An array with its schema.  Whatever it points to is freed by free_data. */
typedef struct data {
    struct ArrowSchema schema;
    struct ArrowArray array;
    const void *buffers[8];
    struct ArrowSchema *schemas[16];
    struct ArrowArray *arrays[16];
    struct data *children[16];
    struct data *dictionary;
} data;

static inline data *new_data(const char *format, int64_t length, int64_t buffers) {
    data *made = calloc(1, sizeof *made);
    if (made == NULL) abort();
    made->schema.format = format;
    made->schema.name = "";
    made->schema.children = made->schemas;
    made->array.length = length;
    made->array.n_buffers = buffers;
    made->array.buffers = made->buffers;
    made->array.children = made->arrays;
    made->array.null_count = -1;
    return made;
}

static inline void free_data(data *made) {
    for (size_t i = 0; i < 8; i++) free((void *)(uintptr_t)made->buffers[i]);
    for (size_t i = 0; i < 16; i++) {
        if (made->children[i] != NULL) free_data(made->children[i]);
    }
    if (made->dictionary != NULL) free_data(made->dictionary);
    free(made);
}

static inline data *with_buffer(data *made, int64_t i, const void *bytes, size_t n) {
    made->buffers[i] = exact_copy(bytes, n);
    return made;
}

static inline data *with_child(data *made, const char *name, data *child) {
    const int64_t i = made->schema.n_children++;
    made->array.n_children = made->schema.n_children;
    made->schemas[i] = &child->schema;
    made->arrays[i] = &child->array;
    made->children[i] = child;
    child->schema.name = name;
    return made;
}

static inline data *with_dictionary(data *made, data *entries) {
    made->schema.dictionary = &entries->schema;
    made->array.dictionary = &entries->array;
    made->dictionary = entries;
    return made;
}

/* Bit i of the validity is set where valid[i] is. */
static inline data *with_validity(data *made, const bool *valid, int64_t n) {
    uint8_t bits[512] = {0};
    for (int64_t i = 0; i < n; i++) bits[i / 8] |= (uint8_t)(valid[i] << i % 8);
    return with_buffer(made, 0, bits, (size_t)(n + 7) / 8);
}

/* Texts, of which NULL is a null, in one of the ways that Arrow has. */
typedef enum { SMALL, LARGE, VIEWS, INDEXED, TEXT_KINDS } text_kind;

enum { MOST_TEXTS = 2048 };

static inline data *offset_texts(const char *const *texts, int64_t n, bool large) {
    static uint8_t bytes[1 << 20];
    int32_t small_offsets[MOST_TEXTS + 1] = {0};
    int64_t large_offsets[MOST_TEXTS + 1] = {0};
    size_t used = 0;
    for (int64_t i = 0; i < n; i++) {
        const size_t size = texts[i] != NULL ? strlen(texts[i]) : 0;
        if (size > 0) memcpy(bytes + used, texts[i], size);
        used += size;
        small_offsets[i + 1] = (int32_t)used;
        large_offsets[i + 1] = (int64_t)used;
    }
    data *made = new_data(large ? "U" : "u", n, 3);
    if (large) with_buffer(made, 1, large_offsets, (size_t)(n + 1) * 8);
    else with_buffer(made, 1, small_offsets, (size_t)(n + 1) * 4);
    return with_buffer(made, 2, bytes, used);
}

/* Long texts go to two buffers in turn. */
static inline data *view_texts(const char *const *texts, int64_t n) {
    static uint8_t bytes[2][1 << 19];
    static uint8_t views[MOST_TEXTS * 16];
    int64_t used[2] = {0, 0};
    memset(views, 0, sizeof views);
    for (int64_t i = 0; i < n; i++) {
        uint8_t *view = views + i * 16;
        const int32_t size = texts[i] != NULL ? (int32_t)strlen(texts[i]) : 0;
        memcpy(view, &size, 4);
        if (size <= 12) {
            if (size > 0) memcpy(view + 4, texts[i], (size_t)size);
            continue;
        }
        const int32_t block = (int32_t)(i % 2), start = (int32_t)used[block];
        memcpy(view + 4, texts[i], 4);
        memcpy(view + 8, &block, 4);
        memcpy(view + 12, &start, 4);
        memcpy(bytes[block] + start, texts[i], (size_t)size);
        used[block] += size;
    }
    data *made = with_buffer(new_data("vu", n, 5), 1, views, (size_t)n * 16);
    with_buffer(made, 2, bytes[0], (size_t)used[0]);
    with_buffer(made, 3, bytes[1], (size_t)used[1]);
    return with_buffer(made, 4, used, sizeof used);
}

static inline data *texts_of(text_kind kind, const char *const *texts, int64_t n) {
    bool valid[MOST_TEXTS];
    for (int64_t i = 0; i < n; i++) valid[i] = texts[i] != NULL;
    if (kind == INDEXED) {
        int16_t indexes[MOST_TEXTS];
        for (int64_t i = 0; i < n; i++) indexes[i] = (int16_t)(n - 1 - i);
        const char *reversed[MOST_TEXTS];
        for (int64_t i = 0; i < n; i++) reversed[i] = texts[n - 1 - i];
        data *made = with_buffer(new_data("s", n, 2), 1, indexes, (size_t)n * 2);
        return with_dictionary(with_validity(made, valid, n), offset_texts(reversed, n, false));
    }
    data *made = kind == VIEWS ? view_texts(texts, n) : offset_texts(texts, n, kind == LARGE);
    return with_validity(made, valid, n);
}

/* n lists one behind the other, of these sizes. */
static inline data *lists_of(data *child, const char *name, const int32_t *sizes, int64_t n) {
    int32_t offsets[MOST_TEXTS + 1] = {0};
    for (int64_t i = 0; i < n; i++) offsets[i + 1] = offsets[i] + sizes[i];
    return with_child(with_buffer(new_data("+l", n, 2), 1, offsets, (size_t)(n + 1) * 4), name, child);
}

/* Binds everything; NULL, with the error set, where it cannot be. */
static inline ul_column *bind_all(const data *made, ul_column_error *error) {
    const uint32_t count = ul_columns_count(&made->schema, -1);
    if (count == 0) return NULL;
    ul_column *columns = calloc(count, sizeof *columns);
    if (columns == NULL) abort();
    if (ul_columns_bind(&made->schema, &made->array, -1, columns, count, error) == count) return columns;
    free(columns);
    return NULL;
}

#endif
