/* batch.c: where the messages of each row are, and which turns of each row have to go. */
#include "batch.h"

/* Rows number their messages and turns with 32 bits; a batch counts its messages where sums cannot overflow. */
#define MOST_IN_ROW ((int64_t)UINT32_MAX - 1)
#define MOST_IN_BATCH (INT64_C(1) << 62)

ul_batch_status ul_batch_count(const ul_chat *chat, int64_t *message_offsets, ul_batch_stop *stop) {
    const int64_t rows = chat->columns[chat->list].length;
    int64_t *offsets = message_offsets + chat->first_row;
    for (int64_t row = 0; row < rows; row++) {
        int64_t first, count;
        const ul_element found = ul_row_at(chat, row, &first, &count);
        if (found == UL_ELEMENT_NULL) count = 0;
        if (found == UL_ELEMENT_BROKEN || count > MOST_IN_ROW || count > MOST_IN_BATCH - offsets[row]) {
            *stop = (ul_batch_stop){row, chat->list, 0};
            return UL_BATCH_BROKEN;
        }
        offsets[row + 1] = offsets[row] + count;
    }
    return UL_BATCH_DONE;
}

/* ---- Trimming ---- */

uint64_t ul_batch_turns(const ul_batch *batch, int64_t row, uint64_t *tokens, uint8_t *stays) {
    const uint32_t turns = batch->turn_counts[row];
    uint32_t current = 0;
    uint64_t system = 0;
    if (turns == 0) return 0; /* a row with a fault */
    memset(tokens, 0, turns * sizeof *tokens);
    memset(stays, 0, turns);
    for (int64_t i = batch->message_offsets[row]; i < batch->message_offsets[row + 1]; i++) {
        const uint32_t turn = batch->turns[i];
        const uint64_t of_message =
            ul_tokens_of(batch->bytes[i]) + (batch->prices != NULL ? batch->prices[i] : 0);
        if (batch->roles[i] == UL_ROLE_SYSTEM) {
            system += of_message;
            if (turn != UL_NO_TURN) stays[turn] = 1;
        } else {
            tokens[turn] += of_message;
            current = turn;
        }
    }
    stays[current] = 1;
    return system;
}

static ul_row_status trim_turns(const ul_trim_task *task, ul_trim_result *result) {
    if (task->reserved >= task->window) return UL_ROW_NO_ROOM;
    switch (ul_trim(task, NULL, result)) {
    case UL_TRIM_FITS:
        return result->removed == 0 ? UL_ROW_FITS : UL_ROW_TRIMMED;
    case UL_TRIM_MESSAGES_OVERFLOW:
        return UL_ROW_MESSAGES_OVERFLOW;
    case UL_TRIM_TOTAL_OVERFLOW:
        return UL_ROW_TOTAL_OVERFLOW;
    case UL_TRIM_ZERO:
        return UL_ROW_ZERO;
    default:
        return UL_ROW_DOES_NOT_FIT;
    }
}

/* All turns before the one returned are gone, unless they stay whatever happens. */
static uint32_t first_kept(const ul_trim_task *task, size_t removed, uint64_t *removed_tokens) {
    uint32_t turn = 0;
    *removed_tokens = 0;
    for (; removed > 0; turn++) {
        if (task->turn_protected[turn]) continue;
        *removed_tokens += task->turn_tokens[turn];
        removed--;
    }
    return turn;
}

/* Marks the messages of turns that are still there; returns how many are not. */
static uint32_t mark_retained(const uint32_t *turns, const uint8_t *stays, int64_t n, uint32_t kept_from,
                              uint8_t *retained) {
    uint32_t dropped = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool stays_here = turns[i] >= kept_from || stays[turns[i]];
        retained[i] = stays_here;
        dropped += !stays_here;
    }
    return dropped;
}

/* The tokens of the whole request; sums that ul_trim has found not to overflow. */
static uint64_t whole_request(const ul_trim_task *task) {
    uint64_t total = task->system + task->constraint + task->template_tokens;
    for (size_t i = 0; i < task->turns; i++) total += task->turn_tokens[i];
    return total;
}

static void trim_row(const ul_batch *batch, int64_t row, const ul_trim_task *task,
                     const ul_batch_outcome *outcome) {
    const int64_t base = batch->message_offsets[row], length = batch->message_offsets[row + 1] - base;
    ul_trim_result result = {0};
    unsigned status = batch->faults[row];
    uint64_t before = 0, removed_tokens = 0;
    uint32_t messages_dropped = 0;
    if (status == UL_FAULT_NONE) status = trim_turns(task, &result);
    if (status <= UL_ROW_DOES_NOT_FIT) {
        const uint32_t kept_from = first_kept(task, result.removed, &removed_tokens);
        before = whole_request(task);
        messages_dropped = mark_retained(batch->turns + base, task->turn_protected, length, kept_from,
                                         outcome->retained + base);
    } else {
        result.removed = 0;
        memset(outcome->retained + base, 0, (size_t)length);
    }
    outcome->statuses[row] = (uint8_t)status;
    outcome->turns_dropped[row] = (uint32_t)result.removed;
    outcome->messages_dropped[row] = messages_dropped;
    outcome->tokens_before[row] = before;
    outcome->tokens_after[row] = before - removed_tokens;
}

void ul_batch_trim(const ul_batch *batch, const ul_batch_budget *budget, int64_t first, int64_t last,
                   uint64_t *turn_tokens, uint8_t *turn_stays, const ul_batch_outcome *outcome) {
    ul_trim_task task = {
        .turn_tokens = turn_tokens,
        .turn_protected = turn_stays,
        .constraint = budget->constraint,
        .template_tokens = budget->template_tokens,
        .reserved = budget->reserved,
        .max_counts = UINT64_MAX,
    };
    for (int64_t row = first; row < last; row++) {
        task.turns = batch->turn_counts[row];
        task.system = ul_batch_turns(batch, row, turn_tokens, turn_stays);
        task.window = budget->windows != NULL ? budget->windows[row] : budget->window;
        trim_row(batch, row, &task, outcome);
    }
}
