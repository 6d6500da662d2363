/* test_runs.c: the kernels for unchecked UTF-8 agree with the check byte by byte and with lengths one by one. */
#include "check.h"
#include "ullage.h"

#include <stdbool.h>

static const ul_text_kernels *scalar;

/* ---- Text ---- */

enum { MOST = 400 };

static size_t put_character(uint8_t *out) {
    static const char *const some[] = {"a",
                                       " ",
                                       "\n",
                                       "\"",
                                       "\\",
                                       "\t",
                                       "\x7F",
                                       "\xC2\x80",
                                       "\xDF\xBF",
                                       "\xE0\xA0\x80",
                                       "\xED\x9F\xBF",
                                       "\xEE\x80\x80",
                                       "\xEF\xBF\xBF",
                                       "\xF0\x90\x80\x80",
                                       "\xF4\x8F\xBF\xBF"};
    const char *one = some[random_below(sizeof some / sizeof *some)];
    const size_t n = strlen(one);
    memcpy(out, one, n);
    return n;
}

/* Up to MOST bytes of valid text: of one letter, or with a few other characters, or of all kinds. */
static size_t random_text(uint8_t *text) {
    const size_t n = random_below(MOST - 4);
    const uint64_t kind = random_below(3);
    size_t i = 0;
    while (i < n) {
        if (kind == 2 || (kind == 1 && random_below(40) == 0)) i += put_character(text + i);
        else text[i++] = 'x';
    }
    return i;
}

/* Puts in something that may make text invalid. */
static void spoil(uint8_t *text, size_t n) {
    static const uint8_t bad[] = {0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xE0, 0xED,
                                  0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0xA0, 0x90};
    for (uint64_t i = 1 + random_below(2); i > 0 && n > 0; i--)
        text[random_below(n)] = bad[random_below(sizeof bad)];
}

/* ---- is_utf8 ---- */

static void check_text(const ul_text_kernels *kernels, const uint8_t *text, size_t n) {
    uint8_t *copy = exact_copy(text, n);
    const bool got = kernels->is_utf8(copy, n) != 0, want = ul_utf8_check(text, n) == n;
    CHECK(got == want, "%s, %zu bytes: %d", kernels->name, n, got);
    free(copy);
}

static void random_texts_are_judged(const ul_text_kernels *kernels) {
    uint8_t text[MOST];
    for (int round = 0; round < 100000; round++) {
        const size_t n = random_text(text);
        check_text(kernels, text, n);
        spoil(text, n);
        check_text(kernels, text, n);
    }
}

/* All that two bytes can be, and some that four can, where blocks begin and end. */
static void every_pair_is_judged_everywhere(const ul_text_kernels *kernels) {
    static const size_t places[] = {0, 1, 29, 30, 31, 32, 61, 62, 63, 64, 95, 126, 127};
    uint8_t text[132];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        memset(text, 'x', sizeof text);
        for (unsigned pair = 0; pair < 0x10000; pair++) {
            text[places[i]] = (uint8_t)(pair >> 8);
            text[places[i] + 1] = (uint8_t)pair;
            text[places[i] + 2] = pair % 3 == 0 ? 0x80 : 'x';
            text[places[i] + 3] = pair % 3 == 0 ? 0xBF : 'x';
            check_text(kernels, text, sizeof text);
            check_text(kernels, text, places[i] + 2);
        }
    }
}

/* ---- utf8_run ---- */

enum { TEXTS = 40 };

typedef struct {
    uint8_t bytes[UL_RUN_BYTES];
    uint32_t bounds[TEXTS + 1];
    size_t n;
} run;

static void random_run(run *made) {
    made->n = 1 + random_below(TEXTS);
    made->bounds[0] = 0;
    for (size_t i = 0; i < made->n; i++) {
        const size_t room = UL_RUN_BYTES - made->bounds[i];
        const size_t n = room < MOST || random_below(6) == 0 ? 0 : random_text(made->bytes + made->bounds[i]);
        made->bounds[i + 1] = made->bounds[i] + (uint32_t)n;
    }
}

