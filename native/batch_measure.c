/* batch_measure.c: chat messages in columns, measured as the contract messages they map to. */
#include "batch.h"

/* ---- One message ---- */

typedef struct {
    ul_role role;
    bool is_function; /* the role "function", which has its call's id in `name` */
    bool has_content;
    uint64_t bytes;
    ul_text call_id;     /* of a result */
    int64_t call, calls; /* the elements of tool_calls */
} message;

static ul_step read_role(ul_walk *walk, int64_t i, message *of) {
    ul_text role;
    const ul_step step = ul_read_text(walk, walk->chat->role, i, &role);
    if (step != UL_STEP_ON) return step;
    of->role = ul_role_of(role);
    of->is_function = role.n == strlen("function");
    of->bytes = ul_frame_of(of->role);
    return of->role != UL_ROLE_NONE ? UL_STEP_ON : ul_stop_at(walk, UL_FAULT_ROLE);
}

static ul_step add_content(ul_walk *walk, int64_t i, message *of) {
    ul_text content;
    const ul_step step = ul_read_text(walk, walk->chat->content, i, &content);
    if (step != UL_STEP_ON) return step;
    of->has_content = content.text != NULL;
    if (!of->has_content) {
        of->bytes += strlen("null") - strlen("\"\"");
        return UL_STEP_ON;
    }
    const uint64_t escaped = ul_in_run(walk, i)
                                 ? walk->run.lengths[i - walk->run.first]
                                 : ul_checked_length(walk->reader.measurer, content.text, content.n);
    of->bytes += escaped;
    return escaped != UL_NOT_TEXT ? UL_STEP_ON : ul_stop_at(walk, UL_FAULT_UTF8);
}

/* Which column holds the id of the call that a result answers. */
static uint32_t answering_column(const ul_chat *chat, const message *of) {
    if (of->role != UL_ROLE_TOOL) return 0;
    return of->is_function ? chat->name : chat->tool_call_id;
}

/* Everything that has no place in the contract's message. */
static ul_step add_others(ul_walk *walk, int64_t i, message *of) {
    const ul_chat *chat = walk->chat;
    const uint32_t answering = answering_column(chat, of);
    const uint32_t calls = of->role == UL_ROLE_ASSISTANT ? chat->tool_calls : 0;
    for (uint32_t child = chat->columns[chat->message].child; child != 0; child = chat->columns[child].next) {
        if (child == chat->role || child == chat->content || child == answering || child == calls) continue;
        const ul_step step = ul_step_of(walk, ul_add_member(&walk->reader, child, i, &of->bytes));
        if (step != UL_STEP_ON) return step;
    }
    return UL_STEP_ON;
}

/* Whether an assistant message says something that is neither content nor a tool call. */
static bool has_other_answer(const ul_chat *chat, int64_t i) {
    const uint32_t columns[] = {chat->refusal, chat->audio, chat->function_call};
    for (size_t k = 0; k < sizeof columns / sizeof *columns; k++) {
        const void *values;
        int64_t place;
        if (columns[k] != 0 &&
            ul_column_place(&chat->columns[columns[k]], i, &values, &place) == UL_ELEMENT_VALUE)
            return true;
    }
    return false;
}

static ul_step add_call_id(ul_walk *walk, int64_t i, message *of) {
    const ul_step step = ul_read_text(walk, answering_column(walk->chat, of), i, &of->call_id);
    if (step != UL_STEP_ON || of->call_id.text == NULL) return step;
    const uint64_t escaped = ul_checked_length(walk->reader.measurer, of->call_id.text, of->call_id.n);
    of->bytes += escaped;
    return escaped != UL_NOT_TEXT ? UL_STEP_ON : ul_stop_at(walk, UL_FAULT_UTF8);
}

static ul_step measure_message(ul_walk *walk, int64_t i, message *of) {
    const ul_chat *chat = walk->chat;
    of->calls = 0;
    if (ul_struct_at(&chat->columns[chat->message], i) == UL_ELEMENT_NULL)
        return ul_stop_at(walk, UL_FAULT_NULL_MESSAGE);
    ul_step step = read_role(walk, i, of);
    if (step == UL_STEP_ON) step = add_content(walk, i, of);
    if (step == UL_STEP_ON && of->role == UL_ROLE_ASSISTANT)
        step = ul_add_calls(walk, i, &of->bytes, &of->call, &of->calls);
    if (step == UL_STEP_ON && of->role == UL_ROLE_TOOL) step = add_call_id(walk, i, of);
    if (step == UL_STEP_ON && chat->others) step = add_others(walk, i, of);
    if (step != UL_STEP_ON) return step;
    if (walk->reader.not_json) return ul_stop_at(walk, UL_FAULT_NUMBER);
    if (of->has_content || of->calls > 0) return UL_STEP_ON;
    return of->role == UL_ROLE_ASSISTANT && has_other_answer(chat, i) ? UL_STEP_ON
                                                                      : ul_stop_at(walk, UL_FAULT_CONTENT);
}

