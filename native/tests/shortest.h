/* shortest.h: the shortest decimal of a double by trying, slow and plain. */
#ifndef ULLAGE_SHORTEST_H
#define ULLAGE_SHORTEST_H

#include "ullage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* d.ddde+XX with the fewest digits that read back as x. */
static inline void shortest_exponent_form(double x, char text[40]) {
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(text, 40, "%.*e", precision, x);
        if (strtod(text, NULL) == x) return;
    }
}

static inline unsigned shortest_length(double x) {
    char text[40];
    if (x == 0) return ul_decimal_length(signbit(x) != 0, 1, 1);
    shortest_exponent_form(fabs(x), text);
    const unsigned digits = (unsigned)strcspn(text, "e") - (strchr(text, '.') != NULL);
    return ul_decimal_length(x < 0, digits, atoi(strchr(text, 'e') + 1) + 1);
}

/* For ul_json_scanner: counts how often it is asked in `*context`, if that is given. */
static inline unsigned shortest_number_length(void *context, const char *digits, size_t n) {
    char *copy = calloc(n + 1, 1);
    if (copy == NULL) abort();
    memcpy(copy, digits, n);
    const double x = strtod(copy, NULL);
    free(copy);
    if (context != NULL) ++*(unsigned long *)context;
    return isinf(x) ? 0 : shortest_length(x);
}

#endif
