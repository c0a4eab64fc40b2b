"""Operations on flags and samples: the names, argument order and results of `err` in Lua, with options as keyword arguments.

`f` is a flags tensor, `z` data with the samples in dim 0, a mask is a bool tensor `(N,)`; a location is a path, an id or None.
All may be used inside torch.compile and torch.export, except those whose results have other numbers of rows (take_ok, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from ._config import ErrorConfig, checked_flags, get_config, location_id
from ._errors import InputError

Location: TypeAlias = "str | int | None"
Fn: TypeAlias = Callable[[Tensor], Tensor]
Step: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]

OK = 0
NAN = 1
INF = 2
OVERFLOW = 3
OUT_OF_BOUNDS = OOB = 5
NEGATIVE_IDX = 6
EMPTY_INPUT = 7
ZERO_OUTPUT = 9
CONSTANT_OUTPUT = 10
SATURATED = 11
FALLBACK_VALUE = 13
VALUE_CLAMPED = 14
UNKNOWN = 15

WARN = 1
ERROR = 2
CRITICAL = 3

_ops = torch.ops.triage
_SEVERITIES = {OK: OK, NAN: CRITICAL, INF: CRITICAL, OVERFLOW: ERROR, OUT_OF_BOUNDS: ERROR, NEGATIVE_IDX: ERROR, EMPTY_INPUT: ERROR}
ANY_CODE = 0xFFFF


def _code(operation: str, code: int) -> int:
    if not isinstance(code, int) or not 0 <= code <= 15:
        raise InputError(f"{operation}: a code is a number of 0 to 15, such as err.NAN; got {code!r}.")
    return code


def _severity(operation: str, severity: int | None, default: int) -> int:
    if severity is None:
        return default
    if not isinstance(severity, int) or not 0 <= severity <= 3:
        raise InputError(f"{operation}: a severity is err.OK, WARN, ERROR or CRITICAL (0 to 3); got {severity!r}.")
    return severity


def default_severity(code: int) -> int:
    return _SEVERITIES.get(_code("err.default_severity", code), WARN)


# --- create ---


def new(x: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """Empty flags for the samples of `x`, on its device."""
    c = config or get_config()
    return _ops.new(x, c.num_slots, c.flag_dtype)


def new_t(n: int, *, device: torch.device | str | None = None, config: ErrorConfig | None = None) -> Tensor:
    """Empty flags for `n` samples."""
    c = config or get_config()
    return torch.zeros(n, c.num_words, dtype=c.flag_dtype, device=device)


def from_code(
    code: int,
    location: Location,
    n: int,
    *,
    severity: int | None = None,
    device: torch.device | str | None = None,
    config: ErrorConfig | None = None,
) -> Tensor:
    """Flags of `n` samples, each with this entry."""
    return push_scalar(new_t(n, device=device, config=config), code, location, severity=severity, config=config)


# --- record ---


def push(
    f: Tensor,
    code: int | Tensor,
    location: Location = None,
    *,
    where: Tensor | None = None,
    severity: int | None = None,
    config: ErrorConfig | None = None,
) -> Tensor:
    """`f` with one more entry, in the samples of `where` (default: all). A tensor `code` has one code a sample, 0 for none."""
    c = config or get_config()
    where_to = location_id("err.push", location)
    if isinstance(code, Tensor):
        if where is not None:
            code = torch.where(where, code, torch.zeros_like(code))
        return _ops.push(f, code, where_to, _severity("err.push", severity, c.default_severity), c.num_slots, c.policy)
    how_bad = _severity("err.push", severity, default_severity(_code("err.push", code)))
    if where is None:
        return _ops.push.scalar(f, code, where_to, how_bad, c.num_slots, c.policy)
    return _ops.push.where(f, code, where_to, how_bad, where, c.num_slots, c.policy)


def push_scalar(
    f: Tensor, code: int, location: Location = None, *, severity: int | None = None, config: ErrorConfig | None = None
) -> Tensor:
    """`f` with this entry in all samples."""
    return push(f, _code("err.push_scalar", code), location, severity=severity, config=config)


def ensure_mask(
    f: Tensor, mask: Tensor, code: int, location: Location = None, *, severity: int | None = None, config: ErrorConfig | None = None
) -> Tensor:
    """`f`, with an entry where `mask` is False."""
    return push(f, _code("err.ensure_mask", code), location, where=~mask, severity=severity, config=config)


def guard(
    f: Tensor,
    z: Tensor,
    pred: Fn,
    code: int,
    location: Location = None,
    *,
    severity: int | None = None,
    config: ErrorConfig | None = None,
) -> Tensor:
    """`f`, with an entry where `pred(z)`, `(N,)`, is False."""
    return ensure_mask(f, pred(z).to(torch.bool), code, location, severity=severity, config=config)


def merge(f: Tensor, *others: Tensor, config: ErrorConfig | None = None) -> Tensor:
    """The entries of all arguments; with one argument, a copy."""
    c = config or get_config()
    if not others:
        return checked_flags("err.merge", f, config).clone()
    for other in others:
        f = _ops.merge(f, other, c.num_slots, c.policy)
    return f


def clear(f: Tensor, code: int, *, config: ErrorConfig | None = None) -> Tensor:
    """`f` without entries of this code. `config`, here and in questions, is the one of `f`."""
    return _ops.clear(checked_flags("err.clear", f, config), _code("err.clear", code))


# --- ask ---


def is_ok(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: no entry."""
    return _ops.is_ok(checked_flags("err.is_ok", f, config))


