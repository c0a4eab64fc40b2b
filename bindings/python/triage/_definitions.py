"""Functions and tensors of Python for policies."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from . import _arguments as arguments
from . import _library  # noqa: F401  defines the operator
from ._arguments import shown
from ._errors import InputError, InputTypeError, called

Function: TypeAlias = Callable[..., Tensor | Sequence[Tensor]]

_numbers = itertools.count(1)
_owners: weakref.WeakValueDictionary[str, Definitions] = weakref.WeakValueDictionary()  # by key of a function


class Definitions:
    """What policies that a runtime loads later get of the program: it lives as long as the runtime, which its policies keep."""

    def __init__(self) -> None:
        self._made: list[tuple[str, tuple[Any, ...]]] = []  # the method of the library and its arguments
        self._functions: dict[str, tuple[str, Function]] = {}
        self._held = 0  # how many of them the runtime of the library has

    def function(self, native: Any, name: str, function: Function, pure: bool, shapes: Function | None) -> None:
        arguments.function("define", "function", function, "tensors")
        if shapes is not None:
            arguments.function("define", "shapes", shapes, "tensors without data")
        given = (arguments.text("define", "name", name), arguments.switch("define", "pure", pure))
        keys = [self._key(name, function), "" if shapes is None else self._key(f"`shapes` of {name}", shapes)]
        try:
            self._make(native, "define", (given[0], keys[0], given[1], keys[1]))
        except Exception:
            for key in keys:
                self._functions.pop(key, None)
            raise

    def tensor(self, native: Any, name: str, tensor: Any) -> None:
        value = arguments.tensor("define_tensor", "tensor", tensor)
        self._make(native, "define_tensor", (arguments.text("define_tensor", "name", name), value))

    def _key(self, name: str, function: Function) -> str:
        key = str(next(_numbers))
        self._functions[key] = name, function
        _owners[key] = self
        return key

    def _make(self, native: Any, method: str, given: tuple[Any, ...]) -> None:
        self.hold(native, len(self._made))
        called(getattr(native, method), *given)
        self._made.append((method, given))
        self._held = len(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def begin_again(self) -> None:
        """In a forked child, which has a runtime of its own."""
        self._held = 0

    def hold(self, native: Any, count: int) -> None:
        """What is loaded next gets the first `count` definitions: a policy that is opened anew those that it had."""
        if count == self._held:
            return
        for method, given in self._made[:count]:
            called(getattr(native, method), *given)
        self._held = count

    def call(self, key: str, inputs: list[Tensor]) -> list[Tensor]:
        name, function = self._functions[key]
        results = function(*inputs)
        if isinstance(results, Tensor):
            return [results]
        if not isinstance(results, (list, tuple)):
            raise InputTypeError(f"the function {name} returns a tensor, or a list or tuple of tensors; got {shown(results)}.")
        for i, each in enumerate(results, 1):
            if not isinstance(each, Tensor):
                raise InputTypeError(f"the function {name} returns tensors; value {i} of {len(results)} is {shown(each)}.")
        return list(results)


def _call(key: str, inputs: list[Tensor]) -> list[Tensor]:
    owner = _owners.get(key)
    if owner is None:
        raise InputError("this function belongs to a triage.Runtime that is gone.")
    try:
        return owner.call(key, inputs)
    except BaseException as error:
        # Through the library go texts alone.
        text = " ".join(f"{type(error).__name__}: {error}".split())
        if isinstance(error, Exception):
            _causes[threading.get_ident()] = text, error
        else:
            interrupts[threading.get_ident()] = error
        raise RuntimeError(text) from None


_causes: dict[int, tuple[str, Exception]] = {}  # by thread: the latest exception of a function
interrupts: dict[int, BaseException] = {}  # KeyboardInterrupt and the like, which are no failure of a policy


def cause_of(message: str) -> Exception | None:
    """The exception of a function that a call of this thread failed with."""
    text, error = _causes.pop(threading.get_ident(), ("", None))
    return error if text and text in message else None


def raise_interrupt() -> None:
    """What ended a function within a call of this thread, whatever the policy answered."""
    error = interrupts.pop(threading.get_ident(), None)
    if error is not None:
        raise error


_torch_library: Any = torch.library  # without types
_kernels = _torch_library.Library("triage", "IMPL")  # as long as it lives, the operator has its kernel
_kernels.impl("_host_function", _call, "CompositeImplicitAutograd")
