"""Arguments of Python: the values that the library takes for them, or an error that names the argument, what it may be and what came."""

from __future__ import annotations

import difflib
import os
import reprlib
import sys
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from ._errors import InputError, InputTypeError

if TYPE_CHECKING:
    import numpy.typing

    Array: TypeAlias = Tensor | numpy.typing.NDArray[Any]
else:
    Array = Tensor  # NumPy may not be there

Check: TypeAlias = Callable[[str, str, Any], Any]
"""Of an operation, the name of an argument and its value: the value that the library takes."""

_MOST = 2**63


def shown(value: object) -> str:
    """A value in a message: short, with its type."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} {tuple(value.shape)}"
    if is_array(value):
        return f"a NumPy array of {value.dtype} {value.shape}"  # type: ignore[attr-defined]
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, type) or callable(value):
        return f"{type(value).__name__} {getattr(value, '__name__', reprlib.repr(value))}"
    name = type(value).__name__
    if isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) for each in value):
        return f"{name} of {len(value)} values, of them tensors"
    text = reprlib.repr(value)
    return text if text.startswith(name) else f"{name} {text}"


def wrong(operation: str, name: str, expected: str, value: object) -> InputTypeError:
    return InputTypeError(f"{operation}: `{name}` is {expected}; got {shown(value)}.")


def is_array(value: object) -> bool:
    numpy = sys.modules.get("numpy")  # who has an array has imported it
    return numpy is not None and isinstance(value, numpy.ndarray)


def tensor(operation: str, name: str, value: Any) -> Tensor:
    """A tensor as it is; of a NumPy array, a tensor with its memory."""
    return value if isinstance(value, Tensor) else of_array(operation, f"`{name}`", value)


def of_array(operation: str, what: str, value: Any) -> Tensor:
    """`what`: which argument of the operation it is, as messages name it."""
    if not is_array(value):
        raise InputTypeError(f"{operation}: {what} is a tensor or a NumPy array; got {shown(value)}.")
    try:
        return torch.from_numpy(value)
    except TypeError:
        raise InputTypeError(
            f'{operation}: {what} is a NumPy array of {value.dtype}, a dtype that PyTorch has not; convert it, as in array.astype("float32").'
        ) from None
    except ValueError as error:  # strides below 0, or the bytes of another processor
        raise InputError(
            f"{operation}: {what} is a NumPy array that PyTorch cannot read ({error}); pass array.copy() in native byte order."
        ) from None


def text(operation: str, name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(operation, name, "a str", value)
    return value


def path(operation: str, name: str, value: Any) -> str:
    try:
        found = os.fspath(value)
    except TypeError:
        raise wrong(operation, name, "a path: a str or an os.PathLike", value) from None
    if isinstance(found, bytes):
        return os.fsdecode(found)
    return str(found)


def whole(operation: str, name: str, value: Any, least: int | None = None, expected: str = "") -> int:
    """An integer of any type but bool, of 64 bits."""
    expected = expected or f"an int{f' of {least} or more' if least is not None else ''}"
    if isinstance(value, bool) or not isinstance(value, (int, Integral)):
        raise wrong(operation, name, expected, value)
    number = int(value)
    if (least is not None and number < least) or not -_MOST <= number < _MOST:
        bits = f"an int of {number.bit_length()} bits, and there are 64" if number.bit_length() > 63 else str(number)
        raise InputError(f"{operation}: `{name}` is {expected}; got {bits}.")
    return number


def count(operation: str, name: str, value: Any) -> int:
    return whole(operation, name, value, 0)


def texts(operation: str, name: str, value: Any, of: str = "texts") -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise wrong(operation, name, f"a list of {of}", value)
    return list(value)


def size(operation: str, name: str, value: Any) -> Any:
    """An int, or the one that a compiler has in its place."""
    return value if isinstance(value, torch.SymInt) else whole(operation, name, value)


def number(operation: str, name: str, value: Any, expected: str = "a number") -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong(operation, name, expected, value)
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{operation}: `{name}` is {expected}; got an int of more than 1024 bits.") from None


def seconds(operation: str, name: str, value: Any) -> float:
    time = number(operation, name, value, "a number of seconds, 0 or more")
    if not time >= 0:
        raise InputError(f"{operation}: `{name}` is a number of seconds of 0 or more; got {time:g}.")
    return time


def switch(operation: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(operation, name, "True or False", value)
    return value


def one_of(operation: str, name: str, value: Any, choices: Collection[str]) -> str:
    expected = ", ".join(f'"{each}"' for each in choices)
    expected = " or ".join(expected.rsplit(", ", 1))
    if not isinstance(value, str):
        raise wrong(operation, name, expected, value)
    if value not in choices:
        raise InputError(f"{operation}: `{name}` is {expected}; got {value!r}{meant(value, choices) or '.'}")
    return value


def function(operation: str, name: str, value: Any, of: str) -> Any:
    if not callable(value):
        raise wrong(operation, name, f"a function of {of}", value)
    return value


def by_name(operation: str, name: str, value: Any, of: str) -> Mapping[str, Any]:
    """A dict whose keys are texts. `of`: what its values are."""
    if type(value) is not dict and not isinstance(value, Mapping):  # to ask an abstract class takes longer
        raise wrong(operation, name, f"a dict of {of} by name", value)
    for key in value:
        if not isinstance(key, str):
            raise InputTypeError(f"{operation}: `{name}` is a dict of {of} by name, and a name is a str; got {shown(key)}.")
    return value


def meant(name: object, known: Collection[str]) -> str:
    """ "; did you mean `backend`?" where one of `known` is close, else ""."""
    close = difflib.get_close_matches(str(name), known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
