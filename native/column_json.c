/* column_json.c: the length that an element of a column has as JSON. */
#include "column.h"

#include <math.h>

/* Text is read twice, to check it and to measure it; by pieces of this size the second time finds it in the
 * cache. */
#define PIECE 16384

uint64_t ul_checked_length(const ul_measurer *measurer, const uint8_t *text, size_t n) {
    const ul_text_kernels *kernels = measurer->scanner.text;
    uint64_t length = 0;
    while (n > PIECE) {
        size_t piece = PIECE; /* less where a character would be cut */
        while (piece > PIECE - 3 && (text[piece] & 0xC0) == 0x80) piece--;
        if (!kernels->is_utf8(text, piece)) return UL_NOT_TEXT;
        length += kernels->utf8(text, piece);
        text += piece;
        n -= piece;
    }
    return kernels->is_utf8(text, n) ? length + kernels->utf8(text, n) : UL_NOT_TEXT;
}

static ul_value_status add_text(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length) {
    const uint8_t *text;
    size_t n;
    const ul_element found = ul_text_at(&reader->columns[column], i, &text, &n);
    if (found == UL_ELEMENT_BROKEN) return ul_broken(reader, column);
    if (found == UL_ELEMENT_NULL) {
        *length += 4;
        return UL_VALUE_OK;
    }
    const uint64_t escaped = ul_checked_length(reader->measurer, text, n);
    if (escaped == UL_NOT_TEXT) return UL_VALUE_NOT_UTF8;
    *length += escaped + 2;
    return UL_VALUE_OK;
}

/* 0 where the double has no JSON form. */
static unsigned double_length(const ul_measurer *measurer, double x) {
    if (!isfinite(x)) return 0;
    const unsigned length = ul_double_length_quick(x);
    return length > 0 ? length : measurer->double_length(measurer->scanner.context, x);
}

static ul_value_status add_number(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length) {
    const ul_column_type type = reader->columns[column].type;
    ul_number number;
    const ul_element found = ul_column_number(&reader->columns[column], i, &number);
    if (found == UL_ELEMENT_BROKEN) return ul_broken(reader, column);
    if (found == UL_ELEMENT_NULL) {
        *length += 4;
    } else if (type == UL_COLUMN_BOOL) {
        *length += number.as_int ? 4 : 5;
    } else if (type <= UL_COLUMN_INT64) {
        *length += ul_i64_length(number.as_int);
    } else if (type <= UL_COLUMN_UINT64) {
        *length += ul_u64_length(number.as_uint);
    } else {
        const unsigned digits = double_length(reader->measurer, number.as_double);
        if (digits == 0) reader->not_json = true;
        *length += digits;
    }
    return UL_VALUE_OK;
}

static ul_value_status add_list(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length) {
    const ul_column *lists = &reader->columns[column];
    int64_t first, count;
    const ul_element found = ul_list_at(lists, i, &first, &count);
    if (found == UL_ELEMENT_BROKEN) return ul_broken(reader, column);
    if (found == UL_ELEMENT_NULL) {
        *length += 4;
        return UL_VALUE_OK;
    }
    *length += 2 + (uint64_t)(count > 0 ? count - 1 : 0);
    for (int64_t j = 0; j < count; j++) {
        const ul_value_status status = ul_add_value(reader, lists->child, first + j, length);
        if (status != UL_VALUE_OK) return status;
    }
    return UL_VALUE_OK;
}

/* Members come with a comma before them, of which the first has none. */
static ul_value_status add_struct(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length) {
    const ul_column *structs = &reader->columns[column];
    if (ul_struct_at(structs, i) == UL_ELEMENT_NULL) {
        *length += 4;
        return UL_VALUE_OK;
    }
    uint64_t members = 0;
    for (uint32_t child = structs->child; child != 0; child = reader->columns[child].next) {
        const ul_value_status status = ul_add_member(reader, child, i, &members);
        if (status != UL_VALUE_OK) return status;
    }
    *length += 2 + (members > 0 ? members - 1 : 0);
    return UL_VALUE_OK;
}

ul_value_status ul_add_value(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length) {
    switch (reader->columns[column].type) {
    case UL_COLUMN_OTHER:
    case UL_COLUMN_NULL:
        *length += 4;
        return UL_VALUE_OK;
    case UL_COLUMN_STRING:
    case UL_COLUMN_LARGE_STRING:
    case UL_COLUMN_STRING_VIEW:
        return add_text(reader, column, i, length);
    case UL_COLUMN_STRUCT:
        return add_struct(reader, column, i, length);
    case UL_COLUMN_LIST:
    case UL_COLUMN_LARGE_LIST:
    case UL_COLUMN_LIST_VIEW:
    case UL_COLUMN_LARGE_LIST_VIEW:
        return add_list(reader, column, i, length);
    default:
        return add_number(reader, column, i, length);
    }
}

/* Whether an element is null.  Of a dictionary that cannot be told before its index is found to be sound. */
static ul_element presence(const ul_column *column, int64_t i) {
    const void *values;
    int64_t place;
    if (column->ignored || column->all_null) return UL_ELEMENT_NULL;
    return ul_column_place(column, i, &values, &place);
}

ul_value_status ul_add_member(ul_column_reader *reader, uint32_t column, int64_t i, uint64_t *length) {
    const ul_column *members = &reader->columns[column];
    const ul_element found = presence(members, i);
    if (found == UL_ELEMENT_BROKEN) return ul_broken(reader, column);
    if (found == UL_ELEMENT_NULL) return UL_VALUE_OK;
    *length += members->key_length + strlen(",\"\":");
    return ul_add_value(reader, column, i, length);
}
