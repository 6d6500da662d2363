/* column.h: elements of bound columns, inline for the loops that read many. */
#ifndef ULLAGE_COLUMN_H
#define ULLAGE_COLUMN_H

#include "ullage.h"

#include <stdbool.h>
#include <string.h>

static inline bool ul_is_text(ul_column_type type) {
    return type >= UL_COLUMN_STRING && type <= UL_COLUMN_STRING_VIEW;
}

static inline bool ul_is_list(ul_column_type type) {
    return type >= UL_COLUMN_LIST;
}

/* Says what is wrong with a column; false. */
bool ul_column_fail(const ul_column *columns, uint32_t at, const char *reason, ul_column_error *error);

/* Producers may keep numbers at any address; compilers make one load of a copy. */
#define UL_LOAD(type, name)                                                                                  \
    static inline type ul_load_##name(const void *values, int64_t i) {                                       \
        type value;                                                                                          \
        memcpy(&value, (const uint8_t *)values + (size_t)i * sizeof value, sizeof value);                    \
        return value;                                                                                        \
    }
UL_LOAD(int8_t, i8)
UL_LOAD(int16_t, i16)
UL_LOAD(int32_t, i32)
UL_LOAD(int64_t, i64)
UL_LOAD(uint8_t, u8)
UL_LOAD(uint16_t, u16)
UL_LOAD(uint32_t, u32)
UL_LOAD(uint64_t, u64)
UL_LOAD(float, f32)
UL_LOAD(double, f64)
#undef UL_LOAD

static inline bool ul_bit(const uint8_t *bits, int64_t i) {
    return (bits[i >> 3] >> (i & 7) & 1) != 0;
}

static inline bool ul_is_valid(const uint8_t *validity, int64_t i) {
    return validity == NULL || ul_bit(validity, i);
}

/* Finds element i: its values, and where in them it stands.  The place is inside the array or dictionary. */
ul_element ul_column_entry(const ul_column *column, int64_t *place);

static inline ul_element ul_column_place(const ul_column *column, int64_t i, const void **values,
                                         int64_t *place) {
    if (column->type == UL_COLUMN_NULL) return UL_ELEMENT_NULL;
    *place = column->offset + i;
    *values = column->values;
    if (!ul_is_valid(column->validity, *place)) return UL_ELEMENT_NULL;
    if (column->index_type == UL_COLUMN_OTHER) return UL_ELEMENT_VALUE;
    *values = column->entry_values;
    return ul_column_entry(column, place);
}

/* The range between two offsets, if it lies inside what they count in. */
static inline ul_element ul_offset_range(int64_t start, int64_t end, int64_t extent, int64_t *count) {
    if (start < 0 || end < start || end > extent) return UL_ELEMENT_BROKEN;
    *count = end - start;
    return UL_ELEMENT_VALUE;
}

ul_element ul_view_text(const ul_column *column, const uint8_t *view, const uint8_t **text, size_t *n);

/* ul_column_text */
static inline ul_element ul_text_at(const ul_column *column, int64_t i, const uint8_t **text, size_t *n) {
    const void *values;
    int64_t place, start, count;
    ul_element found = ul_column_place(column, i, &values, &place);
    if (found != UL_ELEMENT_VALUE) return found;
    if (column->type == UL_COLUMN_STRING_VIEW)
        return ul_view_text(column, (const uint8_t *)values + (size_t)place * 16, text, n);
    if (column->type == UL_COLUMN_STRING) {
        start = ul_load_i32(values, place);
        found = ul_offset_range(start, ul_load_i32(values, place + 1), column->extent, &count);
    } else {
        start = ul_load_i64(values, place);
        found = ul_offset_range(start, ul_load_i64(values, place + 1), column->extent, &count);
    }
    if (found != UL_ELEMENT_VALUE) return found;
    *n = (size_t)count;
    *text = column->text + start;
    return UL_ELEMENT_VALUE;
}

/* ul_column_struct */
static inline ul_element ul_struct_at(const ul_column *column, int64_t i) {
    if (column->type == UL_COLUMN_NULL) return UL_ELEMENT_NULL;
    return ul_is_valid(column->validity, column->offset + i) ? UL_ELEMENT_VALUE : UL_ELEMENT_NULL;
}

/* ul_column_list */
static inline ul_element ul_list_at(const ul_column *column, int64_t i, int64_t *first, int64_t *count) {
    const void *values;
    int64_t place, size;
    const ul_element found = ul_column_place(column, i, &values, &place);
    if (found != UL_ELEMENT_VALUE) return found;
    switch (column->type) {
    case UL_COLUMN_LIST:
        *first = ul_load_i32(values, place);
        return ul_offset_range(*first, ul_load_i32(values, place + 1), column->extent, count);
    case UL_COLUMN_LARGE_LIST:
        *first = ul_load_i64(values, place);
        return ul_offset_range(*first, ul_load_i64(values, place + 1), column->extent, count);
    case UL_COLUMN_LIST_VIEW:
        *first = ul_load_i32(values, place);
        size = ul_load_i32(column->sizes, place);
        break;
    default:
        *first = ul_load_i64(values, place);
        size = ul_load_i64(column->sizes, place);
        break;
    }
    if (*first < 0 || size < 0 || *first > column->extent || size > column->extent - *first)
        return UL_ELEMENT_BROKEN;
    *count = size;
    return UL_ELEMENT_VALUE;
}

/* ---- JSON of elements: column_json.c ---- */

/* Why an element has no length. */
typedef enum { UL_VALUE_OK = 0, UL_VALUE_NOT_UTF8, UL_VALUE_BROKEN } ul_value_status;

typedef struct {
    const ul_column *columns;
    const ul_measurer *measurer;
    uint32_t broken; /* the column that breaks the format, for UL_VALUE_BROKEN */
    bool not_json;   /* set where a number has no length: what follows it is read all the same */
} ul_column_reader;

/* Records the column that breaks the format. */
static inline ul_value_status ul_broken(ul_column_reader *reader, uint32_t column) {
    reader->broken = column;
    return UL_VALUE_BROKEN;
}

/* The escaped length of text, or UL_NOT_TEXT where it is not UTF-8. */
uint64_t ul_checked_length(const ul_measurer *measurer, const uint8_t *text, size_t n);

/* Adds the length of one element, with "null" for a null, and of a struct's members that are not null. */
ul_value_status ul_add_value(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length);

/* Adds `,"key":value`, or nothing where the element is null or its column ignored. */
ul_value_status ul_add_member(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length);

#endif
