"""Policies from Python: loading, calling, hot reload."""

from __future__ import annotations

import atexit
import ctypes
import difflib
import multiprocessing
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from . import _library  # noqa: F401  registers the classes
from ._config import constant_in_programs
from ._errors import InputError, called, raised

_LIMITS = ("instructions", "seconds", "script_bytes", "tensor_bytes")
_RELOADS = ("unchanged", "swapped", "refused")

# The threads of a runtime do not exist in a forked child, where even its end would wait for them. There, what was inherited is
# never touched again, nor ended; a policy opens its file anew when it is next used.
_generation = 0
_lock = threading.RLock()
_policies: weakref.WeakValueDictionary[str, Policy] = weakref.WeakValueDictionary()  # by key
_runtimes: dict[tuple, Runtime] = {}  # by options
_all_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


def _after_fork() -> None:
    global _generation, _lock
    _lock = threading.RLock()
    _generation += 1
    owners: list[Any] = [*_policies.values(), *_watches, *_all_runtimes]
    for owner in owners:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner._object))  # so that not even the end of the process destroys it
    _runtimes.clear()


os.register_at_fork(after_in_child=_after_fork)


def _close_all() -> None:
    """Threads of a runtime free tensors that Python knows. They end before the interpreter does, which would end them in the middle."""
    for watch in list(_watches):
        watch.close()
    for runtime in list(_all_runtimes):
        if runtime._generation == _generation:
            runtime._object.close()


atexit.register(_close_all)


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
        error = fields.pop("last_error")
        return Version(**fields, last_error=LoadFailure(**error) if error else None)


