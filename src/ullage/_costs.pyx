# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What texts cost, kept under a digest of each: a table of bounded size that threads may share.

Buckets of eight places; a text belongs in one bucket, and where that is full the text used longest ago gives
way.  Between a look and a store of the table no Python code runs, so that the interpreter's lock keeps others
out; while a text is encoded, they may do as they like.
"""

cimport cython
from cpython cimport array
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from ullage.native cimport ul_text_digest

import os
from array import array as new_array
from typing import NamedTuple

from ullage.counting import token_figure

cdef extern from "Python.h":
    bint PyUnicode_Check(PyObject *o)
    int PyUnicode_KIND(PyObject *s)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *s)
    void *PyUnicode_DATA(PyObject *s)

cdef struct Place:
    uint64_t digest[2]
    uint32_t tokens
    uint32_t used  # the pass that last asked for it; 0 for a free place

cdef enum:
    WAYS = 8
    FEWEST_BUCKETS = 16

cdef size_t BUCKET_BYTES = WAYS * sizeof(Place)
cdef size_t WITHOUT_GIL = 256 * 1024  # bytes of text from which on other threads may run meanwhile
cdef array.array UNSIGNED = new_array("Q")


class CacheFigures(NamedTuple):
    """What a cache of costs holds and how it has served.

    ``nbytes``: what it takes, in bytes; ``limit``: what it may grow to.
    ``entries``: texts whose cost it holds.
    ``hits``, ``misses``: texts that were found, and that had to be counted.
    ``evictions``: costs that gave way to others.
    """

    nbytes: int
    limit: int
    entries: int
    hits: int
    misses: int
    evictions: int


@cython.final
cdef class TextCosts:
    """The costs of texts by one encoder."""

    cdef Place *places
    cdef size_t buckets, most_buckets  # powers of two, or none at all
    cdef uint64_t key[2]
    cdef uint32_t passes
    cdef uint64_t entries, hits, misses, evictions
    cdef uint64_t limit

    def __cinit__(self, uint64_t limit):
        """A cache of at most `limit` bytes; one too small for anything holds nothing."""
        self.limit = limit
        secret = os.urandom(16)
        self.key[0] = int.from_bytes(secret[:8], "little")
        self.key[1] = int.from_bytes(secret[8:], "little")
        if limit >= FEWEST_BUCKETS * BUCKET_BYTES:
            self.most_buckets = FEWEST_BUCKETS
            while 2 * self.most_buckets * BUCKET_BYTES <= limit:
                self.most_buckets *= 2
            self.buckets = FEWEST_BUCKETS
            self.places = <Place *>PyMem_Calloc(self.buckets, BUCKET_BYTES)
            if self.places == NULL:
                raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.places)

    @property
    def figures(self):
        return CacheFigures(
            self.buckets * BUCKET_BYTES + self.__sizeof__(),
            self.limit,
            self.entries,
            self.hits,
            self.misses,
            self.evictions,
        )

    def clear(self):
        """Forget all costs; the figures of hits and misses stay."""
        if self.places != NULL:
            memset(self.places, 0, self.buckets * BUCKET_BYTES)
        self.entries = 0

    def count(self, list texts not None, encode, bint sized, many=None, Py_ssize_t many_from=0):
        """The cost of each text, as an array of unsigned 64-bit.

        A text that is not known is given to `encode`, whose answer is the cost or, if `sized`, has it for its
        length.  With `many`, texts of so many characters go to that together, each once; it answers with their
        costs in a sequence.

        Raises ValueError for a cost that is not unsigned 64-bit, and what the two raise.
        """
        cdef Py_ssize_t n = len(texts)
        cdef array.array costs = array.clone(UNSIGNED, n, zero=False)
        cdef list later = []
        cdef Py_ssize_t i
        cdef uint64_t digest[2]
        cdef uint64_t tokens
        cdef object text
        self._begin_pass()
        for i in range(n):
            text = texts[i]
            self._digest(text, digest)
            if not self._find(digest, &tokens):
                if many is not None and len(<str>text) >= many_from:
                    later.append(i)
                    continue
                answer = encode(text)
                tokens = len(answer) if sized else token_figure(answer, "count")
                self._store(digest, tokens)
            costs.data.as_ulonglongs[i] = tokens
        if later:
            self._count_many(texts, later, many, costs)
        return costs

    cdef int _count_many(self, list texts, list later, object many, array.array costs) except -1:
        cdef list wanted = list(dict.fromkeys([texts[i] for i in later]))
        cdef dict known = {}
        cdef uint64_t digest[2]
        cdef object answers = list(many(wanted))
        if len(answers) != len(wanted):
            raise ValueError(f"{len(wanted)} texts were given and {len(answers)} counts came back")
        for text, answer in zip(wanted, answers):
            known[text] = token_figure(answer, "count")
            self._digest(text, digest)
            self._store(digest, known[text])
        for i in later:
            costs[i] = known[texts[i]]
        return 0

    # -- the table -------------------------------------------------------------------------

    cdef int _begin_pass(self) noexcept:
        cdef size_t i
        self.passes += 1
        if self.passes == 0:  # after 2**32 of them all that is known counts as equally old
            self.passes = 2
            for i in range(self.buckets * WAYS):
                self.places[i].used = self.places[i].used != 0
        return 0

    cdef int _digest(self, object text, uint64_t *digest) except -1:
        cdef PyObject *item = <PyObject *>text
        cdef uint64_t key[2]
        cdef int kind
        cdef size_t n
        cdef void *data
        if not PyUnicode_Check(item):
            raise TypeError(f"a text is a str, not {type(text).__name__}")
        kind = PyUnicode_KIND(item)
        n = <size_t>PyUnicode_GET_LENGTH(item) * <size_t>kind
        data = PyUnicode_DATA(item)
        key[0] = self.key[0]
        key[1] = self.key[1] ^ <uint64_t>kind  # the same bytes are other text in units of another width
        if n < WITHOUT_GIL:
            ul_text_digest(data, n, key, digest)
        else:
            with nogil:
                ul_text_digest(data, n, key, digest)
        return 0

    cdef inline Place *_bucket(self, const uint64_t *digest) noexcept:
        return self.places + (digest[0] & (self.buckets - 1)) * WAYS

    cdef bint _find(self, const uint64_t *digest, uint64_t *tokens) noexcept:
        cdef Place *place
        cdef int way
        if self.places != NULL:
            place = self._bucket(digest)
            for way in range(WAYS):
                if place.digest[0] == digest[0] and place.digest[1] == digest[1] and place.used:
                    place.used = self.passes
                    tokens[0] = place.tokens
                    self.hits += 1
                    return True
                place += 1
        self.misses += 1
        return False

    cdef int _store(self, const uint64_t *digest, uint64_t tokens) noexcept:
        cdef Place *place
        cdef Place *oldest
        cdef int way
        if self.places == NULL or tokens > <uint64_t>0xFFFFFFFF:
            return 0
        oldest = place = self._bucket(digest)
        for way in range(WAYS):
            if place.used and place.digest[0] == digest[0] and place.digest[1] == digest[1]:
                return 0  # another thread was faster
            if place.used < oldest.used:
                oldest = place
            place += 1
        if oldest.used and self.buckets < self.most_buckets and 8 * self.entries >= 3 * self.buckets * WAYS:
            self._grow()
            return self._store(digest, tokens)
        if oldest.used:
            self.evictions += 1
        else:
            self.entries += 1
        oldest.digest[0] = digest[0]
        oldest.digest[1] = digest[1]
        oldest.tokens = <uint32_t>tokens
        oldest.used = self.passes
        return 0

    cdef int _grow(self) noexcept:
        """Double the table; where there is no memory for that it stays as it is."""
        cdef size_t half = self.buckets
        cdef size_t at
        cdef Place *before = self.places
        cdef Place *after = <Place *>PyMem_Calloc(2 * half, BUCKET_BYTES)
        cdef Place *place
        if after == NULL:
            self.most_buckets = half
            return 0
        self.places = after
        self.buckets = 2 * half
        for at in range(half * WAYS):
            if before[at].used:  # its new bucket takes from one old bucket only, so there is room
                place = self._bucket(before[at].digest)
                while place.used:
                    place += 1
                place[0] = before[at]
        PyMem_Free(before)
        return 0
