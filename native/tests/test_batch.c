/* test_batch.c: rows are measured and trimmed the same on every way there is through them. */
#include "arrow_data.h"

enum { MOST_ROWS = 64, MOST_MESSAGES = 1024 };

/* ---- A batch with its arrays ---- */

typedef struct {
    ul_batch arrays;
    int64_t message_offsets[MOST_ROWS + 1];
    uint8_t roles[MOST_MESSAGES], faults[MOST_ROWS], raw_arguments[MOST_ROWS];
    uint64_t bytes[MOST_MESSAGES];
    uint32_t turns[MOST_MESSAGES], fault_messages[MOST_ROWS], turn_counts[MOST_ROWS];
} batch;

static void start(batch *made) {
    memset(made, 0, sizeof *made);
    made->arrays = (ul_batch){.message_offsets = made->message_offsets,
                              .roles = made->roles,
                              .bytes = made->bytes,
                              .turns = made->turns,
                              .turn_counts = made->turn_counts,
                              .faults = made->faults,
                              .fault_messages = made->fault_messages,
                              .raw_arguments = made->raw_arguments};
}

/* What test cases need no more of than its length. */
static unsigned twenty(void *context, const char *digits, size_t n) {
    (void)context, (void)digits, (void)n;
    return 20;
}

static unsigned seventeen(void *context, double x) {
    (void)context, (void)x;
    return 17;
}

static ul_measurer measurer_with(const ul_text_kernels *kernels) {
    return (ul_measurer){.scanner = {.text = kernels, .number_length = twenty, .seed = 12345},
                         .double_length = seventeen};
}

/* Measures all rows, with more scratch memory whenever that is asked for. */
static ul_batch_status measure(const ul_chat *chat, const ul_text_kernels *kernels, batch *into,
                               ul_batch_stop *stop) {
    ul_measurer measurer = measurer_with(kernels);
    ul_batch_status status = ul_batch_count(chat, into->message_offsets, stop);
    if (status != UL_BATCH_DONE) return status;
    const int64_t rows = chat->columns[chat->list].length;
    for (stop->row = 0;;) {
        status = ul_batch_measure(chat, &measurer, stop->row, rows, &into->arrays, stop);
        if (status != UL_BATCH_SCRATCH) break;
        CHECK(stop->wanted > measurer.scanner.scratch_size, "more is wanted");
        free(measurer.scanner.scratch);
        measurer.scanner.scratch = malloc(stop->wanted);
        measurer.scanner.scratch_size = stop->wanted;
    }
    free(measurer.scanner.scratch);
    return status;
}

static ul_column *bind_chat(const data *rows, ul_chat *chat) {
    ul_column_error error = {.reason = ""};
    ul_column *columns = bind_all(rows, &error);
    CHECK(columns != NULL, "%s", error.reason);
    if (columns == NULL) abort();
    CHECK(ul_chat_bind(columns, 0, chat, &error) == 0, "%s: %s", error.column, error.reason);
    return columns;
}

/* ---- Random chats of role and content ---- */

static const char *random_role(bool sound) {
    static const char *const roles[] = {"user", "user", "assistant", "assistant", "system", "developer"};
    static const char *const odd[] = {"tool", "function", "User", "", NULL};
    if (!sound && random_below(40) == 0) return odd[random_below(5)];
    return roles[random_below(6)];
}

static const char *random_content(bool sound) {
    static const char *const some[] = {
        "",
        "a",
        "a line\nand\t\"another\"",
        "\x01",
        "\xE5\xAD\x97 \xF0\x9F\x8D\xB7",
        "a longer text that says little, and says it in many words, none of which counts"};
    static const char *const odd[] = {NULL, "\xFF", "\xE5\xAD"};
    if (!sound && random_below(40) == 0) return odd[random_below(3)];
    return some[random_below(6)];
}