/* Keeps calls and their results together: nothing may stand between them. */
static ul_step pair(ul_walk *walk, int64_t i, const message *of) {
    if (of->role == UL_ROLE_TOOL) return ul_take_result(walk, of->call_id);
    if (walk->waiting.left > 0) return ul_stop_at(walk, UL_FAULT_INTERRUPTED);
    if (of->role != UL_ROLE_ASSISTANT || !walk->chat->others) return UL_STEP_ON;
    return ul_await_results(walk, i, of->call, of->calls);
}

/* ---- One row ---- */

/* Finds the last fault there may be, and the one that comes before all others: text that is not UTF-8.  A row
 * that is malformed in another way is then known to be text, and can be shown. */
static ul_step find_worse(ul_walk *walk, const ul_row_place *place, uint32_t *at) {
    for (int64_t i = 0; i < place->length; i++) {
        uint64_t length = 0;
        switch (ul_add_value(&walk->reader, walk->chat->message, place->first + i, &length)) {
        case UL_VALUE_BROKEN:
            return UL_STEP_BROKEN;
        case UL_VALUE_NOT_UTF8:
            *at = (uint32_t)i;
            return ul_stop_at(walk, UL_FAULT_UTF8);
        default:
            break;
        }
    }
    return UL_STEP_FAULT;
}

static void forget_row(const ul_batch *batch, const ul_row_place *place) {
    const size_t n = (size_t)place->length;
    memset(batch->roles + place->base, 0, n * sizeof *batch->roles);
    memset(batch->bytes + place->base, 0, n * sizeof *batch->bytes);
    memset(batch->turns + place->base, 0xFF, n * sizeof *batch->turns);
    batch->turn_counts[place->row] = 0;
    batch->raw_arguments[place->row] = 0;
}

/* Measures the messages of a row and gives them their turns.  `*at` is the message at fault. */
static ul_step measure_messages(ul_walk *walk, const ul_row_place *place, const ul_batch *batch,
                                uint32_t *at) {
    ul_turns turns = ul_turns_start(walk);
    walk->waiting = (ul_waiting){.legacy = -1};
    walk->raw_arguments = false;
    walk->reader.not_json = false;
    for (int64_t i = 0; i < place->length; i++) {
        message of;
        *at = (uint32_t)i;
        ul_step step = measure_message(walk, place->first + i, &of);
        if (step == UL_STEP_ON) step = pair(walk, place->first + i, &of);
        if (step != UL_STEP_ON) return step;
        batch->roles[place->base + i] = (uint8_t)of.role;
        batch->bytes[place->base + i] = of.bytes;
        batch->turns[place->base + i] = ul_turn_of(&turns, of.role);
    }
    if (walk->waiting.left > 0) return ul_stop_at(walk, UL_FAULT_UNANSWERED);
    if (turns.opened == UL_NO_TURN) return ul_stop_at(walk, UL_FAULT_NO_TURN);
    batch->turn_counts[place->row] = turns.count;
    if (walk->raw_arguments) batch->raw_arguments[place->row] = 1;
    return UL_STEP_ON;
}

static ul_step measure_row(ul_walk *walk, int64_t row, const ul_batch *batch) {
    const ul_chat *chat = walk->chat;
    ul_row_place place = {.row = chat->first_row + row};
    int64_t count;
    const ul_element found = ul_row_at(chat, row, &place.first, &count);
    if (found == UL_ELEMENT_BROKEN) return ul_step_of(walk, ul_broken(&walk->reader, chat->list));
    place.base = batch->message_offsets[place.row];
    place.length = batch->message_offsets[place.row + 1] - place.base;

    uint32_t at = 0;
    ul_step step = found == UL_ELEMENT_NULL ? ul_stop_at(walk, UL_FAULT_NULL_ROW)
                                            : measure_messages(walk, &place, batch, &at);
    if (step == UL_STEP_FAULT && walk->fault != UL_FAULT_UTF8) step = find_worse(walk, &place, &at);
    if (step != UL_STEP_FAULT) return step;
    batch->faults[place.row] = (uint8_t)walk->fault;
    batch->fault_messages[place.row] = at;
    forget_row(batch, &place);
    return UL_STEP_ON;
}

ul_batch_status ul_batch_measure(const ul_chat *chat, const ul_measurer *measurer, int64_t first,
                                 int64_t last, const ul_batch *batch, ul_batch_stop *stop) {
    ul_walk walk = {.chat = chat, .reader = {.columns = chat->columns, .measurer = measurer}};
    ul_look_ahead(&walk, first, last, batch);
    for (int64_t row = first; row < last; row++) {
        if (walk.plain) row = ul_measure_plain(&walk, row, last, batch);
        if (row == last) break;
        const ul_step step = measure_row(&walk, row, batch);
        if (step == UL_STEP_ON) continue;
        *stop = (ul_batch_stop){row, walk.reader.broken, walk.wanted};
        return step == UL_STEP_BROKEN ? UL_BATCH_BROKEN : UL_BATCH_SCRATCH;
    }
    return UL_BATCH_DONE;
}
