"""Policies from Python: loading, calling, hot reload."""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import _arguments as arguments
from . import _library  # noqa: F401  registers the classes
from ._arguments import Array, of_array
from ._bundles import Bundle, all_bundles
from ._config import constant_in_programs
from ._definitions import Definitions, Function, cause_of, interrupts, raise_interrupt
from ._errors import FileError, InputError, InputTypeError, LoadError, called, known_files, raised
from ._events import RELOADS, Event, Version
from ._html import of_policy
from ._options import OPTIONS_OF_CALLS, DecisionLog, Gate, Limits, MaskedRows, OnError, of_call, of_library, of_runtime, unknown_of_call
from ._params import BoundParams, plain_params
from ._rollouts import Rollouts
from ._texts import in_python

if TYPE_CHECKING:
    from typing_extensions import Never, Self

_call_policy = torch.ops.triage._call_policy
_call_with_params = torch.ops.triage._call_with_params
_read_live_version = torch.ops.triage._live_version

# The threads of a runtime do not exist in a forked child, where even its end would wait for them. There, what was inherited is
# never touched again, nor ended; a policy opens its file anew when it is next used.
_generation = 0
_lock = threading.RLock()
_policies: weakref.WeakValueDictionary[str, Policy] = weakref.WeakValueDictionary()  # by key
_keys: dict[tuple[Any, ...], str] = {}  # of files, by path and options: a file that is loaded again has the key that it had
_runtimes: dict[tuple[Any, ...], Runtime] = {}  # by options
_all_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_watches: weakref.WeakSet[Watch] = weakref.WeakSet()


def _after_fork() -> None:
    global _generation, _lock
    _lock = threading.RLock()
    _generation += 1
    owners: list[Any] = [*_policies.values(), *_watches, *all_bundles, *_all_runtimes]
    for owner in owners:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner._object))  # so that not even the end of the process destroys it
    _runtimes.clear()


os.register_at_fork(after_in_child=_after_fork)


def _is_child() -> bool:
    """Of multiprocessing, also while such a process still imports the program's main module."""
    return multiprocessing.parent_process() is not None or bool(getattr(multiprocessing.current_process(), "_inheriting", False))


def _reopen(key: bytes) -> None:
    """For the operator of compiled programs, in a forked child."""
    policy = _policies.get(key.decode())
    if policy is not None:
        policy._native()


_reopener = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(_reopen)  # lives as long as the process
torch.ops.triage._set_reopener(ctypes.cast(_reopener, ctypes.c_void_p).value)


def _close_all() -> None:
    """Threads of a runtime free tensors that Python knows. They end before the interpreter does, which would end them in the middle."""
    for watch in list(_watches):
        watch.close()
    for runtime in list(_all_runtimes):
        if runtime._generation == _generation:
            runtime._object.close()


atexit.register(_close_all)