static data *random_chat(text_kind roles_kind, text_kind contents_kind, bool sound, bool nulls, bool others) {
    const char *roles[MOST_MESSAGES], *contents[MOST_MESSAGES], *notes[MOST_MESSAGES];
    int32_t sizes[MOST_ROWS];
    bool valid[MOST_ROWS];
    int64_t messages = 0;
    const int64_t rows = 1 + (int64_t)random_below(MOST_ROWS);
    for (int64_t row = 0; row < rows; row++) {
        sizes[row] = (int32_t)random_below(random_below(8) == 0 ? 40 : 8);
        if (messages + sizes[row] > MOST_MESSAGES) sizes[row] = 0;
        valid[row] = !nulls || random_below(6) > 0;
        for (int32_t i = 0; i < sizes[row]; i++, messages++) {
            roles[messages] = random_role(sound);
            contents[messages] = random_content(sound);
            notes[messages] = NULL;
        }
    }
    if (others && messages > 0) notes[random_below((uint64_t)messages)] = "note";
    data *struct_of = with_child(new_data("+s", messages, 1), "role", texts_of(roles_kind, roles, messages));
    with_child(struct_of, "content", texts_of(contents_kind, contents, messages));
    if (others) with_child(struct_of, "note", texts_of(SMALL, notes, messages));
    return with_validity(lists_of(struct_of, "item", sizes, rows), valid, rows);
}

static void check_same(const batch *a, const batch *b, const char *what) {
    CHECK(memcmp(a->message_offsets, b->message_offsets, sizeof a->message_offsets) == 0, "%s: offsets",
          what);
    CHECK(memcmp(a->roles, b->roles, sizeof a->roles) == 0, "%s: roles", what);
    CHECK(memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0, "%s: bytes", what);
    CHECK(memcmp(a->turns, b->turns, sizeof a->turns) == 0, "%s: turns", what);
    CHECK(memcmp(a->faults, b->faults, sizeof a->faults) == 0, "%s: faults", what);
    CHECK(memcmp(a->fault_messages, b->fault_messages, sizeof a->fault_messages) == 0, "%s: where", what);
    CHECK(memcmp(a->turn_counts, b->turn_counts, sizeof a->turn_counts) == 0, "%s: turn counts", what);
}

/* The way of many messages at once, that of one by one, and that of rows with other members give the same, in
 * one piece or in several. */
static void every_way_measures_the_same(void) {
    static batch first, second;
    const ul_text_kernels *best = ul_text_kernels_best(), *scalar = ul_text_kernels_named("scalar");
    for (int round = 0; round < 4000; round++) {
        const text_kind roles = (text_kind)random_below(TEXT_KINDS),
                        contents = (text_kind)random_below(TEXT_KINDS);
        data *rows = random_chat(roles, contents, random_below(2) == 0, random_below(2) == 0, false);
        ul_chat chat;
        ul_column *columns = bind_chat(rows, &chat);
        ul_batch_stop stop;
        chat.merge_users = round % 2 == 0;
        start(&first);
        start(&second);
        CHECK(measure(&chat, best, &first, &stop) == UL_BATCH_DONE, "measured");
        CHECK(measure(&chat, scalar, &second, &stop) == UL_BATCH_DONE, "measured");
        check_same(&first, &second, "kernels");

        start(&second);
        chat.others = 1;
        CHECK(measure(&chat, best, &second, &stop) == UL_BATCH_DONE, "measured");
        check_same(&first, &second, "one by one");

        start(&second);
        chat.others = 0;
        const ul_measurer measurer = measurer_with(best);
        const int64_t cut = (int64_t)random_below((uint64_t)rows->array.length + 1);
        CHECK(ul_batch_count(&chat, second.message_offsets, &stop) == UL_BATCH_DONE, "counted");
        CHECK(ul_batch_measure(&chat, &measurer, cut, rows->array.length, &second.arrays, &stop) ==
                      UL_BATCH_DONE &&
                  ul_batch_measure(&chat, &measurer, 0, cut, &second.arrays, &stop) == UL_BATCH_DONE,
              "measured in two pieces");
        check_same(&first, &second, "two pieces");
        free(columns);
        free_data(rows);
    }
}

