"""The exceptions of triage. Those of the runtime come from C++ as one text (values.cpp); `raised` takes it apart."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

from ._texts import advice_in, in_python, refused, types_in_python

_MARK = "\x1ftriage\x1f"
_Result = TypeVar("_Result")

# The files that this process loaded or tried to: messages name a long path by its end, "...policies/repair.lua", and `file` is whole.
known_files: set[str] = set()


def _whole(file: str) -> str:
    if not file.startswith("..."):
        return file
    ends = [each for each in known_files if each.endswith(file[3:])]
    return ends[0] if len(ends) == 1 else file


class Error(RuntimeError):
    """Base of all. The message is complete: what was done, what was expected, what came, what to do.

    file, line: the line of the script that caused it; "" and 0 if no script was involved.
    traceback: the script's own traceback; "" if no script was running.
    hint: what the message says to do; "" if it says nothing of it.

    The arguments are message, file, line, traceback, of which all but the first may be left out. There is no `__init__`: torch.compile,
    which meets exceptions when it traces, shows the message only of a class without one.
    """

    def __str__(self) -> str:  # OSError has another one, for what has a file name
        return str(self.args[0]) if self.args else ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _own(self) -> tuple[str, str, int]:
        """Message, file and line, without the text that PyTorch puts around the message of a worker."""
        message = str(self)
        if len(self.args) == 1 and message.startswith("Caught "):
            return _from_a_worker(message)
        return message, *(self.args[1:3] if len(self.args) > 2 else ("", 0))

    @property
    def file(self) -> str:
        return _whole(self._own()[1])

    @property
    def line(self) -> int:
        return self._own()[2]

    @property
    def traceback(self) -> str:
        return str(self.args[3]) if len(self.args) > 3 else ""

    @property
    def hint(self) -> str:
        return advice_in(self._own()[0])


def _from_a_worker(text: str) -> tuple[str, str, int]:
    """(message, file, line) of an exception of a DataLoader's worker: PyTorch makes it anew of its class and a text, which has the
    traceback of the worker, and at its end the message."""
    message = re.split(r"^(?:triage\.)\w+: ", text, flags=re.M)[-1].rstrip("\n")
    place = re.search(r"(?:^|\s)([^\s:'\"][^:\n'\"]*):(\d+)(?=:)", message)
    return (message, place[1], int(place[2])) if place else (message, "", 0)


class LoadError(Error):
    """A script could not be loaded: syntax, or what it returns."""


class PolicyError(Error):
    """A policy's own code failed while it ran."""


class InputError(Error, ValueError):
    """The inputs or options of a call are wrong."""


class InputTypeError(InputError, TypeError):
    """An argument is of a type that is not taken there."""


class ValidationError(InputError):
    """An input does not fit its declared type."""


class GraphBreakError(Error):
    """A script needs more than one graph, and one was required."""


class LimitError(Error):
    """A budget ran out: of instructions, or of names, threads and printed text. Of time and memory, see its two classes."""


class TimeLimitError(LimitError, TimeoutError):
    """The deadline of a call, or the seconds of a limit, ended."""


class MemoryLimitError(LimitError, MemoryError):
    """A budget of bytes ran out: the memory of the script, or that of tensors."""


class FileError(Error, OSError):
    """A file could not be read or written. `filename` and `errno` as in any OSError, None where they are not known."""

    @property
    def filename(self) -> str | None:
        quoted = re.search(r"[\"']([^\"']+)[\"']", self._own()[0])
        return quoted[1] if quoted else None

    @property
    def errno(self) -> int | None:  # type: ignore[override]
        return None if self.filename is None else _number(self.filename, self._own()[0])

    @property
    def strerror(self) -> str:  # type: ignore[override]
        return self._own()[0]


def _number(path: str, message: str) -> int | None:
    """What the system would say of the file."""
    if not os.path.exists(path):
        return errno.ENOENT
    if "directory" in message and os.path.isdir(path):
        return errno.EISDIR
    return errno.EACCES if not os.access(path, os.R_OK) else None


class ConfigError(Error, ValueError):
    """A value of a configuration is out of range."""


_CLASSES = {
    each.__name__: each
    for each in (Error, LoadError, PolicyError, InputError, ValidationError, GraphBreakError, LimitError, FileError, ConfigError)
}
_TIME = re.compile(r"budget of time|\bmay take [\d.e+-]+ s\b")
_MEMORY = re.compile(r"budget of (?:interpreter|tensor) memory|\bbytes?\b|\b[KMG]iB\b")


def _class_of(kind: str, message: str) -> type[Error]:
    if kind == "LimitError":
        return TimeLimitError if _TIME.search(message) else MemoryLimitError if _MEMORY.search(message) else LimitError
    return _CLASSES[kind]


def raised(error: RuntimeError) -> RuntimeError:
    """The exception to raise for what C++ threw: of triage's own classes where the error is triage's."""
    text = str(error)
    if not text.startswith(_MARK):
        wrong = refused(text)
        return error if wrong is None else InputTypeError(wrong)
    kind, file, line, traceback, message = text[len(_MARK) :].split("\x1f", 4)
    message = in_python(message)
    if kind in ("InputError", "ValidationError"):
        message = types_in_python(message)
    return _class_of(kind, message)(message, file, int(line), traceback)


def called(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function of the library; its errors are of triage's classes."""
    try:
        return function(*arguments)
    except RuntimeError as error:
        raise raised(error) from None


def raised_by_operator(error: RuntimeError) -> RuntimeError:
    """The same for an operator of flags, whose own errors begin with its name."""
    text = str(error)
    if not text.startswith("triage::"):
        return error
    wrong = refused(text)
    return InputError(in_python(text).replace("`flags`", "`f`")) if wrong is None else InputTypeError(wrong)
