/* ullage.h: the whole native interface of ullage.
 *
 * Plain C11: no Python, no global state that changes, no allocation.  Whatever
 * a function needs beyond its arguments (scratch memory, the digits of a hard
 * double) the caller brings.  Every function may be called from any number of
 * threads at once, as long as they do not share an output or scratch memory.
 *
 * Lengths are bytes of compact UTF-8 JSON, counts of text are code units of the
 * stated size, token figures are unsigned 64-bit.  A function that can fail says
 * so and says how; the others cannot fail.
 */
#ifndef ULLAGE_H
#define ULLAGE_H

#include <stddef.h>
#include <stdint.h>

/* ---- Escaped length of text ------------------------------------------------
 *
 * The bytes that a text takes between the quotes of a JSON string in UTF-8:
 * `"`, `\`, backspace, tab, line feed, form feed and carriage return take two,
 * every other unit below 0x20 takes six, all else takes its UTF-8 length.
 */

/* Returned for text that has no UTF-8 form: a surrogate code point. */
#define UL_NOT_TEXT UINT64_MAX

/* One implementation of the kernels.  `n` counts units, not bytes; no pointer
 * needs alignment beyond its unit's; nothing past unit n - 1 is read.
 *
 *   utf8    valid UTF-8, ASCII included; the bytes are not checked
 *   latin1  code points up to U+00FF, one byte each
 *   ucs2    code points up to U+FFFF, two bytes each; UL_NOT_TEXT on a surrogate
 *   ucs4    code points up to U+10FFFF, four bytes each; UL_NOT_TEXT likewise
 *
 * And for UTF-8 that nobody has checked:
 *
 *   is_utf8   whether all of it is valid, as ul_utf8_check has it: 1 or 0
 *   utf8_run  the lengths of n texts that stand one behind the other, of which the
 *             i-th is bytes bounds[i] to bounds[i + 1], with bounds[0] = 0, bounds
 *             that do not decrease and at most UL_RUN_BYTES in all.  Returns 1, or 0
 *             where it leaves them, with nothing said, to the other kernels: for
 *             text that is not UTF-8, and for some that is.  NULL where there is no
 *             such kernel.
 */
#define UL_RUN_BYTES 16384

typedef struct {
    const char *name; /* "scalar", "sse2", "avx2" or "neon" */
    uint64_t (*utf8)(const uint8_t *text, size_t n);
    uint64_t (*latin1)(const uint8_t *text, size_t n);
    uint64_t (*ucs2)(const uint16_t *text, size_t n);
    uint64_t (*ucs4)(const uint32_t *text, size_t n);
    int (*is_utf8)(const uint8_t *text, size_t n);
    int (*utf8_run)(const uint8_t *text, const uint32_t *bounds, size_t n, uint64_t *lengths);
} ul_text_kernels;

/* The fastest kernels that this processor runs.  Constant data, valid for the
 * life of the program; never NULL.  This is the only dispatch point. */
const ul_text_kernels *ul_text_kernels_best(void);

/* The kernels of that name, or NULL where this build or processor lacks them. */
const ul_text_kernels *ul_text_kernels_named(const char *name);

/* The offset of the first byte that is not valid UTF-8 (RFC 3629: shortest form,
 * no surrogates, nothing above U+10FFFF), or n where all of it is. */
size_t ul_utf8_check(const uint8_t *text, size_t n);

/* ---- Plain text --------------------------------------------------------------*/

/* The UTF-8 length of n code units, nothing escaped; n is less than 2^62.  Those
 * of ucs2 and ucs4 are UL_NOT_TEXT where one of them is a surrogate. */
uint64_t ul_utf8_length_latin1(const uint8_t *text, size_t n);
uint64_t ul_utf8_length_ucs2(const uint16_t *text, size_t n);
uint64_t ul_utf8_length_ucs4(const uint32_t *text, size_t n);

/* A digest of n bytes that stands for them: SipHash-2-4-128.  Under a key that
 * nobody else knows, texts cannot be made to collide, and among 2^32 of them two
 * do so by chance once in 2^65 times. */
void ul_text_digest(const void *data, size_t n, const uint64_t key[2], uint64_t digest[2]);

/* ---- Length of numbers -----------------------------------------------------*/

/* Decimal digits of v: 1 to 20. */
unsigned ul_u64_length(uint64_t v);

/* Decimal digits of v and its sign: 1 to 20. */
unsigned ul_i64_length(int64_t v);

/* The length of a finite double written shortest ("1.0", "1e+16", "1.5e-7",
 * "0.00001", "-0.0"), or 0 where the quick ways do not decide: then the caller
 * takes the shortest digits from elsewhere and calls ul_decimal_length. */