static void a_null_row_spans_nothing(void) {
    const char *const words[3] = {"user", "user", "user"};
    const int32_t sizes[3] = {1, 1, 1};
    const bool valid[3] = {true, false, true};
    static batch made;
    data *messages = with_child(new_data("+s", 3, 1), "content", texts_of(SMALL, words, 3));
    with_child(messages, "role", texts_of(SMALL, words, 3));
    data *rows = with_validity(lists_of(messages, "item", sizes, 3), valid, 3);
    ul_chat chat;
    ul_column *columns = bind_chat(rows, &chat);
    ul_batch_stop stop;
    start(&made);
    CHECK(measure(&chat, ul_text_kernels_best(), &made, &stop) == UL_BATCH_DONE, "measured");
    CHECK(made.message_offsets[1] == 1 && made.message_offsets[2] == 1 && made.message_offsets[3] == 2,
          "offsets");
    CHECK(made.faults[0] == 0 && made.faults[1] == UL_FAULT_NULL_ROW && made.faults[2] == 0, "faults");
    CHECK(made.bytes[1] == strlen("{\"role\":\"user\",\"content\":\"user\"}"), "bytes");
    free(columns);
    free_data(rows);
}

/* ---- Hostile columns ---- */

static void hostile_columns_are_never_read(void) {
    static batch made;
    for (int round = 0; round < 20000; round++) {
        const text_kind kind = random_below(2) == 0 ? SMALL : LARGE;
        data *rows = random_chat(kind, kind, true, false, random_below(2) == 0);
        data *messages = rows->children[0], *text = messages->children[random_below(2)];
        const int64_t n = messages->array.length;
        for (uint64_t times = 1 + random_below(3); times > 0 && n > 0; times--) {
            const size_t i = random_below((uint64_t)n);
            const int64_t value =
                random_below(2) == 0 ? (int64_t)random_bits() : (int64_t)random_below(60) - 20;
            if (random_below(4) == 0)
                ((int32_t *)(uintptr_t)rows->buffers[1])[random_below((uint64_t)rows->array.length + 1)] =
                    (int32_t)value;
            else if (kind == SMALL) ((int32_t *)(uintptr_t)text->buffers[1])[i] = (int32_t)value;
            else ((int64_t *)(uintptr_t)text->buffers[1])[i] = value;
        }
        ul_chat chat;
        ul_column *columns = bind_chat(rows, &chat);
        ul_batch_stop stop = {0};
        start(&made);
        ul_batch_status status = ul_batch_count(&chat, made.message_offsets, &stop);
        if (status == UL_BATCH_DONE && made.message_offsets[rows->array.length] <= MOST_MESSAGES) {
            const ul_measurer measurer = measurer_with(ul_text_kernels_best());
            status = ul_batch_measure(&chat, &measurer, 0, rows->array.length, &made.arrays, &stop);
        }
        if (status == UL_BATCH_BROKEN)
            CHECK(stop.row >= 0 && stop.row < rows->array.length, "row %lld", (long long)stop.row);
        free(columns);
        free_data(rows);
    }
}

/* ---- Which columns will do ---- */

static void check_no_chat(data *rows, const char *reason, const char *column) {
    ul_column_error error = {.reason = ""};
    ul_chat chat;
    ul_column *columns = bind_all(rows, &error);
    if (columns == NULL) abort();
    CHECK(ul_chat_bind(columns, 0, &chat, &error) == -1 && strstr(error.reason, reason) != NULL, "%s: %s",
          reason, error.reason);
    CHECK(strcmp(error.column, column) == 0, "%s: %s", reason, error.column);
    free(columns);
    free_data(rows);
}

