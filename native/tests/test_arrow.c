/* test_arrow.c: elements read the same in every layout, and no offset leads outside. */
#include "arrow_data.h"

#include <math.h>

/* ---- What is sound ---- */

static const char *const some_texts[] = {
    "", "a", NULL, "twelve bytes", "thirteen byte", "a text that is longer than a view is", NULL, "last"};
enum { SOME = sizeof some_texts / sizeof *some_texts };

static void check_element(const ul_column *column, int64_t i, const char *want, const char *where) {
    const uint8_t *text;
    size_t n;
    const ul_element found = ul_column_text(column, i, &text, &n);
    CHECK(found == (want != NULL ? UL_ELEMENT_VALUE : UL_ELEMENT_NULL), "%s, element %d", where, (int)i);
    if (found != UL_ELEMENT_VALUE || want == NULL) return;
    CHECK(n == strlen(want) && memcmp(text, want, n) == 0, "%s, element %d", where, (int)i);
}

static void texts_of_every_kind_read_the_same(void) {
    static const char *const names[] = {"small", "large", "views", "indexed"};
    for (int kind = 0; kind < TEXT_KINDS; kind++) {
        for (int64_t skip = 0; skip <= SOME; skip++) {
            data *made = texts_of((text_kind)kind, some_texts, SOME);
            made->array.offset = skip;
            made->array.length -= skip;
            ul_column_error error;
            ul_column *columns = bind_all(made, &error);
            CHECK(columns != NULL, "%s: %s", names[kind], columns == NULL ? error.reason : "");
            if (columns == NULL) continue;
            CHECK(columns[0].length == SOME - skip, "%s", names[kind]);
            for (int64_t i = 0; i < SOME - skip; i++)
                check_element(&columns[0], i, some_texts[skip + i], names[kind]);
            free(columns);
            free_data(made);
        }
    }
}

static void offsets_of_structs_hold_for_their_children(void) {
    data *inner = with_child(new_data("+s", 6, 1), "text", texts_of(SMALL, some_texts, SOME));
    inner->children[0]->array.offset = 1;
    inner->children[0]->array.length = 7;
    inner->array.offset = 2;
    inner->array.length = 4;
    data *outer = with_child(new_data("+s", 3, 1), "inner", inner);
    outer->array.offset = 1;
    ul_column_error error;
    ul_column *columns = bind_all(outer, &error);
    CHECK(columns != NULL, "bound");
    if (columns != NULL) {
        CHECK(columns[0].child == 1 && columns[1].child == 2 && columns[2].next == 0, "one in the other");
        CHECK(strcmp(columns[2].name, "text") == 0 && columns[2].key_length == 4, "its name");
        for (int64_t i = 0; i < 3; i++) check_element(&columns[2], i, some_texts[1 + 2 + 1 + i], "text");
    }
    free(columns);
    free_data(outer);
}

static void one_child_can_be_bound_alone(void) {
    data *table = new_data("+s", 3, 1);
    with_child(table, "odd", new_data("tdD", 3, 2));
    with_child(table, "text", texts_of(SMALL, some_texts, 3));
    ul_column columns[2];
    ul_column_error error;
    CHECK(ul_columns_count(&table->schema, 1) == 2 && ul_columns_count(&table->schema, 2) == 0, "counted");
    CHECK(ul_columns_bind(&table->schema, &table->array, 1, columns, 2, &error) == 2, "bound");
    check_element(&columns[1], 1, "a", "text");
    CHECK(ul_columns_bind(&table->schema, &table->array, -1, columns, 2, &error) == 0, "no room for all");
    CHECK(ul_columns_bind(&table->schema, &table->array, -1, columns, 0, &error) == 0, "no room at all");
    free_data(table);
}

static void numbers_of_every_kind_are_read(void) {
    static const struct {
        const char *format;
        size_t size;
    } kinds[] = {{"c", 1}, {"s", 2}, {"i", 4}, {"l", 8}, {"C", 1},
                 {"S", 2}, {"I", 4}, {"L", 8}, {"f", 4}, {"g", 8}};
    const bool valid[2] = {true, false};
    const float one_and_a_half = 1.5f;
    const double third = 1.0 / 3;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint8_t raw[17]; /* at an odd address, as producers may have it */
        memset(raw, 0xFF, sizeof raw);
        if (kinds[k].format[0] == 'f') memcpy(raw, &one_and_a_half, 4);
        if (kinds[k].format[0] == 'g') memcpy(raw, &third, 8);
        data *made = with_buffer(new_data(kinds[k].format, 2, 2), 1, raw, kinds[k].size * 2);
        with_validity(made, valid, 2);
        ul_column_error error;
        ul_column *columns = bind_all(made, &error);
        ul_number number = {0};
        if (columns == NULL) abort();
        CHECK(ul_column_number(&columns[0], 0, &number) == UL_ELEMENT_VALUE, "%s", kinds[k].format);
        CHECK(ul_column_number(&columns[0], 1, &number) == UL_ELEMENT_NULL, "%s", kinds[k].format);
        if (k < 4) CHECK(number.as_int == -1, "%s", kinds[k].format);
        else if (k < 8)
            CHECK(number.as_uint == UINT64_MAX >> (64 - 8 * kinds[k].size), "%s", kinds[k].format);
        else CHECK(fabs(number.as_double - (k == 8 ? 1.5 : third)) <= 0, "%s", kinds[k].format);
        free(columns);
        free_data(made);
    }
}

