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