@dataclass(frozen=True)
class Event:
    """Something that happened in a watched folder.

    kind: "reloaded", "refused", "reverted", "deleted", "restored", "added", "lost", "found".
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


class Policy:
    """One policy: `z, f = policy(logits)`. Made by `triage.load`. Any number of threads may use it at once.

    A call returns the output if there is one, else a tuple of them. Copies and unpickled policies share it by its key, or open
    its file where the process has none with that key.
    """

    def __init__(self, runtime: Runtime, origin: tuple[str, ...], key: str, shown: str) -> None:
        self._runtime = runtime
        self._origin = origin
        self._key = key
        self._set: dict[str, Any] = {}
        self._generation = _generation
        self._object = self._open(shown)

    def _open(self, shown: str) -> Any:
        """`shown`: what messages call it; of a file, a path that leads there."""
        native = self._runtime._native()
        if self._origin[0] == "load":
            return called(native.load, shown, self._key)
        return called(native.load_source, self._origin[1], shown, self._key)

    def _native(self) -> Any:
        if self._generation != _generation:
            with _lock:
                if self._generation != _generation:
                    self._object = self._open(self._origin[-1])
                    self._generation = _generation
                    if self._set:
                        called(self._object.set_params, self._set)
        return self._object

    # --- calls ---

    def __call__(self, *inputs: Tensor, **named: Tensor) -> Any:
        """Runs the live version on one batch: tensors in the order of `inputs`, or by name."""
        if torch.compiler.is_compiling():
            outputs = torch.ops.triage.run_policy(self._key, _in_order(self._key, inputs, named))
        else:
            values = _in_order(self._key, inputs, named, self.inputs) if named else list(inputs)
            self._native()
            try:
                outputs = torch.ops.triage._call_policy(self._key, values)
            except RuntimeError as error:
                raise _explained(error, self, values) from None
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run(
        self,
        inputs: Sequence[Tensor] | Mapping[str, Tensor],
        *,
        params: Mapping[str, Any] | None = None,
        info: dict[str, Any] | None = None,
        **options: Any,
    ) -> tuple[Tensor, ...]:
        """A call with options; always returns a tuple.

        params: values for this call alone. info: a dict that is filled with version, answered, form, seconds, flagged, ...
        on_error: "raise", "pass_through" or "last_good". deadline: seconds. state_key, decision_id, trace_id: texts.
        """
        if isinstance(inputs, Tensor):
            raise InputError(f"{self._key}: run takes a list of tensors, or a dict of them by name: run([z]); got one tensor.")
        if isinstance(inputs, Mapping):
            inputs = _in_order(self._key, (), inputs, self.inputs)
        try:
            outputs, told = self._native().run_with(list(inputs), _plain(params or {}), options)
        except RuntimeError as error:
            raise _explained(error, self, inputs) from None
        if info is not None:
            info.update(told)
        return tuple(outputs)

    def prepare(self, *inputs: Tensor) -> None:
        """Captures and compiles for such inputs now, so that the first real call is warm."""
        called(self._native().prepare, list(inputs))

    # --- what it is ---

    @property
    def name(self) -> str:
        return called(self._native().name)

    @property
    def key(self) -> str:
        """The name by which compiled and exported programs find it."""
        return self._key

    @property
    def path(self) -> str | None:
        """Of its file; None for a policy from text."""
        return self._origin[1] if self._origin[0] == "load" else None

    @property
    def signature(self) -> dict[str, Any]:
        """inputs, outputs, params, param_ranges, state, codes, and the declared input_types and output_types of the live version."""
        return called(self._native().signature)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.signature["inputs"])

    @property
    def outputs(self) -> tuple[str, ...]:
        """Empty until the script names them, or a call shows their number."""
        return tuple(self.signature["outputs"])

    def __repr__(self) -> str:
        signature, version = self.signature, self.version
        shape = f"({', '.join(signature['inputs'])}) -> ({', '.join(signature['outputs']) or '?'})"
        where = self.path or "text"
        return f"<triage.Policy {self.name} {shape}, version {version.number} of {where}{' (newest file refused)' if version.last_error else ''}>"

    # --- params and state ---

    @property
    def params(self) -> Mapping[str, Any]:
        """Params and their values, to read; `set_param` changes one."""
        return MappingProxyType({**self.signature["params"], **self._set})

    def set_param(self, name: str, value: Any) -> None:
        """Changes a param for all later calls, also after reloads."""
        plain = _plain({name: value})
        called(self._native().set_params, plain)
        self._set.update(plain)

    def manual_seed(self, seed: int) -> None:
        called(self._native().manual_seed, seed)

    def reset_state(self) -> None:
        called(self._native().reset_state)

    def save_state(self, file: str | os.PathLike[str]) -> None:
        called(self._native().save_state, os.fspath(file))

    def load_state(self, file: str | os.PathLike[str]) -> None:
        called(self._native().load_state, os.fspath(file))

    # --- versions ---

    @property
    def version(self) -> Version:
        """The live one; its last_error says why the newest file is not live."""
        return Version._of(called(self._native().version))

    def versions(self) -> list[Version]:
        """Those kept for rollback, oldest first."""
        return [Version._of(each) for each in called(self._native().versions)]

    def reload(self) -> str:
        """Checks the file now: "unchanged", "swapped" or "refused" (version.last_error says why)."""
        return _RELOADS[called(self._native().reload)]

    def replace(self, source: str) -> str:
        """The same with a text instead of the file."""
        result = _RELOADS[called(self._native().replace, source)]
        if result == "swapped" and self._origin[0] == "load_source":
            self._origin = ("load_source", source, self._origin[2])
        return result

    def rollback(self, number: int) -> None:
        """Makes a version live again, until the file changes."""
        called(self._native().rollback, number)

    def pin(self, number: int) -> None:
        """Makes a version live and keeps it live, whatever happens to the file."""
        called(self._native().pin, number)

    def unpin(self) -> str:
        return _RELOADS[called(self._native().unpin)]

    # --- what it did ---

    def statistics(self) -> dict[str, Any]:
        """Counts since it was loaded: calls, samples, flagged, repaired, latency_p50, flags, versions, ..."""
        return called(self._native().statistics)

    def graphs(self) -> list[str]:
        """The captured graphs as text."""
        return called(self._native().graphs)

    def graph_breaks(self) -> list[str]:
        """Why it is several graphs, one line each."""
        return called(self._native().graph_breaks)

    # --- copies ---

    def __copy__(self) -> Policy:
        return self

    def __deepcopy__(self, memo: Any) -> Policy:
        return self

    def __reduce__(self) -> Any:
        return _reopened, (self._origin, self._key, dict(self._runtime.options), self._set)


class Watch:
    """Hot reload while open: every policy loaded from a file in the folder follows its file. Use it with `with`."""

    def __init__(self, runtime: Runtime, folder: str, debounce: float, poll_interval: float) -> None:
        self.folder = folder
        self._generation = _generation
        self._object = called(runtime._native().watch, folder, debounce, poll_interval)
        self._closed = False
        _watches.add(self)

    def wait(self, timeout: float | None = None) -> Event | None:
        """The next event, or None after `timeout` seconds (None: no limit) or when the watch is closed."""
        left = timeout
        while not self._closed and self._generation == _generation:
            slice = 0.2 if left is None else min(left, 0.2)  # Ctrl-C is heard between slices
            event = called(self._object.next, slice)
            if event is not None:
                return Event(**event)
            if left is not None:
                left -= slice
                if left <= 0:
                    return None
        return None

    def events(self) -> list[Event]:
        """All events that wait; none is lost to another `wait`."""
        return list(iter(lambda: self.wait(0), None))

    def __iter__(self) -> Iterator[Event]:
        """Events as they come, until the watch is closed."""
        return iter(self.wait, None)

    def rescan(self) -> None:
        """Checks the folder now, and returns when that is done."""
        if self._closed or self._generation != _generation:
            raise InputError(f"{self!r} follows nothing: it was closed, or made in the process that this one was forked from.")
        called(self._object.rescan)

    def close(self) -> None:
        if not self._closed and self._generation == _generation:
            called(self._object.stop)
        self._closed = True

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<triage.Watch of {self.folder}{', closed' if self._closed else ''}>"


class Runtime:
    """Holds policies with options of their own. `triage.load` and the like use one without options.

    Options: backend ("fused"), on_error ("raise", "pass_through", "last_good"), fullgraph,
    masked_rows ("warn", "require"), trusted, cache_dir, keep_versions, trial_calls, trial_seconds,
    failures_to_revert, reload_latency_ratio, on_slow_reload and on_new_graph_breaks ("warn", "refuse", "shadow"),
    state_keys, seed, count_flags, decision_log (a file), limits (the budgets of a script, a dict of instructions, seconds,
    script_bytes, tensor_bytes, which may also be options of their own). docs/embedding.md describes them.
    """

    def __init__(self, **options: Any) -> None:
        self.options: Mapping[str, Any] = MappingProxyType(
            {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in _flat(options).items()}
        )
        self._generation = _generation
        self._object = self._open()
        _all_runtimes.add(self)

    def _open(self) -> Any:
        options = dict(self.options)
        if options.get("decision_log") and (_generation or multiprocessing.parent_process() is not None):
            options["decisions_at_once"] = True  # a child process ends by os._exit, and its parent has the file too
        return called(torch.classes.triage.Runtime, options)

    def _native(self) -> Any:
        if self._generation != _generation:
            with _lock:
                if self._generation != _generation:
                    self._object = self._open()
                    self._generation = _generation
        return self._object

    def load(self, path: str | os.PathLike[str], *, key: str | None = None) -> Policy:
        """Loads a policy from a file. Loading a file again under its `key` gives the policy that is there."""
        path = os.fspath(path)
        if not path:
            raise InputError("load: the path of the policy is empty.")
        return _opened(self, ("load", os.path.abspath(path)), key, path)

    def load_source(self, source: str, name: str = "policy.lua", *, key: str | None = None) -> Policy:
        """Loads a policy from text; messages show `name`."""
        return _opened(self, ("load_source", source, name), key, name)

    def watch(self, folder: str | os.PathLike[str], *, debounce: float = 0.05, poll_interval: float = 0) -> Watch:
        """Every policy loaded from a file in `folder` follows its file, while the watch is open. poll_interval: in seconds, for
        file systems that report no changes."""
        return Watch(self, os.path.abspath(folder), debounce, poll_interval)

    def __repr__(self) -> str:
        return f"<triage.Runtime {', '.join(f'{name}={value!r}' for name, value in self.options.items()) or 'without options'}>"

    def flush(self) -> None:
        """Waits until the decision log holds all decisions so far."""
        called(self._native().flush)

    def metrics_text(self) -> str:
        """Statistics of all policies in Prometheus' text format."""
        return called(self._native().metrics)


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `limits` as options of their own, as the class takes them."""
    flat = dict(options)
    limits = flat.pop("limits", None)
    if limits is None:
        return flat
    if not isinstance(limits, Mapping):
        raise InputError(f"`limits` is a dict with {', '.join(_LIMITS)}; got {limits!r}.")
    for name, value in limits.items():
        if name not in _LIMITS:
            meant = difflib.get_close_matches(str(name), _LIMITS, 1)
            raise InputError(
                f"`limits` has no {name!r}{f'; did you mean {meant[0]!r}?' if meant else '.'} There are: {', '.join(_LIMITS)}."
            )
        if name in flat:
            raise InputError(f"`{name}` is given twice: as an option, and in `limits`.")
        flat[name] = value
    return flat


def _runtime_for(options: Mapping[str, Any]) -> Runtime:
    with _lock:
        known = tuple(sorted(options.items()))
        if known not in _runtimes:
            _runtimes[known] = Runtime(**options)
        return _runtimes[known]


def _opened(runtime: Runtime, origin: tuple[str, ...], key: str | None, shown: str) -> Policy:
    with _lock:
        if key is None:
            base, number = os.path.basename(shown), 1
            key = base
            while key in _policies:
                number += 1
                key = f"{base}#{number}"
        elif (known := _policies.get(key)) is not None:
            if known._origin == origin and known._runtime.options == runtime.options:
                return known
            raise InputError(f"The key {key!r} is taken by {known!r}: choose another for {origin[-1]!r}.")
        policy = Policy(runtime, origin, key, shown)
        _policies[key] = policy
        return policy


def _reopened(origin: tuple[str, ...], key: str, options: dict[str, Any], params: dict[str, Any]) -> Policy:
    known = _policies.get(key)
    policy = _opened(_runtime_for(options) if known is None else known._runtime, origin, key, origin[-1])
    if policy is not known:
        for name, value in params.items():
            policy.set_param(name, value)
    return policy


def _in_order(key: str, inputs: Sequence[Tensor], named: Mapping[str, Tensor], names: Sequence[str] = ()) -> list[Tensor]:
    """All inputs in the order of the signature."""
    if not named:
        return list(inputs)
    names = names or _input_names(key)
    for name in named:
        if name not in names or name in names[: len(inputs)]:
            twice = " (it is there by position)" if name in names else ""
            raise InputError(f"{key}: there is no input `{name}`{twice}; its inputs are: {', '.join(names)}.")
    missing = [name for name in names[len(inputs) :] if name not in named]
    if missing:
        raise InputError(f"{key}: these inputs are missing: {', '.join(missing)}; its inputs are: {', '.join(names)}.")
    return [*inputs, *(named[name] for name in names[len(inputs) :])]


@constant_in_programs
def _input_names(key: str) -> tuple[str, ...]:
    return find(key).inputs


def find(key: str) -> Policy:
    """The policy with this key; InputError if this process has none."""
    policy = _policies.get(key)
    if policy is None:
        raise InputError(f"This process has no policy with the key {key!r}; it has: {', '.join(sorted(_policies)) or 'none'}.")
    return policy


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Params as the library takes them: lists of one type, tuples as lists, and Python's values for NumPy's."""

    def plain(name: str, value: Any) -> Any:
        if hasattr(value, "tolist") and not isinstance(value, Tensor):
            value = value.tolist()
        if isinstance(value, (list, tuple)):
            if not value or not all(isinstance(each, Real) for each in value):
                raise InputError(f"param `{name}`: a list holds numbers, at least one; got {value!r}.")
            kind = int if all(isinstance(each, Integral) and fits(each) for each in value) else float
            return [real(name, each) if kind is float else int(each) for each in value]
        if not isinstance(value, (bool, int, float, Tensor)):
            raise InputError(f"param `{name}`: a value is a number, a boolean, a list of numbers or a tensor; got {value!r}.")
        return value if isinstance(value, (bool, float, Tensor)) or fits(value) else real(name, value)

    def fits(value: Any) -> bool:
        return -(2**63) <= value < 2**63

    def real(name: str, value: Any) -> float:
        try:  # of an integer that has more than 64 bits: the library says what the param takes
            return float(value)
        except OverflowError:
            bits = int(value).bit_length()
            raise InputError(f"param `{name}`: a number has at most 64 bits; got an integer of {bits} bits.") from None

    return {name: plain(name, value) for name, value in params.items()}


def _explained(error: RuntimeError, policy: Policy, inputs: Sequence[Any]) -> RuntimeError:
    for i, each in enumerate(inputs):
        if not isinstance(each, Tensor):
            return InputError(f"{policy.key}: input {i + 1} is no tensor but {type(each).__name__}.")
    return raised(error)


# --- with the runtime that has no options ---


def load(path: str | os.PathLike[str], *, key: str | None = None) -> Policy:
    """Loads a policy from a file. `key`: the name by which compiled and exported programs find it (default: the file's name)."""
    return _runtime_for({}).load(path, key=key)


def load_source(source: str, name: str = "policy.lua", *, key: str | None = None) -> Policy:
    """Loads a policy from text; messages show `name`."""
    return _runtime_for({}).load_source(source, name, key=key)


def watch(folder: str | os.PathLike[str], *, debounce: float = 0.05, poll_interval: float = 0) -> Watch:
    """Hot reload for the policies in `folder` while the watch is open: `with triage.watch("policies") as watch: ...`"""
    return _runtime_for({}).watch(folder, debounce=debounce, poll_interval=poll_interval)


def metrics_text() -> str:
    """Statistics of the policies of `triage.load` in Prometheus' text format."""
    return _runtime_for({}).metrics_text()
