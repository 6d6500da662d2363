/* test_json_random.c: random values, each written twice, carelessly and canonically.
 *
 * The careless text has white space, needless escapes and repeated keys; its length has to come out as that
 * of the canonical text, its children have to be found in it, and no part of it may be taken for a whole. */
#include "scan.h"

#include <stdbool.h>

/* Text that grows; kept from round to round. */
typedef struct {
    char *bytes;
    size_t n, size;
} buffer;

static void put(buffer *b, const char *text) {
    const size_t n = strlen(text);
    if (b->n + n >= b->size) {
        b->size = 2 * (b->n + n) + 64;
        b->bytes = realloc(b->bytes, b->size);
        if (b->bytes == NULL) abort();
    }
    memcpy(b->bytes + b->n, text, n + 1);
    b->n += n;
}

static void put_white(buffer *b) {
    static const char *white[] = {"", "", "", "", " ", "\n  ", "\t", "\r\n"};
    put(b, white[random_below(8)]);
}

/* ---- Strings ---- */

static const struct {
    const char *canonical, *escapes[3];
} characters[] = {
    {"a", {"a", "\\u0061", "a"}},
    {"Z", {"Z", "\\u005a", "\\u005A"}},
    {" ", {" ", " ", "\\u0020"}},
    {"/", {"/", "\\/", "\\u002f"}},
    {"\x7F", {"\x7F", "\\u007f", "\\u007F"}},
    {"\\\"", {"\\\"", "\\u0022", "\\\""}},
    {"\\\\", {"\\\\", "\\u005c", "\\u005C"}},
    {"\\n", {"\\n", "\\u000a", "\\u000A"}},
    {"\\b", {"\\b", "\\u0008", "\\b"}},
    {"\\u0000", {"\\u0000", "\\u0000", "\\u0000"}},
    {"\\u000b", {"\\u000b", "\\u000B", "\\u000b"}},
    {"\xC3\xA9", {"\xC3\xA9", "\\u00e9", "\\u00E9"}},
    {"\xE4\xB8\xAD", {"\xE4\xB8\xAD", "\\u4e2d", "\\u4E2D"}},
    {"\xF0\x9F\x98\x80", {"\xF0\x9F\x98\x80", "\\ud83d\\ude00", "\\uD83D\\uDE00"}},
};

static void put_string(buffer *careless, buffer *canonical, size_t length, size_t alphabet) {
    put(careless, "\"");
    put(canonical, "\"");
    for (; length > 0; length--) {
        const size_t c = random_below(alphabet);
        const bool plain = random_below(8) > 0;
        put(careless, characters[c].escapes[plain ? 0 : random_below(3)]);
        put(canonical, characters[c].canonical);
    }
    put(careless, "\"");
    put(canonical, "\"");
}

static void put_random_string(buffer *careless, buffer *canonical) {
    const size_t most = sizeof characters / sizeof *characters;
    const size_t length = random_below(random_below(10) == 0 ? 400 : 12);
    put_string(careless, canonical, length, random_below(2) ? 3 : most);
}

/* ---- Values ---- */

static void put_scalar(buffer *careless, buffer *canonical) {
    static const char *known[][2] = {
        {"null", "null"},
        {"true", "true"},
        {"false", "false"},
        {"0", "0"},
        {"-0", "-0.0"},
        {"17", "17"},
        {"-250", "-250"},
        {"1.50", "1.5"},
        {"1E3", "1000.0"},
        {"12e-7", "1.2e-6"},
        {"0.1e-5", "1e-6"},
        {"99999999999999999999", "1e+20"},
        {"0.10000000000000001", "0.1"},
        {"4e-1", "0.4"},
    };
    const size_t i = random_below(sizeof known / sizeof *known + 8);
    if (i >= sizeof known / sizeof *known) {
        put_random_string(careless, canonical);
        return;
    }
    put(careless, known[i][0]);
    put(canonical, known[i][1]);
}

static void put_value(buffer *careless, buffer *canonical, unsigned depth);

static void put_array(buffer *careless, buffer *canonical, unsigned depth) {
    const size_t count = random_below(6);
    put(careless, "[");
    put(canonical, "[");
    for (size_t i = 0; i < count; i++) {
        put(careless, i > 0 ? "," : "");
        put(canonical, i > 0 ? "," : "");
        put_value(careless, canonical, depth);
    }
    if (count == 0) put_white(careless);
    put(careless, "]");
    put(canonical, "]");
}

/* Members whose canonical keys come up again are left out of the canonical text. */
static void put_object(buffer *careless, buffer *canonical, unsigned depth) {
    enum { MEMBERS = 100 };
    static buffer keys[6][MEMBERS], values[6];
    size_t starts[MEMBERS + 1];
    const size_t count = random_below(random_below(20) == 0 ? MEMBERS : 8);
    buffer *key = keys[depth], *value = &values[depth];
    value->n = 0;
    put(careless, "{");
    for (size_t i = 0; i < count; i++) {
        put(careless, i > 0 ? "," : "");
        put_white(careless);
        key[i].n = 0;
        put_string(careless, &key[i], random_below(4), 1 + random_below(4));
        put_white(careless);
        put(careless, ":");
        starts[i] = value->n;
        put_value(careless, value, depth);
    }
    starts[count] = value->n;
    put_white(careless);
    put(careless, "}");

    put(canonical, "{");
    for (size_t i = 0, written = 0; i < count; i++) {
        bool last = true;
        for (size_t j = i + 1; j < count; j++) last = last && strcmp(key[i].bytes, key[j].bytes) != 0;
        if (!last) continue;
        put(canonical, written++ > 0 ? "," : "");
        put(canonical, key[i].bytes);
        put(canonical, ":");
        const char kept = value->bytes[starts[i + 1]];
        value->bytes[starts[i + 1]] = '\0';
        put(canonical, value->bytes + starts[i]);
        value->bytes[starts[i + 1]] = kept;
    }
    put(canonical, "}");
}

