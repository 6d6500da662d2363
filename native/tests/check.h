/* check.h: counts what holds and what does not; no test framework. */
#ifndef ULLAGE_CHECK_H
#define ULLAGE_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long checks_passed, checks_failed;

/* Counts one check; what is said about a failing one follows like for printf. */
#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (condition) {                                                                                     \
            checks_passed++;                                                                                 \
        } else if (checks_failed++ < 20) {                                                                   \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                           \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

static inline int checks_done(void) {
    printf("%lu passed, %lu failed\n", checks_passed, checks_failed);
    return checks_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The same numbers in every run (xorshift64*). */
static uint64_t random_state = UINT64_C(88172645463325252);

static inline uint64_t random_bits(void) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * UINT64_C(2685821657736338717);
}

static inline uint64_t random_below(uint64_t n) {
    return random_bits() % n;
}

/* A copy that fills its allocation to the last byte, so that a sanitizer sees every read past it. */
static inline void *exact_copy(const void *bytes, size_t n) {
    void *copy = malloc(n);
    if (copy == NULL && n > 0) abort();
    if (n > 0) memcpy(copy, bytes, n);
    return copy;
}

#endif