class Policy(Rollouts):
    """One policy: `z, f = policy(logits)`. Made by `triage.load`. Any number of threads may use it at once.

    A call returns the output if there is one, else a tuple of them. Copies and unpickled policies share it by its key, or open
    its file where the process has none with that key.
    """

    def __init__(self, runtime: Runtime, origin: tuple[str, ...], key: str, shown: str) -> None:
        self._runtime = runtime
        self._origin = origin
        self._key = key
        self._set: dict[str, Any] = {}
        self._inputs: tuple[str, ...] | None = None
        self._generation = _generation
        self._definitions = len(runtime._definitions)  # that there were when it was loaded
        self._object = self._open(shown)
        self._run_with = self._object.run_with  # bound once: to bind a method of the library takes as long as a small call

    @property
    def _is_logged(self) -> bool:
        return self._runtime.options.get("decision_log") is not None

    def _open(self, shown: str) -> Any:
        """`shown`: what messages call it; of a file, a path that leads there."""
        native = self._runtime._native()
        self._runtime._definitions.hold(native, self._definitions)
        if self._origin[0] == "load":
            return called(native.load, shown, self._key)
        if self._origin[0] == "load_bundle":
            return called(self._runtime.load_bundle(self._origin[1])._native().policy, self._origin[2], self._key)
        return called(native.load_source, self._origin[1], shown, self._key)

    def _native(self) -> Any:
        if self._generation != _generation:
            with _lock:
                if self._generation != _generation:
                    self._object = self._open(self._origin[-1])
                    self._run_with = self._object.run_with
                    self._inputs = None
                    self._generation = _generation
                    if self._set:
                        called(self._object.set_params, self._set)
        return self._object

    # --- calls ---

    def __call__(self, *inputs: Array, **named: Array) -> Tensor | tuple[Tensor, ...]:
        """Runs the live version on one batch: tensors or NumPy arrays in the order of `inputs`, or by name."""
        if torch.compiler.is_dynamo_compiling() or _is_exported(inputs, named):
            outputs = torch.ops.triage.run_policy(self._key, _in_order(self._key, inputs, named), "", "", _source_of(self._key))
        else:
            outputs = self._plain_call(_in_order(self._key, inputs, named, self.inputs) if named else inputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _plain_call(self, inputs: Sequence[Any]) -> list[Tensor]:
        if self._generation != _generation:
            self._native()
        for each in inputs:
            if not isinstance(each, Tensor):
                inputs = self._tensors(inputs)
                break
        try:
            outputs = _call_policy(self._key, inputs)
        except RuntimeError as error:
            raise _of_function(raised(error))
        if interrupts:
            raise_interrupt()
        return outputs  # type: ignore[no-any-return]

    def _call_with_params(self, inputs: Sequence[Tensor], params: BoundParams) -> tuple[list[Tensor], int]:
        """As `run` with params that were read once; also the version that answered."""
        if self._generation != _generation:
            self._native()
        try:
            outputs, version = _call_with_params(self._key, self._tensors(inputs), params.number)
        except RuntimeError as error:
            raise _of_function(raised(error))
        if interrupts:
            raise_interrupt()
        return outputs, version

    def _tensors(self, inputs: Sequence[Any]) -> list[Tensor]:
        return [each if isinstance(each, Tensor) else of_array(self._key, f"input {i}", each) for i, each in enumerate(inputs, 1)]

    def run(
        self,
        inputs: Sequence[Array] | Mapping[str, Array],
        *,
        params: Mapping[str, Any] | None = None,
        info: dict[str, Any] | None = None,
        on_error: OnError | None = None,
        deadline: float | None = None,
        state_key: str | None = None,
        decision_id: str | None = None,
        trace_id: str | None = None,
        sample_ids: Sequence[str] | None = None,
        **unknown: Never,
    ) -> tuple[Tensor, ...]:
        """A call with options; always returns a tuple. None, of any option, is what the policy's runtime has.

        params: values for this call alone. info: a dict that is filled with version, answered, form, seconds, flagged, ...
        on_error: "raise", "pass_through" or "last_good". deadline: seconds. state_key, decision_id, trace_id: texts.
        sample_ids: what the decision log calls the samples, one text for each.
        """
        if unknown:
            name = next(iter(unknown))
            if name in self.params:
                raise InputError(f"run: `{name}` is a param of {self._key}, not an option: run([...], params={{{name!r}: ...}}).")
            raise unknown_of_call(name)
        values = self._inputs_of_run(inputs)
        options = None
        named = on_error is not None or deadline is not None or state_key is not None
        if named or decision_id is not None or trace_id is not None or sample_ids is not None:
            options = {
                "on_error": on_error, "deadline": deadline, "state_key": state_key, "decision_id": decision_id, "trace_id": trace_id,
                "sample_ids": sample_ids,
            }  # fmt: skip
        if params is None and info is None and options is None:
            if torch.compiler.is_dynamo_compiling() or _is_exported(values):
                return tuple(torch.ops.triage.run_policy(self._key, list(values), "", "", _source_of(self._key)))
            return tuple(self._plain_call(values))
        if torch.compiler.is_dynamo_compiling() or _is_exported(values):
            raise InputError(f"{self._key}: inside torch.compile and torch.export, run takes no options; set_param works there, too.")
        if info is not None and not isinstance(info, dict):
            raise arguments.wrong("run", "info", "a dict, which the call fills", info)
        params = {} if params is None else plain_params("run", params)
        chosen = of_call("run", options) if options else {}
        self._native()
        try:
            outputs, told = self._run_with(self._tensors(values), params, chosen, info is not None)
        except RuntimeError as error:
            raise _of_function(raised(error))
        if interrupts:
            raise_interrupt()
        if info is not None:
            info.update(told, failure=in_python(told["failure"]))
        return tuple(outputs)

    def _inputs_of_run(self, inputs: Any) -> Sequence[Any]:
        if isinstance(inputs, (list, tuple)):
            return inputs
        if isinstance(inputs, Mapping):
            return _in_order(self._key, (), inputs, self.inputs)
        if isinstance(inputs, Tensor) or arguments.is_array(inputs):
            raise self._no_inputs(": run([z])", inputs)
        raise self._no_inputs("", inputs)

    def _no_inputs(self, example: str, got: object) -> InputTypeError:
        shown = arguments.shown(got)
        return InputTypeError(f"{self._key}: run takes a list of tensors, or a dict of them by name{example}; got {shown}.")

    def prepare(self, *inputs: Array) -> None:
        """Captures and compiles for such inputs now, so that the first real call is warm."""
        called(self._native().prepare, self._tensors(inputs))

    # --- what it is ---

    @property
    def name(self) -> str:
        return str(called(self._native().name))

    @property
    def key(self) -> str:
        """The name by which compiled and exported programs find it: the one given to `load`, else the name of its file, with #2, #3,
        ... for other files of that name in the order in which the process loaded them first."""
        return self._key

    @property
    def path(self) -> str | None:
        """Of its file; None for a policy from text."""
        if self._origin[0] == "load_bundle":
            return os.path.join(self._origin[1], f"{self._origin[2]}.lua")
        return self._origin[1] if self._origin[0] == "load" else None

    @property
    def signature(self) -> dict[str, Any]:
        """inputs, outputs, params, param_ranges, state, codes, and the declared input_types and output_types of the live version."""
        return called(self._native().signature)

    @property
    def inputs(self) -> tuple[str, ...]:
        names = self._inputs  # kept: no reload changes them
        if names is None or self._generation != _generation:
            self._native()
            names = self._inputs = tuple(self.signature["inputs"])
        return names

    @property
    def outputs(self) -> tuple[str, ...]:
        """Empty until the script names them, or a call shows their number."""
        return tuple(self.signature["outputs"])

    def __repr__(self) -> str:
        signature, version = self.signature, self.version
        shape = f"({', '.join(signature['inputs'])}) -> ({', '.join(signature['outputs']) or '?'})"
        where = f"{self.path or 'text'}{' (newest file refused)' if version.last_error else ''}"
        return f"<triage.Policy {self.name} {shape}, version {version.number} of {where}>"

    def _repr_html_(self) -> str:
        return of_policy(self)

    # --- params and state ---

    @property
    def params(self) -> Mapping[str, Any]:
        """Params and their values, to read; `set_param` changes one."""
        return MappingProxyType({**self.signature["params"], **self._set})

    def set_param(self, name: str, value: Any) -> None:
        """Changes a param for all later calls, also after reloads."""
        plain = plain_params("set_param", {arguments.text("set_param", "name", name): value})
        called(self._native().set_params, plain)
        self._set.update(plain)

    def manual_seed(self, seed: int) -> None:
        """Of the random numbers that the policy draws: an int of 0 or more."""
        called(self._native().manual_seed, arguments.whole("manual_seed", "seed", seed, 0))

    def reset_state(self) -> None:
        called(self._native().reset_state)

    def save_state(self, file: str | os.PathLike[str]) -> None:
        called(self._native().save_state, arguments.path("save_state", "file", file))

    def load_state(self, file: str | os.PathLike[str]) -> None:
        called(self._native().load_state, arguments.path("load_state", "file", file))

    # --- versions ---

    @property
    def version(self) -> Version:
        """The live one; its last_error says why the newest file is not live."""
        return Version._of(called(self._native().version))

    @property
    def _live_version(self) -> int:
        self._native()
        return int(called(_read_live_version, self._key))

    def versions(self) -> list[Version]:
        """Those kept for rollback, oldest first."""
        return [Version._of(each) for each in called(self._native().versions)]

    def reload(self) -> str:
        """Checks the file now: "unchanged", "swapped" or "refused" (version.last_error says why)."""
        return RELOADS[called(self._native().reload)]

    def replace(self, source: str) -> str:
        """The same with a text instead of the file."""
        result = RELOADS[called(self._native().replace, arguments.text("replace", "source", source))]
        if result == "swapped" and self._origin[0] == "load_source":
            self._origin = ("load_source", source, self._origin[2])
        return result

    def rollback(self, number: int) -> None:
        """Makes a version live again, until the file changes."""
        called(self._native().rollback, arguments.whole("rollback", "number", number, expected="the number of a version"))

    def pin(self, number: int) -> None:
        """Makes a version live and keeps it live, whatever happens to the file."""
        called(self._native().pin, arguments.whole("pin", "number", number, expected="the number of a version"))

    def unpin(self) -> str:
        return RELOADS[called(self._native().unpin)]

    # --- what it did ---

    def statistics(self) -> dict[str, Any]:
        """Counts since it was loaded: calls, samples, flagged, repaired, latency_p50, flags, versions, ..."""
        return called(self._native().statistics)

    def graphs(self) -> list[str]:
        """The captured graphs as text."""
        return called(self._native().graphs)

    def graph_breaks(self) -> list[str]:
        """Why it is several graphs, one line each."""
        return [in_python(each) for each in called(self._native().graph_breaks)]

    # --- copies ---

    def __copy__(self) -> Policy:
        return self

    def __deepcopy__(self, memo: Any) -> Policy:
        return self

    def __reduce__(self) -> Any:
        return _reopened, (self._origin, self._key, dict(self._runtime.options), self._set)


def _of_function(error: RuntimeError) -> RuntimeError:
    """With the exception of a function of the program as its cause; raises what is no failure of the policy."""
    raise_interrupt()
    error.__cause__ = cause_of(str(error))
    error.__suppress_context__ = True
    return error


class Watch:
    """Hot reload while open: every policy loaded from a file in the folder follows its file. Use it with `with`."""

    def __init__(self, runtime: Runtime, folder: str, debounce: float, poll_interval: float) -> None:
        self.folder = folder
        self._runtime = runtime
        self._generation = _generation
        times = [arguments.seconds("watch", "debounce", debounce), arguments.seconds("watch", "poll_interval", poll_interval)]
        with _lock:
            self._object = called(runtime._native().watch, folder, *times)
        self._closed = False
        _watches.add(self)

    def wait(self, timeout: float | None = None) -> Event | None:
        """The next event, or None after `timeout` seconds (None: no limit) or when the watch is closed."""
        left = None if timeout is None else arguments.seconds("wait", "timeout", timeout)
        while not self._closed and self._generation == _generation:
            slice = 0.2 if left is None else min(left, 0.2)  # Ctrl-C is heard between slices
            event = called(self._object.next, slice)
            if event is not None:
                return Event._of(event)
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
        self._check()
        called(self._object.rescan)

    def _check(self) -> None:
        if self._closed or self._generation != _generation:
            raise InputError(
                f"{self!r} follows nothing: it was closed, or made in the process that this one was forked from; make another with "
                f"triage.watch({self.folder!r})."
            )

    def close(self) -> None:
        if not self._closed and self._generation == _generation:
            called(self._object.stop)
        self._closed = True

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<triage.Watch of {self.folder}{', closed' if self._closed else ''}>"


class Runtime:
    """Holds policies with options of their own. `triage.load` and the like use one without options.

        with triage.Runtime(backend="eager", limits=triage.Limits(seconds=1.0)) as runtime:
            policy = runtime.load("repair.lua")

    None, of any option, is the default. cache_dir is a folder, decision_log a file or a triage.DecisionLog; the four budgets of `limits` may also be options
    of their own. docs/embedding.md describes them.
    """

    def __init__(
        self,
        *,
        backend: str | None = None,
        on_error: OnError | None = None,
        fullgraph: bool | None = None,
        masked_rows: MaskedRows | None = None,
        trusted: bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        keep_versions: int | None = None,
        trial_calls: int | None = None,
        trial_seconds: float | None = None,
        failures_to_revert: int | None = None,
        reload_latency_ratio: float | None = None,
        on_slow_reload: Gate | None = None,
        on_new_graph_breaks: Gate | None = None,
        state_keys: int | None = None,
        state_age: int | None = None,
        seed: int | None = None,
        count_flags: bool | None = None,
        decision_log: str | os.PathLike[str] | DecisionLog | None = None,
        limits: Limits | Mapping[str, float] | None = None,
        instructions: int | None = None,
        seconds: float | None = None,
        script_bytes: int | None = None,
        tensor_bytes: int | None = None,
        **unknown: Never,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "unknown")}
        self.options: Mapping[str, Any] = MappingProxyType(of_runtime({**given, **unknown}))
        self._closed = False
        self._generation = _generation
        self._definitions = Definitions()
        self._object = self._open()
        self._bundles: dict[str, Bundle] = {}
        _all_runtimes.add(self)

    def _open(self) -> Any:
        options = of_library(self.options)
        if options.get("decision_log") and (_generation or _is_child()):
            options["decisions_at_once"] = True  # a child process ends by os._exit, and its parent has the file too
        return called(torch.classes.triage.Runtime, options)

    def _native(self) -> Any:
        if self._closed:
            raise InputError(f"{self!r} is closed: make another triage.Runtime. (Its policies still run, in the process that loaded them.)")
        if self._generation != _generation:
            with _lock:
                if self._generation != _generation:
                    self._object = self._open()
                    self._definitions.begin_again()
                    self._generation = _generation
        return self._object

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends its watches, and what of it no policy uses. Its policies still run, and write to its decision log; it loads no others."""
        with _lock:  # no other thread is inside of it: the library expects that of a runtime that ends
            if self._closed:
                return
            self._closed = True
        # Without the lock: a reload that a watch is at may call a function of the program, which may want it.
        for watch in list(_watches):
            if watch._runtime is self:
                watch.close()
        if self._generation == _generation:
            called(self._object.close)

    def __enter__(self) -> Self:
        self._native()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def load(self, path: str | os.PathLike[str], *, key: str | None = None) -> Policy:
        """Loads a policy from a file. Loading a file again gives the policy that is there, with the text that the file has now."""
        path = arguments.path("load", "path", path)
        if not path:
            raise InputError("load: `path` is empty; name the file of a policy.")
        return _loaded(self, path, key)

    def load_source(self, source: str, name: str = "policy.lua", *, key: str | None = None) -> Policy:
        """Loads a policy from text; messages show `name`."""
        arguments.text("load_source", "source", source)
        return _opened(self, ("load_source", source, arguments.text("load_source", "name", name)), _key("load_source", key), name)

    def define(self, name: str, function: Function, *, pure: bool = False, shapes: Function | None = None) -> None:
        """Gives policies that are loaded later a function of the program: tensors in, a tensor or several out. Any thread may call it.

        A call of it is a graph break, unless it is pure: equal inputs give equal outputs, and it does nothing else. shapes: of a pure
        function, one that gives its outputs for inputs on the meta device; None: one output, like the first input.
        """
        with _lock:
            self._definitions.function(self._native(), name, function, pure, shapes)

    def define_tensor(self, name: str, tensor: Array) -> None:
        """Gives policies that are loaded later a tensor. It is not copied: what the program writes into it, the next call reads."""
        with _lock:
            self._definitions.tensor(self._native(), name, tensor)

    def load_bundle(self, folder: str | os.PathLike[str]) -> Bundle:
        """Loads the policies that `folder`/bundle.json lists, which change together. Loading a folder again gives the bundle that is
        there."""
        folder = os.path.abspath(arguments.path("load_bundle", "folder", folder))
        self._native()
        with _lock:
            if folder not in self._bundles:
                self._bundles[folder] = Bundle(self, folder)
            return self._bundles[folder]

    def watch(self, folder: str | os.PathLike[str], *, debounce: float = 0.05, poll_interval: float = 0) -> Watch:
        """Every policy loaded from a file in `folder` follows its file, while the watch is open. poll_interval: in seconds, for
        file systems that report no changes."""
        return Watch(self, os.path.abspath(arguments.path("watch", "folder", folder)), debounce, poll_interval)

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items()) or "without options"
        return f"<triage.Runtime {options}{', closed' if self._closed else ''}>"

    def flush(self) -> None:
        """Waits until the decision log holds all decisions so far."""
        with _lock:
            called(self._native().flush)

    def metrics_text(self) -> str:
        """Statistics of all policies in Prometheus' text format."""
        with _lock:
            return str(called(self._native().metrics))


