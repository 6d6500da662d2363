/* batch_calls.c: tool calls, and which of them wait for a result. */
#include "batch.h"
#include "bits.h"

enum {
    CALLS_FRAME = sizeof ",\"tool_calls\":[]" - 1,
    CALL_FRAME = sizeof "{\"id\":\"\",\"name\":\"\",\"arguments\":}" - 1,
    QUOTES = 2
};

/* ---- Blank text ---- */

/* The bytes of the character of the Unicode property White_Space that stands at the start, or 0. */
static size_t space_length(const uint8_t *text, size_t n) {
    if ((text[0] >= '\t' && text[0] <= '\r') || text[0] == ' ') return 1;
    if (n >= 2 && text[0] == 0xC2 && (text[1] == 0x85 || text[1] == 0xA0)) return 2;
    if (n < 3) return 0;
    switch ((uint32_t)text[0] << 16 | (uint32_t)text[1] << 8 | text[2]) {
    case 0xE19A80: /* U+1680 */
    case 0xE280A8: /* U+2028 */
    case 0xE280A9:
    case 0xE280AF: /* U+202F */
    case 0xE2819F: /* U+205F */
    case 0xE38080: /* U+3000 */
        return 3;
    default:
        return text[0] == 0xE2 && text[1] == 0x80 && text[2] >= 0x80 && text[2] <= 0x8A ? 3 : 0;
    }
}

static bool is_blank(ul_text text) {
    size_t i = 0;
    while (i < text.n) {
        const size_t space = space_length(text.text + i, text.n - i);
        if (space == 0) return false;
        i += space;
    }
    return true;
}

/* ---- The length of calls ---- */

/* Text that has to be there and not be blank: an id or a name. */
static ul_step add_name(ul_walk *walk, uint32_t column, int64_t i, uint64_t *length) {
    ul_text name;
    const ul_step step = ul_read_text(walk, column, i, &name);
    if (step != UL_STEP_ON) return step;
    if (name.text == NULL || is_blank(name)) return ul_stop_at(walk, UL_FAULT_CALL);
    const uint64_t escaped = ul_checked_length(walk->reader.measurer, name.text, name.n);
    if (escaped == UL_NOT_TEXT) return ul_stop_at(walk, UL_FAULT_UTF8);
    *length += escaped;
    return UL_STEP_ON;
}

/* Arguments count as the object that they are the JSON of, or else as the text they are. */
static ul_step add_arguments(ul_walk *walk, int64_t i, uint64_t *length) {
    const ul_json_scanner *scanner = &walk->reader.measurer->scanner;
    ul_text arguments;
    ul_json_result result;
    const ul_step step = ul_read_text(walk, walk->chat->arguments, i, &arguments);
    if (step != UL_STEP_ON) return step;
    if (arguments.text == NULL) arguments.text = (const uint8_t *)"";
    const ul_json_status status = ul_json_text_length(arguments.text, arguments.n, scanner, &result);
    if (status == UL_JSON_SCRATCH) {
        walk->wanted = result.wanted;
        return UL_STEP_SCRATCH;
    }
    if (status == UL_JSON_OK && result.kind == UL_KIND_OBJECT) {
        *length += result.length;
        return UL_STEP_ON;
    }
    const uint64_t escaped = ul_checked_length(walk->reader.measurer, arguments.text, arguments.n);
    if (escaped == UL_NOT_TEXT) return ul_stop_at(walk, UL_FAULT_UTF8);
    walk->raw_arguments = true;
    *length += escaped + QUOTES;
    return UL_STEP_ON;
}

/* The members of a struct but for those with a meaning of their own. */
static ul_step add_others(ul_walk *walk, uint32_t around, int64_t i, const uint32_t known[3],
                          uint64_t *length) {
    const ul_column *columns = walk->chat->columns;
    for (uint32_t child = columns[around].child; child != 0; child = columns[child].next) {
        if (child == known[0] || child == known[1] || child == known[2]) continue;
        const ul_step step = ul_step_of(walk, ul_add_member(&walk->reader, child, i, length));
        if (step != UL_STEP_ON) return step;
    }
    return UL_STEP_ON;
}

