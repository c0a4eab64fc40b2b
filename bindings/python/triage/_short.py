"""The short forms that Lua has as globals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from . import err
from ._config import ErrorConfig, checked_flags, get_config, location_id
from ._errors import InputError
from .err import Location

_ops = torch.ops.triage


def flag_nan(z: Tensor, location: Location = None, f: Tensor | None = None, *, config: ErrorConfig | None = None) -> Tensor:
    """`f` (new flags without it), with an entry for each sample that has a NaN."""
    return _detected("flag_nan", z, location, f, config)


def flag_inf(z: Tensor, location: Location = None, f: Tensor | None = None, *, config: ErrorConfig | None = None) -> Tensor:
    return _detected("flag_inf", z, location, f, config)


def flag_nan_and_inf(z: Tensor, location: Location = None, f: Tensor | None = None, *, config: ErrorConfig | None = None) -> Tensor:
    return _detected("flag_nan_and_inf", z, location, f, config)


def _detected(name: str, z: Tensor, location: Location, f: Tensor | None, config: ErrorConfig | None) -> Tensor:
    c = config or get_config()
    return getattr(_ops, name)(z, f, location_id(name, location), c.num_slots, c.policy, c.flag_dtype)


def flag_oob_indices(
    ids: Tensor, num_embeddings: int, location: Location = None, f: Tensor | None = None, *, config: ErrorConfig | None = None
) -> Tensor:
    """`f`: OUT_OF_BOUNDS for a sample with an id below 0 or not below `num_embeddings`."""
    c = config or get_config()
    where_to = location_id("flag_oob_indices", location)
    return _ops.flag_oob_indices(ids, num_embeddings, f, where_to, c.num_slots, c.policy, c.flag_dtype)


push = err.push


def find(code: int, f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: an entry of this code."""
    return err.has_code(f, code, config=config)


def has_err(f: Tensor, *, config: ErrorConfig | None = None) -> bool:
    """Whether the batch has any entry. Reads a value, so a compiled program breaks here; err.any_err does not."""
    return bool(err.any_err(f, config=config))


def fix(
    z: Tensor,
    f: Tensor,
    location: Location = None,
    *,
    fallback: float | Tensor | Callable[[], float | Tensor] | None = None,
    min_severity: int = err.WARN,
    codes: Sequence[int] | None = None,
    config: ErrorConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """`z, f`: samples with an entry get the fallback (zero) in all elements, and a FALLBACK_VALUE."""
    c = config or get_config()
    checked_flags("fix", f)
    if callable(fallback):
        fallback = fallback()
    if fallback is None:
        fallback = 0.0 if z.is_floating_point() else False  # False is the zero of every dtype: integers stay integers
    chosen = err.ANY_CODE
    if codes is not None:
        if not codes:
            raise InputError("fix: `codes` is empty, so nothing would be repaired; name some, as in [err.NAN].")
        chosen = 0
        for code in codes:
            chosen |= 1 << err._code("fix", code)
    operation = _ops.fix if isinstance(fallback, Tensor) else _ops.fix.scalar
    return operation(z, f, fallback, location_id("fix", location), chosen, min_severity, c.num_slots, c.policy)