/* ---- What is not ---- */

static void check_refused(data *made, const char *reason, const char *column) {
    ul_column_error error = {.reason = ""};
    ul_column *columns = bind_all(made, &error);
    CHECK(columns == NULL && strstr(error.reason, reason) != NULL, "%s: %s", reason, error.reason);
    CHECK(strcmp(error.column, column) == 0, "%s: %s, not %s", reason, error.column, column);
    free(columns);
    free_data(made);
}

/* A struct of one text, to be spoiled. */
static data *text_in_struct(void) {
    data *made = with_child(new_data("+s", 3, 1), "text", texts_of(SMALL, some_texts, 3));
    made->schema.name = "outer";
    return made;
}

static void arrays_of_the_wrong_shape_are_refused(void) {
    data *made = text_in_struct();
    made->arrays[0]->length = 2;
    check_refused(made, "shorter than the struct", "outer.text");

    made = text_in_struct();
    made->array.length = -1;
    check_refused(made, "out of range", "outer");

    made = text_in_struct();
    made->arrays[0]->offset = -1;
    check_refused(made, "out of range", "outer.text");

    made = text_in_struct();
    made->arrays[0]->offset = INT64_MAX;
    check_refused(made, "out of range", "outer.text");

    made = text_in_struct();
    made->arrays[0]->n_buffers = 2;
    check_refused(made, "fewer buffers", "outer.text");

    made = text_in_struct();
    made->arrays[0]->buffers = NULL;
    check_refused(made, "fewer buffers", "outer.text");

    made = text_in_struct();
    made->array.n_children = 0;
    check_refused(made, "other children", "outer");

    made = text_in_struct();
    made->arrays[0] = NULL;
    check_refused(made, "lacks one of its children", "outer");

    made = text_in_struct();
    made->schemas[0]->format = NULL;
    check_refused(made, "has no type", "outer.text");

    made = text_in_struct();
    made->schemas[0]->name = "\xFF";
    check_refused(made, "not UTF-8", "outer.\xFF");

    made = text_in_struct();
    free((void *)(uintptr_t)made->children[0]->buffers[1]);
    made->children[0]->buffers[1] = NULL;
    check_refused(made, "no buffer for them", "outer.text");

    made = text_in_struct();
    free((void *)(uintptr_t)made->children[0]->buffers[2]);
    made->children[0]->buffers[2] = NULL;
    check_refused(made, "no buffer for it", "outer.text");

    made = text_in_struct();
    made->array.null_count = 1;
    check_refused(made, "does not say where", "outer");

    made = texts_of(INDEXED, some_texts, 3);
    made->array.dictionary = NULL;
    check_refused(made, "lacks its dictionary", "");

    made = texts_of(INDEXED, some_texts, 3);
    made->schema.format = "f";
    check_refused(made, "no indexes", "");

    made = texts_of(VIEWS, some_texts, SOME);
    free((void *)(uintptr_t)made->buffers[4]);
    made->buffers[4] = NULL;
    check_refused(made, "how long its buffers are", "");

    const int32_t one[1] = {1};
    made = lists_of(texts_of(SMALL, some_texts, 3), "item", one, 1);
    made->schema.n_children = made->array.n_children = 0;
    check_refused(made, "other children", "");

    made = with_child(with_buffer(new_data("+vl", 1, 3), 1, one, 4), "item", texts_of(SMALL, some_texts, 3));
    check_refused(made, "no sizes", "");
}

static void nesting_and_number_have_limits(void) {
    data *made = texts_of(SMALL, some_texts, 1);
    for (int depth = 0; depth < UL_COLUMNS_DEPTH; depth++) made = with_child(new_data("+s", 1, 1), "a", made);
    CHECK(ul_columns_count(&made->schema, -1) == 0, "too deep");
    CHECK(ul_columns_count(&made->children[0]->schema, -1) == UL_COLUMNS_DEPTH, "as deep as may be");
    free_data(made);
}

static void types_that_are_not_read_are_bound_all_the_same(void) {
    static const char *const formats[] = {"z", "tsu:", "d:5,2", "+m", "+w:3", "+ud:0", "+r", "e", "vz"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        data *made = with_child(text_in_struct(), "odd",
                                with_child(new_data(formats[i], 3, 3), "x", texts_of(SMALL, some_texts, 3)));
        ul_column_error error;
        ul_column *columns = bind_all(made, &error);
        CHECK(columns != NULL, "%s", formats[i]);
        if (columns != NULL)
            CHECK(columns[2].type == UL_COLUMN_OTHER && columns[2].child == 0, "%s", formats[i]);
        free(columns);
        free_data(made);
    }
}