/* A call names no type, or that of a function. */
static ul_step check_type(ul_walk *walk, int64_t i) {
    ul_text type;
    const ul_step step = ul_read_text(walk, walk->chat->call_type, i, &type);
    if (step != UL_STEP_ON || type.n == 0) return step;
    const bool is_function = type.n == strlen("function") && memcmp(type.text, "function", type.n) == 0;
    return is_function ? UL_STEP_ON : ul_stop_at(walk, UL_FAULT_CALL);
}

static bool is_there(const ul_column *columns, uint32_t column, int64_t i) {
    return column != 0 && ul_struct_at(&columns[column], i) == UL_ELEMENT_VALUE;
}

static ul_step add_call(ul_walk *walk, int64_t i, uint64_t *length) {
    const ul_chat *chat = walk->chat;
    const uint32_t of_call[3] = {chat->call_id, chat->call_type, chat->call_function};
    const uint32_t of_function[3] = {chat->function_name, chat->arguments, 0};
    if (!is_there(chat->columns, chat->call, i) || !is_there(chat->columns, chat->call_function, i))
        return ul_stop_at(walk, UL_FAULT_CALL);
    *length += CALL_FRAME;
    ul_step step = check_type(walk, i);
    if (step == UL_STEP_ON) step = add_name(walk, chat->call_id, i, length);
    if (step == UL_STEP_ON) step = add_name(walk, chat->function_name, i, length);
    if (step == UL_STEP_ON) step = add_arguments(walk, i, length);
    if (step == UL_STEP_ON) step = add_others(walk, chat->call, i, of_call, length);
    if (step == UL_STEP_ON) step = add_others(walk, chat->call_function, i, of_function, length);
    return step;
}

ul_step ul_add_calls(ul_walk *walk, int64_t message, uint64_t *length, int64_t *first, int64_t *count) {
    const uint32_t column = walk->chat->tool_calls;
    *count = 0;
    if (column == 0) return UL_STEP_ON;
    const ul_element found = ul_list_at(&walk->chat->columns[column], message, first, count);
    if (found == UL_ELEMENT_BROKEN) return ul_step_of(walk, ul_broken(&walk->reader, column));
    if (found == UL_ELEMENT_NULL || *count == 0) return UL_STEP_ON;
    *length += CALLS_FRAME + (uint64_t)(*count - 1);
    for (int64_t i = 0; i < *count; i++) {
        const ul_step step = add_call(walk, *first + i, length);
        if (step != UL_STEP_ON) return step;
    }
    return UL_STEP_ON;
}

/* ---- Waiting for results ---- */

/* So many calls are searched one by one, each with its bit in `answered`. */
#define FEW_CALLS 64

/* An id in the hash table. */
typedef struct {
    uint64_t hash;
    int64_t call; /* its number and one, 0 in a free slot, less than 0 once it has its result */
} slot;

/* The id of a call whose message has been measured. */
static ul_text id_of(const ul_walk *walk, int64_t call) {
    const ul_chat *chat = walk->chat;
    const bool is_legacy = call == walk->waiting.count;
    ul_text id;
    ul_text_at(&chat->columns[is_legacy ? chat->legacy_name : chat->call_id],
               is_legacy ? walk->waiting.legacy : walk->waiting.first + call, &id.text, &id.n);
    return id;
}

static bool is_same(ul_text a, ul_text b) {
    return a.n == b.n && memcmp(a.text, b.text, a.n) == 0;
}

/* Keyed, so that ids cannot be made to collide. */
static uint64_t hash_of(const ul_walk *walk, ul_text id) {
    const uint64_t seed = walk->reader.measurer->scanner.seed;
    const uint64_t secret = (seed ^ UINT64_C(0x9E3779B97F4A7C15)) | 1;
    uint64_t hash = ul_fold_multiply(seed ^ id.n, secret);
    size_t i = 0;
    for (; id.n - i >= 8; i += 8) hash = ul_fold_multiply(hash ^ ul_load64(id.text + i), secret);
    return ul_fold_multiply(hash ^ ul_load_part(id.text + i, id.n - i), secret);
}