def _runtime_for(options: Mapping[str, Any]) -> Runtime:
    with _lock:
        known = _options(options)
        if known not in _runtimes or _runtimes[known]._closed:
            _runtimes[known] = Runtime(**options)
        return _runtimes[known]


def _options(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))


def _key(operation: str, key: Any) -> str | None:
    return None if key is None else arguments.text(operation, "key", key)


def _loaded(runtime: Runtime, path: str, key: str | None) -> Policy:
    """The policy of the file and these options that is there, after a look at its file, or a new one."""
    runtime._native()  # a closed one gives no policy, also none that is there
    origin = ("load", os.path.abspath(path))
    known_files.add(origin[-1])
    with _lock:
        chosen = _key("load", key) or _key_of(runtime, origin)
        known = _policies.get(chosen)
        if known is None or not _is(known, runtime, origin):
            return _opened(runtime, origin, chosen, path)
    if not os.path.exists(path):
        raise FileError(f"cannot load the policy '{path}': there is no such file")
    if known.reload() == "refused" and (why := known.version.last_error) is not None:
        raise LoadError(
            f"{why.message}\n(version {known.version.number} of {chosen!r}, which is loaded from this file, stays live; a policy beside it "
            f"needs a key of its own: load(path, key=...))",
            why.file,
            why.line,
        )
    return known


