/* batch_plain.c: messages that have nothing but role and content, looked at many together.
 *
 * Texts are short, and one by one each costs more to begin with and to end than to read.  The messages of one
 * row after the other are neighbours in the column, so that a run of them can be measured at once. */
#include "batch.h"

/* ---- Looking ahead ---- */

static bool all_valid(const ul_column *column, int64_t first, int64_t count) {
    if (column->validity == NULL) return true;
    int64_t i = column->offset + first;
    const int64_t end = i + count;
    for (; i < end && i % 8 != 0; i++) {
        if (!ul_bit(column->validity, i)) return false;
    }
    for (; end - i >= 8; i += 8) {
        if (column->validity[i / 8] != 0xFF) return false;
    }
    for (; i < end; i++) {
        if (!ul_bit(column->validity, i)) return false;
    }
    return true;
}

static int64_t list_offset(const ul_column *list, int64_t i) {
    const int64_t place = list->offset + i;
    return list->type == UL_COLUMN_LIST ? ul_load_i32(list->values, place) : ul_load_i64(list->values, place);
}

void ul_look_ahead(ul_walk *walk, int64_t first, int64_t last, const ul_batch *batch) {
    const ul_chat *chat = walk->chat;
    const ul_column *columns = chat->columns, *list = &columns[chat->list];
    int64_t count;
    walk->plain = walk->in_order = false;
    walk->run_limit = 0;
    walk->run.count = 0;
    if (first == last || chat->role == 0 || chat->content == 0) return;
    if (list->type != UL_COLUMN_LIST && list->type != UL_COLUMN_LARGE_LIST) return;
    const int64_t from = list_offset(list, first), to = list_offset(list, last);
    if (ul_offset_range(from, to, list->extent, &count) != UL_ELEMENT_VALUE) return;
    walk->run_limit = to;
    /* A null row may span messages that are none of the batch's. */
    const int64_t *offsets = batch->message_offsets + chat->first_row;
    walk->shift = from - offsets[first];
    walk->in_order = offsets[last] - offsets[first] == count;
    walk->plain = !chat->others && all_valid(&columns[chat->message], from, count) &&
                  all_valid(&columns[chat->role], from, count) &&
                  all_valid(&columns[chat->content], from, count);
}

/* ---- Runs ---- */

static int64_t text_offset(const ul_column *column, int64_t i) {
    const int64_t place = column->offset + i;
    return column->type == UL_COLUMN_STRING ? ul_load_i32(column->values, place)
                                            : ul_load_i64(column->values, place);
}

/* The bounds of texts, counted from the start of the first, as many as a run can have of the n.  Returns how
 * many that is, or 0 for less than two, or where offsets decrease or go beyond what they count in. */
static int64_t run_bounds(const ul_column *column, int64_t first, int64_t n, uint32_t *bounds) {
    const int64_t start = text_offset(column, first);
    int64_t size;
    while (n > 1 && (uint64_t)text_offset(column, first + n) - (uint64_t)start > UL_RUN_BYTES) n /= 2;
    if (n < 2) return 0;
    if (ul_offset_range(start, text_offset(column, first + n), column->extent, &size) != UL_ELEMENT_VALUE)
        return 0;

    /* An offset before the start, or beyond the end, comes out of order. */
    uint32_t decreasing = 0;
    if (column->type == UL_COLUMN_STRING) {
        const uint8_t *offsets = (const uint8_t *)column->values + (size_t)(column->offset + first) * 4;
        for (int64_t k = 0; k <= n; k++) bounds[k] = (uint32_t)ul_load_i32(offsets, k) - (uint32_t)start;
    } else {
        for (int64_t k = 0; k <= n; k++) {
            const uint64_t bound = (uint64_t)text_offset(column, first + k) - (uint64_t)start;
            bounds[k] = bound <= UL_RUN_BYTES ? (uint32_t)bound : UINT32_MAX;
        }
    }
    for (int64_t k = 0; k < n; k++) decreasing |= bounds[k] > bounds[k + 1];
    return decreasing ? 0 : n;
}

/* Whether texts have offsets of their own: not in views, and not in a dictionary. */
static bool has_offsets(const ul_column *column) {
    return column->index_type == UL_COLUMN_OTHER && column->type != UL_COLUMN_STRING_VIEW;
}

/* Measures texts at once, if they stand one behind the other and the kernel takes them.  Returns how many of
 * the n it took. */
static int64_t measure_together(const ul_walk *walk, const ul_column *column, int64_t first, int64_t n,
                                uint64_t *lengths) {
    const ul_text_kernels *kernels = walk->reader.measurer->scanner.text;
    uint32_t bounds[UL_RUN_TEXTS + 1];
    if (kernels->utf8_run == NULL || !has_offsets(column)) return 0;
    n = run_bounds(column, first, n, bounds);
    if (n == 0) return 0;
    return kernels->utf8_run(column->text + text_offset(column, first), bounds, (size_t)n, lengths) ? n : 0;
}

