"""Messages of the library go to logging.getLogger("triage")."""

from __future__ import annotations

import atexit
import ctypes
import logging

import torch

from . import _library  # noqa: F401  registers the operators

logger = logging.getLogger("triage")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def _record(level: int, text: bytes, fields: bytes) -> None:
    number = _LEVELS[level] if level < len(_LEVELS) else logging.ERROR
    if not logger.isEnabledFor(number):
        return
    pairs = (pair.split("\x1f", 1) for pair in fields.decode(errors="replace").split("\x1e") if pair)
    logger.log(number, "%s", text.decode(errors="replace"), extra={"triage": dict(pairs)})


_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)(_record)  # lives as long as the process
torch.ops.triage._set_log(ctypes.cast(_callback, ctypes.c_void_p).value)
# A thread of the library that reported while the interpreter ends would wait for it for ever.
atexit.register(torch.ops.triage._set_log, 0)