def shared(path: str) -> Policy:
    """The policy of a file with the whole path as its key, as it is: its file is read only if it is not there."""
    known_files.add(path)
    return _opened(_runtime_for({}), ("load", path), path, path)


def _key_of(runtime: Runtime, origin: tuple[str, ...]) -> str:
    """Without a key of the caller's: the name of the file, with a number for another file of this name. The same file has the same key
    for as long as the process lives, so that exported programs find its policy."""
    file = (origin, _options(runtime.options))
    known = _policies.get(_keys.get(file, ""))
    if file not in _keys or (known is not None and not _is(known, runtime, origin)):
        _keys[file] = _free_key(os.path.basename(origin[-1]))
    return _keys[file]


def _free_key(base: str) -> str:
    key, number, taken = base, 1, set(_keys.values())
    while key in _policies or key in taken:
        number += 1
        key = f"{base}#{number}"
    return key


def _is(known: Policy, runtime: Runtime, origin: tuple[str, ...]) -> bool:
    """Whether `load` of this means the policy that is there."""
    if known._origin != origin or known._runtime.options != runtime.options:
        return False
    return known._runtime is runtime or not known._runtime._closed


def _opened(runtime: Runtime, origin: tuple[str, ...], key: str | None, shown: str) -> Policy:
    with _lock:
        if key is None:
            key = _free_key(os.path.basename(shown))
        elif (known := _policies.get(key)) is not None:
            if _is(known, runtime, origin):
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


