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

/* Measuring one row after the other. */
typedef struct {
    const ul_chat *chat;
    ul_column_reader reader;
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

/* ---- Calls and results: batch_calls.c ---- */

/* Adds the bytes of a message's tool calls, with all that has no place in the contract's.  `*first` and `*count`
 * are its calls. */
ul_step ul_add_calls(ul_walk *walk, int64_t message, uint64_t *length, int64_t *first, int64_t *count);

/* Lets the calls of a message wait, its function_call included where there is one. */
ul_step ul_await_results(ul_walk *walk, int64_t message, int64_t first, int64_t count);

/* Takes a result to the call that it answers. */
ul_step ul_take_result(ul_walk *walk, ul_text call_id);

#endif
