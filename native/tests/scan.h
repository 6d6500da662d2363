/* scan.h: scanning as a caller does it: with scratch memory that grows when asked for. */
#ifndef ULLAGE_TEST_SCAN_H
#define ULLAGE_TEST_SCAN_H

#include "check.h"
#include "shortest.h"
#include "ullage.h"

typedef struct {
    ul_json_status status;
    ul_json_result result;
    int restarts;          /* for want of scratch memory */
    unsigned long numbers; /* whose lengths the scanner asked for */
} scan_outcome;

/* Both the text and the scratch memory fill their allocations. */
static inline scan_outcome scan_with(const ul_text_kernels *kernels, const void *text, size_t n) {
    scan_outcome outcome = {.restarts = 0};
    uint8_t *copy = exact_copy(text, n);
    ul_json_scanner scanner = {.text = kernels,
                               .number_length = shortest_number_length,
                               .context = &outcome.numbers,
                               .seed = random_bits()};
    for (;; outcome.restarts++) {
        outcome.numbers = 0;
        outcome.status = ul_json_text_length(copy, n, &scanner, &outcome.result);
        if (outcome.status != UL_JSON_SCRATCH) break;
        CHECK(outcome.result.wanted > scanner.scratch_size, "scratch memory must grow");
        free(scanner.scratch);
        scanner.scratch_size = outcome.result.wanted;
        scanner.scratch = malloc(scanner.scratch_size);
        if (scanner.scratch == NULL) abort();
    }
    free(scanner.scratch);
    free(copy);
    return outcome;
}

static inline scan_outcome scan(const void *text, size_t n) {
    return scan_with(ul_text_kernels_best(), text, n);
}

#endif