static bool is_sound(const uint8_t *text, size_t n) {
    return ul_utf8_check(text, n) == n;
}

/* Texts one by one: their lengths, whether all are valid, and whether there is a byte that becomes six. */
static bool measure_apart(const run *texts, uint64_t *lengths, bool *rare) {
    bool valid = true;
    *rare = false;
    for (size_t i = 0; i < texts->n; i++) {
        const uint8_t *text = texts->bytes + texts->bounds[i];
        const size_t n = texts->bounds[i + 1] - texts->bounds[i];
        lengths[i] = scalar->utf8(text, n);
        valid = valid && is_sound(text, n);
        for (size_t k = 0; k < n; k++)
            *rare = *rare || (text[k] < 0x20 && memchr("\b\t\n\f\r", text[k], 5) == NULL);
    }
    return valid;
}

static void check_run(const ul_text_kernels *kernels, const run *texts) {
    uint64_t got[TEXTS], want[TEXTS];
    bool rare;
    const bool valid = measure_apart(texts, want, &rare);
    uint8_t *copy = exact_copy(texts->bytes, texts->bounds[texts->n]);
    const bool taken = kernels->utf8_run(copy, texts->bounds, texts->n, got) != 0;
    free(copy);
    CHECK(!taken || valid, "%s takes text that is not UTF-8", kernels->name);
    CHECK(taken || !valid || rare, "%s leaves text that it could take", kernels->name);
    if (!taken || !valid) return;
    for (size_t i = 0; i < texts->n; i++)
        CHECK(got[i] == want[i], "%s, text %zu of %zu: %llu, not %llu", kernels->name, i, texts->n,
              (unsigned long long)got[i], (unsigned long long)want[i]);
}

static void random_runs_agree(const ul_text_kernels *kernels) {
    static run texts;
    for (int round = 0; round < 30000; round++) {
        random_run(&texts);
        check_run(kernels, &texts);
        const size_t n = texts.bounds[texts.n];
        if (n == 0) continue;
        if (random_below(2) == 0) texts.bytes[random_below(n)] = (uint8_t)random_below(0x20);
        else spoil(texts.bytes, n);
        check_run(kernels, &texts);
    }
}

/* Valid as a whole, but not text by text. */
static void a_character_cut_in_two_is_seen(const ul_text_kernels *kernels) {
    uint64_t lengths[2];
    for (uint32_t at = 0; at < 200; at++) {
        uint8_t text[204];
        memset(text, 'x', sizeof text);
        memcpy(text + at, "\xF0\x9F\x8D\xB7", 4);
        for (uint32_t cut = at; cut <= at + 4; cut++) {
            const uint32_t bounds[3] = {0, cut, sizeof text};
            CHECK((kernels->utf8_run(text, bounds, 2, lengths) != 0) == (cut == at || cut == at + 4),
                  "%s, a character at %u cut at %u", kernels->name, at, cut);
        }
    }
}

static void full_runs_are_taken(const ul_text_kernels *kernels) {
    static run texts;
    texts.n = 3;
    texts.bounds[1] = 1;
    texts.bounds[2] = texts.bounds[3] = UL_RUN_BYTES;
    memset(texts.bytes, '\n', UL_RUN_BYTES);
    check_run(kernels, &texts);
    texts.n = 1;
    texts.bounds[1] = 0;
    check_run(kernels, &texts);
}

int main(void) {
    static const char *names[] = {"scalar", "sse2", "avx2", "neon"};
    scalar = ul_text_kernels_named("scalar");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ul_text_kernels *kernels = ul_text_kernels_named(names[i]);
        if (kernels == NULL) continue;
        random_texts_are_judged(kernels);
        every_pair_is_judged_everywhere(kernels);
        if (kernels->utf8_run == NULL) continue;
        random_runs_agree(kernels);
        a_character_cut_in_two_is_seen(kernels);
        full_runs_are_taken(kernels);
    }
    return checks_done();
}
