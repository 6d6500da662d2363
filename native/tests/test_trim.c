/* test_trim.c: trimming by differences gives what adding up again after each removal gives. */
#include "check.h"
#include "ullage.h"

#include <stdbool.h>

#define MOST_TURNS 12

/* The rules word for word: each candidate is added up from nothing. */
static ul_trim_status reference_trim(const ul_trim_task *task, uint64_t *attempts, ul_trim_result *result) {
    bool gone[MOST_TURNS] = {false};
    *result = (ul_trim_result){0};
    for (;;) {
        uint64_t messages = task->current;
        for (size_t i = 0; i < task->turns; i++) {
            if (gone[i]) continue;
            if (messages > UINT64_MAX - task->turn_tokens[i]) return UL_TRIM_MESSAGES_OVERFLOW;
            messages += task->turn_tokens[i];
        }
        const uint64_t parts[] = {task->system, messages, task->constraint, task->template_tokens};
        uint64_t total = 0;
        for (size_t i = 0; i < 4; i++) {
            if (total > UINT64_MAX - parts[i]) return UL_TRIM_TOTAL_OVERFLOW;
            total += parts[i];
        }
        if (total == 0) return UL_TRIM_ZERO;
        if (total > UINT64_MAX - task->reserved) return UL_TRIM_TOTAL_OVERFLOW;
        attempts[result->attempts++] = messages;
        if (total + task->reserved <= task->window) return UL_TRIM_FITS;

        size_t oldest = 0;
        while (oldest < task->turns && (gone[oldest] || task->turn_protected[oldest])) oldest++;
        if (oldest == task->turns) return UL_TRIM_DOES_NOT_FIT;
        if (result->attempts >= task->max_counts) return UL_TRIM_COUNT_LIMIT;
        gone[oldest] = true;
        result->removed++;
    }
}

static void check_task(const ul_trim_task *task) {
    uint64_t want_attempts[MOST_TURNS + 1], got_attempts[MOST_TURNS + 1];
    ul_trim_result want, got;
    const ul_trim_status want_status = reference_trim(task, want_attempts, &want);
    const ul_trim_status got_status = ul_trim(task, got_attempts, &got);
    CHECK(got_status == want_status, "%d, not %d", (int)got_status, (int)want_status);
    CHECK(got.attempts == want.attempts, "%zu attempts, not %zu", got.attempts, want.attempts);
    CHECK(got.removed == want.removed, "%zu removed, not %zu", got.removed, want.removed);
    CHECK(memcmp(got_attempts, want_attempts, want.attempts * sizeof *want_attempts) == 0, "attempts differ");
    CHECK(ul_trim(task, NULL, &got) == want_status && got.attempts == want.attempts,
          "without a list of attempts");
}

static uint64_t random_tokens(void) {
    switch (random_below(16)) {
    case 0:
        return UINT64_MAX - random_below(3);
    case 1:
        return UINT64_MAX / (1 + random_below(4));
    case 2:
    case 3:
        return 0;
    default:
        return random_below(40);
    }
}

static void random_tasks_agree(void) {
    for (int round = 0; round < 200000; round++) {
        uint64_t tokens[MOST_TURNS];
        uint8_t protected[MOST_TURNS];
        const bool small = random_below(4) > 0;
        const uint64_t range = small ? 20 : UINT64_MAX;
        ul_trim_task task = {
            .turns = random_below(MOST_TURNS + 1), .turn_tokens = tokens, .turn_protected = protected};
        for (size_t i = 0; i < task.turns; i++) {
            tokens[i] = small ? random_below(20) : random_tokens();
            protected[i] = random_below(4) == 0 ? (uint8_t)(1 + random_below(255)) : 0;
        }
        uint64_t *parts[] = {&task.system, &task.current, &task.constraint, &task.template_tokens,
                             &task.reserved};
        for (size_t i = 0; i < 5; i++)
            *parts[i] = small ? random_below(2) * random_below(range) : random_tokens();
        task.window = small ? random_below(120) : random_tokens();
        task.max_counts = 1 + random_below(MOST_TURNS);
        check_task(&task);
    }
}

static void statuses_come_in_order(void) {
    const uint64_t tokens[2] = {5, 7};
    const uint8_t none[2] = {0, 0}, all[2] = {1, 9};
    uint64_t attempts[3];
    ul_trim_result result;
    ul_trim_task task = {.turns = 2,
                         .turn_tokens = tokens,
                         .turn_protected = none,
                         .current = 1,
                         .window = 8,
                         .max_counts = 9};
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_FITS, "8 fits in 8");
    CHECK(result.attempts == 2 && result.removed == 1 && attempts[0] == 13 && attempts[1] == 8,
          "one turn goes");

    task.window = 0;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_DOES_NOT_FIT && result.attempts == 3, "all turns go");
    task.max_counts = 3;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_DOES_NOT_FIT, "nothing left comes before the limit");
    task.max_counts = 2;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_COUNT_LIMIT && result.removed == 1,
          "the limit keeps a turn");
    task.turn_protected = all;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_DOES_NOT_FIT && result.removed == 0,
          "protected turns stay");

    task.turn_protected = none;
    task.current = 0;
    task.max_counts = 9;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_ZERO && result.removed == 2 && result.attempts == 2,
          "an empty candidate is none");
    task.current = UINT64_MAX - 11;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_MESSAGES_OVERFLOW && result.attempts == 0, "messages");
    task.current = UINT64_MAX - 12;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_DOES_NOT_FIT, "the greatest sum is one");
    task.reserved = 1;
    CHECK(ul_trim(&task, attempts, &result) == UL_TRIM_TOTAL_OVERFLOW && result.attempts == 0,
          "with the reserve");
}

int main(void) {
    statuses_come_in_order();
    random_tasks_agree();
    return checks_done();
}
