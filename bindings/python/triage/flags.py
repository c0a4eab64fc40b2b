"""Reads flags as Python values: the names of `flags` in Lua. Each reads tensors, so none may be used inside torch.compile.

`codes` are names of a policy's own for the codes 4, 8 and 12: `codes=policy.signature["codes"]` (of that policy's flags).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from . import _arguments as arguments
from ._arguments import Array
from ._config import ErrorConfig, checked_config, checked_flags
from ._errors import InputError, called
from ._html import of_flags

_ops = torch.ops.triage


@dataclass(frozen=True)
class UnpackedError:
    """One entry of a record."""

    severity: int
    code: int
    location: int
    severity_name: str
    code_name: str
    location_name: str


@dataclass(frozen=True)
class TableRow(UnpackedError):
    """An entry with its sample and slot."""

    sample: int
    slot: int


def _layout(
    operation: str, f: Array, config: ErrorConfig | None, codes: Mapping[str, int] | None
) -> tuple[Tensor, int, bool, dict[str, int]]:
    """`f`, how many slots its records have, whether the last of them counts dropped errors, and names of codes."""
    c = checked_config(operation, config)
    return checked_flags(operation, f), c.num_slots, c.track_overflow, _names(operation, codes)


def _names(operation: str, codes: Mapping[str, int] | None) -> dict[str, int]:
    given = {} if codes is None else arguments.by_name(operation, "codes", codes, "codes")
    return {name: arguments.whole(operation, f"codes[{name!r}]", code) for name, code in given.items()}


def _sample(operation: str, f: Tensor, sample: int) -> int:
    arguments.whole(operation, "sample", sample)
    if not -f.shape[0] <= sample < f.shape[0]:
        raise InputError(f"{operation}: there is no sample {sample}; the flags have {f.shape[0]}, counted from 0.")
    return sample % f.shape[0]


def to_table(f: Array, *, config: ErrorConfig | None = None, codes: Mapping[str, int] | None = None) -> list[TableRow]:
    """Every entry of the batch: samples in order, slot 0 first."""
    return [TableRow(**row) for row in called(_ops._flags_table, *_layout("flags.to_table", f, config, codes))]


def unpack_all(
    f: Array, *, config: ErrorConfig | None = None, codes: Mapping[str, int] | None = None
) -> list[list[UnpackedError]]:
    """The entries of every sample."""
    samples: list[list[UnpackedError]] = [[] for _ in range(checked_flags("flags.unpack_all", f).shape[0])]
    for row in to_table(f, config=config, codes=codes):
        samples[row.sample].append(
            UnpackedError(row.severity, row.code, row.location, row.severity_name, row.code_name, row.location_name)
        )
    return samples


def unpack(
    f: Array, sample: int = 0, *, config: ErrorConfig | None = None, codes: Mapping[str, int] | None = None
) -> list[UnpackedError]:
    """The entries of one sample, slot 0 first; a negative number counts from the end."""
    f = checked_flags("flags.unpack", f)
    i = _sample("flags.unpack", f, sample)
    return unpack_all(f[i : i + 1], config=config, codes=codes)[0]


def summary(
    f: Array, *, config: ErrorConfig | None = None, codes: Mapping[str, int] | None = None
) -> dict[str, dict[str, int]]:
    """`{location: {code: count}}`"""
    found: dict[str, dict[str, int]] = called(_ops._flags_summary, *_layout("flags.summary", f, config, codes))
    return found


def repr(  # noqa: A001  the name in Lua and C++
    f: Array, *, config: ErrorConfig | None = None, codes: Mapping[str, int] | None = None
) -> str:
    """One line: `ErrorFlags(32 samples, 5 errors: 3xNAN, 2xINF @ encoder, output)`."""
    return str(called(_ops._flags_repr, *_layout("flags.repr", f, config, codes)))


def pretty_print(
    f: Array, sample: int = 0, *, config: ErrorConfig | None = None, codes: Mapping[str, int] | None = None
) -> str:
    """One sample as text."""
    flags, slots, overflow, names = _layout("flags.pretty_print", f, config, codes)
    return str(called(_ops._flags_pretty, flags, _sample("flags.pretty_print", flags, sample), slots, overflow, names))


class View:
    """Flags as a notebook shows them: `triage.flags.html(f)` at the end of a cell. `html` has the text, for a report."""

    def __init__(self, html: str, line: str) -> None:
        self.html = html
        self._line = line

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self._line


def html(f: Array, *, config: ErrorConfig | None = None, codes: Mapping[str, int] | None = None, most: int = 50) -> View:
    """A table of the samples that have an entry, the first `most` of them, for notebooks and reports."""
    arguments.whole("flags.html", "most", most, 0)
    f = checked_flags("flags.html", f, config)
    line = repr(f, config=config, codes=codes)
    return View(of_flags(line, f.shape[0], to_table(f, config=config, codes=codes), most), line)


def save(
    f: Array,
    path: str | os.PathLike[str],
    *,
    config: ErrorConfig | None = None,
    codes: Mapping[str, int] | None = None,
) -> None:
    """Writes flags as `torch.save` does, and into a .pt file the names of locations and codes beside them."""
    flags, *layout = _layout("flags.save", f, config, codes)
    called(_ops._flags_save, arguments.path("flags.save", "path", path), flags, *layout)


def load(path: str | os.PathLike[str], *, config: ErrorConfig | None = None) -> tuple[Tensor, dict[str, int]]:
    """The flags of a file, whichever process wrote it, with location ids of this one; and the names of codes that it has."""
    c = checked_config("flags.load", config)
    f, codes = called(_ops._flags_load, arguments.path("flags.load", "path", path), c.num_slots, c.track_overflow, c.flag_dtype)
    return f, dict(codes)