def _in_order(key: str, inputs: Sequence[Any], named: Mapping[str, Any], names: Sequence[str] = ()) -> list[Any]:
    """All inputs in the order of the signature."""
    if not named:
        return list(inputs)
    names = names or _input_names(key)
    if not inputs and len(named) == len(names) and all(name in named for name in names):
        return [named[name] for name in names]
    for name in named:
        if name not in names or name in names[: len(inputs)]:
            if name in names:
                raise InputError(f"{key}: there is no input `{name}` (it is there by position); its inputs are: {', '.join(names)}.")
            raise _no_input(key, name, names)
    missing = [name for name in names[len(inputs) :] if name not in named]
    if missing:
        raise InputError(f"{key}: these inputs are missing: {', '.join(missing)}; its inputs are: {', '.join(names)}.")
    return [*inputs, *(named[name] for name in names[len(inputs) :])]


def _no_input(key: str, name: str, names: Sequence[str]) -> InputError:
    inputs = f"inputs are: {', '.join(names)}."
    if name in OPTIONS_OF_CALLS:
        return InputError(f"{key}: there is no input `{name}`; its {inputs} `{name}` is an option of run: policy.run([...], {name}=...).")
    policy = _policies.get(key)
    if policy is not None and name in policy.params:
        return InputError(f"{key}: `{name}` is a param; its {inputs} A param is given to run: policy.run([...], params={{{name!r}: ...}}).")
    close = arguments.meant(name, names)
    return InputError(f"{key}: there is no input `{name}`{f'{close} Its' if close else '; its'} {inputs}")


