/* json_length_internal.h: what the kernel files share. */
#ifndef ULLAGE_JSON_LENGTH_INTERNAL_H
#define ULLAGE_JSON_LENGTH_INTERNAL_H

#include "ullage.h"

#include <stdbool.h>

/* SSE2 and NEON belong to the 64-bit base architectures, so the compiler's target decides.  AVX2 does not:
 * the build defines UL_HAVE_AVX2 where it compiles json_length_avx2.c, and the processor decides. */
#if defined(__x86_64__) || defined(_M_X64)
#define UL_HAVE_SSE2 1
#endif
#if defined(__aarch64__) || defined(_M_ARM64)
#define UL_HAVE_NEON 1
#endif

extern const ul_text_kernels ul_scalar_kernels;
#if defined(UL_HAVE_SSE2)
extern const ul_text_kernels ul_sse2_kernels;
#endif
#if defined(UL_HAVE_AVX2)
extern const ul_text_kernels ul_avx2_kernels;
#endif
#if defined(UL_HAVE_NEON)
extern const ul_text_kernels ul_neon_kernels;
#endif

/* Kernels that stand in files of their own: utf8.c and utf8_avx2.c. */
int ul_is_utf8(const uint8_t *text, size_t n);
#if defined(UL_HAVE_AVX2)
int ul_is_utf8_avx2(const uint8_t *text, size_t n);
int ul_utf8_run_avx2(const uint8_t *text, const uint32_t *bounds, size_t n, uint64_t *lengths);
#endif

/* The most that escaping adds to a unit: `\u0000` for one byte.  It bounds how often byte lanes may be added
 * up, and it is what every NUL of padding has to be taken back by. */
#define UL_ESCAPE_MAX 5

/* What escaping adds to a unit: `"`, `\` and the five controls with a short name become two bytes, the other
 * controls six.  The vertical tab has no short name. */
static inline unsigned ul_escape_extra(uint32_t unit) {
    if (unit < 0x20) return unit >= '\b' && unit <= '\r' && unit != '\v' ? 1 : UL_ESCAPE_MAX;
    return unit == '"' || unit == '\\';
}

static inline bool ul_is_surrogate(uint32_t code_point) {
    return code_point >> 11 == 0xD800 >> 11;
}

/* The bytes of one code point in a JSON string. */
static inline unsigned ul_code_point_length(uint32_t code_point) {
    unsigned utf8 = 1u + (code_point >= 0x80) + (code_point >= 0x800) + (code_point >= 0x10000);
    return utf8 + ul_escape_extra(code_point);
}

#endif
