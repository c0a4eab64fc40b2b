"""Operations on flags and samples: the names, argument order and results of `err` in Lua, with options as keyword arguments.

`f` is a flags tensor, `z` data with the samples in dim 0, a mask is a bool tensor `(N,)`; a location is a path, an id or None.
All may be used inside torch.compile and torch.export, except those whose results have other numbers of rows (take_ok, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from . import _arguments as arguments
from ._arguments import Array
from ._config import ErrorConfig, checked_config, checked_flags, location_id, operated, operated_pair
from ._errors import InputError, InputTypeError

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


def _code(operation: str, code: object) -> int:
    if not isinstance(code, int) or not 0 <= code <= 15:
        error = InputError if isinstance(code, int) else InputTypeError
        raise error(f"{operation}: a code is a number of 0 to 15, such as err.NAN; got {arguments.shown(code)}.")
    return code


def _severity(operation: str, severity: int | None, default: int) -> int:
    if severity is None:
        return default
    if not isinstance(severity, int) or not 0 <= severity <= 3:
        error = InputError if isinstance(severity, int) else InputTypeError
        raise error(f"{operation}: a severity is err.OK, WARN, ERROR or CRITICAL (0 to 3); got {arguments.shown(severity)}.")
    return severity


def _value(operation: str, name: str, value: Any) -> Any:
    """A number, or a tensor; of a NumPy array, a tensor with its memory."""
    if isinstance(value, (int, float, complex, Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if arguments.is_array(value):
        return arguments.tensor(operation, name, value)
    number = value.item() if hasattr(value, "item") else value  # of NumPy
    if isinstance(number, (int, float, complex)):
        return number
    raise arguments.wrong(operation, name, "a number or a tensor", value)


def _number(operation: str, name: str, value: Any) -> Any:
    if isinstance(value, Tensor) or arguments.is_array(value):
        raise arguments.wrong(operation, name, "a number", value)
    return _value(operation, name, value)


def default_severity(code: int) -> int:
    return _SEVERITIES.get(_code("err.default_severity", code), WARN)


# --- create ---


def new(x: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """Empty flags for the samples of `x`, on its device."""
    c = checked_config("err.new", config)
    return operated(_ops.new, arguments.tensor("err.new", "x", x), c.num_slots, c.flag_dtype)


def new_t(n: int, *, device: torch.device | str | None = None, config: ErrorConfig | None = None) -> Tensor:
    """Empty flags for `n` samples."""
    c = checked_config("err.new_t", config)
    if not isinstance(n, torch.SymInt):
        arguments.whole("err.new_t", "n", n, 0)
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
    f: Array,
    code: int | Array,
    location: Location = None,
    *,
    where: Array | None = None,
    severity: int | None = None,
    config: ErrorConfig | None = None,
) -> Tensor:
    """`f` with one more entry, in the samples of `where` (default: all). A tensor `code` has one code a sample, 0 for none."""
    c = checked_config("err.push", config)
    f = arguments.tensor("err.push", "f", f)
    where = None if where is None else arguments.tensor("err.push", "where", where)
    where_to = location_id("err.push", location)
    if not isinstance(code, int) and (isinstance(code, Tensor) or arguments.is_array(code)):
        codes = arguments.tensor("err.push", "code", code)
        if where is not None:
            codes = torch.where(where, codes, torch.zeros_like(codes))
        how_bad = _severity("err.push", severity, c.default_severity)
        return operated(_ops.push, f, codes, where_to, how_bad, c.num_slots, c.policy)
    number = _code("err.push", code)
    how_bad = _severity("err.push", severity, default_severity(number))
    if where is None:
        return operated(_ops.push.scalar, f, number, where_to, how_bad, c.num_slots, c.policy)
    return operated(_ops.push.where, f, number, where_to, how_bad, where, c.num_slots, c.policy)


def push_scalar(
    f: Array, code: int, location: Location = None, *, severity: int | None = None, config: ErrorConfig | None = None
) -> Tensor:
    """`f` with this entry in all samples."""
    return push(f, _code("err.push_scalar", code), location, severity=severity, config=config)


def ensure_mask(
    f: Array, mask: Array, code: int, location: Location = None, *, severity: int | None = None, config: ErrorConfig | None = None
) -> Tensor:
    """`f`, with an entry where `mask` is False."""
    mask = arguments.tensor("err.ensure_mask", "mask", mask).to(torch.bool)
    return push(f, _code("err.ensure_mask", code), location, where=~mask, severity=severity, config=config)


def guard(
    f: Array,
    z: Array,
    pred: Fn,
    code: int,
    location: Location = None,
    *,
    severity: int | None = None,
    config: ErrorConfig | None = None,
) -> Tensor:
    """`f`, with an entry where `pred(z)`, `(N,)`, is False."""
    z = arguments.tensor("err.guard", "z", z)
    kept = arguments.function("err.guard", "pred", pred, "`z`")(z)
    if not isinstance(kept, Tensor):
        raise InputTypeError(f"err.guard: `pred` must return a tensor, (N,), True where a sample is fine; got {arguments.shown(kept)}.")
    return ensure_mask(f, kept, code, location, severity=severity, config=config)


def merge(f: Array, *others: Array, config: ErrorConfig | None = None) -> Tensor:
    """The entries of all arguments; with one argument, a copy."""
    c = checked_config("err.merge", config)
    if not others:
        return checked_flags("err.merge", f, config).clone()
    merged = arguments.tensor("err.merge", "f", f)
    for other in others:
        merged = operated(_ops.merge, merged, arguments.tensor("err.merge", "others", other), c.num_slots, c.policy)
    return merged


def clear(f: Array, code: int, *, config: ErrorConfig | None = None) -> Tensor:
    """`f` without entries of this code. `config`, here and in questions, is the one of `f`."""
    return operated(_ops.clear, checked_flags("err.clear", f, config), _code("err.clear", code))


# --- ask ---


def is_ok(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: no entry."""
    return operated(_ops.is_ok, checked_flags("err.is_ok", f, config))


