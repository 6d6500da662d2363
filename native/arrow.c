/* arrow.c: columns of the Arrow C data interface, bound in place.
 *
 * After "The Arrow C data interface" and "Arrow Columnar Format" of the Arrow documentation.  A slice shares
 * the buffers of its array and differs in offset and length; of a struct that holds for its children too,
 * whose own offsets come on top. */
#include "column.h"

/* ---- Types ---- */

typedef struct {
    char format[4];
    uint8_t buffers; /* how many, of those whose number is fixed */
    ul_column_type type;
} known_type;

static const known_type known_types[] = {
    {"n", 0, UL_COLUMN_NULL},         {"b", 2, UL_COLUMN_BOOL},
    {"c", 2, UL_COLUMN_INT8},         {"s", 2, UL_COLUMN_INT16},
    {"i", 2, UL_COLUMN_INT32},        {"l", 2, UL_COLUMN_INT64},
    {"C", 2, UL_COLUMN_UINT8},        {"S", 2, UL_COLUMN_UINT16},
    {"I", 2, UL_COLUMN_UINT32},       {"L", 2, UL_COLUMN_UINT64},
    {"f", 2, UL_COLUMN_FLOAT},        {"g", 2, UL_COLUMN_DOUBLE},
    {"u", 3, UL_COLUMN_STRING},       {"U", 3, UL_COLUMN_LARGE_STRING},
    {"vu", 3, UL_COLUMN_STRING_VIEW}, {"+s", 1, UL_COLUMN_STRUCT},
    {"+l", 2, UL_COLUMN_LIST},        {"+L", 2, UL_COLUMN_LARGE_LIST},
    {"+vl", 3, UL_COLUMN_LIST_VIEW},  {"+vL", 3, UL_COLUMN_LARGE_LIST_VIEW},
};

static const known_type *find_type(const char *format) {
    for (size_t i = 0; i < sizeof known_types / sizeof *known_types; i++) {
        if (strcmp(known_types[i].format, format) == 0) return &known_types[i];
    }
    return NULL;
}

static bool is_integer(ul_column_type type) {
    return type >= UL_COLUMN_INT8 && type <= UL_COLUMN_UINT64;
}

/* ---- Binding ---- */

typedef struct {
    ul_column *columns;
    uint32_t capacity, count;
    ul_column_error *error;
} binding;

/* Writes the names of a column and of those around it, the outermost first.  The name of a list's child says
 * nothing: every producer has one of its own. */
static size_t write_path(const ul_column *columns, uint32_t at, char *out, size_t room) {
    size_t used = at == 0 ? 0 : write_path(columns, columns[at].parent, out, room);
    const char *name = at > 0 && ul_is_list(columns[columns[at].parent].type) ? "" : columns[at].name;
    if (used > 0 && *name != '\0' && used + 1 < room) out[used++] = '.';
    while (*name != '\0' && used + 1 < room) out[used++] = *name++;
    out[used] = '\0';
    return used;
}

bool ul_column_fail(const ul_column *columns, uint32_t at, const char *reason, ul_column_error *error) {
    error->reason = reason;
    write_path(columns, at, error->column, sizeof error->column);
    return false;
}

static const char OUT_OF_RANGE[] = "has a length or an offset out of range";

/* Lengths and offsets up to here can be added and multiplied by the size of any element. */
#define MOST_ELEMENTS (INT64_MAX / 32)

static bool in_range(const struct ArrowArray *array) {
    return array->length >= 0 && array->offset >= 0 && array->length <= MOST_ELEMENTS - array->offset;
}

static const void *buffer_of(const struct ArrowArray *array, int64_t i) {
    return i < array->n_buffers ? array->buffers[i] : NULL;
}

/* Text views point into buffers of their own, whose lengths stand in the last one. */
static const char *bind_blocks(ul_column *column, const struct ArrowArray *array) {
    column->blocks = array->buffers + 2;
    column->block_count = array->n_buffers - 3;
    column->block_lengths = array->buffers[array->n_buffers - 1];
    return column->block_count > 0 && column->block_lengths == NULL ? "does not say how long its buffers are"
                                                                    : NULL;
}

