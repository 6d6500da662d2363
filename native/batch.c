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
static uint32_t first_kept(const uint8_t *stays, const uint64_t *tokens, size_t removed,
                           uint64_t *removed_tokens) {
    uint32_t turn = 0;
    *removed_tokens = 0;
    for (; removed > 0; turn++) {
        if (stays[turn]) continue;
        *removed_tokens += tokens[turn];
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

/* The tokens of all messages, and of the rest of the request; sums that ul_trim has found not to overflow. */
static uint64_t whole_request(const ul_trim_task *task) {
    uint64_t total = task->system + task->constraint + task->template_tokens;
    for (size_t i = 0; i < task->turns; i++) total += task->turn_tokens[i];
    return total;
}

static bool has_figures(unsigned status) {
    return status <= UL_ROW_DOES_NOT_FIT;
}

static void trim_row(const ul_batch *batch, const ul_batch_budget *budget, int64_t row,
                     const ul_batch_outcome *outcome) {
    const int64_t base = batch->message_offsets[row], length = batch->message_offsets[row + 1] - base;
    const ul_trim_task task = {
        .turns = batch->turn_counts[row],
        .turn_tokens = batch->turn_tokens + base,
        .turn_protected = batch->turn_stays + base,
        .system = batch->system_tokens[row],
        .constraint = budget->constraint,
        .template_tokens = budget->template_tokens,
        .reserved = budget->reserved,
        .window = budget->windows != NULL ? budget->windows[row] : budget->window,
        .max_counts = UINT64_MAX,
    };
    ul_trim_result result = {0};
    unsigned status = batch->faults[row];
    if (status == UL_FAULT_NONE) status = trim_turns(&task, &result);
    uint64_t before = 0, removed_tokens = 0;
    uint32_t messages_dropped = 0;
    if (!has_figures(status)) {
        result.removed = 0;
        memset(outcome->retained + base, 0, (size_t)length);
    } else {
        const uint32_t kept_from =
            first_kept(task.turn_protected, task.turn_tokens, result.removed, &removed_tokens);
        before = whole_request(&task);
        messages_dropped = mark_retained(batch->turns + base, task.turn_protected, length, kept_from,
                                         outcome->retained + base);
    }
    outcome->statuses[row] = (uint8_t)status;
    outcome->turns_dropped[row] = (uint32_t)result.removed;
    outcome->messages_dropped[row] = messages_dropped;
    outcome->tokens_before[row] = before;
    outcome->tokens_after[row] = before - removed_tokens;
}

void ul_batch_trim(const ul_batch *batch, const ul_batch_budget *budget, int64_t first, int64_t last,
                   const ul_batch_outcome *outcome) {
    for (int64_t row = first; row < last; row++) trim_row(batch, budget, row, outcome);
}