static data *chat_with(const char *name, data *column) {
    const char *const words[1] = {"user"};
    const int32_t sizes[1] = {1};
    data *messages = with_child(new_data("+s", 1, 1), "role", texts_of(SMALL, words, 1));
    with_child(messages, "content", texts_of(SMALL, words, 1));
    if (column != NULL) with_child(messages, name, column);
    data *rows = lists_of(messages, "item", sizes, 1);
    rows->schema.name = "chat";
    return rows;
}

static void columns_that_will_not_do_are_named(void) {
    const char *const words[1] = {"user"};
    const int32_t sizes[1] = {1};
    check_no_chat(texts_of(SMALL, words, 1), "not a list of structs", "");
    check_no_chat(lists_of(texts_of(SMALL, words, 1), "item", sizes, 1), "not a list of structs", "");
    check_no_chat(chat_with("role", texts_of(SMALL, words, 1)), "the name of another", "chat.role");
    check_no_chat(chat_with("odd", new_data("z", 1, 3)), "not read", "chat.odd");
    check_no_chat(chat_with("odd", lists_of(new_data("z", 1, 3), "item", sizes, 1)), "not read", "chat.odd");
    check_no_chat(chat_with("tool_calls", texts_of(SMALL, words, 1)), "not a list of structs",
                  "chat.tool_calls");
}

/* ---- Trimming ---- */

/* Each row comes out as ul_trim has it. */
static void rows_are_trimmed_one_by_one(void) {
    static batch made;
    static uint8_t statuses[MOST_ROWS], retained[MOST_MESSAGES];
    static uint32_t turns_dropped[MOST_ROWS], messages_dropped[MOST_ROWS];
    static uint64_t before[MOST_ROWS], after[MOST_ROWS], windows[MOST_ROWS], tokens[MOST_MESSAGES];
    static uint8_t stays[MOST_MESSAGES];
    const ul_batch_outcome outcome = {statuses, turns_dropped, messages_dropped, before, after, retained};
    for (int round = 0; round < 4000; round++) {
        data *rows = random_chat(SMALL, SMALL, random_below(2) == 0, true, false);
        ul_chat chat;
        ul_column *columns = bind_chat(rows, &chat);
        ul_batch_stop stop;
        start(&made);
        CHECK(measure(&chat, ul_text_kernels_best(), &made, &stop) == UL_BATCH_DONE, "measured");
        const int64_t n = rows->array.length;
        for (int64_t row = 0; row < n; row++) windows[row] = random_below(250);
        const ul_batch_budget budget = {.constraint = 4,
                                        .template_tokens = 32,
                                        .reserved = 10,
                                        .window = 100,
                                        .windows = round % 2 == 0 ? windows : NULL};
        ul_batch_trim(&made.arrays, &budget, 0, n, tokens, stays, &outcome);
        for (int64_t row = 0; row < n; row++) {
            const int64_t base = made.message_offsets[row];
            ul_trim_task task = {.turns = made.turn_counts[row],
                                 .turn_tokens = tokens,
                                 .turn_protected = stays,
                                 .system = ul_batch_turns(&made.arrays, row, tokens, stays),
                                 .constraint = 4,
                                 .template_tokens = 32,
                                 .reserved = 10,
                                 .max_counts = 1000,
                                 .window = round % 2 == 0 ? windows[row] : 100};
            ul_trim_result want;
            if (made.faults[row] != 0) {
                CHECK(statuses[row] == made.faults[row] && before[row] == 0, "a fault stays one");
                continue;
            }
            if (task.window <= task.reserved) {
                CHECK(statuses[row] == UL_ROW_NO_ROOM, "no room");
                continue;
            }
            const ul_trim_status status = ul_trim(&task, NULL, &want);
            const ul_row_status as_row = status != UL_TRIM_FITS ? UL_ROW_DOES_NOT_FIT
                                         : want.removed > 0     ? UL_ROW_TRIMMED
                                                                : UL_ROW_FITS;
            CHECK(statuses[row] == as_row && turns_dropped[row] == want.removed, "row %d", (int)row);
            CHECK(as_row == UL_ROW_DOES_NOT_FIT || after[row] + 10 <= task.window, "it fits");
            uint64_t kept = 4 + 32 + task.system;
            uint32_t gone = 0;
            for (int64_t i = base; i < made.message_offsets[row + 1]; i++) {
                if (!retained[i]) gone++;
                else if (made.roles[i] != UL_ROLE_SYSTEM) kept += (made.bytes[i] + 3) / 4;
                CHECK(retained[i] || made.roles[i] != UL_ROLE_SYSTEM, "system messages stay");
            }
            CHECK(kept == after[row] && gone == messages_dropped[row], "the figures are those of what stays");
        }
        free(columns);
        free_data(rows);
    }
}

