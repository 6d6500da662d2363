/* fuzz.c: a libFuzzer target for all that reads text from outside.
 *
 *   cmake -S native -B build/fuzz -DCMAKE_C_COMPILER=clang -DULLAGE_FUZZ=ON && cmake --build build/fuzz
 *   build/fuzz/fuzz_text -max_total_time=60 */
#include "scan.h"

static void kernels_agree(const uint8_t *text, size_t n) {
    static const char *names[] = {"sse2", "avx2", "neon"};
    const ul_text_kernels *scalar = ul_text_kernels_named("scalar");
    uint32_t *copy = exact_copy(text, n / 4 * 4); /* aligned for every unit */
    const uint8_t *bytes = (const uint8_t *)copy;
    const uint16_t *words = (const uint16_t *)copy;
    for (size_t i = 0; i < n / 4; i++) copy[i] &= 0x1FFFFF;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ul_text_kernels *kernels = ul_text_kernels_named(names[i]);
        if (kernels == NULL) continue;
        if (kernels->utf8(bytes, n / 4 * 4) != scalar->utf8(bytes, n / 4 * 4)) abort();
        if (kernels->latin1(bytes, n / 4 * 4) != scalar->latin1(bytes, n / 4 * 4)) abort();
        if (kernels->ucs2(words, n / 4 * 2) != scalar->ucs2(words, n / 4 * 2)) abort();
        if (kernels->ucs4(copy, n / 4) != scalar->ucs4(copy, n / 4)) abort();
    }
    free(copy);
}

/* The parts of accepted text are accepted, and without repeated keys they add up to the whole. */
static void children_are_values(const uint8_t *text, size_t n, const scan_outcome *whole) {
    enum { SPANS = 64 };
    ul_json_span spans[SPANS];
    size_t start = 0;
    while (text[start] != '{' && text[start] != '[') start++;
    const size_t count = ul_json_children(text, n, start, spans, SPANS);
    uint64_t length = count > 0 ? 1 + count : 2;
    for (size_t i = 0; i < count && i < SPANS; i++) {
        const ul_json_span *s = &spans[i];
        const scan_outcome value = scan(text + s->value_start, s->value_end - s->value_start);
        if (value.status != UL_JSON_OK) abort();
        length += value.result.length;
        if (whole->result.kind == UL_KIND_ARRAY) continue;
        const scan_outcome key = scan(text + s->key_start - 1, s->key_end - s->key_start + 2);
        if (key.status != UL_JSON_OK || key.result.kind != UL_KIND_STRING) abort();
        length += key.result.length + 1;
    }
    if (count > SPANS) return;
    if (whole->result.kind == UL_KIND_ARRAY ? length != whole->result.length : length < whole->result.length)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *text, size_t n) {
    kernels_agree(text, n);
    if (ul_utf8_check(text, n) > n) abort();
    const scan_outcome o = scan(text, n);
    if (o.status != UL_JSON_OK && o.result.offset > n) abort();
    if (o.status == UL_JSON_OK && ul_utf8_check(text, n) != n) abort();
    if (o.status == UL_JSON_OK && o.result.kind >= UL_KIND_ARRAY) children_are_values(text, n, &o);
    return 0;
}