def _is_exported(inputs: Sequence[Any], named: Mapping[str, Any] | None = None) -> bool:
    """Whether torch.export makes a program of this call. Other threads of the process call on meanwhile."""
    if not torch.compiler.is_exporting():
        return False
    return any(isinstance(each, Tensor) and type(each) not in _OF_CALLS for each in (*inputs, *(named or {}).values()))


_OF_CALLS = (Tensor, torch.nn.Parameter)


@constant_in_programs
def _source_of(key: str) -> str:
    """What tells programs of two texts under one key apart, where a compiler keeps programs on disk."""
    policy = find(key)
    return f"{policy.version.hash} {sorted((name, str(value)) for name, value in policy._set.items())}"


@constant_in_programs
def _input_names(key: str) -> tuple[str, ...]:
    return find(key).inputs


def generation() -> int:
    """How many times this process was forked from another one that had triage."""
    return _generation


def lock() -> Any:
    """Of all that loads and opens."""
    return _lock


def policy_of_bundle(runtime: Runtime, folder: str, name: str, key: str | None, base: str) -> Policy:
    """For Bundle. `base`: its key, where none is given and none has it."""
    with _lock:
        return _opened(runtime, ("load_bundle", folder, name), _key("policy", key) or _free_key(base), name)


def find(key: str) -> Policy:
    """The policy with this key; InputError if this process has none."""
    policy = _policies.get(key)
    if policy is None:
        raise InputError(f"This process has no policy with the key {key!r}; it has: {', '.join(sorted(_policies)) or 'none'}.")
    return policy


# --- with the runtime that has no options ---


def load(path: str | os.PathLike[str], *, key: str | None = None) -> Policy:
    """Loads a policy from a file. `key`: the name by which compiled and exported programs find it (default: the file's name)."""
    return _runtime_for({}).load(path, key=key)


def load_source(source: str, name: str = "policy.lua", *, key: str | None = None) -> Policy:
    """Loads a policy from text; messages show `name`."""
    return _runtime_for({}).load_source(source, name, key=key)


def load_bundle(folder: str | os.PathLike[str]) -> Bundle:
    """Loads the policies that `folder`/bundle.json lists, which change together."""
    return _runtime_for({}).load_bundle(folder)


def watch(folder: str | os.PathLike[str], *, debounce: float = 0.05, poll_interval: float = 0) -> Watch:
    """Hot reload for the policies in `folder` while the watch is open: `with triage.watch("policies") as watch: ...`"""
    return _runtime_for({}).watch(folder, debounce=debounce, poll_interval=poll_interval)


def metrics_text() -> str:
    """Statistics of the policies of `triage.load` in Prometheus' text format."""
    return _runtime_for({}).metrics_text()
