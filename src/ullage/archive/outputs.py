"""Where an archive goes: files that appear under their names only when whole, or streams."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, NoReturn, Self

__all__ = ["Stream", "WholeFile", "publish"]


class Stream:
    """A stream that somebody else reads, such as standard output: what is written is gone.

    Raises OSError with the name given.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.path = name
        self._file = file

    def write(self, data: bytes) -> None:
        """Hand over."""
        try:
            self._file.write(data)
        except OSError as error:
            _fail(error, self.path)

    def finish(self) -> None:
        """Hand over what is buffered."""
        try:
            self._file.flush()
        except OSError as error:
            _fail(error, self.path)

    def publish(self) -> None:
        """Do nothing: a stream is read as it is written."""

    def close(self) -> None:
        """Close the file.  What is still buffered after a failure is lost, as has been told by then."""
        with suppress(OSError):
            self._file.close()


class WholeFile:
    """A file written aside, in the folder of its final name.

    A context manager that leaves nothing behind unless the file was published.
    An empty file that was asked for ``unless_empty`` is not published, and one
    of that name is removed.

    Raises OSError naming the path as it was given.
    """

    def __init__(self, path: str, *, unless_empty: bool = False) -> None:
        self.path = path
        self._unless_empty = unless_empty
        self._empty = True
        self._target = os.path.realpath(path)  # a link stays a link
        self._folder = os.path.dirname(self._target)
        self._aside = os.path.join(self._folder, f".ullage-{secrets.token_hex(8)}.part")
        if os.path.isdir(self._target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        try:
            self._file: IO[bytes] = open(self._aside, "xb", buffering=1 << 18)  # noqa: SIM115 - closed in finish or exit
        except OSError as error:
            _fail(error, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what is still buffered may not fit on the disk
            self._file.close()
        with suppress(OSError):  # published, or not ours to remove any more
            os.unlink(self._aside)

    def write(self, data: bytes) -> None:
        """Write aside."""
        try:
            self._file.write(data)
        except OSError as error:
            _fail(error, self.path)

    def finish(self) -> None:
        """Bring all to the disk, still aside."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._empty = self._file.tell() == 0
            self._file.close()
        except OSError as error:
            _fail(error, self.path)

    def publish(self) -> None:
        """Give the finished file its name."""
        try:
            if self._unless_empty and self._empty:
                with suppress(FileNotFoundError):
                    os.unlink(self._target)
            else:
                os.replace(self._aside, self._target)
        except OSError as error:
            _fail(error, self.path)
        with suppress(OSError):  # not every file system can, and the file is there
            _sync_folder(self._folder)


def _fail(error: OSError, path: str) -> NoReturn:
    """Raise the error with the path as it was given, not that of the file aside."""
    raise type(error)(error.errno, error.strerror, path) from None


def _sync_folder(folder: str) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish(outputs: Sequence[Stream | WholeFile]) -> None:
    """Finish all, then publish all, in order: the last one shows that the others are there.

    Raises OSError; before the first is published nothing has appeared.
    """
    for output in outputs:
        output.finish()
    for output in outputs:
        output.publish()
