"""The short forms that Lua has as globals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import _arguments as arguments
from . import err
from ._arguments import Array
from ._config import ErrorConfig, checked_config, checked_flags, location_id, operated, operated_pair
from ._errors import InputError
from .err import Location

_ops = torch.ops.triage


def flag_nan(z: Array, location: Location = None, f: Array | None = None, *, config: ErrorConfig | None = None) -> Tensor:
    """`f` (new flags without it), with an entry for each sample that has a NaN."""
    return _detected("flag_nan", z, location, f, config)


def flag_inf(z: Array, location: Location = None, f: Array | None = None, *, config: ErrorConfig | None = None) -> Tensor:
    return _detected("flag_inf", z, location, f, config)


def flag_nan_and_inf(z: Array, location: Location = None, f: Array | None = None, *, config: ErrorConfig | None = None) -> Tensor:
    return _detected("flag_nan_and_inf", z, location, f, config)


def _detected(name: str, z: Array, location: Location, f: Array | None, config: ErrorConfig | None) -> Tensor:
    c = checked_config(name, config)
    z = arguments.tensor(name, "z", z)
    f = None if f is None else arguments.tensor(name, "f", f)
    return operated(getattr(_ops, name), z, f, location_id(name, location), c.num_slots, c.policy, c.flag_dtype)


def flag_oob_indices(
    ids: Array, num_embeddings: int, location: Location = None, f: Array | None = None, *, config: ErrorConfig | None = None
) -> Tensor:
    """`f`: OUT_OF_BOUNDS for a sample with an id below 0 or not below `num_embeddings`."""
    c = checked_config("flag_oob_indices", config)
    ids = arguments.tensor("flag_oob_indices", "ids", ids)
    f = None if f is None else arguments.tensor("flag_oob_indices", "f", f)
    arguments.size("flag_oob_indices", "num_embeddings", num_embeddings)
    where_to = location_id("flag_oob_indices", location)
    return operated(_ops.flag_oob_indices, ids, num_embeddings, f, where_to, c.num_slots, c.policy, c.flag_dtype)


push = err.push


def find(code: int, f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: an entry of this code."""
    return err.has_code(checked_flags("find", f, config), err._code("find", code), config=config)


def has_err(f: Array, *, config: ErrorConfig | None = None) -> bool:
    """Whether the batch has any entry. Reads a value, so a compiled program breaks here; err.any_err does not."""
    return bool(err.any_err(checked_flags("has_err", f, config), config=config))


def fix(
    z: Array,
    f: Array,
    location: Location = None,
    *,
    fallback: float | Array | Callable[[], float | Array] | None = None,
    min_severity: int = err.WARN,
    codes: Sequence[int] | None = None,
    config: ErrorConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """`z, f`: samples with an entry get the fallback (zero) in all elements, and a FALLBACK_VALUE."""
    c = checked_config("fix", config)
    z = arguments.tensor("fix", "z", z)
    f = checked_flags("fix", f)
    if callable(fallback):
        fallback = fallback()
    if fallback is None:
        fallback = 0.0 if z.is_floating_point() else False  # False is the zero of every dtype: integers stay integers
    fallback = err._value("fix", "fallback", fallback)
    if isinstance(fallback, float) and not (z.is_floating_point() or z.is_complex() or torch.compiler.is_compiling()):
        warnings.warn(
            f"fix: the fallback is {fallback}, so all samples of {z.dtype} become floats, and large integers lose their last digits; "
            f"give an integer to keep them",
            stacklevel=2,
        )
    chosen = err.ANY_CODE if codes is None else _codes(codes)
    severity = err._severity("fix", min_severity, err.WARN)
    operation = _ops.fix if isinstance(fallback, Tensor) else _ops.fix.scalar
    return operated_pair(operation, z, f, fallback, location_id("fix", location), chosen, severity, c.num_slots, c.policy)


def _codes(codes: Sequence[int]) -> int:
    """As a mask."""
    if not isinstance(codes, (list, tuple, set, frozenset)):
        raise arguments.wrong("fix", "codes", "a list of codes, such as [err.NAN]", codes)
    if not codes:
        raise InputError("fix: `codes` is empty, so nothing would be repaired; name some, as in [err.NAN].")
    chosen = 0
    for code in codes:
        chosen |= 1 << err._code("fix", code)
    return chosen
