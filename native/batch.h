/* batch.h: what the files that measure a batch share. */
#ifndef ULLAGE_BATCH_H
#define ULLAGE_BATCH_H

#include "column.h"

/* The calls of one assistant message that have no result yet.
 *
 * A call is known by its number among those of its message; a function_call counts as the one after the last
 * of tool_calls.  Few calls are searched one by one; of more the scratch memory holds a hash table. */
typedef struct {
    int64_t first, count; /* the elements of tool_calls */
    int64_t legacy;       /* the message whose function_call asks as well, or -1 */
    int64_t left;         /* calls without a result */
    uint64_t answered;    /* bit k for call k, where there are few */
    size_t slots;         /* of the hash table: a power of two, or 0 where there are few */
} ul_waiting;

/* Messages that are looked at together: the role of each, and the escaped length of its content. */
#define UL_RUN_TEXTS 32

typedef struct {
    int64_t first, count; /* as elements of the column of messages */
    int64_t plain; /* how many of them, from the first on, have a role that needs no call, and a length */
    uint64_t lengths[UL_RUN_TEXTS];
    uint8_t roles[UL_RUN_TEXTS];
} ul_run;

/* Measuring one row after the other. */
typedef struct {
    const ul_chat *chat;
    ul_column_reader reader;
    bool plain;        /* whether messages have nothing but role and content, and none of them is null */
    bool in_order;     /* whether each row's messages follow those of the row before, in column and batch */
    int64_t shift;     /* then what a message's place in the column is more than that in the batch */
    int64_t run_limit; /* where the messages of all rows end, or 0 where they lie in no order */
    ul_run run;
    ul_waiting waiting;
    ul_fault fault;     /* for UL_STEP_FAULT */
    size_t wanted;      /* for UL_STEP_SCRATCH */
    bool raw_arguments; /* whether the row has arguments that count as the text they are */
} ul_walk;

typedef enum { UL_STEP_ON = 0, UL_STEP_FAULT, UL_STEP_BROKEN, UL_STEP_SCRATCH } ul_step;

static inline ul_step ul_stop_at(ul_walk *walk, ul_fault fault) {
    walk->fault = fault;
    return UL_STEP_FAULT;
}

static inline ul_step ul_step_of(ul_walk *walk, ul_value_status status) {
    if (status == UL_VALUE_OK) return UL_STEP_ON;
    return status == UL_VALUE_BROKEN ? UL_STEP_BROKEN : ul_stop_at(walk, UL_FAULT_UTF8);
}

/* The messages of a row, as elements of the column of messages. */
static inline ul_element ul_row_at(const ul_chat *chat, int64_t row, int64_t *first, int64_t *count) {
    if (chat->list != 0 && ul_struct_at(&chat->columns[0], row) == UL_ELEMENT_NULL) return UL_ELEMENT_NULL;
    return ul_list_at(&chat->columns[chat->list], row, first, count);
}

/* A text, or NULL for none. */
typedef struct {
    const uint8_t *text;
    size_t n;
} ul_text;

static inline ul_step ul_read_text(ul_walk *walk, uint32_t column, int64_t i, ul_text *text) {
    *text = (ul_text){NULL, 0};
    if (column == 0) return UL_STEP_ON;
    const ul_element found = ul_text_at(&walk->chat->columns[column], i, &text->text, &text->n);
    return found == UL_ELEMENT_BROKEN ? ul_step_of(walk, ul_broken(&walk->reader, column)) : UL_STEP_ON;
}

/* The arrays of one row. */
typedef struct {
    int64_t row;          /* in the batch */
    int64_t base, length; /* its messages there */
    int64_t first;        /* its first message in the column */
} ul_row_place;

/* ---- Roles and frames ---- */

/* What stands around the text of a contract message, the quotes of texts included. */
enum {
    UL_SYSTEM_FRAME = sizeof "{\"role\":\"system\",\"content\":\"\"}" - 1,
    UL_USER_FRAME = sizeof "{\"role\":\"user\",\"content\":\"\"}" - 1,
    UL_ASSISTANT_FRAME = sizeof "{\"role\":\"assistant\",\"content\":\"\"}" - 1,
    UL_TOOL_FRAME = sizeof "{\"role\":\"tool\",\"call_id\":\"\",\"content\":\"\"}" - 1
};