unsigned ul_double_length_quick(double x);

/* The length of a double whose shortest decimal is 0.d1d2...dn * 10^point, with
 * d1 and dn not zero, or n = 1, d1 = 0, point = 1 for zero. */
unsigned ul_decimal_length(int negative, unsigned n, int point);

/* ---- Canonical length of JSON text -----------------------------------------
 *
 * The text is read strictly (RFC 8259, valid UTF-8, no lone surrogate escapes,
 * no number that overflows a double) and its canonical compact length is found
 * without building it: no white space, the shortest escapes and numbers, and of
 * a repeated key only the last member.
 */

typedef enum {
    UL_JSON_OK = 0,
    UL_JSON_SCRATCH,        /* the scratch memory is too small; see `wanted` */
    UL_JSON_END,            /* the text ends inside a value */
    UL_JSON_SYNTAX,         /* a byte that cannot stand here */
    UL_JSON_TRAILING,       /* something follows the value */
    UL_JSON_CONTROL,        /* a raw control character in a string */
    UL_JSON_ESCAPE,         /* an unknown or broken escape */
    UL_JSON_SURROGATE,      /* an escape for a lone surrogate */
    UL_JSON_UTF8,           /* bytes that are not UTF-8 */
    UL_JSON_NUMBER,         /* a number that overflows a double */
    UL_JSON_DEPTH           /* more than UL_MAX_DEPTH nested arrays and objects */
} ul_json_status;

#define UL_MAX_DEPTH 127

typedef enum {
    UL_KIND_NULL, UL_KIND_BOOL, UL_KIND_NUMBER, UL_KIND_STRING, UL_KIND_ARRAY, UL_KIND_OBJECT
} ul_json_kind;

/* What a scan takes from its caller. */
typedef struct {
    const ul_text_kernels *text;
    /* The length of the shortest decimal of the double nearest to `digits` (n
     * bytes of JSON number grammar, not terminated), or 0 where it overflows.
     * Called only where the digits alone do not decide; `context` is handed
     * through. */
    unsigned (*number_length)(void *context, const char *digits, size_t n);
    void *context;
    uint64_t seed;    /* unpredictable, so that keys cannot be made to collide */
    void *scratch;    /* aligned for uint64_t; may be NULL where size is 0 */
    size_t scratch_size; /* bytes */
} ul_json_scanner;

typedef struct {
    uint64_t length;   /* canonical bytes, where the status is UL_JSON_OK */
    ul_json_kind kind; /* of the outermost value, likewise */
    size_t offset;     /* the byte at fault, for every other status */
    size_t wanted;     /* scratch bytes to try again with, for UL_JSON_SCRATCH */
} ul_json_result;

/* Reads n bytes of JSON text.  Time is linear in n, whatever the keys. */
ul_json_status ul_json_text_length(const uint8_t *text, size_t n, const ul_json_scanner *scanner,
                                   ul_json_result *result);

/* A sentence for a status, lower case, without a full stop. */
const char *ul_json_reason(ul_json_status status);

/* One member of an object or element of an array, as byte ranges of the text.
 * Keys are ranges between the quotes, as written; elements have an empty key. */
typedef struct {
    size_t key_start, key_end;
    size_t value_start, value_end;
} ul_json_span;

/* The members or elements of the object or array at `start` of a text that
 * ul_json_text_length has accepted (this function only skips, it does not
 * check again, but never reads past n).  Fills up to `capacity` spans and
 * returns how many there are, which may be more. */
size_t ul_json_children(const uint8_t *text, size_t n, size_t start, ul_json_span *spans, size_t capacity);

/* ---- Trimming whole turns --------------------------------------------------*/

typedef enum {
    UL_TRIM_FITS = 0,
    UL_TRIM_DOES_NOT_FIT,    /* nothing more may be removed */
    UL_TRIM_COUNT_LIMIT,     /* max_counts attempts were made */
    UL_TRIM_MESSAGES_OVERFLOW, /* the sum of message tokens passes 2^64 - 1 */
    UL_TRIM_TOTAL_OVERFLOW,  /* the four parts, or those and `reserved`, do */
    UL_TRIM_ZERO             /* a candidate of no tokens at all */
} ul_trim_status;