/* The slot of a call that waits under this id, or the free one where it would be. */
static slot *find_slot(const ul_walk *walk, ul_text id, uint64_t hash) {
    slot *slots = walk->reader.measurer->scanner.scratch;
    const size_t mask = walk->waiting.slots - 1;
    for (size_t at = (size_t)hash & mask;; at = (at + 1) & mask) {
        slot *here = &slots[at];
        if (here->call == 0) return here;
        if (here->call > 0 && here->hash == hash && is_same(id_of(walk, here->call - 1), id)) return here;
    }
}

static ul_step await_many(ul_walk *walk, int64_t calls) {
    const ul_json_scanner *scanner = &walk->reader.measurer->scanner;
    size_t slots = 4 * FEW_CALLS;
    while (slots < 2 * (size_t)calls) slots *= 2;
    if (scanner->scratch_size < slots * sizeof(slot)) {
        walk->wanted = slots * sizeof(slot);
        return UL_STEP_SCRATCH;
    }
    walk->waiting.slots = slots;
    memset(scanner->scratch, 0, slots * sizeof(slot));
    for (int64_t call = 0; call < calls; call++) {
        const ul_text id = id_of(walk, call);
        const uint64_t hash = hash_of(walk, id);
        slot *free_slot = find_slot(walk, id, hash);
        if (free_slot->call != 0) return ul_stop_at(walk, UL_FAULT_CALL_TWICE);
        *free_slot = (slot){hash, call + 1};
    }
    return UL_STEP_ON;
}

static ul_step await_few(ul_walk *walk, int64_t calls) {
    for (int64_t call = 1; call < calls; call++) {
        for (int64_t before = 0; before < call; before++) {
            if (is_same(id_of(walk, call), id_of(walk, before))) return ul_stop_at(walk, UL_FAULT_CALL_TWICE);
        }
    }
    return UL_STEP_ON;
}

ul_step ul_await_results(ul_walk *walk, int64_t message, int64_t first, int64_t count) {
    const ul_chat *chat = walk->chat;
    walk->waiting = (ul_waiting){.first = first, .count = count, .legacy = -1};
    if (chat->function_call != 0 && chat->columns[chat->function_call].type == UL_COLUMN_STRUCT &&
        is_there(chat->columns, chat->function_call, message)) {
        uint64_t measured = 0;
        const ul_step step = add_name(walk, chat->legacy_name, message, &measured);
        if (step != UL_STEP_ON) return step;
        walk->waiting.legacy = message;
    }
    const int64_t calls = count + (walk->waiting.legacy >= 0);
    walk->waiting.left = calls;
    return calls > FEW_CALLS ? await_many(walk, calls) : await_few(walk, calls);
}

ul_step ul_take_result(ul_walk *walk, ul_text call_id) {
    ul_waiting *waiting = &walk->waiting;
    const int64_t calls = waiting->count + (waiting->legacy >= 0);
    if (waiting->left == 0 || call_id.text == NULL || is_blank(call_id))
        return ul_stop_at(walk, UL_FAULT_RESULT);
    if (waiting->slots > 0) {
        slot *asked = find_slot(walk, call_id, hash_of(walk, call_id));
        if (asked->call == 0) return ul_stop_at(walk, UL_FAULT_RESULT);
        asked->call = -asked->call;
        waiting->left--;
        return UL_STEP_ON;
    }
    for (int64_t call = 0; call < calls; call++) {
        if ((waiting->answered >> call & 1) != 0 || !is_same(id_of(walk, call), call_id)) continue;
        waiting->answered |= UINT64_C(1) << call;
        waiting->left--;
        return UL_STEP_ON;
    }
    return ul_stop_at(walk, UL_FAULT_RESULT);
}