static const char *bind_text(ul_column *column, const struct ArrowArray *array, ul_column_type type) {
    const int64_t end = array->offset + array->length;
    column->extent =
        type == UL_COLUMN_STRING ? ul_load_i32(array->buffers[1], end) : ul_load_i64(array->buffers[1], end);
    column->text = array->buffers[2] != NULL ? array->buffers[2] : "";
    return column->extent > 0 && array->buffers[2] == NULL ? "has text but no buffer for it" : NULL;
}

/* What is particular to a type.  Returns what is wrong with the array, or NULL. */
static const char *bind_values(ul_column *column, const struct ArrowArray *array, const known_type *known) {
    if (!in_range(array)) return OUT_OF_RANGE;
    if (array->n_buffers < known->buffers || (known->buffers > 0 && array->buffers == NULL))
        return "has fewer buffers than its type needs";
    if (known->type == UL_COLUMN_NULL) return NULL;
    if (array->null_count > 0 && array->buffers[0] == NULL) return "has nulls but does not say where";
    if (known->type == UL_COLUMN_STRUCT || array->length == 0) return NULL;
    if (array->buffers[1] == NULL) return "has elements but no buffer for them";
    switch (known->type) {
    case UL_COLUMN_STRING:
    case UL_COLUMN_LARGE_STRING:
        return bind_text(column, array, known->type);
    case UL_COLUMN_STRING_VIEW:
        return bind_blocks(column, array);
    case UL_COLUMN_LIST_VIEW:
    case UL_COLUMN_LARGE_LIST_VIEW:
        column->sizes = array->buffers[2];
        return column->sizes == NULL ? "has lists but no sizes for them" : NULL;
    default:
        return NULL;
    }
}

/* Indexes into a dictionary, whose entries may be anything that is not nested. */
static const char *bind_dictionary(ul_column *column, const struct ArrowSchema *schema,
                                   const struct ArrowArray *array) {
    const struct ArrowArray *entries = array->dictionary;
    const char *format = schema->dictionary->format;
    const known_type *indexes = find_type(schema->format);
    const known_type *known = format != NULL ? find_type(format) : NULL;
    if (indexes == NULL || !is_integer(indexes->type)) return "has a dictionary but no indexes into it";
    if (entries == NULL) return "lacks its dictionary";
    if (known == NULL || known->type >= UL_COLUMN_STRUCT || schema->dictionary->dictionary != NULL)
        return NULL;

    const char *fault = bind_values(column, array, indexes);
    if (fault == NULL) fault = bind_values(column, entries, known);
    if (fault != NULL) return fault;
    column->type = known->type;
    column->index_type = indexes->type;
    column->entries = entries->length;
    column->entry_offset = entries->offset;
    column->entry_validity = buffer_of(entries, 0);
    column->entry_values = buffer_of(entries, 1);
    return NULL;
}

/* Where a column's elements begin and how many there are, given the column around it. */
static const char *place_column(const ul_column *columns, ul_column *column, const struct ArrowArray *array) {
    const ul_column *parent = &columns[column->parent];
    if (!in_range(array)) return OUT_OF_RANGE;
    column->offset = array->offset;
    column->length = array->length;
    column->all_null = array->null_count == array->length;
    if (parent == column || ul_is_list(parent->type)) return NULL;
    if (parent->offset + parent->length > array->length) return "is shorter than the struct around it";
    if (array->offset > MOST_ELEMENTS - parent->offset) return OUT_OF_RANGE;
    column->offset += parent->offset;
    column->length = parent->length;
    return NULL;
}

static const char *bind_name(ul_column *column, const struct ArrowSchema *schema) {
    if (schema->name != NULL) column->name = schema->name;
    const uint8_t *name = (const uint8_t *)column->name;
    const size_t n = strlen(column->name);
    if (ul_utf8_check(name, n) < n) return "has a name that is not UTF-8";
    column->key_length = ul_text_kernels_best()->utf8(name, n);
    return schema->format == NULL ? "has no type" : NULL;
}