static void put_value(buffer *careless, buffer *canonical, unsigned depth) {
    put_white(careless);
    const uint64_t choice = depth == 0 ? 0 : random_below(4);
    if (choice == 0) put_scalar(careless, canonical);
    else if (choice == 1) put_array(careless, canonical, depth - 1);
    else put_object(careless, canonical, depth - 1);
    put_white(careless);
}

/* ---- Checks ---- */

/* Every child is a value of its own, and together with what joins them they make up the whole. */
static void check_children(const buffer *text) {
    enum { SPANS = 100 };
    const uint8_t *bytes = (const uint8_t *)text->bytes;
    const size_t start = strspn(text->bytes, " \t\r\n");
    const bool object = bytes[start] == '{';
    ul_json_span spans[SPANS];
    if (!object && bytes[start] != '[') return;
    const size_t count = ul_json_children(bytes, text->n, start, spans, SPANS);
    CHECK(count <= SPANS, "%zu children", count);
    CHECK(ul_json_children(bytes, text->n, start, NULL, 0) == count, "counting without filling");
    for (size_t i = 0; i < count; i++) {
        const ul_json_span *s = &spans[i];
        const scan_outcome value = scan(bytes + s->value_start, s->value_end - s->value_start);
        CHECK(value.status == UL_JSON_OK, "child %zu: %s", i, ul_json_reason(value.status));
        CHECK(s->value_start == start + 1 || strchr(" \t\r\n:,[", bytes[s->value_start - 1]),
              "child %zu starts", i);
        if (!object) {
            CHECK(s->key_start == s->key_end, "child %zu has no key", i);
            continue;
        }
        CHECK(bytes[s->key_start - 1] == '"' && bytes[s->key_end] == '"', "child %zu has a key", i);
        const scan_outcome key = scan(bytes + s->key_start - 1, s->key_end - s->key_start + 2);
        CHECK(key.status == UL_JSON_OK && key.result.kind == UL_KIND_STRING, "child %zu's key", i);
    }
}

static void check_value(const buffer *careless, const buffer *canonical) {
    const scan_outcome o = scan(careless->bytes, careless->n);
    CHECK(o.status == UL_JSON_OK && o.result.length == canonical->n, "%s: %s at %zu, %llu, not %zu",
          careless->bytes, ul_json_reason(o.status), o.result.offset, (unsigned long long)o.result.length,
          canonical->n);
    const scan_outcome again = scan_with(ul_text_kernels_named("scalar"), canonical->bytes, canonical->n);
    CHECK(again.status == UL_JSON_OK && again.result.length == canonical->n, "%s", canonical->bytes);
    check_children(careless);
}

/* A beginning of an array, object or string is never accepted, and its fault lies within it. */
static void check_beginnings(const buffer *text) {
    const char first = text->bytes[strspn(text->bytes, " \t\r\n")];
    size_t end = text->n;
    while (strchr(" \t\r\n", text->bytes[end - 1])) end--;
    for (size_t n = 0; n < end && n < 300; n++) {
        const scan_outcome o = scan(text->bytes, n);
        if (first == '{' || first == '[' || first == '"') {
            CHECK(o.status == UL_JSON_END || o.status == UL_JSON_UTF8, "%.*s: %s", (int)n, text->bytes,
                  ul_json_reason(o.status));
        }
        CHECK(o.status == UL_JSON_OK || o.result.offset <= n, "%.*s: %zu", (int)n, text->bytes,
              o.result.offset);
    }
}

/* Changed bytes may be refused or not; what is accepted is read like that by every kernel. */
static void check_damaged(buffer *text) {
    for (int i = 0; i < 20; i++) {
        const size_t at = random_below(text->n);
        const char kept = text->bytes[at];
        text->bytes[at] = random_below(2) ? (char)random_bits() : "{}[]\":,\\0 "[random_below(10)];
        const scan_outcome o = scan(text->bytes, text->n);
        const scan_outcome other = scan_with(ul_text_kernels_named("scalar"), text->bytes, text->n);
        CHECK(o.status == other.status, "%s", text->bytes);
        if (o.status == UL_JSON_OK) CHECK(o.result.length == other.result.length, "%s", text->bytes);
        else CHECK(o.result.offset == other.result.offset && o.result.offset <= text->n, "%s", text->bytes);
        text->bytes[at] = kept;
    }
}

int main(void) {
    static buffer careless, canonical;
    for (int round = 0; round < 1500; round++) {
        careless.n = canonical.n = 0;
        put_value(&careless, &canonical, 1 + (unsigned)random_below(4));
        check_value(&careless, &canonical);
        check_beginnings(&careless);
        check_damaged(&careless);
    }
    return checks_done();
}
