"""What a program reads of a policy's past: its versions, why a file was refused, what happened in a watched folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._texts import in_python


RELOADS = ("unchanged", "swapped", "refused")


@dataclass(frozen=True)
class LoadFailure:
    """Why the newest file did not go live. `file` is empty if the failure concerns no line."""

    message: str
    file: str
    line: int
    when: float


@dataclass(frozen=True)
class Version:
    """A version of a policy. `since`: when it went live (last), in seconds since 1970; so is LoadFailure.when."""

    number: int
    hash: str
    path: str
    since: float
    live: bool
    pinned: bool
    on_trial: bool
    taken_back: bool
    failures: int
    last_error: LoadFailure | None

    @staticmethod
    def _of(fields: dict[str, Any]) -> Version:
        return Version(**{**fields, "last_error": _failure(fields["last_error"])})


@dataclass(frozen=True)
class BundleVersion:
    """A version of a bundle. version: as its bundle.json says. policies: the number of the version of each policy."""

    number: int
    version: str
    sha256: str
    since: float
    live: bool
    pinned: bool
    on_trial: bool
    taken_back: bool
    policies: dict[str, int]
    last_error: LoadFailure | None

    @staticmethod
    def _of(fields: dict[str, Any]) -> BundleVersion:
        return BundleVersion(**{**fields, "policies": dict(fields["policies"]), "last_error": _failure(fields["last_error"])})


def _failure(fields: dict[str, Any] | None) -> LoadFailure | None:
    return LoadFailure(**{**fields, "message": in_python(fields["message"])}) if fields else None


@dataclass(frozen=True)
class Event:
    """Something that happened in a watched folder.

    kind: "reloaded", "refused", "reverted", "deleted", "restored", "added", "lost", "found", "promoted", "candidate_reverted".
    version: the live version of the policy; 0 if there is none. file, line: of what was refused.
    dropped: how many events before this one were lost because nobody read them.
    """

    kind: str
    path: str
    version: int
    message: str
    file: str
    line: int
    dropped: int = 0

    @staticmethod
    def _of(fields: dict[str, Any]) -> Event:
        fields["message"] = in_python(fields["message"])
        return Event(**fields)
