/* test_digest.c: the digest against the first outputs that the authors of SipHash publish for their
 * reference (128 bits, key 00 01 … 0F, inputs 00 01 …), and against itself. */
#include "check.h"
#include "ullage.h"

static const uint8_t published[][16] = {
    {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93},
    {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45},
    {0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3, 0x8b, 0xde, 0xf6, 0x0a, 0xff, 0xe4},
};

static uint64_t word(const uint8_t *bytes) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

int main(void) {
    uint8_t input[64];
    for (unsigned i = 0; i < 64; i++) input[i] = (uint8_t)i;
    const uint64_t key[2] = {word(input), word(input + 8)};
    uint64_t digest[2];
    for (size_t n = 0; n < sizeof published / sizeof *published; n++) {
        ul_text_digest(input, n, key, digest);
        CHECK(digest[0] == word(published[n]) && digest[1] == word(published[n] + 8), "%zu bytes", n);
    }
    for (size_t n = 0; n < 64; n++) { /* every length has a digest of its own, wherever the bytes lie */
        uint64_t other[2];
        uint8_t *copy = exact_copy(input, n);
        ul_text_digest(input, n, key, digest);
        ul_text_digest(copy, n, key, other);
        CHECK(digest[0] == other[0] && digest[1] == other[1], "%zu bytes", n);
        for (size_t bit = 0; bit < n * 8; bit++) {
            copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
            ul_text_digest(copy, n, key, other);
            CHECK(digest[0] != other[0] && digest[1] != other[1], "bit %zu of %zu bytes", bit, n);
            copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        free(copy);
    }
    return checks_done();
}
