/* text_digest.c: SipHash-2-4 with 128 bits of output, after Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF" (2012), and the authors' reference for the longer output. */
#include "bits.h"
#include "ullage.h"

typedef struct {
    uint64_t v0, v1, v2, v3;
} state;

static inline uint64_t rotate(uint64_t x, unsigned by) {
    return x << by | x >> (64 - by);
}

static inline void mix(state *s, unsigned rounds) {
    for (; rounds > 0; rounds--) {
        s->v0 += s->v1;
        s->v1 = rotate(s->v1, 13) ^ s->v0;
        s->v0 = rotate(s->v0, 32);
        s->v2 += s->v3;
        s->v3 = rotate(s->v3, 16) ^ s->v2;
        s->v0 += s->v3;
        s->v3 = rotate(s->v3, 21) ^ s->v0;
        s->v2 += s->v1;
        s->v1 = rotate(s->v1, 17) ^ s->v2;
        s->v2 = rotate(s->v2, 32);
    }
}

static inline void absorb(state *s, uint64_t word) {
    s->v3 ^= word;
    mix(s, 2);
    s->v0 ^= word;
}

static inline uint64_t folded(const state *s) {
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

void ul_text_digest(const void *data, size_t n, const uint64_t key[2], uint64_t digest[2]) {
    const uint8_t *bytes = data;
    state s = {
        key[0] ^ UINT64_C(0x736f6d6570736575),
        key[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xEE,
        key[0] ^ UINT64_C(0x6c7967656e657261),
        key[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t i = 0;
    for (; n - i >= 8; i += 8) absorb(&s, ul_load64(bytes + i));
    absorb(&s, ul_load_part(bytes + i, n - i) | (uint64_t)n << 56);
    s.v2 ^= 0xEE;
    mix(&s, 4);
    digest[0] = folded(&s);
    s.v1 ^= 0xDD;
    mix(&s, 4);
    digest[1] = folded(&s);
}
