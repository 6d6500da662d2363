/* test_json.c: what JSON text is accepted, how long it is, and where it is at fault otherwise. */
#include "scan.h"

#include <stdbool.h>

static void accepts(const char *text, const char *canonical, ul_json_kind kind) {
    const scan_outcome o = scan(text, strlen(text));
    CHECK(o.status == UL_JSON_OK, "%s: %s at %zu", text, ul_json_reason(o.status), o.result.offset);
    CHECK(o.status != UL_JSON_OK || o.result.length == strlen(canonical), "%s: %llu", text,
          (unsigned long long)o.result.length);
    CHECK(o.status != UL_JSON_OK || o.result.kind == kind, "%s: kind %d", text, (int)o.result.kind);
}

static void refuses(const char *text, ul_json_status status, size_t offset) {
    const scan_outcome o = scan(text, strlen(text));
    CHECK(o.status == status, "%s: %s", text, ul_json_reason(o.status));
    CHECK(o.status != status || o.result.offset == offset, "%s: at %zu", text, o.result.offset);
}

static void values_are_accepted(void) {
    accepts("null", "null", UL_KIND_NULL);
    accepts("true", "true", UL_KIND_BOOL);
    accepts("false", "false", UL_KIND_BOOL);
    accepts("\"\"", "\"\"", UL_KIND_STRING);
    accepts("{}", "{}", UL_KIND_OBJECT);
    accepts("[]", "[]", UL_KIND_ARRAY);
    accepts(" \t\r\n[ ] \n", "[]", UL_KIND_ARRAY);
    accepts("{ }", "{}", UL_KIND_OBJECT);
    accepts("[1 , 2\t,[ ]\n,{ } ]", "[1,2,[],{}]", UL_KIND_ARRAY);
    accepts("{ \"a\" : 1 , \"b\" : [ null ] }", "{\"a\":1,\"b\":[null]}", UL_KIND_OBJECT);
    accepts("[[[]],[{\"a\":{}}]]", "[[[]],[{\"a\":{}}]]", UL_KIND_ARRAY);
}

static void strings_have_their_canonical_length(void) {
    accepts("\"\\/\\u0041\\u002f\"", "\"/A/\"", UL_KIND_STRING);
    accepts("\"\\\"\\\\\\b\\f\\n\\r\\t\"", "\"\\\"\\\\\\b\\f\\n\\r\\t\"", UL_KIND_STRING);
    accepts("\"\\u0022\\u005C\\u0008\\u000c\\u000A\\u000d\\u0009\"", "\"\\\"\\\\\\b\\f\\n\\r\\t\"",
            UL_KIND_STRING);
    accepts("\"\\u0000\\u000B\\u001f\"", "\"\\u0000\\u000b\\u001f\"", UL_KIND_STRING);
    accepts("\"\\u00e9\\u4e2D\\uD83d\\ude00\\ud800\\udc00\\udbff\\udfff\"",
            "\"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\"", UL_KIND_STRING);
    accepts("\"\\u007f\\ud7ff\\ue000\\uffff\\u07ff\\u0800\"",
            "\"\x7F\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xDF\xBF\xE0\xA0\x80\"", UL_KIND_STRING);
    accepts("\"\x7F\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80\"", "\"\x7F\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80\"",
            UL_KIND_STRING);
}

/* Runs of every length before each kind of end, so that each way of reading them meets it. */
static void strings_of_every_length_are_read(void) {
    char text[800], canonical[800];
    for (size_t n = 0; n < 700; n++) {
        memset(text, 'x', sizeof text);
        text[0] = '"';
        strcpy(text + 1 + n, "\"");
        accepts(text, text, UL_KIND_STRING);
        memcpy(canonical, text, n + 1);
        strcpy(text + 1 + n, "\\u0041\xC3\xA9\"");
        strcpy(canonical + 1 + n, "A\xC3\xA9\"");
        accepts(text, canonical, UL_KIND_STRING);
        strcpy(text + 1 + n, "\n\"");
        refuses(text, UL_JSON_CONTROL, n + 1);
        strcpy(text + 1 + n, "\xC3\"");
        refuses(text, UL_JSON_UTF8, n + 1);
        strcpy(text + 1 + n, "\x80\\q\"");
        refuses(text, UL_JSON_UTF8, n + 1);
        text[1 + n] = '\0';
        refuses(text, UL_JSON_END, n + 1);
    }
}

