"""Values of params, as the library takes them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from . import _library  # noqa: F401  registers the operators
from ._arguments import by_name, shown
from ._errors import InputError, InputTypeError


def plain_params(operation: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of one type, tuples as lists, and Python's values for NumPy's."""
    return {name: _plain(name, value) for name, value in by_name(operation, "params", params, "values").items()}


class BoundParams:
    """Plain values that the library reads once, for many calls."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.number = int(torch.ops.triage._bind_params(values))
        weakref.finalize(self, torch.ops.triage._drop_params, self.number).atexit = False

    def __reduce__(self) -> Any:
        return BoundParams, (self.values,)


def _plain(name: str, value: Any) -> Any:
    if type(value) is float or type(value) is bool:
        return value
    if hasattr(value, "tolist") and not isinstance(value, Tensor):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        if not value or not all(isinstance(each, Real) for each in value):
            raise InputError(f"param `{name}`: a list holds numbers, at least one; got {value!r}.")
        kind = int if all(isinstance(each, Integral) and _fits(each) for each in value) else float
        return [_real(name, each) if kind is float else int(each) for each in value]
    if not isinstance(value, (bool, int, float, Tensor)):
        raise InputTypeError(f"param `{name}`: a value is a number, a boolean, a list of numbers or a tensor; got {shown(value)}.")
    return value if isinstance(value, (bool, float, Tensor)) or _fits(value) else _real(name, value)


def _fits(value: Any) -> bool:
    return bool(-(2**63) <= value < 2**63)


def _real(name: str, value: Any) -> float:
    try:  # of an integer that has more than 64 bits: the library says what the param takes
        return float(value)
    except OverflowError:
        bits = int(value).bit_length()
        raise InputError(f"param `{name}`: a number has at most 64 bits; got an integer of {bits} bits.") from None