def is_err(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: any entry, of any severity."""
    return _ops.is_err(checked_flags("err.is_err", f, config))


def has_code(f: Tensor, code: int, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: an entry of this code."""
    return _ops.has_code(checked_flags("err.has_code", f, config), _code("err.has_code", code))


def has_nan(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    return has_code(f, NAN, config=config)


def has_inf(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    return has_code(f, INF, config=config)


def has_fallback(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    return has_code(f, FALLBACK_VALUE, config=config)


def has_critical(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    return _ops.has_critical(checked_flags("err.has_critical", f, config))


def has_domain(f: Tensor, domain: int, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: an entry whose code divided by 4 is `domain`."""
    return _ops.has_domain(checked_flags("err.has_domain", f, config), domain)


def all_ok(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `()`, for the batch."""
    return _ops.all_ok(checked_flags("err.all_ok", f, config))


def any_err(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `()`, for the batch."""
    return _ops.any_err(checked_flags("err.any_err", f, config))


has_any = any_err


def count_errors(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """int32 `(N,)`."""
    return _ops.count_errors(checked_flags("err.count_errors", f, config))


def max_severity(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """int64 `(N,)`."""
    return _ops.max_severity(checked_flags("err.max_severity", f, config))


def get_first_code(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    """int32 `(N,)`, of slot 0; so are the next two."""
    return _ops.get_first_code(checked_flags("err.get_first_code", f, config))


def get_first_location(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    return _ops.get_first_location(checked_flags("err.get_first_location", f, config))


def get_first_severity(f: Tensor, *, config: ErrorConfig | None = None) -> Tensor:
    return _ops.get_first_severity(checked_flags("err.get_first_severity", f, config))


def get_slot(f: Tensor, i: int, *, config: ErrorConfig | None = None) -> Tensor:
    """int64 `(N,)`: the 16 bits of slot `i`, counted from 0."""
    return _ops.get_slot(checked_flags("err.get_slot", f, config), i)


# --- select rows: results have other numbers of rows ---


def take_ok(f: Tensor, z: Tensor) -> Tensor:
    """The rows of `z` without an entry."""
    return _rows("err.take_ok", f, z, is_ok(f))


def take_err(f: Tensor, z: Tensor) -> Tensor:
    """The rows of `z` with an entry."""
    return _rows("err.take_err", f, z, is_err(f))


Ok = take_ok
Err = take_err


def get_ok(f: Tensor) -> Tensor:
    return take_ok(f, f)


def get_err(f: Tensor) -> Tensor:
    return take_err(f, f)


def partition(f: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """The rows without an entry, and those with one."""
    return take_ok(f, z), take_err(f, z)


def partition_many(f: Tensor, *zs: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    return [take_ok(f, z) for z in zs], [take_err(f, z) for z in zs]


def _rows(operation: str, f: Tensor, z: Tensor, mask: Tensor) -> Tensor:
    if z.dim() == 0 or z.shape[0] != f.shape[0]:
        raise InputError(f"{operation}: `z` {tuple(z.shape)} does not have the {f.shape[0]} samples of `f` in dim 0.")
    return z[mask]


# --- repair ---


def _number_for(z: Tensor, number):
    """Bool data has two numbers, with which it stays bool."""
    return bool(number) if z.dtype == torch.bool and number in (0, 1) else number


def take_ok_p(f: Tensor, z: Tensor, fill: float = 0) -> Tensor:
    """`z`, with `fill` in the samples that have an entry."""
    return _ops.take_ok_p(checked_flags("err.take_ok_p", f), z, _number_for(z, fill))


def take_err_p(f: Tensor, z: Tensor, fill: float = 0) -> Tensor:
    """`z`, with `fill` in the samples without an entry."""
    return _ops.take_err_p(checked_flags("err.take_err_p", f), z, _number_for(z, fill))


def recover_with_fallback(
    f: Tensor,
    z: Tensor,
    fallback: float | Tensor,
    location: Location = None,
    *,
    severity: int = WARN,
    config: ErrorConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """`z, f`: samples with an entry become `fallback`, and get a FALLBACK_VALUE."""
    c = config or get_config()
    operation = _ops.fix if isinstance(fallback, Tensor) else _ops.fix.scalar
    where_to = location_id("err.recover_with_fallback", location)
    repaired, recorded = operation(z, f, fallback, where_to, ANY_CODE, WARN, c.num_slots, c.policy)
    if severity != WARN:
        recorded = push(f, FALLBACK_VALUE, where_to, where=is_err(f), severity=severity, config=config)
    return repaired, recorded


def replace(z: Tensor, value: float, targets: Sequence[float | str]) -> Tensor:
    """`z`, with each target element replaced by `value`; targets are err.NAN, err.INF, "nan", "inf", "posinf", "neginf", numbers."""
    nan = posinf = neginf = False
    values: list[float] = []
    integers: list[int] = []
    for target in targets:
        if target in ("nan", "inf", "posinf", "neginf"):
            nan, posinf, neginf = nan or target == "nan", posinf or target in ("inf", "posinf"), neginf or target in ("inf", "neginf")
        elif isinstance(target, int) and not isinstance(target, bool):
            if target == NAN:
                nan = True
            elif target == INF:
                posinf = neginf = True
            else:
                integers.append(target)
        elif isinstance(target, float):
            nan = nan or target != target
            if target == target:
                values.append(target)
        else:
            raise InputError(
                f"err.replace: there is no target {target!r}; targets are err.NAN, err.INF, 'nan', 'inf', 'posinf', 'neginf', or numbers."
            )
    if not (nan or posinf or neginf or values or integers):
        raise InputError("err.replace: the list of targets is empty, so nothing would be replaced; name some, as in [err.NAN].")
    return _ops.replace(z, _number_for(z, value), nan, posinf, neginf, values, integers)


def map_ok(f: Tensor, z: Tensor, fn: Fn) -> Tensor:
    """`z`, with `fn(z)` in the samples without an entry. `fn` sees all rows; those not taken pass no gradient."""
    return _mapped("err.map_ok", z, is_ok(f), fn)


def map_err(f: Tensor, z: Tensor, fn: Fn) -> Tensor:
    """`z`, with `fn(z)` in the samples with an entry."""
    return _mapped("err.map_err", z, is_err(f), fn)


def map_err_flags(f: Tensor, fn: Fn) -> Tensor:
    """`f`, with `fn(f)` in the samples with an entry."""
    return _ops.select(is_err(f), fn(f), f)


def and_then(f: Tensor, z: Tensor, fn: Step, *, config: ErrorConfig | None = None) -> tuple[Tensor, Tensor]:
    """`z, f` of a step `fn(z)` that returns both; samples with an entry keep value and record."""
    value, merged, fine = _chained("err.and_then", f, z, fn, config)
    return value, _ops.select(fine, merged, f)


def bind(f: Tensor, z: Tensor, fn: Step, *, config: ErrorConfig | None = None) -> tuple[Tensor, Tensor]:
    """The same, but `fn` still adds entries to the records of samples that have one."""
    value, merged, _ = _chained("err.bind", f, z, fn, config)
    return value, merged


def _fitting(operation: str, z: Tensor, made) -> Tensor:
    if not isinstance(made, Tensor):
        raise InputError(f"{operation}: `fn` must return a tensor like its argument, not {type(made).__name__}.")
    if made.dtype != z.dtype:
        raise InputError(f"{operation}: `fn` returned {made.dtype} for data of {z.dtype}; convert its result with .to(z.dtype).")
    return made if made.shape == z.shape else made.expand_as(z)


def _mapped(operation: str, z: Tensor, taken: Tensor, fn: Fn) -> Tensor:
    return _ops.select(taken, _fitting(operation, z, fn(_ops.guard_grad(z, taken))), z)


def _chained(operation: str, f: Tensor, z: Tensor, fn: Step, config: ErrorConfig | None) -> tuple[Tensor, Tensor, Tensor]:
    fine = is_ok(f)
    made, recorded = fn(_ops.guard_grad(z, fine))
    return _ops.select(fine, _fitting(operation, z, made), z), merge(f, recorded, config=config), fine