typedef struct {
    size_t turns;                  /* oldest first */
    const uint64_t *turn_tokens;   /* of each turn's messages */
    const uint8_t *turn_protected; /* not zero: never removed */
    uint64_t system;               /* the fixed parts of every candidate, in tokens */
    uint64_t current;
    uint64_t constraint;
    uint64_t template_tokens;
    uint64_t reserved;             /* output reserve and safety margin */
    uint64_t window;
    uint64_t max_counts;           /* attempts allowed, at least 1 */
} ul_trim_task;

typedef struct {
    size_t attempts; /* candidates counted, the last one included */
    size_t removed;  /* the first so many unprotected turns are gone */
} ul_trim_result;

/* Removes the oldest unprotected turn until the request fits.  A candidate's
 * messages cost `current` plus the tokens of the turns still there; it fits
 * where all parts and `reserved` together are at most `window`.
 *
 * attempt_messages: the message tokens of each attempt, one more than `turns`
 * entries at most; may be NULL.
 *
 * Attempts whose totals fail (overflow, zero) are not counted in `attempts`.
 * O(turns); no allocation. */
ul_trim_status ul_trim(const ul_trim_task *task, uint64_t *attempt_messages, ul_trim_result *result);

/* ---- Columns in Arrow memory -----------------------------------------------
 *
 * Columns are read where their producer keeps them, through the Arrow C data
 * interface: nothing is copied and nothing released, so the arrays have to stay
 * as long as columns bound to them are in use.
 *
 * That interface gives addresses without sizes.  Two things are therefore taken
 * on trust: that a buffer is as long as the length and offset of its array ask
 * for, and that the last offset of a text column lies inside its text.  All
 * else is checked before it is used.  Binding checks the shape of the arrays
 * and that children are as long as their parents ask; every access checks that
 * offsets do not decrease, are not below zero and not past the column's last
 * one, that a list lies inside its child, an index inside its dictionary, and a
 * text view inside its buffer, whose size the interface does tell.
 */

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif

typedef enum {
    UL_COLUMN_OTHER = 0, /* a type that is not read */
    UL_COLUMN_NULL,      /* no element has a value */
    UL_COLUMN_BOOL,
    UL_COLUMN_INT8, UL_COLUMN_INT16, UL_COLUMN_INT32, UL_COLUMN_INT64,
    UL_COLUMN_UINT8, UL_COLUMN_UINT16, UL_COLUMN_UINT32, UL_COLUMN_UINT64,
    UL_COLUMN_FLOAT, UL_COLUMN_DOUBLE,
    UL_COLUMN_STRING, UL_COLUMN_LARGE_STRING, UL_COLUMN_STRING_VIEW,
    UL_COLUMN_STRUCT,
    UL_COLUMN_LIST, UL_COLUMN_LARGE_LIST, UL_COLUMN_LIST_VIEW, UL_COLUMN_LARGE_LIST_VIEW
} ul_column_type;

/* A bound column.  Elements are numbered from 0 to length - 1; what offsets the
 * array and its parents have is in `offset`.  Columns refer to one another by
 * their places in one list, in which the first, number 0, is the outermost, so
 * that 0 stands for none. */
typedef struct {
    ul_column_type type;       /* of the values, also where they stand in a dictionary */
    ul_column_type index_type; /* of the indexes into a dictionary, or UL_COLUMN_OTHER */
    const char *name;          /* as the schema has it, "" where it has none */
    uint64_t key_length;       /* bytes of the name as a key, without quotes */
    uint32_t parent, child, next; /* the column around it, its first child, its next sibling */
    uint8_t all_null;          /* known from the array's null count alone */
    uint8_t ignored;           /* set by the caller: as if the column were not there */

    int64_t length;
    int64_t offset;
    const uint8_t *validity; /* NULL where no element is null */
    const void *values;      /* numbers, bits, offsets, views or indexes */
    const void *sizes;       /* of list views */

    int64_t entries; /* of the dictionary, with what stands above for it */
    int64_t entry_offset;
    const uint8_t *entry_validity;
    const void *entry_values;

    int64_t extent;      /* the last offset of text; of lists the length of the child */
    const uint8_t *text; /* what the offsets of text count in */
    const void *const *blocks; /* what text views point into, and the bytes of each */
    const void *block_lengths;
    int64_t block_count;
} ul_column;

typedef struct {
    const char *reason; /* a clause, lower case, without a full stop */
    char column[128];   /* names from the outermost column on, with dots and without those of the children
                         * of lists; cut short where it is longer */
} ul_column_error;

/* Columns nested deeper than this, and lists of more columns, are refused. */
#define UL_COLUMNS_DEPTH 32
#define UL_COLUMNS_MAX 1024

/* How many columns binding needs room for: the outermost and all inside it, or,
 * where `only` is not negative, the outermost and that child of it with all
 * inside.  0 where there is no such child, or where nesting or number pass the
 * limits above. */