static void numbers_have_their_canonical_length(void) {
    static const struct {
        const char *text, *canonical;
    } known[] = {
        {"0", "0"},
        {"-0", "-0.0"},
        {"-1", "-1"},
        {"-0.0e5", "-0.0"},
        {"0.000", "0.0"},
        {"0e99999999999999999999", "0.0"},
        {"1.50", "1.5"},
        {"1E2", "100.0"},
        {"1e-2", "0.01"},
        {"10.010e+01", "100.1"},
        {"1000000000000000e0", "1000000000000000.0"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"120e20", "1.2e+22"},
        {"0.00001", "0.00001"},
        {"0.00000100", "1e-6"},
        {"18446744073709551615", "18446744073709551615"},
        {"18446744073709551616", "1.8446744073709552e+19"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"-9223372036854775809", "-9.223372036854776e+18"},
        {"99999999999999999999", "1e+20"},
        {"100000000000000000000", "1e+20"},
        {"-1000000000000000000000000", "-1e+24"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"0.3000000000000000166", "0.3"},
        {"123456789012345678901234567890.5", "1.2345678901234568e+29"},
        {"1.7976931348623158e308", "1.7976931348623157e+308"},
        {"2e-324", "0.0"},
        {"-3e-324", "-5e-324"},
        {"1e-400", "0.0"},
        {"1e-99999999999999999999", "0.0"},
        {"-0.1e-400", "-0.0"},
        {"2.2250738585072011e-308", "2.225073858507201e-308"},
        {"0.0000000000000000000000000000000000000000000000001e40", "1e-9"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        accepts(known[i].text, known[i].canonical, UL_KIND_NUMBER);
        char padded[80];
        snprintf(padded, sizeof padded, " %s ", known[i].text);
        accepts(padded, known[i].canonical, UL_KIND_NUMBER);
    }
    refuses("1e309", UL_JSON_NUMBER, 0);
    refuses("[-1.8e308]", UL_JSON_NUMBER, 1);
    refuses("1e99999999999999999999", UL_JSON_NUMBER, 0);
}

/* Random decimals, against converting them. */
static void numbers_agree_with_conversion(void) {
    for (int round = 0; round < 100000; round++) {
        char text[64];
        const uint64_t digits = random_bits() >> random_below(64);
        const int exponent = (int)random_below(round % 2 ? 40 : 680) - (round % 2 ? 20 : 340);
        const unsigned long long whole = digits >> 20, fraction = digits & 0xFFFFF;
        snprintf(text, sizeof text, "%s%llu.%llue%d", round % 3 ? "" : "-", whole, fraction, exponent);
        const unsigned want = shortest_number_length(NULL, text, strlen(text));
        const scan_outcome o = scan(text, strlen(text));
        CHECK(o.status == (want ? UL_JSON_OK : UL_JSON_NUMBER), "%s: %s", text, ul_json_reason(o.status));
        CHECK(want == 0 || o.result.length == want, "%s: %llu, not %u", text,
              (unsigned long long)o.result.length, want);
    }
    const char *decided = "[1.5,-0.25,123456789012345.0,52.520008,1e299,99.99e-299]";
    CHECK(scan(decided, strlen(decided)).numbers == 0, "15 digits need no conversion");
}

static void faults_are_found_where_they_are(void) {
    refuses("", UL_JSON_END, 0);
    refuses(" \n", UL_JSON_END, 2);
    refuses("tru", UL_JSON_END, 3);
    refuses("trUe", UL_JSON_SYNTAX, 2);
    refuses("nulll", UL_JSON_TRAILING, 4);
    refuses("Infinity", UL_JSON_SYNTAX, 0);
    refuses("\xEF\xBB\xBF{}", UL_JSON_SYNTAX, 0);
    refuses("1 2", UL_JSON_TRAILING, 2);
    refuses("[] ]", UL_JSON_TRAILING, 3);
    refuses("01", UL_JSON_TRAILING, 1);
    refuses("-", UL_JSON_END, 1);
    refuses("-a", UL_JSON_SYNTAX, 1);
    refuses("+1", UL_JSON_SYNTAX, 0);
    refuses("[.5]", UL_JSON_SYNTAX, 1);
    refuses("[1.]", UL_JSON_SYNTAX, 3);
    refuses("1.", UL_JSON_END, 2);
    refuses("[1e]", UL_JSON_SYNTAX, 3);
    refuses("1e+", UL_JSON_END, 3);
    refuses("[-01]", UL_JSON_SYNTAX, 3);
    refuses("[", UL_JSON_END, 1);
    refuses("[1", UL_JSON_END, 2);
    refuses("[1,", UL_JSON_END, 3);
    refuses("[1,]", UL_JSON_SYNTAX, 3);
    refuses("[,1]", UL_JSON_SYNTAX, 1);
    refuses("[1 2]", UL_JSON_SYNTAX, 3);
    refuses("[1}", UL_JSON_SYNTAX, 2);
    refuses("{", UL_JSON_END, 1);
    refuses("{]", UL_JSON_SYNTAX, 1);
    refuses("{,}", UL_JSON_SYNTAX, 1);
    refuses("{1:2}", UL_JSON_SYNTAX, 1);
    refuses("{\"a\"", UL_JSON_END, 4);
    refuses("{\"a\" 1}", UL_JSON_SYNTAX, 5);
    refuses("{\"a\":", UL_JSON_END, 5);
    refuses("{\"a\":}", UL_JSON_SYNTAX, 5);
    refuses("{\"a\":1", UL_JSON_END, 6);
    refuses("{\"a\":1,}", UL_JSON_SYNTAX, 7);
    refuses("{\"a\":1]", UL_JSON_SYNTAX, 6);
    refuses("{'a':1}", UL_JSON_SYNTAX, 1);
    refuses("{\"a\":1 \"b\":2}", UL_JSON_SYNTAX, 7);
    refuses("[1] // no", UL_JSON_TRAILING, 4);
    refuses("\"", UL_JSON_END, 1);
    refuses("\"\\", UL_JSON_END, 2);
    refuses("\"\\u12", UL_JSON_END, 5);
    refuses("\"\\q\"", UL_JSON_ESCAPE, 2);
    refuses("\"\\u12g4\"", UL_JSON_ESCAPE, 5);
    refuses("\"ab\\ud800\"", UL_JSON_SURROGATE, 3);
    refuses("\"\\udc00\"", UL_JSON_SURROGATE, 1);
    refuses("\"\\ud800\\ud800\"", UL_JSON_SURROGATE, 1);
    refuses("\"\\ud800\\n\"", UL_JSON_SURROGATE, 1);
    refuses("\"\\ud800\\u004g\"", UL_JSON_ESCAPE, 12);
    refuses("\"\\ud800", UL_JSON_END, 7);
    refuses("\"\x1F\"", UL_JSON_CONTROL, 1);
    refuses("\"\xED\xA0\x80\"", UL_JSON_UTF8, 1);
    refuses("{\"\xFF\":1}", UL_JSON_UTF8, 2);
}

static void repeat(char **to, const char *text, size_t times) {
    for (; times > 0; times--) *to += sprintf(*to, "%s", text);
}

static void depth_is_limited(void) {
    char text[4000];
    for (size_t depth = 126; depth <= 129; depth++) {
        for (int object = 0; object < 2; object++) {
            char *end = text;
            repeat(&end, object ? "{\"a\":" : "[", depth - 1);
            repeat(&end, object ? "{}" : "[]", 1);
            repeat(&end, object ? "}" : "]", depth - 1);
            if (depth <= UL_MAX_DEPTH) accepts(text, text, object ? UL_KIND_OBJECT : UL_KIND_ARRAY);
            else refuses(text, UL_JSON_DEPTH, UL_MAX_DEPTH * (object ? 5 : 1));
        }
    }
    static char deep[200001];
    memset(deep, '[', 200000);
    refuses(deep, UL_JSON_DEPTH, UL_MAX_DEPTH);
}

static void every_status_has_a_reason(void) {
    for (int status = UL_JSON_OK; status <= UL_JSON_DEPTH; status++) {
        const char *reason = ul_json_reason((ul_json_status)status);
        CHECK(reason != NULL && strlen(reason) > 5, "status %d", status);
    }
}

int main(void) {
    values_are_accepted();
    strings_have_their_canonical_length();
    strings_of_every_length_are_read();
    numbers_have_their_canonical_length();
    numbers_agree_with_conversion();
    faults_are_found_where_they_are();
    depth_is_limited();
    every_status_has_a_reason();
    return checks_done();
}
