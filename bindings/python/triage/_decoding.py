"""Serving policies on the logits of decoding steps: what the ways in from transformers, vLLM and SGLang share."""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _arguments as arguments
from . import err
from ._errors import InputError, InputTypeError
from ._params import BoundParams, plain_params
from ._policy import Policy, Runtime, Watch, shared, watch

_numbers = itertools.count()  # of requests: none is used twice in a process
_log = logging.getLogger("triage")


def new_requests(count: int) -> int:
    """The first of `count` numbers that follow each other."""
    first = next(_numbers)
    for _ in range(count - 1):
        next(_numbers)
    return first


class Steps:
    """Policies that run one behind the other on the logits of a step.

    Each takes the logits first, then inputs by name, and returns (logits, verdict, flags). `known` are the names that the caller
    of `run` has a value for; `verdict` is the largest of the policies before.
    """

    def __init__(
        self,
        policies: Sequence[Policy | str | os.PathLike[str]],
        eos: int | Sequence[int] | Tensor | None,
        params: Mapping[str, Any] | None,
        known: Sequence[str],
    ) -> None:
        if not policies:
            raise InputError("A processor of logits needs at least one policy, or the path of one; got none.")
        self.policies = tuple(_policy(each) for each in policies)
        self.eos = _tokens(eos)
        mine = {} if params is None else plain_params("LogitsProcessor", params)
        self._given = {**mine, **({"eos": self.eos[0]} if self.eos else {})}
        self._inputs = tuple(_inputs(each, known) for each in self.policies)
        self._known = [_Known(each, self._given) for each in self.policies]
        self._is_logged = any(each._is_logged for each in self.policies)
        for policy in self.policies:
            if "eos" in policy.params and not self.eos:
                raise InputError(f"{policy.key} ends a request with the token `eos`: pass the one of the model's tokenizer, as in eos=2.")
        for name in mine:
            if not any(name in each.params for each in self.policies):
                raise InputError(f"No policy has the param `{name}`: {', '.join(each.key for each in self.policies)}.")

    def asks_for(self, name: str) -> bool:
        return any(name in names for names in self._inputs)

    def run(
        self, logits: Tensor, given: Mapping[str, Callable[[], Tensor]], names: Callable[[], Sequence[str]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The logits to sample from, the verdicts int8 (rows,), and the flags of all policies. Waits for no device. `names`: of the
        requests of the rows, for the decision logs of policies that have one."""
        made: dict[str, Tensor] = {}
        flags: list[Tensor] = []
        requests = names() if self._is_logged else None
        for known, policy, inputs in zip(self._known, self.policies, self._inputs, strict=True):
            for name in inputs:
                if name == "verdict" and name not in made:
                    made[name] = torch.zeros(logits.shape[0], dtype=torch.int8, device=logits.device)
                elif name not in made:
                    made[name] = given[name]()
            outputs = known.run([logits, *(made[name] for name in inputs)], requests)
            logits, verdict, f = _checked(policy, logits, outputs)
            made["verdict"] = torch.maximum(made["verdict"], verdict) if "verdict" in made else verdict
            flags.append(f)
        return logits, made["verdict"], err.merge(*flags) if len(flags) > 1 else flags[0]


class _Known:
    """Runs one policy with those of the given params that its live version has: a reload may add some, and a version that comes back
    has none of these. To ask for them takes longer than a small policy, so it is asked only when the version has changed: the call says
    which one answered, and runs again if that one takes others. Of a policy with state the number of the live version is read before each
    call, for a call that runs again would count twice."""

    def __init__(self, policy: Policy, given: Mapping[str, Any]) -> None:
        self._policy, self._given = policy, given
        self._ask()

    def _ask(self) -> None:
        signature = self._policy.signature
        self._bound = BoundParams({name: value for name, value in self._given.items() if name in signature["params"]})
        self._has_state = bool(signature["state"])
        self._version = 0

    def run(self, inputs: Sequence[Tensor], requests: Sequence[str] | None) -> Sequence[Tensor]:
        if not self._given:
            return self._policy.run(inputs, sample_ids=requests)
        if self._has_state:
            live = self._policy._live_version
            if live != self._version:
                self._ask()
                self._version = live
            return self._call(inputs, requests)[0]
        before = self._bound.values
        try:
            outputs, version = self._call(inputs, requests)
        except InputError:  # also of a param that the version that is live now has not
            self._ask()
            if self._bound.values == before:
                raise
            return self._call(inputs, requests)[0]
        if version != self._version:
            self._ask()
            if self._bound.values != before:
                return self._call(inputs, requests)[0]
            self._version = version
        return outputs

    def _call(self, inputs: Sequence[Tensor], requests: Sequence[str] | None) -> tuple[Sequence[Tensor], int]:
        if not self._policy._is_logged:
            return self._policy._call_with_params(inputs, self._bound)
        told: dict[str, Any] = {}
        outputs = self._policy.run(inputs, params=self._bound.values, info=told, sample_ids=requests)
        return outputs, told["version"]


def _checked(policy: Policy, given: Tensor, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """The outputs, or an error: another order, or a verdict of another kind, would broadcast to nonsense without a word."""
    if len(outputs) != 3:
        raise InputError(f"{policy.key} returned {len(outputs)} tensors; a policy on logits returns three: logits, verdict, flags.")
    logits, verdict, f = outputs
    if logits.shape != given.shape or verdict.dtype != torch.int8 or verdict.shape != given.shape[:1] or f.shape[:1] != given.shape[:1]:
        came = ", ".join(f"{each.dtype} {tuple(each.shape)}" for each in outputs)
        raise InputError(
            f"{policy.key} returned {came} for logits {tuple(given.shape)}; a policy on logits returns three: logits of this shape, "
            f"verdict int8 {tuple(given.shape[:1])}, flags."
        )
    return outputs


def _policy(given: Policy | str | os.PathLike[str]) -> Policy:
    if isinstance(given, Policy):
        return given
    if isinstance(given, (str, os.PathLike)):
        return shared(os.path.abspath(given))
    raise InputTypeError(f"A policy of a processor of logits is a triage.Policy or the path of one; got {arguments.shown(given)}.")


def _tokens(eos: Any) -> tuple[int, ...]:
    given = eos.tolist() if hasattr(eos, "tolist") else eos  # of a tensor, or of NumPy
    tokens = () if given is None else tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(isinstance(each, int) and each >= 0 for each in tokens):
        raise InputError(f"`eos` is the id of a token, or a list of them of which the first ends a request; got {eos!r}.")
    return tokens


def _inputs(policy: Policy, known: Sequence[str]) -> tuple[str, ...]:
    names = policy.inputs[1:]
    for name in names:
        if name not in known and name != "verdict":
            raise InputError(
                f"{policy.key} asks for an input `{name}`; there are: the logits first, then by name: verdict, {', '.join(known)}."
            )
    return names


def newest(requests: Sequence[tuple[Sequence[int], Sequence[int]]], window: int, device: torch.device) -> Tensor:
    """Histories int64 (rows, window), the newest token last, of (prompt, output) on the host; -1 in front of shorter ones."""
    rows = []
    for prompt, output in requests:
        new = list(output[-window:])
        left = window - len(new)
        tokens = [*prompt[-left:], *new] if left else new
        rows.append([-1] * (window - len(tokens)) + tokens)
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, window).to(device)


# --- in an engine, whose processes nobody hands an object to ---


def configured(mine: Mapping[str, Any], eos: int | Sequence[int] | None) -> tuple[Steps, int, list[Watch]]:
    """Policies, the length of histories, and watches, from the configuration of an engine or the environment."""
    for name in mine:
        if name not in ("policies", "eos", "params", "history", "decision_log"):
            raise InputError(f"The configuration of triage has no `{name}`; it has: policies, eos, params, history, decision_log.")
    policies = mine.get("policies") or [each for each in os.environ.get("TRIAGE_POLICIES", "").split(os.pathsep) if each]
    if not policies:
        raise InputError(
            f"There is no policy for the logits: name files of policies in TRIAGE_POLICIES, with {os.pathsep!r} between them "
            f"(vLLM: also in additional_config, as {{'triage': {{'policies': [...]}}}})."
        )
    if isinstance(policies, str):
        policies = [policies]
    said = os.environ.get("TRIAGE_EOS", "")
    if said and not said.isdecimal():
        raise InputError(f"TRIAGE_EOS is the id of a token; got {said!r}.")
    log = mine.get("decision_log", os.environ.get("TRIAGE_DECISION_LOG")) or None
    runtime = None if log is None else Runtime(decision_log=log)
    loaded = policies if runtime is None else [runtime.load(os.path.abspath(each)) for each in policies]
    steps = Steps(loaded, mine.get("eos", int(said) if said else eos), mine.get("params"), ("request_ids", "history"))
    window = mine.get("history", 256)
    if not isinstance(window, int) or window < 1:
        raise InputError(f"`history` is a number of tokens, at least 1; got {window!r}.")
    folders = {os.path.dirname(each.path) for each in steps.policies if each.path}
    follow = watch if runtime is None else runtime.watch
    return steps, window, [follow(folder) for folder in sorted(folders)]


def comes_later(verdict: Tensor) -> bool:
    """Whether to read its values now would wait for a device."""
    return not verdict.is_cpu


def log_end(request: Any, step: int) -> None:
    _log.warning("a policy ended request %s: its logits are bad", request)


class Ended:
    """Tells `told` which requests a policy ended in which step, without waiting for the device: verdicts are read when they have come,
    on a device at the earliest a step later."""

    def __init__(self, told: Callable[[Any, int], None] = log_end) -> None:
        self._told = told
        self._steps = itertools.count()
        self._pending: deque[tuple[Any, int, Tensor, Tensor | Sequence[Any]]] = deque()

    def note(self, verdict: Tensor, requests: Tensor | Sequence[Any]) -> None:
        """The verdicts of the next step, and for each the request."""
        self.tell()
        step = next(self._steps)
        if not verdict.is_cuda:
            self._tell_step(step, verdict.tolist(), requests)
            return
        cuda: Any = torch.cuda
        event = cuda.Event()
        if isinstance(requests, Tensor):
            requests = requests.to("cpu", non_blocking=True)
        self._pending.append((event, step, verdict.to("cpu", non_blocking=True), requests))
        event.record()

    def note_none(self) -> None:
        """The next step ends no request, as is known without a look at its verdicts."""
        next(self._steps)

    def tell(self, wait: bool = False) -> None:
        while self._pending:
            event, step, verdict, requests = self._pending[0]
            if not event.query():
                if not wait:
                    return
                event.synchronize()
            self._pending.popleft()
            self._tell_step(step, verdict.tolist(), requests)

    def _tell_step(self, step: int, verdict: Sequence[int], requests: Tensor | Sequence[Any]) -> None:
        if 2 not in verdict:
            return
        for row, said in enumerate(verdict):
            if said == 2:
                self._told(int(requests[row]) if isinstance(requests, Tensor) else requests[row], step)
