"""Bundles: policies that change together."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any

from . import _arguments as arguments
from ._errors import called
from ._events import RELOADS, BundleVersion

if TYPE_CHECKING:
    from ._policy import Policy, Runtime


all_bundles: weakref.WeakSet[Bundle] = weakref.WeakSet()


class Bundle:
    """The policies of a folder with a bundle.json. Made by `triage.load_bundle`. A new version of the bundle goes live as a whole.

    Its policies change only with it: their reload, replace, rollback, pin, unpin, canary and promote raise InputError.
    """

    def __init__(self, runtime: Runtime, folder: str) -> None:
        self._runtime = runtime
        self.folder = folder
        self._policies: weakref.WeakValueDictionary[str, Policy] = weakref.WeakValueDictionary()
        self._definitions = len(runtime._definitions)  # that there were when it was loaded
        self._generation = -1
        self._native()
        all_bundles.add(self)

    def _native(self) -> Any:
        """In a forked child the folder is opened anew, as the file of a policy is."""
        from . import _policy

        if self._generation != _policy.generation():
            with _policy.lock():
                if self._generation != _policy.generation():
                    native = self._runtime._native()
                    self._runtime._definitions.hold(native, self._definitions)
                    self._object = called(native.load_bundle, self.folder)
                    self._generation = _policy.generation()
        return self._object

    def _open(self) -> Any:
        """For what loads another version: as `load`, an error where the runtime is closed."""
        self._runtime._native()
        return self._native()

    def policy(self, name: str, *, key: str | None = None) -> Policy:
        """The policy of file `name`, without the extension. Its key is BUNDLE/NAME, if no other is given."""
        from . import _policy

        arguments.text("policy", "name", name)
        with _policy.lock():
            known = self._policies.get(name)
            if known is None or key not in (None, known.key):
                known = _policy.policy_of_bundle(self._runtime, self.folder, name, key, f"{self.name}/{name}")
                self._policies[name] = known
            return known

    @property
    def name(self) -> str:
        return str(called(self._native().name))

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of its policies."""
        return tuple(called(self._native().policies))

    @property
    def version(self) -> BundleVersion:
        """The live one; its last_error says why the newest bundle.json is not live."""
        return BundleVersion._of(called(self._native().version))

    def versions(self) -> list[BundleVersion]:
        """Those kept for rollback, oldest first."""
        return [BundleVersion._of(each) for each in called(self._native().versions)]

    def reload(self) -> str:
        """Reads the folder now: "unchanged", "swapped" or "refused" (version.last_error says why)."""
        return RELOADS[called(self._open().reload)]

    def rollback(self, number: int) -> None:
        """Makes a version live again, until bundle.json changes."""
        called(self._open().rollback, arguments.whole("rollback", "number", number, expected="the number of a version"))

    def pin(self, number: int) -> None:
        """Makes a version live and keeps it live, whatever happens to the folder."""
        called(self._open().pin, arguments.whole("pin", "number", number, expected="the number of a version"))

    def unpin(self) -> str:
        return RELOADS[called(self._open().unpin)]

    def __repr__(self) -> str:
        version = self.version
        refused = " (newest refused)" if version.last_error else ""
        return f"<triage.Bundle {self.name}: {', '.join(self.policies)}, version {version.number} of {os.path.basename(self.folder)}{refused}>"
