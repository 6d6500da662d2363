/* json_members.c: which keys an object has had, so that of a repeated key only the last member counts.
 *
 * Few members are searched one by one, many through a hash table with open addressing.  A member that is
 * replaced keeps its place: its cost is taken off the length and its entry used again.
 *
 * Nothing here allocates.  Objects close in the opposite order of opening and only the innermost one grows,
 * so its members are always the top of the stack and its table the lowest; either can grow in place. */
#include "json_scan.h"

#include <string.h>

/* A slot of a hash table: 0 where it is free, else the member's index within its object, plus one, below the
 * high bits of its hash, which spare most looks at members that are others. */
#define INDEX_BITS 40
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)

#define NOT_FOUND SIZE_MAX

/* ---- Memory ---- */

static bool has_room(const ul_members *m, size_t bytes) {
    return (size_t)((const char *)m->limit - (const char *)(m->members + m->count)) >= bytes;
}

/* From the local array to the caller's scratch memory; false where that is no larger. */
static bool move_to_scratch(ul_members *m, const ul_json_scanner *scanner) {
    const size_t size = scanner->scratch_size & ~(sizeof(uint64_t) - 1);
    if (m->members != m->few || size <= sizeof m->few) return false;
    memcpy(scanner->scratch, m->few, m->count * sizeof *m->members);
    m->members = scanner->scratch;
    m->limit = (char *)scanner->scratch + size;
    return true;
}

static bool make_room(ul_scan *scan, size_t bytes) {
    ul_members *m = &scan->members;
    return has_room(m, bytes) || (move_to_scratch(m, scan->scanner) && has_room(m, bytes));
}

/* ---- Tables ---- */

static void put_in_table(const ul_members *m, const ul_frame *frame, size_t index) {
    uint64_t *table = m->limit;
    const uint64_t hash = m->members[frame->first + index].hash;
    const size_t wrap = frame->slots - 1;
    size_t slot = (size_t)hash & wrap;
    while (table[slot] != 0) slot = (slot + 1) & wrap;
    table[slot] = (hash & ~INDEX_MASK) | (index + 1);
}

/* Keeps the innermost object's table at most three quarters full with one more member. */
static bool grow_table(ul_scan *scan, ul_frame *frame) {
    ul_members *m = &scan->members;
    const size_t count = m->count - frame->first;
    if (count < UL_FEW_MEMBERS || count + 1 <= frame->slots / 4 * 3) return true;
    const size_t slots = frame->slots == 0 ? 4 * UL_FEW_MEMBERS : 2 * frame->slots;
    const size_t more = (slots - frame->slots) * sizeof(uint64_t);
    if (!make_room(scan, more)) return false;
    m->limit = (char *)m->limit - more;
    frame->slots = slots;
    memset(m->limit, 0, slots * sizeof(uint64_t));
    for (size_t i = 0; i < count; i++) put_in_table(m, frame, i);
    return true;
}

/* ---- Searching ---- */

static size_t find_in_table(const ul_scan *scan, const ul_frame *frame, uint64_t hash, size_t key) {
    const ul_members *m = &scan->members;
    const uint64_t *table = m->limit;
    const size_t wrap = frame->slots - 1;
    for (size_t slot = (size_t)hash & wrap; table[slot] != 0; slot = (slot + 1) & wrap) {
        if (((table[slot] ^ hash) & ~INDEX_MASK) != 0) continue;
        const size_t index = frame->first + (size_t)(table[slot] & INDEX_MASK) - 1;
        const ul_member *member = &m->members[index];
        if (member->hash == hash && ul_same_key(scan->text + member->key, scan->text + key)) return index;
    }
    return NOT_FOUND;
}

static size_t find_one_by_one(const ul_scan *scan, const ul_frame *frame, uint64_t hash, size_t key) {
    const ul_members *m = &scan->members;
    for (size_t index = frame->first; index < m->count; index++) {
        const ul_member *member = &m->members[index];
        if (member->hash == hash && ul_same_key(scan->text + member->key, scan->text + key)) return index;
    }
    return NOT_FOUND;
}

static size_t find_member(const ul_scan *scan, const ul_frame *frame, uint64_t hash, size_t key) {
    return frame->slots > 0 ? find_in_table(scan, frame, hash, key) : find_one_by_one(scan, frame, hash, key);
}

bool ul_enter_member(ul_scan *scan, ul_frame *frame, uint64_t hash, size_t key) {
    ul_members *m = &scan->members;
    const uint64_t bit = UINT64_C(1) << hash % 64;
    size_t index = (frame->seen & bit) != 0 ? find_member(scan, frame, hash, key) : NOT_FOUND;
    frame->seen |= bit;
    if (index == NOT_FOUND) {
        if (!grow_table(scan, frame) || !make_room(scan, sizeof(ul_member))) return false;
        index = m->count++;
        m->members[index].hash = hash;
        m->members[index].key = key;
        if (frame->slots > 0) put_in_table(m, frame, index - frame->first);
    } else {
        scan->length -= m->members[index].cost;
    }
    frame->current = index;
    frame->before = scan->length;
    return true;
}

void ul_leave_object(ul_scan *scan, const ul_frame *frame) {
    ul_members *m = &scan->members;
    m->count = frame->first;
    m->limit = (char *)m->limit + frame->slots * sizeof(uint64_t);
}