def is_err(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: any entry, of any severity."""
    return operated(_ops.is_err, checked_flags("err.is_err", f, config))


def has_code(f: Array, code: int, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: an entry of this code."""
    return operated(_ops.has_code, checked_flags("err.has_code", f, config), _code("err.has_code", code))


def has_nan(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    return has_code(f, NAN, config=config)


def has_inf(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    return has_code(f, INF, config=config)


def has_fallback(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    return has_code(f, FALLBACK_VALUE, config=config)


def has_critical(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    return operated(_ops.has_critical, checked_flags("err.has_critical", f, config))


def has_domain(f: Array, domain: int, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `(N,)`: an entry whose code divided by 4 is `domain`."""
    f = checked_flags("err.has_domain", f, config)
    return operated(_ops.has_domain, f, arguments.whole("err.has_domain", "domain", domain))


def all_ok(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `()`, for the batch."""
    return operated(_ops.all_ok, checked_flags("err.all_ok", f, config))


def any_err(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """bool `()`, for the batch."""
    return operated(_ops.any_err, checked_flags("err.any_err", f, config))


has_any = any_err


def count_errors(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """int32 `(N,)`."""
    return operated(_ops.count_errors, checked_flags("err.count_errors", f, config))


def max_severity(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """int64 `(N,)`."""
    return operated(_ops.max_severity, checked_flags("err.max_severity", f, config))


def get_first_code(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    """int32 `(N,)`, of slot 0; so are the next two."""
    return operated(_ops.get_first_code, checked_flags("err.get_first_code", f, config))


def get_first_location(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    return operated(_ops.get_first_location, checked_flags("err.get_first_location", f, config))


def get_first_severity(f: Array, *, config: ErrorConfig | None = None) -> Tensor:
    return operated(_ops.get_first_severity, checked_flags("err.get_first_severity", f, config))


def get_slot(f: Array, i: int, *, config: ErrorConfig | None = None) -> Tensor:
    """int64 `(N,)`: the 16 bits of slot `i`, counted from 0."""
    f = checked_flags("err.get_slot", f, config)
    return operated(_ops.get_slot, f, arguments.whole("err.get_slot", "i", i))


# --- select rows: results have other numbers of rows ---


def take_ok(f: Array, z: Array) -> Tensor:
    """The rows of `z` without an entry."""
    return _rows("err.take_ok", f, z, is_ok)


def take_err(f: Array, z: Array) -> Tensor:
    """The rows of `z` with an entry."""
    return _rows("err.take_err", f, z, is_err)


Ok = take_ok
Err = take_err


def get_ok(f: Array) -> Tensor:
    return take_ok(f, f)


def get_err(f: Array) -> Tensor:
    return take_err(f, f)


def partition(f: Array, z: Array) -> tuple[Tensor, Tensor]:
    """The rows without an entry, and those with one."""
    return take_ok(f, z), take_err(f, z)


def partition_many(f: Array, *zs: Array) -> tuple[list[Tensor], list[Tensor]]:
    return [take_ok(f, z) for z in zs], [take_err(f, z) for z in zs]


def _rows(operation: str, f: Array, z: Array, questions: Callable[[Array], Tensor]) -> Tensor:
    f, z = checked_flags(operation, f), arguments.tensor(operation, "z", z)
    if z.dim() == 0 or z.shape[0] != f.shape[0]:
        raise InputError(f"{operation}: `z` {tuple(z.shape)} does not have the {f.shape[0]} samples of `f` in dim 0.")
    return z[questions(f)]


# --- repair ---


def _number_for(operation: str, name: str, z: Tensor, number: Any) -> Any:
    """Bool data has two numbers, with which it stays bool."""
    number = _number(operation, name, number)
    return bool(number) if z.dtype == torch.bool and number in (0, 1) else number


def take_ok_p(f: Array, z: Array, fill: float = 0) -> Tensor:
    """`z`, with `fill` in the samples that have an entry."""
    return _filled("err.take_ok_p", _ops.take_ok_p, f, z, fill)


def take_err_p(f: Array, z: Array, fill: float = 0) -> Tensor:
    """`z`, with `fill` in the samples without an entry."""
    return _filled("err.take_err_p", _ops.take_err_p, f, z, fill)


def _filled(operation: str, operator: Callable[..., Any], f: Array, z: Array, fill: float) -> Tensor:
    z = arguments.tensor(operation, "z", z)
    return operated(operator, checked_flags(operation, f), z, _number_for(operation, "fill", z, fill))


def recover_with_fallback(
    f: Array,
    z: Array,
    fallback: float | Array,
    location: Location = None,
    *,
    severity: int = WARN,
    config: ErrorConfig | None = None,
) -> tuple[Tensor, Tensor]:
    """`z, f`: samples with an entry become `fallback`, and get a FALLBACK_VALUE."""
    name = "err.recover_with_fallback"
    c = checked_config(name, config)
    f, z, fallback = checked_flags(name, f), arguments.tensor(name, "z", z), _value(name, "fallback", fallback)
    operation = _ops.fix if isinstance(fallback, Tensor) else _ops.fix.scalar
    where_to = location_id(name, location)
    repaired, recorded = operated_pair(operation, z, f, fallback, where_to, ANY_CODE, WARN, c.num_slots, c.policy)
    if severity != WARN:
        recorded = push(f, FALLBACK_VALUE, where_to, where=is_err(f), severity=severity, config=config)
    return repaired, recorded


def replace(z: Array, value: float, targets: Sequence[float | str]) -> Tensor:
    """`z`, with each target element replaced by `value`; targets are err.NAN, err.INF, "nan", "inf", "posinf", "neginf", numbers."""
    z = arguments.tensor("err.replace", "z", z)
    if not isinstance(targets, (list, tuple, set, frozenset)):
        raise arguments.wrong("err.replace", "targets", "a list, such as [err.NAN]", targets)
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
    number = _number_for("err.replace", "value", z, value)
    return operated(_ops.replace, z, number, nan, posinf, neginf, values, integers)


def map_ok(f: Array, z: Array, fn: Fn) -> Tensor:
    """`z`, with `fn(z)` in the samples without an entry. `fn` sees all rows; those not taken pass no gradient."""
    return _mapped("err.map_ok", z, is_ok(f), fn)


def map_err(f: Array, z: Array, fn: Fn) -> Tensor:
    """`z`, with `fn(z)` in the samples with an entry."""
    return _mapped("err.map_err", z, is_err(f), fn)


def map_err_flags(f: Array, fn: Fn) -> Tensor:
    """`f`, with `fn(f)` in the samples with an entry."""
    f = checked_flags("err.map_err_flags", f)
    made = arguments.function("err.map_err_flags", "fn", fn, "`f`")(f)
    return operated(_ops.select, is_err(f), arguments.tensor("err.map_err_flags", "what `fn` returns", made), f)


def and_then(f: Array, z: Array, fn: Step, *, config: ErrorConfig | None = None) -> tuple[Tensor, Tensor]:
    """`z, f` of a step `fn(z)` that returns both; samples with an entry keep value and record."""
    f = checked_flags("err.and_then", f, config)
    value, merged, fine = _chained("err.and_then", f, z, fn, config)
    return value, operated(_ops.select, fine, merged, f)


def bind(f: Array, z: Array, fn: Step, *, config: ErrorConfig | None = None) -> tuple[Tensor, Tensor]:
    """The same, but `fn` still adds entries to the records of samples that have one."""
    value, merged, _ = _chained("err.bind", checked_flags("err.bind", f, config), z, fn, config)
    return value, merged


def _fitting(operation: str, z: Tensor, made: Any) -> Tensor:
    if not isinstance(made, Tensor):
        raise InputTypeError(f"{operation}: `fn` must return a tensor like its argument, not {type(made).__name__}.")
    if made.dtype != z.dtype:
        raise InputError(f"{operation}: `fn` returned {made.dtype} for data of {z.dtype}; convert its result with .to(z.dtype).")
    return made if made.shape == z.shape else made.expand_as(z)


def _mapped(operation: str, z: Array, taken: Tensor, fn: Fn) -> Tensor:
    z = arguments.tensor(operation, "z", z)
    made = arguments.function(operation, "fn", fn, "`z`")(operated(_ops.guard_grad, z, taken))
    return operated(_ops.select, taken, _fitting(operation, z, made), z)


def _chained(operation: str, f: Tensor, z: Array, fn: Step, config: ErrorConfig | None) -> tuple[Tensor, Tensor, Tensor]:
    z, fine = arguments.tensor(operation, "z", z), is_ok(f)
    both = arguments.function(operation, "fn", fn, "`z`")(operated(_ops.guard_grad, z, fine))
    if not isinstance(both, tuple) or len(both) != 2:
        raise InputTypeError(f"{operation}: `fn` must return two tensors, data and flags; got {arguments.shown(both)}.")
    made, recorded = both
    return operated(_ops.select, fine, _fitting(operation, z, made), z), merge(f, recorded, config=config), fine
