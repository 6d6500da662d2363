/* checked.h: 64-bit sums and products that say when they overflow. */
#ifndef ULLAGE_CHECKED_H
#define ULLAGE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define UL_OVERFLOW_BUILTINS 1
#else
#define UL_OVERFLOW_BUILTINS 0
#endif

/* Stores a + b; false where the sum passes 2^64 - 1, and then `*sum` has no meaning. */
static inline bool ul_add(uint64_t a, uint64_t b, uint64_t *sum) {
#if UL_OVERFLOW_BUILTINS
    return !__builtin_add_overflow(a, b, sum);
#else
    *sum = a + b;
    return *sum >= a;
#endif
}

/* Stores a * b; false where the product passes 2^64 - 1, and then `*product` has no meaning. */
static inline bool ul_mul(uint64_t a, uint64_t b, uint64_t *product) {
#if UL_OVERFLOW_BUILTINS
    return !__builtin_mul_overflow(a, b, product);
#else
    *product = a * b;
    return a == 0 || *product / a == b;
#endif
}

#endif
