"""`triage.LogitsProcessor`: serving policies in the `generate` of Hugging Face's transformers."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from . import _arguments as arguments
from ._decoding import Ended, Steps, comes_later, new_requests
from ._errors import InputError, InputTypeError
from ._policy import Policy
from .flags import UnpackedError, unpack_all

_log = logging.getLogger("triage")
_LAST_CHOICE = -1e6  # the score at which a bad hypothesis of a beam search ends: any healthy one is better, none is worse


@dataclass(frozen=True)
class Finding:
    """A row that a policy repaired (verdict 1) or ended (2) in a step; steps count from 0, the first new token."""

    step: int
    row: int
    request: int
    verdict: int
    errors: tuple[UnpackedError, ...]


def _codes(policies: Sequence[Policy]) -> dict[str, int]:
    """What the policies call the free codes, but for those that two of them call differently."""
    names: dict[int, set[str]] = {}
    for policy in policies:
        for name, number in policy.signature["codes"].items():
            names.setdefault(number, set()).add(name)
    return {each.pop(): number for number, each in names.items() if len(each) == 1}


def _beams_of_generate() -> int | None:
    """The num_beams of the `generate` that calls, None where none does. transformers does not tell it to a processor, and without it
    the best hypothesis of a request would be one that a policy ended. Only the frame of `generate` itself is read: to read one keeps what
    its names hold, and in a frame of a step that would be the logits."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "generate" and "generation_config" in frame.f_code.co_varnames:
            return getattr(frame.f_locals.get("generation_config"), "num_beams", None)
        frame = frame.f_back
    return None


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


