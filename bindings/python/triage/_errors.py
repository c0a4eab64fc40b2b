"""The exceptions of triage. Those of the runtime come from C++ as one text (values.cpp); `raised` takes it apart."""

from __future__ import annotations

_MARK = "\x1ftriage\x1f"


class Error(RuntimeError):
    """Base of all. The message is complete: what was done, what was expected, what came, what to do.

    file, line: the line of the script that caused it; "" and 0 if no script was involved.
    traceback: the script's own traceback; "" if no script was running.
    """

    def __init__(self, message: str, file: str = "", line: int = 0, traceback: str = "") -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.traceback = traceback

    def __reduce__(self):  # exceptions of DataLoader workers reach the main process pickled
        return type(self), (str(self), self.file, self.line, self.traceback)


class LoadError(Error):
    """A script could not be loaded: syntax, or what it returns."""


class PolicyError(Error):
    """A policy's own code failed while it ran."""


class InputError(Error, ValueError):
    """The inputs or options of a call are wrong."""


class ValidationError(InputError):
    """An input does not fit its declared type."""


class GraphBreakError(Error):
    """A script needs more than one graph, and one was required."""


class LimitError(Error):
    """A budget or deadline ran out."""


class FileError(Error):
    """A file could not be read or written."""


class ConfigError(Error, ValueError):
    """A value of a configuration is out of range."""


_CLASSES = {
    each.__name__: each
    for each in (Error, LoadError, PolicyError, InputError, ValidationError, GraphBreakError, LimitError, FileError, ConfigError)
}


def raised(error: RuntimeError) -> RuntimeError:
    """The exception to raise for what C++ threw: of triage's own classes where the error is triage's."""
    text = str(error)
    if not text.startswith(_MARK):
        return error
    kind, file, line, traceback, message = text[len(_MARK) :].split("\x1f", 4)
    return _CLASSES[kind](message, file, int(line), traceback)


def called(function, *arguments):
    """Calls a function of the library; its errors are of triage's classes."""
    try:
        return function(*arguments)
    except RuntimeError as error:
        raise raised(error) from None
