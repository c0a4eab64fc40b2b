"""Options of runtimes and calls: their types, and the form in which the library takes them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch

from . import _arguments as arguments
from . import _library  # noqa: F401  registers the classes
from ._arguments import Check, count, meant, number, shown
from ._errors import InputError, InputTypeError, called

OnError: TypeAlias = Literal["raise", "pass_through", "last_good"]
Gate: TypeAlias = Literal["warn", "refuse", "shadow"]
MaskedRows: TypeAlias = Literal["warn", "require"]

@dataclasses.dataclass(frozen=True)
class DecisionLog:
    """The decision log of a Runtime: its file, and what stands in it.

    clean_share: 0 to 1, the share of calls without a flagged sample that get a line, too. drop: names of fields that are left out.
    mask: names of fields of text that are replaced by a hash, with mask_key as its key. capsules: a folder for capsules of flagged and
    of failed calls, at most max_capsules (100); capsule_bad_rows: only flagged samples go into them. events: whether what happens to
    policies gets lines, too. A file that would get larger than max_file_bytes (64 MiB) is renamed; max_files (5) of these are kept.
    queue_records (1024): so many calls wait for the thread of the log at most. max_samples (100): a line lists so many.
    """

    file: str | os.PathLike[str]
    clean_share: float = 0.0
    drop: Sequence[str] = ()
    mask: Sequence[str] = ()
    mask_key: str | None = None
    capsules: str | os.PathLike[str] | None = None
    max_capsules: int | None = None
    capsule_bad_rows: bool = False
    events: bool = True
    max_file_bytes: int | None = None
    max_files: int | None = None
    queue_records: int | None = None
    max_samples: int | None = None


@dataclasses.dataclass(frozen=True)
class Limits:
    """The budgets of a script, for each load and each call. 0: no limit; None: the runtime's default."""

    instructions: int | None = None
    seconds: float | None = None
    script_bytes: int | None = None
    tensor_bytes: int | None = None


LIMITS = tuple(each.name for each in dataclasses.fields(Limits))


def _choice(*choices: str) -> Check:
    return lambda operation, name, value: arguments.one_of(operation, name, value, choices)


def _deadline(operation: str, name: str, value: Any) -> float:
    time = arguments.number(operation, name, value, "the time for the call, in seconds above 0")
    if not time > 0:
        raise InputError(f"{operation}: `{name}` is the time for the call, in seconds above 0; got {time:g}.")
    return time


def _sample_ids(operation: str, name: str, value: Any) -> list[str]:
    return arguments.texts(operation, name, value, "texts, one for each sample")


def _decision_log(operation: str, name: str, value: Any) -> str | DecisionLog:
    if not isinstance(value, DecisionLog):
        return arguments.path(operation, name, value)
    given = {field.name: getattr(value, field.name) for field in dataclasses.fields(DecisionLog)}
    return DecisionLog(**_checked("DecisionLog", given, _OF_LOGS))


_FIELDS: Check = lambda operation, name, value: tuple(arguments.texts(operation, name, value, "names of fields"))
_OF_LOGS: dict[str, Check] = {
    "file": arguments.path, "clean_share": number, "drop": _FIELDS, "mask": _FIELDS, "mask_key": arguments.text,
    "capsules": arguments.path, "max_capsules": count, "capsule_bad_rows": arguments.switch, "events": arguments.switch,
    "max_file_bytes": count, "max_files": count, "queue_records": count, "max_samples": count,
}  # fmt: skip
_GATE, _ON_ERROR = _choice("warn", "refuse", "shadow"), _choice("raise", "pass_through", "last_good")
_OF_RUNTIMES: dict[str, Check] = {
    "backend": arguments.text, "on_error": _ON_ERROR, "fullgraph": arguments.switch, "masked_rows": _choice("warn", "require"),
    "trusted": arguments.switch, "cache_dir": arguments.path, "keep_versions": count, "trial_calls": count, "trial_seconds": number,
    "failures_to_revert": count, "reload_latency_ratio": number, "on_slow_reload": _GATE, "on_new_graph_breaks": _GATE,
    "state_keys": count, "state_age": count, "seed": count, "count_flags": arguments.switch, "decision_log": _decision_log,
    "instructions": count, "seconds": number, "script_bytes": count, "tensor_bytes": count,
}  # fmt: skip
_OF_CALLS: dict[str, Check] = {
    "on_error": _ON_ERROR, "deadline": _deadline, "state_key": arguments.text, "decision_id": arguments.text, "trace_id": arguments.text,
    "sample_ids": _sample_ids,
}  # fmt: skip
OPTIONS_OF_CALLS = ("params", "info", *_OF_CALLS)


def _unknown(operation: str, name: str, known: tuple[str, ...]) -> InputError:
    return InputError(f"{operation}: there is no option `{name}`{meant(name, known) or '.'} There are: {', '.join(known)}.")


def unknown_of_call(name: str) -> InputError:
    return _unknown("run", name, OPTIONS_OF_CALLS)


def of_runtime(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is not None of the options of a Runtime, each of the type that the library takes, and those of `limits` among them."""
    known = (*list(_OF_RUNTIMES)[:-4], "limits", *LIMITS)
    for name in given:
        if name not in known:
            called(_check_in_library, name)
            raise _unknown("Runtime", name, known)
    limits = given.get("limits")
    checked = _checked("Runtime", {name: value for name, value in given.items() if name != "limits"}, _OF_RUNTIMES)
    if limits is None:
        return checked
    if isinstance(limits, Limits):
        limits = dataclasses.asdict(limits)
    if not isinstance(limits, Mapping):
        raise InputTypeError(f"Runtime: `limits` is a triage.Limits, or a dict with {', '.join(LIMITS)}; got {shown(limits)}.")
    for name, value in limits.items():
        if name not in LIMITS:
            raise InputError(f"Runtime: `limits` has no {name!r}{meant(name, LIMITS) or '.'} There are: {', '.join(LIMITS)}.")
        if name in checked and value is not None:
            raise InputError(f"Runtime: `{name}` is given twice: as an option, and in `limits`.")
    return checked | _checked("Runtime", limits, _OF_RUNTIMES)


def of_library(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a Runtime as its constructor in the library takes them: those of a decision log by themselves."""
    log = options.get("decision_log")
    if not isinstance(log, DecisionLog):
        return dict(options)
    of_log = {f"decisions_{name}": value for name, value in dataclasses.asdict(log).items() if name != "file" and value not in (None, (), "")}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in of_log.items()}
    return {**options, "decision_log": log.file, **lists}


def _check_in_library(name: str) -> None:
    """Raises for an option that earlier versions had: the library knows what there is in its place."""
    try:
        torch.classes.triage.Runtime({name: True})
    except RuntimeError as error:
        if "There is no option" not in str(error):
            raise


def of_call(operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the options of one call."""
    return _checked(operation, given, _OF_CALLS)


def _checked(operation: str, given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    return {name: checks[name](operation, name, value) for name, value in given.items() if value is not None}
