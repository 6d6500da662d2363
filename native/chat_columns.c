/* chat_columns.c: which columns of a list of structs hold what of a chat. */
#include "column.h"

static const char NOT_READ[] = "is of a type that is not read";

/* A list's child cannot be ignored by itself; whoever wants to must ignore the list. */
static uint32_t nearest_member(const ul_column *columns, uint32_t at) {
    while (at != 0 && ul_is_list(columns[columns[at].parent].type)) at = columns[at].parent;
    return at;
}

/* Every column that will be read has a type that can be, and a name of its own. */
static bool check_columns(const ul_column *columns, uint32_t at, ul_column_error *error) {
    if (columns[at].type == UL_COLUMN_OTHER)
        return ul_column_fail(columns, nearest_member(columns, at), NOT_READ, error);
    for (uint32_t child = columns[at].child; child != 0; child = columns[child].next) {
        if (columns[child].ignored) continue;
        for (uint32_t other = columns[at].child; other != child; other = columns[other].next) {
            if (!columns[other].ignored && strcmp(columns[other].name, columns[child].name) == 0)
                return ul_column_fail(columns, child, "has the name of another column", error);
        }
        if (!check_columns(columns, child, error)) return false;
    }
    return true;
}

/* ---- Members by name ---- */

typedef enum { ANY, TEXT, STRUCT, STRUCT_LIST } wanted_type;

typedef struct {
    const char *name;
    wanted_type wanted;
    uint32_t *found;
} field;

static bool is_wanted(const ul_column *columns, uint32_t at, wanted_type wanted) {
    const ul_column *column = &columns[at];
    switch (wanted) {
    case TEXT:
        return ul_is_text(column->type);
    case STRUCT:
        return column->type == UL_COLUMN_STRUCT;
    case STRUCT_LIST:
        return ul_is_list(column->type) && (columns[column->child].type == UL_COLUMN_STRUCT ||
                                            columns[column->child].type == UL_COLUMN_NULL);
    default:
        return true;
    }
}

static const char *complaint(wanted_type wanted) {
    switch (wanted) {
    case TEXT:
        return "is not text";
    case STRUCT:
        return "is not a struct";
    default:
        return "is not a list of structs";
    }
}

/* Looks fields up among the members of a struct.  A column in which nothing has a value is as good as none,
 * but must have the right type all the same: other arrays of the same schema are not so empty. */
static bool find_fields(const ul_column *columns, uint32_t around, const field *fields, size_t count,
                        ul_column_error *error) {
    for (uint32_t child = columns[around].child; child != 0; child = columns[child].next) {
        const ul_column *column = &columns[child];
        if (column->ignored || column->type == UL_COLUMN_NULL) continue;
        for (size_t i = 0; i < count; i++) {
            if (strcmp(fields[i].name, column->name) != 0) continue;
            if (!is_wanted(columns, child, fields[i].wanted))
                return ul_column_fail(columns, child, complaint(fields[i].wanted), error);
            if (!column->all_null) *fields[i].found = child;
        }
    }
    return true;
}

#define FIND_FIELDS(columns, around, fields, error)                                                          \
    find_fields(columns, around, fields, sizeof(fields) / sizeof *(fields), error)

static bool find_calls(const ul_column *columns, ul_chat *chat, ul_column_error *error) {
    const field of_call[] = {
        {"id", TEXT, &chat->call_id},
        {"type", TEXT, &chat->call_type},
        {"function", STRUCT, &chat->call_function},
    };
    const field of_function[] = {
        {"name", TEXT, &chat->function_name},
        {"arguments", TEXT, &chat->arguments},
    };
    if (chat->tool_calls == 0) return true;
    chat->call = columns[chat->tool_calls].child;
    if (!FIND_FIELDS(columns, chat->call, of_call, error)) return false;
    return chat->call_function == 0 || FIND_FIELDS(columns, chat->call_function, of_function, error);
}

static bool has_member(const ul_column *columns, uint32_t around, const char *name) {
    uint32_t child = columns[around].child;
    while (child != 0 && (columns[child].ignored || strcmp(columns[child].name, name) != 0))
        child = columns[child].next;
    return child != 0;
}

static bool has_others(const ul_chat *chat) {
    const ul_column *columns = chat->columns;
    for (uint32_t child = columns[chat->message].child; child != 0; child = columns[child].next) {
        const ul_column *column = &columns[child];
        if (child == chat->role || child == chat->content) continue;
        if (!column->ignored && !column->all_null && column->type != UL_COLUMN_NULL) return true;
    }
    return false;
}

int ul_chat_bind(const ul_column *columns, uint32_t list, ul_chat *chat, ul_column_error *error) {
    *chat = (ul_chat){.columns = columns, .list = list};
    if (!is_wanted(columns, list, STRUCT_LIST)) {
        ul_column_fail(columns, list, complaint(STRUCT_LIST), error);
        return -1;
    }
    chat->message = columns[list].child;
    const field of_message[] = {
        {"role", TEXT, &chat->role},
        {"content", TEXT, &chat->content},
        {"name", TEXT, &chat->name},
        {"tool_call_id", TEXT, &chat->tool_call_id},
        {"tool_calls", STRUCT_LIST, &chat->tool_calls},
        {"refusal", ANY, &chat->refusal},
        {"audio", ANY, &chat->audio},
        {"function_call", ANY, &chat->function_call},
    };
    if (!check_columns(columns, list, error)) return -1;
    if (!has_member(columns, chat->message, "role") || !has_member(columns, chat->message, "content")) {
        ul_column_fail(columns, list, "has no columns role and content inside it", error);
        return -1;
    }
    if (!FIND_FIELDS(columns, chat->message, of_message, error)) return -1;
    if (!find_calls(columns, chat, error)) return -1;
    if (chat->function_call != 0 && columns[chat->function_call].type == UL_COLUMN_STRUCT) {
        const field of_legacy[] = {{"name", TEXT, &chat->legacy_name}};
        if (!FIND_FIELDS(columns, chat->function_call, of_legacy, error)) return -1;
    }
    chat->others = has_others(chat);
    return 0;
}
