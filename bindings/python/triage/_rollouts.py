"""New versions of a policy beside the live one: shadows and canaries."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from . import _arguments as arguments
from ._arguments import Check
from ._errors import called
from ._events import Version

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class CandidateReport:
    """A candidate beside the live version, or the last one after its end; `str` of it is the whole report.

    kind: "shadow" or "canary". state: "running", "promoted", "reverted" or "ended". reason: why it is no longer running.
    live, candidate: calls, failures, samples, flagged, p50_us, p90_us, p99_us of each side since the comparison began.
    shadow: of a shadow, what differs: compared, failed, dropped, only_live, only_candidate, different, different_unflagged, examples, ...
    """

    kind: str
    state: str
    policy: str
    path: str
    version: int
    hash: str
    live_version: int
    live_hash: str
    share: float
    since: float
    restarts: int
    reason: str
    last_failure: str
    notes: list[str]
    live: Mapping[str, Any]
    candidate: Mapping[str, Any]
    promote_after: int | None = None
    shadow: Mapping[str, Any] | None = None
    _text: str = field(default="", repr=False)

    @staticmethod
    def _of(told: Mapping[str, str]) -> CandidateReport:
        fields = json.loads(told["json"])
        if shadow := fields.get("shadow"):
            shadow["max_difference"] = float(shadow["max_difference"])  # "inf" and "nan" are texts in JSON
            for example in shadow["examples"]:
                example["difference"] = float(example["difference"])
        return CandidateReport(**fields, _text=told["text"])

    def __str__(self) -> str:
        return self._text


class ShadowOptions(TypedDict, total=False):
    """share: of the calls (0.1). queue, queue_bytes: calls that wait for it, and their memory. tolerance: differences up to this are
    none. examples: samples that the report lists."""

    share: float | None
    queue: int | None
    queue_bytes: int | None
    tolerance: float | None
    examples: int | None


class CanaryOptions(TypedDict, total=False):
    """share: of the calls (0.05). promote_after: calls (10,000) after which it goes live; 0: only `promote` does it. failures (1),
    flagged_ratio (2.0), p99_ratio (1.5): where it fails so many calls, or flags or takes so many times what the live version does, it is
    taken back; 0: whatever it does. min_calls (500), min_samples (1,000): of both sides before they are compared."""

    share: float | None
    promote_after: int | None
    failures: int | None
    flagged_ratio: float | None
    p99_ratio: float | None
    min_calls: int | None
    min_samples: int | None


_SHADOW: dict[str, Check] = {
    "share": arguments.number, "queue": arguments.count, "queue_bytes": arguments.count, "tolerance": arguments.number,
    "examples": arguments.count,
}  # fmt: skip
_CANARY: dict[str, Check] = {
    "share": arguments.number, "promote_after": arguments.count, "failures": arguments.count, "flagged_ratio": arguments.number,
    "p99_ratio": arguments.number, "min_calls": arguments.count, "min_samples": arguments.count,
}  # fmt: skip


class Rollouts:
    """What a policy does about its candidate: at most one at a time. None, of any option, is the default."""

    def _native(self) -> Any:
        raise NotImplementedError  # of the policy

    def shadow(self, path: str | os.PathLike[str], **options: Unpack[ShadowOptions]) -> Version:
        """Runs a file beside the live version, on a share of the calls after they were answered; it answers none."""
        return self._start("shadow", arguments.path("shadow", "path", path), options, _SHADOW)

    def shadow_source(self, source: str, **options: Unpack[ShadowOptions]) -> Version:
        """`shadow` of a text."""
        return self._start("shadow_source", arguments.text("shadow_source", "source", source), options, _SHADOW)

    def canary(self, path: str | os.PathLike[str], **options: Unpack[CanaryOptions]) -> Version:
        """A file answers a share of the calls, until it goes live or a rule takes it back."""
        return self._start("canary", arguments.path("canary", "path", path), options, _CANARY)

    def canary_source(self, source: str, **options: Unpack[CanaryOptions]) -> Version:
        """`canary` of a text."""
        return self._start("canary_source", arguments.text("canary_source", "source", source), options, _CANARY)

    def _start(self, operation: str, source: str, given: Mapping[str, Any], checks: Mapping[str, Check]) -> Version:
        for name in given:
            if name not in checks:
                raise TypeError(f"{operation}() got an unexpected keyword argument {name!r}")
        options = {name: checks[name](operation, name, value) for name, value in given.items() if value is not None}
        start: Callable[[str, dict[str, Any]], dict[str, Any]] = getattr(self._native(), operation)
        return Version._of(called(start, source, options))

    def candidate(self) -> CandidateReport | None:
        """Of the candidate, or of the last one; None if there was none."""
        told = called(self._native().candidate)
        return None if told is None else CandidateReport._of(told)

    def promote(self) -> None:
        """Makes the candidate live, as a reload does."""
        called(self._native().promote)

    def end_candidate(self) -> CandidateReport:
        """Ends the candidate; its last report."""
        return CandidateReport._of(called(self._native().end_candidate))
