/* test_json_keys.c: of a repeated key only the last member counts, however many keys there are. */
#include "scan.h"

#include <time.h>

static void accepts(const char *text, const char *canonical) {
    const scan_outcome o = scan(text, strlen(text));
    CHECK(o.status == UL_JSON_OK && o.result.length == strlen(canonical), "%.60s: %s, %llu", text,
          ul_json_reason(o.status), (unsigned long long)o.result.length);
}

static void last_member_counts(void) {
    accepts("{\"a\":1,\"a\":22}", "{\"a\":22}");
    accepts("{\"a\":22,\"a\":1}", "{\"a\":1}");
    accepts("{\"a\":1,\"b\":2,\"a\":333}", "{\"a\":333,\"b\":2}");
    accepts("{\"a\":{\"x\":1,\"x\":[1,2,3]},\"a\":{}}", "{\"a\":{}}");
    accepts("{\"a\":{},\"a\":{\"x\":1,\"x\":[1,2,3]}}", "{\"a\":{\"x\":[1,2,3]}}");
    accepts("{\"a\":1,\"b\":{\"a\":2,\"b\":3,\"a\":4},\"b\":5,\"c\":{\"a\":6}}",
            "{\"a\":1,\"b\":5,\"c\":{\"a\":6}}");
    accepts("[{\"a\":1},{\"a\":1}]", "[{\"a\":1},{\"a\":1}]");
    accepts("{\"\":1,\"\":2}", "{\"\":2}");
}

static void keys_are_compared_decoded(void) {
    accepts("{\"a\":1,\"\\u0061\":2}", "{\"a\":2}");
    accepts("{\"\\u0061\":1,\"a\":2}", "{\"a\":2}");
    accepts("{\"\\/\":1,\"/\":2,\"\\u002F\":3}", "{\"/\":3}");
    accepts("{\"\\n\\t\\b\\f\\r\\\"\\\\\":1,\"\\u000a\\u0009\\u0008\\u000c\\u000d\\u0022\\u005c\":2}",
            "{\"\\n\\t\\b\\f\\r\\\"\\\\\":2}");
    accepts("{\"\xF0\x9F\x98\x80\":1,\"\\ud83d\\ude00\":2}", "{\"\xF0\x9F\x98\x80\":2}");
    accepts("{\"\xC3\xA9\xE4\xB8\xAD\":1,\"\\u00e9\\u4e2d\":2}", "{\"\xC3\xA9\xE4\xB8\xAD\":2}");
    accepts("{\"a\":1,\"a\\u0000\":2}", "{\"a\":1,\"a\\u0000\":2}");
    accepts("{\"a\\u0000\":1,\"a\\u0000\\u0000\":2}", "{\"a\\u0000\":1,\"a\\u0000\\u0000\":2}");
    accepts("{\"\\\\u0061\":1,\"a\":2}", "{\"\\\\u0061\":1,\"a\":2}");
}

/* Keys of every length, written plain, with an escape at the start and with one at the end. */
static void keys_of_every_length_are_recognised(void) {
    char text[400], canonical[200], key[64];
    for (size_t n = 1; n < 60; n++) {
        memset(key, 'k', n);
        key[n] = '\0';
        snprintf(canonical, sizeof canonical, "{\"%s\":1}", key);
        snprintf(text, sizeof text, "{\"%s\":1,\"\\u006b%s\":2,\"%.*s\\u006b\":3}", key, key + 1, (int)n - 1,
                 key);
        accepts(text, canonical);
        snprintf(canonical, sizeof canonical, "{\"%s\":1,\"%sk\":2}", key, key);
        accepts(canonical, canonical);
        snprintf(canonical, sizeof canonical, "{\"%s\":1,\"%.*sj\":2}", key, (int)n - 1, key);
        accepts(canonical, canonical);
    }
}

/* An object of `count` members, its keys numbered modulo `distinct`; returns its canonical length. */
static size_t write_object(char *text, size_t count, size_t distinct, char **end) {
    size_t canonical = 1;
    *end = text;
    *(*end)++ = '{';
    for (size_t i = 0; i < count; i++) {
        const int n = sprintf(*end, "%s\"%zu\":%zu", i > 0 ? "," : "", i % distinct, i);
        *end += n;
        if (i + distinct >= count) canonical += (size_t)n + (i == 0);
    }
    *(*end)++ = '}';
    **end = '\0';
    return canonical + (count == 0);
}