/* Everything but the children. */
static const char *bind_alone(const ul_column *columns, ul_column *column, const struct ArrowSchema *schema,
                              const struct ArrowArray *array) {
    const char *fault = bind_name(column, schema);
    if (fault == NULL) fault = place_column(columns, column, array);
    if (fault != NULL) return fault;
    if (array->n_buffers > 0 && array->buffers != NULL) column->validity = array->buffers[0];
    column->values = array->n_buffers > 1 && array->buffers != NULL ? array->buffers[1] : NULL;
    if (schema->dictionary != NULL) return bind_dictionary(column, schema, array);

    const known_type *known = find_type(schema->format);
    if (known == NULL) return NULL;
    fault = bind_values(column, array, known);
    if (fault == NULL) column->type = known->type;
    return fault;
}

static bool bind_column(binding *bind, const struct ArrowSchema *schema, const struct ArrowArray *array,
                        uint32_t parent, unsigned depth, int64_t only);

static bool bind_children(binding *bind, const struct ArrowSchema *schema, const struct ArrowArray *array,
                          uint32_t self, unsigned depth, int64_t only) {
    ul_column *column = &bind->columns[self];
    uint32_t *link = &column->child;
    if (schema->n_children != array->n_children || schema->n_children < (ul_is_list(column->type) ? 1 : 0) ||
        (schema->n_children > 0 && (schema->children == NULL || array->children == NULL)))
        return ul_column_fail(bind->columns, self, "has other children than its type asks for", bind->error);
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (only >= 0 && i != only) continue;
        if (schema->children[i] == NULL || array->children[i] == NULL)
            return ul_column_fail(bind->columns, self, "lacks one of its children", bind->error);
        const uint32_t child = bind->count;
        if (!bind_column(bind, schema->children[i], array->children[i], self, depth + 1, -1)) return false;
        *link = child;
        link = &bind->columns[child].next;
        if (!ul_is_list(column->type)) continue;
        column->extent = bind->columns[child].length;
        break;
    }
    return true;
}

static bool bind_column(binding *bind, const struct ArrowSchema *schema, const struct ArrowArray *array,
                        uint32_t parent, unsigned depth, int64_t only) {
    if (bind->count == bind->capacity || depth == UL_COLUMNS_DEPTH)
        return ul_column_fail(bind->columns, parent, "has too many columns inside it", bind->error);
    const uint32_t self = bind->count++;
    ul_column *column = &bind->columns[self];
    *column = (ul_column){.name = "", .parent = parent};
    const char *fault = bind_alone(bind->columns, column, schema, array);
    if (fault != NULL) return ul_column_fail(bind->columns, self, fault, bind->error);
    if (column->type < UL_COLUMN_STRUCT) return true;
    return bind_children(bind, schema, array, self, depth, only);
}

uint32_t ul_columns_bind(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t only,
                         ul_column *columns, uint32_t capacity, ul_column_error *error) {
    binding bind = {.columns = columns, .capacity = capacity, .error = error};
    if (capacity == 0) {
        *error = (ul_column_error){.reason = "has no room"};
        return 0;
    }
    return bind_column(&bind, schema, array, 0, 0, only) ? bind.count : 0;
}

/* ---- Counting ---- */

static bool count_columns(const struct ArrowSchema *schema, int64_t only, unsigned depth, uint32_t *count) {
    if (schema == NULL || depth == UL_COLUMNS_DEPTH || ++*count > UL_COLUMNS_MAX) return false;
    const known_type *known = schema->format != NULL ? find_type(schema->format) : NULL;
    if (known == NULL || known->type < UL_COLUMN_STRUCT || schema->dictionary != NULL) return true;
    if (schema->n_children > 0 && schema->children == NULL) return false;
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (only >= 0 && i != only) continue;
        if (!count_columns(schema->children[i], -1, depth + 1, count)) return false;
    }
    return true;
}

uint32_t ul_columns_count(const struct ArrowSchema *schema, int64_t only) {
    uint32_t count = 0;
    if (only >= 0 && only >= schema->n_children) return 0;
    return count_columns(schema, only, 0, &count) ? count : 0;
}

/* ---- Elements ---- */

