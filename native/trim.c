/* trim.c: which turns have to go, from their token figures alone.
 *
 * Counting anew after every removal is what a request's size is defined by.  For figures that add up, the
 * messages of each candidate are those of the last one less the turn that went, which is what is done here;
 * the outcome is the same. */
#include "checked.h"
#include "ullage.h"

/* current + all turns: the messages of the first candidate.  False where the sum overflows. */
static bool first_messages(const ul_trim_task *task, uint64_t *messages) {
    *messages = task->current;
    for (size_t i = 0; i < task->turns; i++) {
        if (!ul_add(*messages, task->turn_tokens[i], messages)) return false;
    }
    return true;
}

/* The whole of a candidate, without and with what is reserved. */
static ul_trim_status candidate_total(const ul_trim_task *task, uint64_t messages, uint64_t *with_reserve) {
    uint64_t total;
    bool fits = ul_add(task->system, messages, &total) && ul_add(total, task->constraint, &total) &&
                ul_add(total, task->template_tokens, &total);
    if (!fits) return UL_TRIM_TOTAL_OVERFLOW;
    if (total == 0) return UL_TRIM_ZERO;
    return ul_add(total, task->reserved, with_reserve) ? UL_TRIM_FITS : UL_TRIM_TOTAL_OVERFLOW;
}

ul_trim_status ul_trim(const ul_trim_task *task, uint64_t *attempt_messages, ul_trim_result *result) {
    result->attempts = 0;
    result->removed = 0;

    uint64_t messages;
    if (!first_messages(task, &messages)) return UL_TRIM_MESSAGES_OVERFLOW;

    size_t oldest = 0; /* no turn before this one may still be removed */
    for (;;) {
        uint64_t total;
        const ul_trim_status status = candidate_total(task, messages, &total);
        if (status != UL_TRIM_FITS) return status;

        if (attempt_messages) attempt_messages[result->attempts] = messages;
        result->attempts++;
        if (total <= task->window) return UL_TRIM_FITS;

        while (oldest < task->turns && task->turn_protected[oldest]) oldest++;
        if (oldest == task->turns) return UL_TRIM_DOES_NOT_FIT;
        if (result->attempts >= task->max_counts) return UL_TRIM_COUNT_LIMIT;

        messages -= task->turn_tokens[oldest++];
        result->removed++;
    }
}
