/* json_length.c: the escaped length of text, one unit at a time, and the choice among the faster versions.
 *
 * The scalar kernels are the specification: every other file named json_length_* has to agree with them. */
#include "json_length_internal.h"

#include <string.h>

#if defined(UL_HAVE_AVX2) && defined(_MSC_VER) && !defined(__clang__)
#include <immintrin.h>
#include <intrin.h>
#endif

/* In UTF-8 every byte from 0x80 on stands for itself; lead and continuation bytes need no telling apart. */
static uint64_t utf8_length(const uint8_t *text, size_t n) {
    uint64_t length = n;
    for (size_t i = 0; i < n; i++) length += ul_escape_extra(text[i]);
    return length;
}

static uint64_t latin1_length(const uint8_t *text, size_t n) {
    uint64_t length = 0;
    for (size_t i = 0; i < n; i++) length += ul_code_point_length(text[i]);
    return length;
}

static uint64_t ucs2_length(const uint16_t *text, size_t n) {
    uint64_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (ul_is_surrogate(text[i])) return UL_NOT_TEXT;
        length += ul_code_point_length(text[i]);
    }
    return length;
}

static uint64_t ucs4_length(const uint32_t *text, size_t n) {
    uint64_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (ul_is_surrogate(text[i])) return UL_NOT_TEXT;
        length += ul_code_point_length(text[i]);
    }
    return length;
}

const ul_text_kernels ul_scalar_kernels = {"scalar",    utf8_length, latin1_length, ucs2_length,
                                           ucs4_length, ul_is_utf8,  NULL};

#if defined(UL_HAVE_AVX2)
/* The processor has the instructions and the system saves the registers they use. */
static bool runs_avx2(void) {
#if defined(_MSC_VER) && !defined(__clang__)
    int leaf[4];
    __cpuid(leaf, 1);
    const int osxsave_and_avx = 1 << 27 | 1 << 28;
    if ((leaf[2] & osxsave_and_avx) != osxsave_and_avx) return false;
    if ((_xgetbv(0) & 6) != 6) return false;
    __cpuidex(leaf, 7, 0);
    return (leaf[1] & 1 << 5) != 0;
#else
    return __builtin_cpu_supports("avx2");
#endif
}
#endif

const ul_text_kernels *ul_text_kernels_best(void) {
#if defined(UL_HAVE_AVX2)
    if (runs_avx2()) return &ul_avx2_kernels;
#endif
#if defined(UL_HAVE_SSE2)
    return &ul_sse2_kernels;
#elif defined(UL_HAVE_NEON)
    return &ul_neon_kernels;
#else
    return &ul_scalar_kernels;
#endif
}

const ul_text_kernels *ul_text_kernels_named(const char *name) {
    if (strcmp(name, "scalar") == 0) return &ul_scalar_kernels;
#if defined(UL_HAVE_AVX2)
    if (strcmp(name, "avx2") == 0) return runs_avx2() ? &ul_avx2_kernels : NULL;
#endif
#if defined(UL_HAVE_SSE2)
    if (strcmp(name, "sse2") == 0) return &ul_sse2_kernels;
#endif
#if defined(UL_HAVE_NEON)
    if (strcmp(name, "neon") == 0) return &ul_neon_kernels;
#endif
    return NULL;
}
