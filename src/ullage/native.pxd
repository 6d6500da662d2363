# The native interface, as native/include/ullage.h documents it.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "ullage.h" nogil:
    const uint64_t UL_NOT_TEXT
    const int UL_MAX_DEPTH

    ctypedef struct ul_text_kernels:
        const char *name
        uint64_t (*utf8)(const uint8_t *text, size_t n) noexcept nogil
        uint64_t (*latin1)(const uint8_t *text, size_t n) noexcept nogil
        uint64_t (*ucs2)(const uint16_t *text, size_t n) noexcept nogil
        uint64_t (*ucs4)(const uint32_t *text, size_t n) noexcept nogil

    const ul_text_kernels *ul_text_kernels_best()
    const ul_text_kernels *ul_text_kernels_named(const char *name)

    uint64_t ul_utf8_length_latin1(const uint8_t *text, size_t n)
    uint64_t ul_utf8_length_ucs2(const uint16_t *text, size_t n)
    uint64_t ul_utf8_length_ucs4(const uint32_t *text, size_t n)

    void ul_text_digest(const void *data, size_t n, const uint64_t *key, uint64_t *digest)

    unsigned ul_u64_length(uint64_t v)
    unsigned ul_i64_length(int64_t v)
    unsigned ul_double_length_quick(double x)
    unsigned ul_decimal_length(int negative, unsigned n, int point)

    ctypedef enum ul_json_status:
        UL_JSON_OK
        UL_JSON_SCRATCH

    ctypedef enum ul_json_kind:
        UL_KIND_OBJECT
        UL_KIND_ARRAY

    ctypedef struct ul_json_scanner:
        const ul_text_kernels *text
        unsigned (*number_length)(void *context, const char *digits, size_t n) noexcept nogil
        void *context
        uint64_t seed
        void *scratch
        size_t scratch_size

    ctypedef struct ul_json_result:
        uint64_t length
        ul_json_kind kind
        size_t offset
        size_t wanted

    ctypedef struct ul_json_span:
        size_t key_start
        size_t key_end
        size_t value_start
        size_t value_end

    ul_json_status ul_json_text_length(const uint8_t *text, size_t n, const ul_json_scanner *scanner,
                                       ul_json_result *result)
    const char *ul_json_reason(ul_json_status status)
    size_t ul_json_children(const uint8_t *text, size_t n, size_t start, ul_json_span *spans, size_t capacity)

    ctypedef enum ul_trim_status:
        UL_TRIM_FITS
        UL_TRIM_DOES_NOT_FIT
        UL_TRIM_COUNT_LIMIT
        UL_TRIM_MESSAGES_OVERFLOW
        UL_TRIM_TOTAL_OVERFLOW
        UL_TRIM_ZERO

    ctypedef struct ul_trim_task:
        size_t turns
        const uint64_t *turn_tokens
        const uint8_t *turn_protected
        uint64_t system
        uint64_t current
        uint64_t constraint
        uint64_t template_tokens
        uint64_t reserved
        uint64_t window
        uint64_t max_counts

    ctypedef struct ul_trim_result:
        size_t attempts
        size_t removed

    ul_trim_status ul_trim(const ul_trim_task *task, uint64_t *attempt_messages, ul_trim_result *result)

    struct ArrowSchema:
        const char *format
        const char *name
        const char *metadata
        int64_t flags
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept
        void *private_data

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept
        void *private_data

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *out) noexcept nogil
        int (*get_next)(ArrowArrayStream *, ArrowArray *out) noexcept nogil
        const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept

    ctypedef enum ul_column_type:
        UL_COLUMN_OTHER
        UL_COLUMN_NULL
        UL_COLUMN_BOOL
        UL_COLUMN_INT64
        UL_COLUMN_UINT64
        UL_COLUMN_DOUBLE
        UL_COLUMN_STRING
        UL_COLUMN_STRING_VIEW
        UL_COLUMN_STRUCT
        UL_COLUMN_LIST

    ctypedef struct ul_column:
        ul_column_type type
        const char *name
        uint32_t parent
        uint32_t child
        uint32_t next
        uint8_t ignored
        int64_t length

    ctypedef struct ul_column_error:
        const char *reason
        char column[128]

    ctypedef enum ul_element:
        UL_ELEMENT_BROKEN
        UL_ELEMENT_NULL
        UL_ELEMENT_VALUE

    ctypedef union ul_number:
        int64_t as_int
        uint64_t as_uint
        double as_double

    const int UL_COLUMNS_MAX
    uint32_t ul_columns_count(const ArrowSchema *schema, int64_t only)
    uint32_t ul_columns_bind(const ArrowSchema *schema, const ArrowArray *array, int64_t only,
                             ul_column *columns, uint32_t capacity, ul_column_error *error)
    ul_element ul_column_text(const ul_column *column, int64_t i, const uint8_t **text, size_t *n)
    ul_element ul_column_list(const ul_column *column, int64_t i, int64_t *first, int64_t *count)
    ul_element ul_column_number(const ul_column *column, int64_t i, ul_number *number)
    ul_element ul_column_struct(const ul_column *column, int64_t i)

    ctypedef struct ul_chat:
        const ul_column *columns
        uint32_t list
        uint32_t message
        uint8_t merge_users
        int64_t first_row

    int ul_chat_bind(const ul_column *columns, uint32_t list, ul_chat *chat, ul_column_error *error)

    ctypedef enum ul_fault:
        UL_FAULT_NONE

    ctypedef struct ul_batch:
        int64_t *message_offsets
        uint8_t *roles
        uint64_t *bytes
        uint32_t *turns
        uint32_t *turn_counts
        uint8_t *faults
        uint32_t *fault_messages
        uint8_t *raw_arguments
        const uint64_t *prices

    ctypedef struct ul_measurer:
        ul_json_scanner scanner
        unsigned (*double_length)(void *context, double x) noexcept nogil

    ctypedef enum ul_batch_status:
        UL_BATCH_DONE
        UL_BATCH_BROKEN
        UL_BATCH_SCRATCH

    ctypedef struct ul_batch_stop:
        int64_t row
        uint32_t column
        size_t wanted

    ul_batch_status ul_batch_count(const ul_chat *chat, int64_t *message_offsets, ul_batch_stop *stop)
    ul_batch_status ul_batch_measure(const ul_chat *chat, const ul_measurer *measurer, int64_t first,
                                     int64_t last, const ul_batch *batch, ul_batch_stop *stop)

    ctypedef struct ul_batch_budget:
        uint64_t constraint
        uint64_t template_tokens
        uint64_t reserved
        uint64_t window
        const uint64_t *windows

    ctypedef struct ul_batch_outcome:
        uint8_t *statuses
        uint32_t *turns_dropped
        uint32_t *messages_dropped
        uint64_t *tokens_before
        uint64_t *tokens_after
        uint8_t *retained

    uint64_t ul_batch_turns(const ul_batch *batch, int64_t row, uint64_t *tokens, uint8_t *stays)
    void ul_batch_trim(const ul_batch *batch, const ul_batch_budget *budget, int64_t first, int64_t last,
                       uint64_t *turn_tokens, uint8_t *turn_stays, const ul_batch_outcome *outcome)
