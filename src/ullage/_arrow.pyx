# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Transcripts in Arrow memory: taken from any producer, bound in place, and handed on.

Speaks the Arrow PyCapsule protocol on both sides.  What is taken stays alive as
long as anything bound to it does; children of what is taken are borrowed and
never released on their own.
"""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINVAL
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport strcmp, strerror

from ullage.native cimport (
    UL_COLUMN_BOOL,
    UL_COLUMN_INT64,
    UL_COLUMN_LIST,
    UL_COLUMN_NULL,
    UL_COLUMN_OTHER,
    UL_COLUMN_STRING,
    UL_COLUMN_STRING_VIEW,
    UL_COLUMN_STRUCT,
    UL_COLUMN_UINT64,
    UL_ELEMENT_BROKEN,
    UL_ELEMENT_NULL,
    ArrowArray,
    ArrowArrayStream,
    ArrowSchema,
    ul_chat_bind,
    ul_column,
    ul_column_error,
    ul_column_list,
    ul_column_number,
    ul_column_struct,
    ul_column_text,
    ul_column_type,
    ul_columns_bind,
    ul_columns_count,
    ul_element,
    ul_number,
)

from ullage.errors import BatchError

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char *text, Py_ssize_t n, const char *errors)


# --- taking ----------------------------------------------------------------------


cdef class _Schema:
    """A schema, in its capsule or as a stream gave it."""

    cdef object capsule
    cdef ArrowSchema given
    cdef const ArrowSchema *schema

    def __dealloc__(self):
        if self.given.release != NULL:
            self.given.release(&self.given)


cdef class _Array:
    """An array, likewise."""

    cdef object capsule
    cdef ArrowArray given
    cdef const ArrowArray *array

    def __dealloc__(self):
        if self.given.release != NULL:
            self.given.release(&self.given)


cdef tuple _take(object source):
    """The schema and the arrays of anything that speaks the protocol."""
    cdef _Schema schema
    cdef _Array array
    if hasattr(source, "__arrow_c_array__"):
        schema = _Schema.__new__(_Schema)
        array = _Array.__new__(_Array)
        schema.capsule, array.capsule = source.__arrow_c_array__()
        schema.schema = <ArrowSchema *>PyCapsule_GetPointer(schema.capsule, b"arrow_schema")
        array.array = <ArrowArray *>PyCapsule_GetPointer(array.capsule, b"arrow_array")
        if schema.schema.release == NULL or array.array.release == NULL:
            raise BatchError("the array has been released")
        return schema, [array]
    if hasattr(source, "__arrow_c_stream__"):
        return _take_stream(source.__arrow_c_stream__())
    raise TypeError(
        f"a column of transcripts has __arrow_c_array__ or __arrow_c_stream__, which {type(source).__name__} has not"
    )


cdef tuple _take_stream(object capsule):
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    cdef _Schema schema = _Schema.__new__(_Schema)
    cdef _Array array
    cdef list arrays = []
    cdef int status
    if stream.release == NULL:
        raise BatchError("the stream has been released")
    # Other threads run meanwhile: a producer may need them to go on.
    with nogil:
        status = stream.get_schema(stream, &schema.given)
    _check_stream(stream, status)
    schema.schema = &schema.given
    while True:
        array = _Array.__new__(_Array)
        with nogil:
            status = stream.get_next(stream, &array.given)
        _check_stream(stream, status)
        if array.given.release == NULL:
            return schema, arrays
        array.array = &array.given
        arrays.append(array)


cdef int _check_stream(ArrowArrayStream *stream, int status) except -1:
    cdef const char *told
    if status == 0:
        return 0
    told = stream.get_last_error(stream)
    if told == NULL:
        told = strerror(status)
    raise BatchError(f"the stream failed: {told.decode('utf-8', 'replace')}")


# --- choosing --------------------------------------------------------------------


cdef str _text(const char *text):
    return "" if text == NULL else text.decode("utf-8", "replace")


cdef bint _is_chat(const ArrowSchema *schema):
    """Whether a schema is that of a list of structs with role and content, going by formats alone."""
    cdef const ArrowSchema *message
    if schema.format == NULL or schema.format not in (b"+l", b"+L", b"+vl", b"+vL") or schema.n_children != 1:
        return False
    message = schema.children[0]
    if message.format == NULL or strcmp(message.format, b"+s") != 0:
        return False
    return {"role", "content"} <= {_text(message.children[i].name) for i in range(message.n_children)}


cdef int64_t _choose(const ArrowSchema *schema, object column) except -2:
    """Which child of a table holds the transcripts; -1 where the schema is not that of a table."""
    cdef int64_t i
    if schema.format == NULL or strcmp(schema.format, b"+s") != 0:
        if column is not None and column != _text(schema.name):
            raise BatchError(f"there is no column {column!r}: this is an array, not a table")
        return -1
    names = [_text(schema.children[i].name) for i in range(schema.n_children)]
    if column is None:
        chats = [names[i] for i in range(schema.n_children) if _is_chat(schema.children[i])]
        if "messages" in chats:
            column = "messages"
        elif len(chats) == 1:
            column = chats[0]
        else:
            listed = ", ".join(map(repr, chats or names))
            what = "more than one column holds" if chats else "no column holds"
            raise BatchError(f"{what} transcripts, lists of structs with role and content: column= names one of {listed}")
    if names.count(column) != 1:
        what = "no" if column not in names else "more than one"
        raise BatchError(f"{what} column {column!r} among {', '.join(map(repr, names))}")
    return names.index(column)


# --- binding ---------------------------------------------------------------------


def transcript_columns(source, column, ignore, bint merge_users):
    """Bind the column of transcripts of anything that speaks the Arrow PyCapsule protocol, array by array.

    Where there is no array at all, one column of no rows knows the type.

    Raises BatchError for a column that cannot be read, TypeError for anything else.
    """
    cdef _Schema schema
    cdef TranscriptColumn bound
    schema, arrays = _take(source)
    cdef int64_t child = _choose(schema.schema, column)
    cdef int64_t rows = 0
    columns = []
    if not arrays:
        bound = TranscriptColumn.__new__(TranscriptColumn)
        bound.schema_owner = schema
        bound.schema = schema.schema if child < 0 else schema.schema.children[child]
        return [bound]
    for array in arrays:
        bound = TranscriptColumn.__new__(TranscriptColumn)
        _bind(bound, schema, array, child, frozenset(ignore))
        bound.chat.merge_users = merge_users
        bound.chat.first_row = rows
        rows += bound.length
        columns.append(bound)
    return columns


cdef int _bind(TranscriptColumn self, _Schema schema, _Array array, int64_t child, frozenset ignore) except -1:
    cdef ul_column_error error
    cdef uint32_t rows = 0 if child < 0 else 1
    cdef uint32_t capacity = ul_columns_count(schema.schema, child)
    self.schema_owner, self.array_owner = schema, array
    if capacity == 0:
        raise BatchError("has too many columns inside it, or is nested too deep")
    self.columns = <ul_column *>calloc(capacity, sizeof(ul_column))
    if self.columns == NULL:
        raise MemoryError
    self.count = ul_columns_bind(schema.schema, array.array, child, self.columns, capacity, &error)
    if self.count == 0:
        raise _refused(self, &error)
    _mark_ignored(self, rows, ignore)
    if ul_chat_bind(self.columns, rows, &self.chat, &error) != 0:
        raise _refused(self, &error)
    self.schema = schema.schema if child < 0 else schema.schema.children[child]
    self.array = array.array if child < 0 else array.array.children[child]
    self.offset = 0 if child < 0 else array.array.offset
    self.length = self.columns[0].length
    return 0


cdef int _mark_ignored(TranscriptColumn self, uint32_t rows, frozenset ignore) except -1:
    cdef uint32_t i
    names = set()
    if not ignore:
        return 0
    for i in range(self.columns[rows].child + 1, self.count):
        path = _path_below(self, i, self.columns[rows].child)
        names.add(path)
        self.columns[i].ignored = path in ignore
    for name in sorted(ignore - names):
        raise BatchError(f"is not there to be ignored; there are {', '.join(sorted(names))}", name)
    return 0


cdef str _path_below(TranscriptColumn self, uint32_t at, uint32_t above):
    """Names from below a column down to another, with dots; list elements have none."""
    names = []
    while at > above:
        if self.columns[self.columns[at].parent].type < UL_COLUMN_LIST:
            names.append(_text(self.columns[at].name))
        at = self.columns[at].parent
    return ".".join(reversed(names))


cdef object _refused(TranscriptColumn self, ul_column_error *error):
    path = error.column.decode("utf-8", "replace")
    reason = error.reason.decode()
    if reason == "is of a type that is not read":
        reason += "; if its bytes are not to count, leave it out with ignore="
    return BatchError(reason, path)


cdef class TranscriptColumn:
    """The transcripts of one Arrow array, bound in place."""

    def __dealloc__(self):
        free(self.columns)

    def __len__(self):
        return self.length

    cdef str path_of(self, uint32_t column):
        """What errors call a column."""
        names = [_text(self.columns[0].name)] if column else []
        names.append(_path_below(self, column, 0))
        return ".".join(filter(None, names))

    def messages(self, Py_ssize_t row):
        """One row as the list of dicts that it stands for, null members left out; None for a null row.

        Raises UnicodeDecodeError for text that is not UTF-8.
        """
        if not 0 <= row < self.length:
            raise IndexError(row)
        if self.chat.list and ul_column_struct(&self.columns[0], row) == UL_ELEMENT_NULL:
            return None
        return _value(self.columns, self.chat.list, row)

    # -- handing on

    def __arrow_c_schema__(self):
        """The type of the transcripts."""
        cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if schema == NULL:
            raise MemoryError
        capsule = PyCapsule_New(schema, b"arrow_schema", _drop_schema)
        _share_schema(self.schema, schema, self)
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        """The transcripts as they came, with everything in them: a schema and an array that share the memory."""
        cdef ArrowArray *array
        if self.array == NULL:
            raise BatchError("there is no array in an empty stream")
        array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError
        capsule = PyCapsule_New(array, b"arrow_array", _drop_array)
        _share_array(self.array, array, self)
        array.offset += self.offset
        array.length = self.length
        if self.offset or self.length != self.array.length:
            array.null_count = -1  # of a part of the array nobody has counted them
        return self.__arrow_c_schema__(), capsule


# --- values ----------------------------------------------------------------------


cdef object _value(const ul_column *columns, uint32_t at, int64_t i):
    """An element as Python has it; None for a null."""
    cdef ul_column_type type = columns[at].type
    if type == UL_COLUMN_NULL or type == UL_COLUMN_OTHER:
        return None
    if type == UL_COLUMN_STRUCT:
        return _struct(columns, at, i)
    if type >= UL_COLUMN_LIST:
        return _list(columns, at, i)
    if UL_COLUMN_STRING <= type <= UL_COLUMN_STRING_VIEW:
        return _string(columns, at, i)
    return _number(columns, at, i)


cdef bint _is_value(ul_element found) except -1:
    if found == UL_ELEMENT_BROKEN:  # the rows were measured, so that the memory must have changed since
        raise BatchError("the column has changed")
    return found != UL_ELEMENT_NULL


cdef object _struct(const ul_column *columns, uint32_t at, int64_t i):
    cdef uint32_t child = columns[at].child
    if not _is_value(ul_column_struct(&columns[at], i)):
        return None
    members = {}
    while child:
        if not columns[child].ignored:
            item = _value(columns, child, i)
            if item is not None:
                members[_text(columns[child].name)] = item
        child = columns[child].next
    return members


cdef object _list(const ul_column *columns, uint32_t at, int64_t i):
    cdef int64_t first, count, j
    if not _is_value(ul_column_list(&columns[at], i, &first, &count)):
        return None
    return [_value(columns, columns[at].child, first + j) for j in range(count)]


cdef object _string(const ul_column *columns, uint32_t at, int64_t i):
    cdef const uint8_t *text
    cdef size_t n
    if not _is_value(ul_column_text(&columns[at], i, &text, &n)):
        return None
    return PyUnicode_DecodeUTF8(<const char *>text, <Py_ssize_t>n, NULL)


cdef object _number(const ul_column *columns, uint32_t at, int64_t i):
    cdef ul_number number
    if not _is_value(ul_column_number(&columns[at], i, &number)):
        return None
    if columns[at].type == UL_COLUMN_BOOL:
        return number.as_int != 0
    if columns[at].type <= UL_COLUMN_INT64:
        return number.as_int
    if columns[at].type <= UL_COLUMN_UINT64:
        return number.as_uint
    return number.as_double


# --- sharing ---------------------------------------------------------------------
#
# A consumer may move any struct that it gets, children too.  So it gets structs of
# its own, down to the last child, each of which holds the owner of the memory.


cdef int _share_schema(const ArrowSchema *source, ArrowSchema *out, object owner) except -1:
    cdef int64_t i
    out[0] = source[0]
    out.children = NULL
    out.dictionary = NULL
    out.n_children = 0
    out.release = _release_schema
    out.private_data = <void *>owner
    Py_INCREF(owner)
    if source.n_children:
        out.children = <ArrowSchema **>calloc(<size_t>source.n_children, sizeof(ArrowSchema *))
        if out.children == NULL:
            raise MemoryError
    for i in range(source.n_children):
        out.children[i] = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if out.children[i] == NULL:
            raise MemoryError
        out.n_children = i + 1
        _share_schema(source.children[i], out.children[i], owner)
    if source.dictionary != NULL:
        out.dictionary = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if out.dictionary == NULL:
            raise MemoryError
        _share_schema(source.dictionary, out.dictionary, owner)
    return 0


cdef int _share_array(const ArrowArray *source, ArrowArray *out, object owner) except -1:
    cdef int64_t i
    out[0] = source[0]
    out.children = NULL
    out.dictionary = NULL
    out.n_children = 0
    out.release = _release_array
    out.private_data = <void *>owner
    Py_INCREF(owner)
    if source.n_children:
        out.children = <ArrowArray **>calloc(<size_t>source.n_children, sizeof(ArrowArray *))
        if out.children == NULL:
            raise MemoryError
    for i in range(source.n_children):
        out.children[i] = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if out.children[i] == NULL:
            raise MemoryError
        out.n_children = i + 1
        _share_array(source.children[i], out.children[i], owner)
    if source.dictionary != NULL:
        out.dictionary = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if out.dictionary == NULL:
            raise MemoryError
        _share_array(source.dictionary, out.dictionary, owner)
    return 0


cdef void _release_schema(ArrowSchema *schema) noexcept with gil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release != NULL:
            schema.children[i].release(schema.children[i])
        free(schema.children[i])
    free(schema.children)
    if schema.dictionary != NULL and schema.dictionary.release != NULL:
        schema.dictionary.release(schema.dictionary)
    free(schema.dictionary)
    schema.release = NULL
    Py_DECREF(<object>schema.private_data)


cdef void _release_array(ArrowArray *array) noexcept with gil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
        free(array.children[i])
    free(array.children)
    if array.dictionary != NULL and array.dictionary.release != NULL:
        array.dictionary.release(array.dictionary)
    free(array.dictionary)
    array.release = NULL
    Py_DECREF(<object>array.private_data)


cdef void _drop_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void _drop_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)