/* Texts of which nothing can be said have no length here; whoever asks for them finds out why. */
static void measure_apart(const ul_walk *walk, const ul_column *column, int64_t first, int64_t n,
                          uint64_t *lengths) {
    for (int64_t k = 0; k < n; k++) {
        ul_text text;
        lengths[k] = UL_NOT_TEXT;
        if (ul_text_at(column, first + k, &text.text, &text.n) == UL_ELEMENT_VALUE)
            lengths[k] = ul_checked_length(walk->reader.measurer, text.text, text.n);
    }
}

/* The roles of n messages; whether none of them needs a call or is not known. */
static bool read_roles(const ul_column *column, int64_t first, int64_t n, uint8_t *roles) {
    uint32_t bounds[UL_RUN_TEXTS + 1];
    const bool together = has_offsets(column) && run_bounds(column, first, n, bounds) == n;
    const uint8_t *text = together ? column->text + text_offset(column, first) : NULL;
    bool plain = true;
    for (int64_t k = 0; k < n; k++) {
        ul_text role = {NULL, 0};
        if (together) role = (ul_text){text + bounds[k], bounds[k + 1] - bounds[k]};
        else if (ul_text_at(column, first + k, &role.text, &role.n) != UL_ELEMENT_VALUE) role.n = 0;
        roles[k] = (uint8_t)ul_role_of(role);
        plain = plain && roles[k] != UL_ROLE_NONE && roles[k] != UL_ROLE_TOOL;
    }
    return plain;
}

static bool is_plain(const ul_run *run, int64_t k) {
    return run->roles[k] != UL_ROLE_NONE && run->roles[k] != UL_ROLE_TOOL && run->lengths[k] != UL_NOT_TEXT;
}

void ul_take_run(ul_walk *walk, int64_t first) {
    const ul_column *columns = walk->chat->columns;
    const ul_column *roles = &columns[walk->chat->role], *contents = &columns[walk->chat->content];
    int64_t n = walk->run_limit - first;
    if (n > UL_RUN_TEXTS) n = UL_RUN_TEXTS;
    const int64_t together = measure_together(walk, contents, first, n, walk->run.lengths);
    if (together > 0) n = together;
    else measure_apart(walk, contents, first, n, walk->run.lengths);
    walk->run.first = first;
    walk->run.count = n;
    if (!walk->plain) return;
    walk->run.plain = read_roles(roles, first, n, walk->run.roles) && together > 0 ? n : 0;
    while (walk->run.plain < n && is_plain(&walk->run, walk->run.plain)) walk->run.plain++;
}

/* ---- Rows ---- */

/* Takes n messages that are in the run from place `at` on. */
static inline void take_messages(ul_turns *turns, const ul_run *run, int64_t at, int64_t n,
                                 uint8_t *restrict roles, uint64_t *restrict bytes,
                                 uint32_t *restrict turn_numbers) {
    ul_turns now = *turns;
    for (int64_t k = 0; k < n; k++) {
        const unsigned role = run->roles[at + k];
        roles[k] = (uint8_t)role;
        bytes[k] = run->lengths[at + k] + ul_frame_of(role);
        turn_numbers[k] = ul_turn_of(&now, role);
    }
    *turns = now;
}

/* Measures the messages of one row; false, with nothing said, where they are not plain or open no turn. */
static inline bool measure_plain_row(ul_walk *walk, const ul_batch *batch, int64_t first, int64_t base,
                                     int64_t length, uint32_t *turn_count) {
    ul_turns turns = ul_turns_start(walk);
    for (int64_t i = 0; i < length;) {
        if (!ul_in_run(walk, first + i)) return false;
        const int64_t at = first + i - walk->run.first;
        int64_t n = walk->run.plain - at;
        if (n <= 0) return false;
        if (n > length - i) n = length - i;
        take_messages(&turns, &walk->run, at, n, batch->roles + base + i, batch->bytes + base + i,
                      batch->turns + base + i);
        i += n;
    }
    *turn_count = turns.count;
    return turns.opened != UL_NO_TURN;
}

int64_t ul_measure_plain(ul_walk *walk, int64_t row, int64_t last, const ul_batch *batch) {
    const ul_batch to = *batch;
    for (; row < last; row++) {
        const int64_t at = walk->chat->first_row + row, base = to.message_offsets[at];
        const int64_t length = to.message_offsets[at + 1] - base;
        int64_t first = base + walk->shift, count;
        if (!walk->in_order && ul_row_at(walk->chat, row, &first, &count) != UL_ELEMENT_VALUE) break;
        if (!measure_plain_row(walk, &to, first, base, length, &to.turn_counts[at])) break;
    }
    return row;
}