static inline unsigned ul_frame_of(unsigned role) {
    static const uint8_t frames[] = {0, UL_SYSTEM_FRAME, UL_USER_FRAME, UL_ASSISTANT_FRAME, UL_TOOL_FRAME};
    return frames[role];
}

static inline ul_role ul_role_of(ul_text text) {
    switch (text.n) {
    case 4:
        if (memcmp(text.text, "user", 4) == 0) return UL_ROLE_USER;
        return memcmp(text.text, "tool", 4) == 0 ? UL_ROLE_TOOL : UL_ROLE_NONE;
    case 6:
        return memcmp(text.text, "system", 6) == 0 ? UL_ROLE_SYSTEM : UL_ROLE_NONE;
    case 8:
        return memcmp(text.text, "function", 8) == 0 ? UL_ROLE_TOOL : UL_ROLE_NONE;
    case 9:
        if (memcmp(text.text, "assistant", 9) == 0) return UL_ROLE_ASSISTANT;
        return memcmp(text.text, "developer", 9) == 0 ? UL_ROLE_SYSTEM : UL_ROLE_NONE;
    default:
        return UL_ROLE_NONE;
    }
}

/* One token for four bytes, rounded up; no message is so long that this overflows. */
static inline uint64_t ul_tokens_of(uint64_t bytes) {
    return (bytes + 3) / 4;
}

/* ---- Turns ---- */

typedef struct {
    uint32_t opened; /* the turn that is open, or UL_NO_TURN */
    uint32_t count;
    unsigned before; /* the role of the message before */
    bool merge_users;
} ul_turns;

static inline ul_turns ul_turns_start(const ul_walk *walk) {
    return (ul_turns){.opened = UL_NO_TURN, .merge_users = walk->chat->merge_users != 0};
}

/* The turn of the next message. */
static inline uint32_t ul_turn_of(ul_turns *turns, unsigned role) {
    const bool goes_on = turns->merge_users && turns->before == UL_ROLE_USER;
    turns->before = role;
    if (role == UL_ROLE_SYSTEM) return turns->count == 0 ? UL_NO_TURN : turns->count++;
    if (turns->opened == UL_NO_TURN || (role == UL_ROLE_USER && !goes_on)) turns->opened = turns->count++;
    return turns->opened;
}

/* ---- Many messages together: batch_plain.c ---- */

/* Looks whether the messages of rows [first, last) are plain, whether they are in order, and where they end. */
void ul_look_ahead(ul_walk *walk, int64_t first, int64_t last, const ul_batch *batch);

/* Measures rows of plain messages up to one that is null, has no turn or is at fault, or up to `last`; returns
 * where it stopped. */
int64_t ul_measure_plain(ul_walk *walk, int64_t row, int64_t last, const ul_batch *batch);

/* Takes a run of messages, from this one on. */
void ul_take_run(ul_walk *walk, int64_t first);

/* Whether a message is in the run, or can be brought there. */
static inline bool ul_in_run(ul_walk *walk, int64_t i) {
    if ((uint64_t)(i - walk->run.first) < (uint64_t)walk->run.count) return true;
    if (i >= walk->run_limit) return false;
    ul_take_run(walk, i);
    return true;
}

/* ---- Calls and results: batch_calls.c ---- */

/* Adds the bytes of a message's tool calls, with all that has no place in the contract's.  `*first` and `*count`
 * are its calls. */
ul_step ul_add_calls(ul_walk *walk, int64_t message, uint64_t *length, int64_t *first, int64_t *count);

/* Lets the calls of a message wait, its function_call included where there is one. */
ul_step ul_await_results(ul_walk *walk, int64_t message, int64_t first, int64_t count);

/* Takes a result to the call that it answers. */
ul_step ul_take_result(ul_walk *walk, ul_text call_id);

#endif
