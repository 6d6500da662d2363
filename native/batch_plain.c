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

void ul_look_ahead(ul_walk *walk, int64_t first, int64_t last) {
    const ul_chat *chat = walk->chat;
    const ul_column *columns = chat->columns, *list = &columns[chat->list];
    int64_t count;
    walk->plain = false;
    walk->run_limit = 0;
    walk->run.count = 0;
    if (first == last || chat->role == 0 || chat->content == 0) return;
    if (list->type != UL_COLUMN_LIST && list->type != UL_COLUMN_LARGE_LIST) return;
    const int64_t from = list_offset(list, first), to = list_offset(list, last);
    if (ul_offset_range(from, to, list->extent, &count) != UL_ELEMENT_VALUE) return;
    walk->run_limit = to;
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

/* Measures texts at once, if they stand one behind the other and the kernel takes them.  Returns how many of
 * the n it took. */
static int64_t measure_together(const ul_walk *walk, const ul_column *column, int64_t first, int64_t n,
                                uint64_t *lengths) {
    const ul_text_kernels *kernels = walk->reader.measurer->scanner.text;
    uint32_t bounds[UL_RUN_TEXTS + 1];
    if (kernels->utf8_run == NULL || column->index_type != UL_COLUMN_OTHER) return 0;
    if (column->type == UL_COLUMN_STRING_VIEW) return 0;
    const int64_t taken = run_bounds(column, first, n, bounds);
    if (taken == 0) return 0;
    const uint8_t *text = column->text + text_offset(column, first);
    return kernels->utf8_run(text, bounds, (size_t)taken, lengths) ? taken : 0;
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

/* The roles of messages whose offsets stand one behind the other, each end the next start. */
static void read_roles(const ul_column *column, int64_t first, int64_t n, uint8_t *roles) {
    const uint8_t *offsets = (const uint8_t *)column->values + (size_t)(column->offset + first) * 4;
    int64_t start = ul_load_i32(offsets, 0), size;
    for (int64_t k = 0; k < n; k++) {
        const int64_t end = ul_load_i32(offsets, k + 1);
        const bool found = ul_offset_range(start, end, column->extent, &size) == UL_ELEMENT_VALUE;
        roles[k] = found ? (uint8_t)ul_role_of((ul_text){column->text + start, (size_t)size}) : UL_ROLE_NONE;
        start = end;
    }
}

static void read_roles_apart(const ul_column *column, int64_t first, int64_t n, uint8_t *roles) {
    for (int64_t k = 0; k < n; k++) {
        ul_text role;
        const bool found = ul_text_at(column, first + k, &role.text, &role.n) == UL_ELEMENT_VALUE;
        roles[k] = found ? (uint8_t)ul_role_of(role) : UL_ROLE_NONE;
    }
}

/* How many messages of a run, from the first on, have a length and a role that needs no call. */
static int64_t count_plain(const ul_run *run) {
    int64_t k = 0;
    while (k < run->count && run->roles[k] != UL_ROLE_NONE && run->roles[k] != UL_ROLE_TOOL &&
           run->lengths[k] != UL_NOT_TEXT)
        k++;
    return k;
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
    if (roles->type == UL_COLUMN_STRING && roles->index_type == UL_COLUMN_OTHER)
        read_roles(roles, first, n, walk->run.roles);
    else read_roles_apart(roles, first, n, walk->run.roles);
    walk->run.plain = count_plain(&walk->run);
}

/* ---- Rows ---- */

/* A row that is being measured: its arrays, and how far that has come. */
typedef struct {
    uint8_t *restrict roles;
    uint64_t *restrict bytes;
    uint32_t *restrict turns;
    uint64_t *restrict turn_tokens;
    uint8_t *restrict turn_stays;
    uint32_t opened, count;
    uint64_t system_tokens, opened_tokens;
    unsigned before;
} plain_row;

static inline void close_turn(plain_row *row) {
    if (row->opened == UL_NO_TURN) return;
    row->turn_tokens[row->opened] = row->opened_tokens;
}

static inline uint32_t take_system(plain_row *row, uint64_t tokens) {
    row->system_tokens += tokens;
    if (row->count == 0) return UL_NO_TURN;
    row->turn_tokens[row->count] = 0;
    row->turn_stays[row->count] = 1;
    return row->count++;
}

static inline uint32_t take_other(plain_row *row, uint64_t tokens, bool opens) {
    if (opens || row->opened == UL_NO_TURN) {
        close_turn(row);
        row->opened = row->count++;
        row->opened_tokens = 0;
        row->turn_stays[row->opened] = 0;
    }
    row->opened_tokens += tokens;
    return row->opened;
}

/* Takes the next n messages. */
static inline void take_messages(plain_row *row, const uint8_t *restrict roles,
                                 const uint64_t *restrict lengths, int64_t n, bool merge_users) {
    plain_row now = *row;
    for (int64_t k = 0; k < n; k++) {
        const unsigned role = roles[k];
        const uint64_t length = lengths[k] + ul_frame_of(role), tokens = ul_tokens_of(length);
        now.roles[k] = (uint8_t)role;
        now.bytes[k] = length;
        if (role == UL_ROLE_SYSTEM) now.turns[k] = take_system(&now, tokens);
        else
            now.turns[k] =
                take_other(&now, tokens, role == UL_ROLE_USER && !(merge_users && now.before == role));
        now.before = role;
    }
    now.roles += n;
    now.bytes += n;
    now.turns += n;
    *row = now;
}

bool ul_measure_plain(ul_walk *walk, const ul_row_place *place, const ul_batch *batch) {
    plain_row row = {
        .roles = batch->roles + place->base,
        .bytes = batch->bytes + place->base,
        .turns = batch->turns + place->base,
        .turn_tokens = batch->turn_tokens + place->base,
        .turn_stays = batch->turn_stays + place->base,
        .opened = UL_NO_TURN,
    };
    for (int64_t i = 0; i < place->length;) {
        if (!ul_in_run(walk, place->first + i)) return false;
        const int64_t at = place->first + i - walk->run.first;
        int64_t n = walk->run.plain - at;
        if (n <= 0) return false;
        if (n > place->length - i) n = place->length - i;
        take_messages(&row, walk->run.roles + at, walk->run.lengths + at, n, walk->chat->merge_users != 0);
        i += n;
    }
    if (row.opened == UL_NO_TURN) return false;
    close_turn(&row);
    batch->turn_stays[place->base + row.opened] = 1;
    batch->turn_counts[place->row] = row.count;
    batch->current_turns[place->row] = row.opened;
    batch->system_tokens[place->row] = row.system_tokens;
    batch->raw_arguments[place->row] = 0;
    batch->faults[place->row] = UL_FAULT_NONE;
    batch->fault_messages[place->row] = 0;
    return true;
}