/* ---- What is hostile ---- */

static int64_t random_number(int64_t near) {
    switch (random_below(8)) {
    case 0:
        return (int64_t)random_bits();
    case 1:
        return -(int64_t)random_below(4);
    case 2:
        return INT64_MAX - (int64_t)random_below(4);
    case 3:
        return INT32_MAX - (int64_t)random_below(4);
    case 4:
        return INT64_MIN + (int64_t)random_below(4);
    default:
        return (int64_t)random_below((uint64_t)near + 3);
    }
}

/* Every byte that an element is said to have is touched, for the sanitizers. */
static unsigned touch(const uint8_t *text, size_t n) {
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum += text[i];
    return sum;
}

static void read_all_texts(const ul_column *column) {
    static volatile unsigned sink;
    for (int64_t i = 0; i < column->length; i++) {
        const uint8_t *text;
        size_t n;
        if (ul_column_text(column, i, &text, &n) == UL_ELEMENT_VALUE) sink += touch(text, n);
    }
}

/* The last offset is the one thing taken on trust. */
static void spoil_texts(data *made, text_kind kind) {
    int32_t *narrow = (int32_t *)(uintptr_t)made->buffers[1];
    int64_t *wide = (int64_t *)(uintptr_t)made->buffers[1];
    int16_t *indexes = (int16_t *)(uintptr_t)made->buffers[1];
    const uint64_t times = 1 + random_below(3);
    for (uint64_t k = 0; k < times; k++) {
        const size_t i = random_below(SOME);
        if (kind == SMALL) narrow[i] = (int32_t)random_number(80);
        else if (kind == LARGE) wide[i] = random_number(80);
        else if (kind == VIEWS) narrow[i * 4 + random_below(4)] = (int32_t)random_number(40);
        else indexes[i] = (int16_t)random_number(SOME);
    }
}

static void hostile_texts_are_never_read(void) {
    for (int round = 0; round < 40000; round++) {
        const text_kind kind = (text_kind)random_below(TEXT_KINDS);
        data *made = texts_of(kind, some_texts, SOME);
        spoil_texts(made, kind);
        made->array.offset = (int64_t)random_below(3);
        made->array.length = SOME - made->array.offset;
        ul_column_error error;
        ul_column *columns = bind_all(made, &error);
        if (columns != NULL) read_all_texts(&columns[0]);
        free(columns);
        free_data(made);
    }
}

static void hostile_lists_are_never_read(void) {
    static const char *const formats[] = {"+l", "+L", "+vl", "+vL"};
    for (int round = 0; round < 40000; round++) {
        const unsigned kind = (unsigned)random_below(4);
        int64_t starts[5], sizes[5];
        for (int i = 0; i < 5; i++) {
            starts[i] = random_number(SOME);
            sizes[i] = random_number(SOME);
        }
        data *made = new_data(formats[kind], 4, kind < 2 ? 2 : 3);
        int32_t narrow_starts[5], narrow_sizes[5];
        for (int i = 0; i < 5; i++) {
            narrow_starts[i] = (int32_t)starts[i];
            narrow_sizes[i] = (int32_t)sizes[i];
        }
        const bool wide = kind % 2 == 1;
        const size_t width = wide ? 8 : 4;
        with_buffer(made, 1, wide ? (void *)starts : (void *)narrow_starts, width * (kind < 2 ? 5 : 4));
        if (kind >= 2) with_buffer(made, 2, wide ? (void *)sizes : (void *)narrow_sizes, width * 4);
        with_child(made, "item", texts_of(SMALL, some_texts, SOME));
        ul_column_error error;
        ul_column *columns = bind_all(made, &error);
        if (columns == NULL) abort();
        for (int64_t i = 0; i < 4; i++) {
            int64_t first, count;
            if (ul_column_list(&columns[0], i, &first, &count) != UL_ELEMENT_VALUE) continue;
            CHECK(first >= 0 && count >= 0 && first + count <= SOME, "%s: %lld, %lld", formats[kind],
                  (long long)first, (long long)count);
        }
        free(columns);
        free_data(made);
    }
}

int main(void) {
    texts_of_every_kind_read_the_same();
    offsets_of_structs_hold_for_their_children();
    one_child_can_be_bound_alone();
    numbers_of_every_kind_are_read();
    arrays_of_the_wrong_shape_are_refused();
    nesting_and_number_have_limits();
    types_that_are_not_read_are_bound_all_the_same();
    hostile_texts_are_never_read();
    hostile_lists_are_never_read();
    return checks_done();
}