uint32_t ul_columns_count(const struct ArrowSchema *schema, int64_t only);

/* Binds an array and all that is inside it, or, where `only` is not negative,
 * the outermost column and that child of it alone.
 *
 * Returns how many columns were bound, at most `capacity`, or 0 where the array
 * cannot be read, and then says why in `error`.  A type that is not read is no
 * error here: such a column is bound as UL_COLUMN_OTHER, without children. */
uint32_t ul_columns_bind(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t only,
                         ul_column *columns, uint32_t capacity, ul_column_error *error);

/* What is found at a place: a value, a null, or something that breaks the
 * format, on which nothing was read any further. */
typedef enum { UL_ELEMENT_BROKEN = -1, UL_ELEMENT_NULL = 0, UL_ELEMENT_VALUE = 1 } ul_element;

typedef union {
    int64_t as_int;   /* signed integers; UL_COLUMN_BOOL as 0 and 1 */
    uint64_t as_uint; /* unsigned integers */
    double as_double; /* both floating types */
} ul_number;

/* Element i of a column of texts, of lists, of numbers or of structs, where
 * 0 <= i < length.  A text is n bytes, not checked to be UTF-8; a list is a
 * range of its child's elements.  The results are set for a value alone. */
ul_element ul_column_text(const ul_column *column, int64_t i, const uint8_t **text, size_t *n);
ul_element ul_column_list(const ul_column *column, int64_t i, int64_t *first, int64_t *count);
ul_element ul_column_number(const ul_column *column, int64_t i, ul_number *number);
ul_element ul_column_struct(const ul_column *column, int64_t i);

/* ---- Batches of transcripts ------------------------------------------------
 *
 * Many chat transcripts, each a row: a list of structs, each a message.  A
 * message is measured as the contract message it maps to, and so many bytes
 * more for every other member, `,"key":value`.  A null member is as if it were
 * not there.
 */

/* Which columns hold what; 0 where there is none. */
typedef struct {
    const ul_column *columns;
    uint32_t list, message; /* the column of rows, and its child */
    uint32_t role, content, name, tool_call_id, tool_calls, refusal, audio, function_call;
    uint32_t legacy_name; /* in function_call, where that is a struct */
    uint32_t call, call_id, call_type, call_function, function_name, arguments;
    uint8_t others;      /* whether there is any column beside role and content */
    uint8_t merge_users; /* set by the caller: consecutive user messages open one turn, not one each */
    int64_t first_row;   /* set by the caller: where in the batch the first row of these columns is */
} ul_chat;

/* Finds the columns of a chat by their names; column `list` holds the rows.
 *
 * Returns 0, or -1 where a column cannot serve, and then says why in `error`:
 * a type that is not read and not ignored, two columns of one name, no role or
 * content, or another type where text, a list or a struct is needed. */
int ul_chat_bind(const ul_column *columns, uint32_t list, ul_chat *chat, ul_column_error *error);

/* What is wrong with a row.  No number is that of a ul_row_status too. */
typedef enum {
    UL_FAULT_NONE = 0,
    UL_FAULT_NULL_ROW = 16,
    UL_FAULT_UTF8,         /* some text of the row is not UTF-8; comes before all that follow */
    UL_FAULT_NULL_MESSAGE,
    UL_FAULT_ROLE,         /* none, or none that is known */
    UL_FAULT_CONTENT,      /* none where there has to be */
    UL_FAULT_CALL,         /* a tool call without id, name or function, or of another type */
    UL_FAULT_CALL_TWICE,   /* one id for two calls of a message */
    UL_FAULT_RESULT,       /* answers no call that is waiting for a result */
    UL_FAULT_INTERRUPTED,  /* a message between a call and its result */
    UL_FAULT_UNANSWERED,   /* the row ends before every call has its result */
    UL_FAULT_NUMBER,       /* a number that JSON does not have */
    UL_FAULT_NO_TURN       /* nothing but system messages, or nothing at all */
} ul_fault;

typedef enum { UL_ROLE_NONE = 0, UL_ROLE_SYSTEM, UL_ROLE_USER, UL_ROLE_ASSISTANT, UL_ROLE_TOOL } ul_role;

/* The turn of a leading system message. */
#define UL_NO_TURN UINT32_MAX

/* The measures of a batch, in arrays that the caller brings.
 *
 * A user message opens a turn; assistant and tool messages belong to the turn
 * that is open, or open one where none is; leading system messages belong to
 * none, later ones are turns of their own and leave the open one open.  The last
 * turn to be opened is the current one.
 *
 * A row with a fault has zeros everywhere else, and turns of UL_NO_TURN. */