static void objects_of_every_size_are_right(void) {
    static char text[1 << 16];
    char *end;
    for (size_t count = 0; count < 1200; count += count < 300 ? 1 : 29) {
        const size_t choices[] = {1, 2, 63, 64, 65, 100, count / 2 + 1, count + 1};
        for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
            const size_t canonical = write_object(text, count, choices[i], &end);
            const scan_outcome o = scan(text, (size_t)(end - text));
            CHECK(o.status == UL_JSON_OK && o.result.length == canonical,
                  "%zu members, %zu keys: %llu, not %zu", count, choices[i],
                  (unsigned long long)o.result.length, canonical);
            CHECK(o.restarts <= 8 && (count > 64 || o.restarts == 0), "%zu members: %d restarts", count,
                  o.restarts);
        }
    }
}

/* Large objects inside large objects: each has its own table, and the outer ones go on growing afterwards. */
static void nested_objects_are_right(void) {
    static char text[1 << 21];
    char *end = text, *inner;
    size_t canonical = 1;
    *end++ = '{';
    for (int i = 0; i < 300; i++) {
        end += sprintf(end, "%s\"k%d\":{\"deep\":", i > 0 ? "," : "", i % 200);
        const size_t deep = write_object(end, (size_t)i, 150, &inner);
        end = inner + sprintf(inner, ",\"deep\":");
        const size_t last = write_object(end, 100 + (size_t)i, 170, &inner);
        end = inner + sprintf(inner, ",\"x\":%zu}", deep);
        char member[64];
        if (i >= 100)
            canonical += (size_t)sprintf(member, ",\"k%d\":{\"deep\":,\"x\":%zu}", i % 200, deep) + last;
    }
    *end++ = '}';
    const scan_outcome o = scan(text, (size_t)(end - text));
    CHECK(o.status == UL_JSON_OK && o.result.length == canonical, "%llu, not %zu",
          (unsigned long long)o.result.length, canonical);
}

static double seconds_for(const char *text, size_t n) {
    const clock_t start = clock();
    const scan_outcome o = scan(text, n);
    CHECK(o.status == UL_JSON_OK, "%s", ul_json_reason(o.status));
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* Quadratic work would take minutes here; the bound is generous enough for any instrumentation. */
static void time_is_linear(void) {
    enum { KEYS = 100000 };
    char *text = malloc(KEYS * 64), *end;
    if (text == NULL) abort();
    const size_t distinct[] = {1, 2, KEYS / 2, KEYS};
    for (size_t i = 0; i < sizeof distinct / sizeof *distinct; i++) {
        const size_t canonical = write_object(text, KEYS, distinct[i], &end);
        const double seconds = seconds_for(text, (size_t)(end - text));
        CHECK(seconds < 5, "%zu distinct keys: %f s", distinct[i], seconds);
        CHECK(scan(text, (size_t)(end - text)).result.length == canonical, "%zu distinct keys", distinct[i]);
    }

    /* Keys that differ in one place only, at the start, in the middle and at the end of their words. */
    for (unsigned place = 0; place < 24; place += 4) {
        end = text;
        *end++ = '{';
        for (unsigned i = 0; i < 60000; i++) {
            char key[32] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaa";
            for (unsigned k = 0, v = i; k < 4; k++, v /= 26) key[place + k] = (char)('a' + v % 26);
            end += sprintf(end, "%s\"%s\":0", i > 0 ? "," : "", key);
        }
        *end++ = '}';
        CHECK(seconds_for(text, (size_t)(end - text)) < 5, "keys that differ at %u", place);
    }
    free(text);
}

/* Whatever the size of the scratch memory, the outcome is right or more is asked for. */
static void any_scratch_size_is_safe(void) {
    static char text[1 << 14];
    char *end;
    const size_t canonical = write_object(text, 700, 350, &end);
    for (size_t size = 0; size < 20000; size += size < 4000 ? 1 : 97) {
        void *scratch = malloc(size);
        const ul_json_scanner scanner = {.text = ul_text_kernels_best(),
                                         .number_length = shortest_number_length,
                                         .seed = random_bits(),
                                         .scratch = scratch,
                                         .scratch_size = size};
        ul_json_result result;
        const ul_json_status status =
            ul_json_text_length((const uint8_t *)text, (size_t)(end - text), &scanner, &result);
        if (status == UL_JSON_SCRATCH) CHECK(result.wanted > size, "%zu wanted of %zu", result.wanted, size);
        else
            CHECK(status == UL_JSON_OK && result.length == canonical, "%s with %zu", ul_json_reason(status),
                  size);
        CHECK(status != UL_JSON_SCRATCH || size < 16384, "16 KiB are enough for 350 keys");
        free(scratch);
    }
}

int main(void) {
    last_member_counts();
    keys_are_compared_decoded();
    keys_of_every_length_are_recognised();
    objects_of_every_size_are_right();
    nested_objects_are_right();
    any_scratch_size_is_safe();
    time_is_linear();
    return checks_done();
}