/* The turns of a row by the rules alone, message by message. */
static void turns_add_up(void) {
    const uint8_t roles[] = {UL_ROLE_SYSTEM, UL_ROLE_ASSISTANT, UL_ROLE_USER,
                             UL_ROLE_SYSTEM, UL_ROLE_TOOL,      UL_ROLE_USER};
    const uint32_t turns[] = {UL_NO_TURN, 0, 1, 2, 1, 3};
    const uint64_t prices[] = {100, 0, 0, 1000, 0, 10000};
    static batch made;
    uint64_t tokens[4];
    uint8_t stays[4];
    start(&made);
    memcpy(made.roles, roles, sizeof roles);
    memcpy(made.turns, turns, sizeof turns);
    for (uint64_t i = 0; i < 6; i++) made.bytes[i] = 4 * i + 1;
    made.message_offsets[1] = 6;
    made.turn_counts[0] = 4;
    made.arrays.prices = prices;
    CHECK(ul_batch_turns(&made.arrays, 0, tokens, stays) == 1 + 100 + 4 + 1000,
          "system messages are in no turn's");
    CHECK(tokens[0] == 2 && tokens[1] == 3 + 5 && tokens[2] == 0 && tokens[3] == 6 + 10000, "tokens");
    CHECK(!stays[0] && !stays[1] && stays[2] && stays[3], "what stays");
}

static void sums_that_overflow_are_told_apart(void) {
    static batch made;
    static uint8_t status, retained[4] = {9, 9, 9, 9};
    static uint32_t turns_dropped, messages_dropped;
    static uint64_t before, after;
    const ul_batch_outcome outcome = {&status, &turns_dropped, &messages_dropped, &before, &after, retained};
    ul_batch_budget budget = {.window = 100, .reserved = 1, .template_tokens = 32};
    uint64_t prices[2] = {UINT64_MAX / 2 + 1, UINT64_MAX / 2 + 1}, tokens[2];
    uint8_t stays[2];
    start(&made);
    made.message_offsets[1] = 2;
    made.roles[0] = made.roles[1] = UL_ROLE_USER;
    made.turns[1] = 1;
    made.turn_counts[0] = 2;
    made.arrays.prices = prices;
    ul_batch_trim(&made.arrays, &budget, 0, 1, tokens, stays, &outcome);
    CHECK(status == UL_ROW_MESSAGES_OVERFLOW && before == 0 && retained[0] == 0 && retained[1] == 0,
          "messages");
    prices[0] = 1;
    budget.template_tokens = UINT64_MAX;
    ul_batch_trim(&made.arrays, &budget, 0, 1, tokens, stays, &outcome);
    CHECK(status == UL_ROW_TOTAL_OVERFLOW && turns_dropped == 0, "all together");
    prices[0] = prices[1] = budget.template_tokens = 0;
    ul_batch_trim(&made.arrays, &budget, 0, 1, tokens, stays, &outcome);
    CHECK(status == UL_ROW_ZERO, "nothing at all");
    CHECK(retained[2] == 9, "no other row is touched");
}

int main(void) {
    every_way_measures_the_same();
    a_null_row_spans_nothing();
    hostile_columns_are_never_read();
    columns_that_will_not_do_are_named();
    rows_are_trimmed_one_by_one();
    turns_add_up();
    sums_that_overflow_are_told_apart();
    return checks_done();
}