typedef struct {
    int64_t *message_offsets; /* rows + 1: the messages of row r begin at the r-th */
    uint8_t *roles;           /* of each message: ul_role */
    uint64_t *bytes;
    uint32_t *turns;          /* numbered from 0 in each row */
    uint32_t *turn_counts;    /* of each row */
    uint8_t *faults;          /* ul_fault; this and what follows comes as zeros and is set where it is not */
    uint32_t *fault_messages; /* the number of the message at fault, in its row */
    uint8_t *raw_arguments;   /* whether arguments were counted as the text they are */
    const uint64_t *prices;   /* tokens of each message beside those of its bytes; NULL where there are none */
} ul_batch;

/* What measuring takes from its caller beside the arrays.  The scanner's kernels, seed and scratch serve all
 * text; so each thread needs its own. */
typedef struct {
    ul_json_scanner scanner;
    /* The length of a finite double written shortest; called where ul_double_length_quick does not decide. */
    unsigned (*double_length)(void *context, double x);
} ul_measurer;

typedef enum {
    UL_BATCH_DONE = 0,
    UL_BATCH_BROKEN, /* the column breaks the format; see `column` */
    UL_BATCH_SCRATCH /* the scratch memory is too small; see `wanted` */
} ul_batch_status;

typedef struct {
    int64_t row;     /* of the columns: all rows before it are done */
    uint32_t column; /* where the format is broken */
    size_t wanted;   /* scratch bytes to go on with from `row` */
} ul_batch_stop;

/* Finds where the messages of each row begin: fills message_offsets[f + 1] to
 * message_offsets[f + n] from message_offsets[f], where f is chat->first_row and
 * n the rows of the columns.  UL_BATCH_DONE or UL_BATCH_BROKEN; more than 2^32 - 2
 * messages in a row, or 2^62 in all, are a broken column as well. */
ul_batch_status ul_batch_count(const ul_chat *chat, int64_t *message_offsets, ul_batch_stop *stop);

/* Measures rows [first, last) of the columns into the batch's rows from
 * first_row + first on.  Threads may share a batch if their rows differ. */
ul_batch_status ul_batch_measure(const ul_chat *chat, const ul_measurer *measurer, int64_t first, int64_t last,
                                 const ul_batch *batch, ul_batch_stop *stop);

typedef enum {
    UL_ROW_FITS = 0,
    UL_ROW_TRIMMED,
    UL_ROW_DOES_NOT_FIT,      /* with nothing left that may be removed */
    UL_ROW_NO_ROOM,           /* the reserve leaves nothing of the window */
    UL_ROW_MESSAGES_OVERFLOW, /* this and what follows as in ul_trim_status */
    UL_ROW_TOTAL_OVERFLOW,
    UL_ROW_ZERO
} ul_row_status;

/* Figures in tokens. */
typedef struct {
    uint64_t constraint;
    uint64_t template_tokens;
    uint64_t reserved;       /* output reserve and safety margin */
    uint64_t window;
    const uint64_t *windows; /* of each row of the batch, in place of `window`; may be NULL */
} ul_batch_budget;

/* What became of each row, and of each message; arrays of the caller's.  Rows
 * that have no figures have zeros; where a row does not fit, the figures are
 * those of what has to stay. */
typedef struct {
    uint8_t *statuses;        /* ul_row_status, or the ul_fault of a row that has one */
    uint32_t *turns_dropped;
    uint32_t *messages_dropped;
    uint64_t *tokens_before;  /* of the whole request, nothing reserved */
    uint64_t *tokens_after;
    uint8_t *retained;        /* of each message: 1 or 0 */
} ul_batch_outcome;

/* Adds up the tokens of a row's turns, one for four bytes, rounded up for each
 * message, and says which of them stay: the current one, and system messages.
 * Both arrays have turn_counts[row] places.  Returns the tokens of all system
 * messages, which are in no turn's. */
uint64_t ul_batch_turns(const ul_batch *batch, int64_t row, uint64_t *tokens, uint8_t *stays);

/* Trims rows [first, last) of a batch, each as ul_trim does, in O(messages).
 * Each thread needs arrays of its own for the turns of one row: as many places
 * as the most that any of these rows has. */
void ul_batch_trim(const ul_batch *batch, const ul_batch_budget *budget, int64_t first, int64_t last,
                   uint64_t *turn_tokens, uint8_t *turn_stays, const ul_batch_outcome *outcome);

#endif