class LogitsProcessor:
    """Runs policies on the logits of each step of one `generate`.

        processor = triage.LogitsProcessor("nan_rows.lua", eos=model.generation_config.eos_token_id)
        model.generate(**inputs, logits_processor=[processor])
        processor.ended          # the step in which each request was ended, -1 where none was

    policies: loaded ones or paths, run in this order; each returns (logits, verdict, flags). They may ask by name for `verdict`
    (the largest of the policies before), `request_ids`, `history` (the newest `history` tokens of each row), and what `inputs`
    has: tensors with a row for each of the scores, or functions from `input_ids` to one.

    eos: the token, or tokens, at which `generate` stops; the first of them ends a request whose verdict is 2.
    pad: the token in front of shorter prompts, -1 if there is none; needed for `history`.
    num_beams: as in `generate`; a request has so many rows. assisted: `generate` has an assistant_model or prompt_lookup_num_tokens.
    params: values of params of the policies, for this processor alone.
    on_end: called as on_end(request, step) once for each request that a policy ended, on the thread of `generate`, which an exception of
    it ends: on the CPU in that step, on a device in a later one, at the latest by `finish_reasons` or `report`. With assisted, by
    `finish_reasons` alone, which is told the tokens that were taken.

    A processor belongs to one generation and one thread; the policies may be shared. It never waits for the device, and keeps
    33 bytes (with flags of the usual width) for each row and step there.
    """

    supports_continuous_batching = False  # transformers asks: its rows are not requests there

    def __init__(
        self,
        *policies: Policy | str | os.PathLike[str],
        eos: int | Sequence[int] | Tensor | None = None,
        pad: int | None = None,
        num_beams: int = 1,
        assisted: bool = False,
        history: int = 256,
        params: Mapping[str, Any] | None = None,
        inputs: Mapping[str, Tensor | Callable[[Tensor], Tensor]] | None = None,
        on_end: Callable[[int, int], None] | None = None,
    ) -> None:
        given = {} if inputs is None else arguments.by_name("LogitsProcessor", "inputs", inputs, "tensors and functions")
        self._inputs = dict(given)
        self._steps = Steps(policies, eos, params, ("request_ids", "history", *self._inputs))
        self._asks = any(self._steps.asks_for(name) for name in ("request_ids", "history", *self._inputs))
        for name in self._inputs:
            if not self._steps.asks_for(name):
                raise InputError(f"No policy asks for the input `{name}`: {', '.join(each.key for each in self._steps.policies)}.")
        if self._steps.asks_for("history") and "history" not in self._inputs and pad is None:
            raise InputError("A policy reads histories: pass pad=, the token in front of shorter prompts (-1: there is none).")
        if on_end is not None and not callable(on_end):
            raise InputTypeError(f"`on_end` is called as on_end(request, step); got {type(on_end).__name__}.")
        for what, number in (("num_beams", num_beams), ("history", history)):
            arguments.whole("LogitsProcessor", what, number, 1)
        if assisted and any(each.signature["state"] for each in self._steps.policies):
            raise InputError("A policy with state counts steps, and in assisted decoding many never become tokens: leave it out.")
        self._pad, self._beams, self._assisted, self._window, self._on_end = pad, num_beams, assisted, history, on_end
        self.reset()

    def reset(self) -> None:
        """Forgets the generation, so that the next call begins another."""
        self._prompt = self._rows = self._first = 0
        self._verdicts: list[Tensor] = []
        self._flags: list[Tensor] = []
        self._begins: Tensor | None = None
        self._ids: Tensor | None = None
        self._stopped: Tensor | None = None
        self._ended, self._noted, self._told = Ended(self._tell_end), 0, set[int]()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self._find_step(input_ids, scores)
        finished = cache(partial(self._finished, input_ids))
        given = self._given(input_ids, scores.device, finished) if self._asks else {}
        scores, verdict, f = self._steps.run(scores, given, self._names)
        if self._beams > 1:  # the token `eos` has the score 0 in a row that ends, which no healthy hypothesis can have
            scores = scores + torch.where(verdict == 2, _LAST_CHOICE, -0.0).to(scores.dtype).unsqueeze(1)
        is_clean = not comes_later(verdict) and not any(verdict.tolist())
        if not is_clean:
            verdict = verdict.masked_fill(finished(), 0)
        self._verdicts.append(verdict)
        self._flags.append(f)
        if self._assisted:
            return scores
        if is_clean and self._noted == len(self._verdicts) - 1:  # most steps: between those of the model each microsecond counts
            self._noted += 1
            self._ended.note_none()
        else:
            self._note_ends()
        return scores

    def _given(self, input_ids: Tensor, device: torch.device, finished: Callable[[], Tensor]) -> dict[str, Callable[[], Tensor]]:
        given: dict[str, Callable[[], Tensor]] = {
            "request_ids": lambda: self._request_ids(device).masked_fill(finished(), -1),
            "history": lambda: self._history(input_ids),
        }
        for name, each in self._inputs.items():
            given[name] = partial(each, input_ids) if callable(each) else partial(_as_it_is, each)
        return given

    def _names(self) -> list[str]:
        return [str(self._first + row // self._beams) for row in range(self._rows)]

    def _note_ends(self, steps: int | None = None, wait: bool = False) -> None:
        for verdict in self._verdicts[self._noted : steps]:
            each = verdict if self._beams == 1 else verdict.reshape(-1, self._beams).amin(1)  # which ends with its last row
            self._noted += 1  # whatever on_end raises
            self._ended.note(each, range(len(each)))
        self._ended.tell(wait)

    def _tell_end(self, request: int, step: int) -> None:
        if request in self._told:  # `generate` was told to go on at `eos`
            return
        self._told.add(request)
        _log.warning("a policy ended request %d (sample_id %d) in step %d: its logits are bad", request, self._first + request, step)
        if self._on_end is not None:
            self._on_end(request, step)

    def _find_step(self, input_ids: Tensor, scores: Tensor) -> None:
        rows, length = scores.shape[0], input_ids.shape[1]
        if not self._verdicts:
            beams = _beams_of_generate()
            if beams is not None and beams != self._beams:
                raise InputError(
                    f"`generate` runs with num_beams={beams}, and this processor was made for {self._beams}: give it num_beams={beams}."
                )
            if rows % self._beams:
                raise InputError(f"num_beams={self._beams}, and the scores have {rows} rows: pass the num_beams of `generate`.")
            self._rows, self._prompt, self._first = rows, length, new_requests(rows // self._beams)
            return
        step = length - self._prompt
        if rows != self._rows or step > len(self._verdicts) or step < 0 or (step < len(self._verdicts) and not self._assisted):
            raise InputError(
                f"This processor belongs to a generation of {self._rows} rows that goes on at length {self._prompt + len(self._verdicts)}; "
                f"{rows} rows of length {length} came. Make one for each `generate`, or call reset() before; for assisted decoding "
                f"pass assisted=True."
            )
        del self._verdicts[step:], self._flags[step:]  # drafts of an assistant that were not taken

    def _finished(self, input_ids: Tensor) -> Tensor:
        """bool (rows,): `generate` has stopped the row. Where rows stay requests, only new tokens are looked at."""
        if self._stopped is None or self._beams > 1 or self._assisted:
            self._stopped, self._looked_at = torch.zeros(self._rows, dtype=torch.bool, device=input_ids.device), self._prompt
        new = input_ids[:, self._looked_at :]
        self._looked_at = input_ids.shape[1]
        for token in self._steps.eos:
            self._stopped = self._stopped | (new == token).any(1)
        return self._stopped

    def _request_ids(self, device: torch.device) -> Tensor:
        if self._ids is None:
            self._ids = self._first + torch.arange(self._rows, device=device) // self._beams
        return self._ids

    def _history(self, input_ids: Tensor) -> Tensor:
        if self._begins is None:  # of a prompt, behind its padding
            padding = input_ids.eq(-1 if self._pad is None else self._pad)
            self._begins = padding.to(torch.int8).cumprod(1).sum(1, keepdim=True)
        length = input_ids.shape[1]
        first = max(0, length - self._window)
        place = torch.arange(first, length, device=input_ids.device)
        return torch.where(place < self._begins, -1, input_ids[:, first:])

    # --- what happened ---

    @property
    def verdicts(self) -> Tensor:
        """int8 (steps, rows): 0 go on, 1 repaired, 2 end this request; 0 after the end of a row. On the device of the scores."""
        return torch.stack(self._verdicts) if self._verdicts else torch.zeros(0, self._rows, dtype=torch.int8)

    @property
    def flags(self) -> Tensor:
        """(steps, rows, words): the flags of each step."""
        if not self._flags:
            raise InputError("This processor has seen no step yet, so there are no flags.")
        return torch.stack(self._flags)

    @property
    def ended(self) -> Tensor:
        """int64 (requests,): the step in which a request was ended, -1 where none was. A request with beams ends with the last
        healthy one."""
        if not self._verdicts:
            return torch.zeros(0, dtype=torch.int64)
        bad = (self.verdicts.reshape(len(self._verdicts), -1, self._beams) == 2).all(2)
        return torch.where(bad.any(0), bad.to(torch.int8).argmax(0), -1)

    def finish_reasons(self, sequences: Tensor) -> list[str]:
        """Why each row of what `generate` returned ended: "policy", "eos", or "other" (its length, a stop string). Where `generate` pads
        with `eos`, a row that a stop string ended reads "eos" too, if others went on. Waits for the device."""
        if not isinstance(sequences, Tensor) or sequences.dim() != 2:
            raise InputTypeError("`finish_reasons` takes the tokens that `generate` returned, of shape (rows, length): its `sequences`.")
        requests = self._rows // self._beams
        if not requests or len(sequences) % requests:
            raise InputError(f"`finish_reasons` takes the rows of this generation, of {requests} requests; got {len(sequences)}.")
        self._note_ends(sequences.shape[1] - self._prompt, wait=True)
        each, ended = len(sequences) // requests, self.ended.tolist()
        stopped = torch.isin(sequences[:, self._prompt :], torch.tensor(self._steps.eos, device=sequences.device)).any(1).tolist()
        return [
            "policy" if ended[row // each] >= 0 else "eos" if stopped[row] else "other" for row in range(len(sequences))
        ]

    def report(self) -> list[Finding]:
        """Every row with a verdict above 0, by step. Waits for the device."""
        if not self._assisted:
            self._note_ends(wait=True)
        findings = []
        for step, (verdict, f) in enumerate(zip(self.verdicts.tolist(), self._flags, strict=True)):
            if any(verdict):
                entries = unpack_all(f.cpu(), codes=_codes(self._steps.policies))
                findings += [Finding(step, row, row // self._beams, said, tuple(entries[row])) for row, said in enumerate(verdict) if said]
        return findings

    def __repr__(self) -> str:
        policies = ", ".join(each.key for each in self._steps.policies)
        return f"<triage.LogitsProcessor of {policies}: {self._rows} rows, {len(self._verdicts)} steps>"