static bool load_index(const ul_column *column, int64_t i, uint64_t *index) {
    int64_t value = 0;
    switch (column->index_type) {
    case UL_COLUMN_INT8:
        value = ul_load_i8(column->values, i);
        break;
    case UL_COLUMN_INT16:
        value = ul_load_i16(column->values, i);
        break;
    case UL_COLUMN_INT32:
        value = ul_load_i32(column->values, i);
        break;
    case UL_COLUMN_INT64:
        value = ul_load_i64(column->values, i);
        break;
    case UL_COLUMN_UINT8:
        value = ul_load_u8(column->values, i);
        break;
    case UL_COLUMN_UINT16:
        value = ul_load_u16(column->values, i);
        break;
    case UL_COLUMN_UINT32:
        value = ul_load_u32(column->values, i);
        break;
    default:
        *index = ul_load_u64(column->values, i);
        return true;
    }
    *index = (uint64_t)value;
    return value >= 0;
}

ul_element ul_column_entry(const ul_column *column, int64_t *place) {
    uint64_t index;
    if (!load_index(column, *place, &index) || index >= (uint64_t)column->entries) return UL_ELEMENT_BROKEN;
    *place = column->entry_offset + (int64_t)index;
    return ul_is_valid(column->entry_validity, *place) ? UL_ELEMENT_VALUE : UL_ELEMENT_NULL;
}

/* Up to twelve bytes stand in the view itself; of longer text it has the first four, the buffer and the place
 * in it. */
ul_element ul_view_text(const ul_column *column, const uint8_t *view, const uint8_t **text, size_t *n) {
    const int64_t size = ul_load_i32(view, 0);
    if (size < 0) return UL_ELEMENT_BROKEN;
    *n = (size_t)size;
    *text = view + 4;
    if (size <= 12) return UL_ELEMENT_VALUE;

    const int64_t block = ul_load_i32(view, 2), start = ul_load_i32(view, 3);
    if (block < 0 || block >= column->block_count) return UL_ELEMENT_BROKEN;
    const int64_t length = ul_load_i64(column->block_lengths, block);
    if (start < 0 || start > length || size > length - start || column->blocks[block] == NULL)
        return UL_ELEMENT_BROKEN;
    *text = (const uint8_t *)column->blocks[block] + start;
    return UL_ELEMENT_VALUE;
}

ul_element ul_column_text(const ul_column *column, int64_t i, const uint8_t **text, size_t *n) {
    return ul_text_at(column, i, text, n);
}

ul_element ul_column_list(const ul_column *column, int64_t i, int64_t *first, int64_t *count) {
    return ul_list_at(column, i, first, count);
}

ul_element ul_column_struct(const ul_column *column, int64_t i) {
    return ul_struct_at(column, i);
}

ul_element ul_column_number(const ul_column *column, int64_t i, ul_number *number) {
    const void *values;
    int64_t place;
    const ul_element found = ul_column_place(column, i, &values, &place);
    if (found != UL_ELEMENT_VALUE) return found;
    switch (column->type) {
    case UL_COLUMN_BOOL:
        number->as_int = ul_bit(values, place);
        break;
    case UL_COLUMN_INT8:
        number->as_int = ul_load_i8(values, place);
        break;
    case UL_COLUMN_INT16:
        number->as_int = ul_load_i16(values, place);
        break;
    case UL_COLUMN_INT32:
        number->as_int = ul_load_i32(values, place);
        break;
    case UL_COLUMN_INT64:
        number->as_int = ul_load_i64(values, place);
        break;
    case UL_COLUMN_UINT8:
        number->as_uint = ul_load_u8(values, place);
        break;
    case UL_COLUMN_UINT16:
        number->as_uint = ul_load_u16(values, place);
        break;
    case UL_COLUMN_UINT32:
        number->as_uint = ul_load_u32(values, place);
        break;
    case UL_COLUMN_UINT64:
        number->as_uint = ul_load_u64(values, place);
        break;
    case UL_COLUMN_FLOAT:
        number->as_double = (double)ul_load_f32(values, place);
        break;
    default:
        number->as_double = ul_load_f64(values, place);
        break;
    }
    return UL_ELEMENT_VALUE;
}
