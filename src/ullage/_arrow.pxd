# A column of transcripts, for the modules that measure it.

from libc.stdint cimport int64_t, uint32_t

from ullage.native cimport ArrowArray, ArrowSchema, ul_chat, ul_column

cdef class TranscriptColumn:
    cdef object schema_owner, array_owner  # keep what is bound alive
    cdef const ArrowSchema *schema         # of the column of transcripts
    cdef const ArrowArray *array
    cdef int64_t offset                    # what the array around it adds to its own
    cdef int64_t length
    cdef ul_column *columns
    cdef uint32_t count
    cdef ul_chat chat

    cdef str path_of(self, uint32_t column)
