"""The configuration of flags, and the names of locations."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from . import _arguments as arguments
from . import _library  # noqa: F401  registers the operators
from ._errors import InputError, InputTypeError, called, raised_by_operator

_ops = torch.ops.triage
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Priority(enum.IntEnum):
    """Which errors a full record keeps."""

    CHRONO = 0
    SEVERITY = 1
    LOCATION = 2


class Order(enum.IntEnum):
    """Which end a full record keeps."""

    FIRST = 0
    LAST = 1


class Dedupe(enum.IntEnum):
    """Which errors count as the same."""

    NONE = 0
    CODE = 1
    LOCATION = 2
    UNIQUE = 3


@dataclass(frozen=True)
class AccumulationConfig:
    priority: Priority = Priority.CHRONO
    order: Order = Order.FIRST
    dedupe: Dedupe = Dedupe.UNIQUE


_WORD_SLOTS = {torch.int64: 4, torch.float64: 4, torch.int32: 2, torch.float32: 2}


def words_for(num_slots: int, dtype: torch.dtype) -> int:
    return -(-num_slots // _WORD_SLOTS[dtype])


@dataclass(frozen=True)
class ErrorConfig:
    """How flags are laid out, and how errors accumulate in them. The default is TorchGuard's, too."""

    num_slots: int = 16
    flag_dtype: torch.dtype = torch.int64
    accumulation: AccumulationConfig = AccumulationConfig()
    default_severity: int = 2
    track_overflow: bool = False
    strict_validation: bool = False
    num_words: int = field(init=False, repr=False)
    policy: int = field(init=False, repr=False)  # as operators take it

    def __post_init__(self) -> None:
        arguments.whole("ErrorConfig", "num_slots", self.num_slots)
        arguments.whole("ErrorConfig", "default_severity", self.default_severity)
        if not isinstance(self.flag_dtype, torch.dtype):
            raise arguments.wrong("ErrorConfig", "flag_dtype", "a dtype, such as torch.int64", self.flag_dtype)
        if self.flag_dtype not in _WORD_SLOTS:
            raise InputError(f"ErrorConfig: `flag_dtype` is torch.int64, int32, float64 or float32; got {self.flag_dtype}.")
        a = self.accumulation
        if not isinstance(a, AccumulationConfig):
            raise arguments.wrong("ErrorConfig", "accumulation", "a triage.AccumulationConfig", a)
        policy = int(a.priority) | int(a.order) << 2 | int(a.dedupe) << 3 | int(self.track_overflow) << 5
        object.__setattr__(self, "policy", policy)
        object.__setattr__(self, "num_words", words_for(self.num_slots, self.flag_dtype))
        called(_ops._check_config, *self._arguments())
        if (self.flag_dtype, self.num_words) not in _forms:
            _forms.append((self.flag_dtype, self.num_words))

    def _arguments(self) -> tuple[int, torch.dtype, int, int, bool]:
        return self.num_slots, self.flag_dtype, self.policy, int(self.default_severity), self.strict_validation


# The forms that flags have: of every configuration that this process made. Any other tensor is data.
_forms: list[tuple[torch.dtype, int]] = []
_current = ErrorConfig()


def get_config() -> ErrorConfig:
    """The configuration of every operation that is given none."""
    return _current


def set_config(config: ErrorConfig) -> None:
    """Sets it for the process, policies included."""
    global _current
    checked_config("set_config", config)
    called(_ops._set_config, *config._arguments())
    _current = config


def checked_config(operation: str, config: ErrorConfig | None) -> ErrorConfig:
    """The configuration to use: that of the process if none is given."""
    if config is None:
        return _current
    if not isinstance(config, ErrorConfig):
        raise arguments.wrong(operation, "config", "a triage.ErrorConfig", config)
    return config


def checked_flags(operation: str, f: Any, config: ErrorConfig | None = None) -> Tensor:
    """`f`, or an error if it is no flags tensor: read as flags, data would give nonsense without a word."""
    checked_config(operation, config)
    if not isinstance(f, Tensor):
        f = arguments.of_array(operation, "`f`", f)
    if f.dim() == 2:
        for dtype, words in _forms:
            if f.dtype == dtype and f.shape[1] == words:
                return cast(Tensor, f)
    known = ", ".join(f"{dtype} (N, {words})" for dtype, words in _forms)
    raise InputError(
        f"{operation}: `f` is not a flags tensor, but {f.dtype} {tuple(f.shape)}. Flags here are: {known}. "
        f"(Flags of another configuration are known once an ErrorConfig of it is made.)"
    )


def operated(operator: Callable[..., Any], *given: Any) -> Tensor:
    """Calls an operator of flags; its own errors are of triage's classes. A compiler sees the operator alone."""
    if torch.compiler.is_dynamo_compiling():
        return cast(Tensor, operator(*given))
    try:
        return cast(Tensor, operator(*given))
    except RuntimeError as error:
        raise raised_by_operator(error) from None


def operated_pair(operator: Callable[..., Any], *given: Any) -> tuple[Tensor, Tensor]:
    """The same of an operator with two results."""
    return cast("tuple[Tensor, Tensor]", operated(operator, *given))


def constant_in_programs(function: _Function) -> _Function:
    """What torch.compiler.assume_constant_result does, without its import of the whole compiler, which takes as long as that of torch."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant_in_programs
def _registered(path: str) -> int:
    return int(called(_ops._register_location, path))


def location_id(operation: str, location: object) -> int:
    """The id of a location: a path, an id, or None."""
    if location is None:
        return 0
    if isinstance(location, str):
        return _registered(location)
    if isinstance(location, int) and 0 <= location <= 1023:
        return location
    error = InputError if isinstance(location, int) else InputTypeError
    raise error(f"{operation}: a location is a path such as 'encoder.2', an id of 0 to 1023, or None; got {arguments.shown(location)}.")


class ErrorLocation:
    """The names of locations in this process: a dotted path and its id, 1 to 1023."""

    UNKNOWN = 0

    @staticmethod
    def register(path: str) -> int:
        return _registered(arguments.text("ErrorLocation.register", "path", path))

    @staticmethod
    def get(path: str) -> int:
        """The id of `path`, 0 if it has none."""
        return int(_ops._location_id(arguments.text("ErrorLocation.get", "path", path)))

    @staticmethod
    def name(id: int) -> str:
        return str(_ops._location_name(arguments.whole("ErrorLocation.name", "id", id)))

    @staticmethod
    def count() -> int:
        return int(_ops._location_count())
