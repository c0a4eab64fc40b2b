"""Serving policies in vLLM: its processors of logits for both model runners.

    TRIAGE_POLICIES=/etc/policies/nan_rows.lua vllm serve MODEL --logits-processors triage.vllm:LogitsProcessor

Or from Python, with the configuration that every worker gets:

    LLM(MODEL, logits_processors=["triage.vllm:LogitsProcessor"],
        additional_config={"triage": {"policies": ["/etc/policies/nan_rows.lua"], "eos": 2, "params": {}, "history": 256}})

`LogitsProcessor` is for the V1 model runner, `LogitsProcessorV2` for the V2 one (VLLM_USE_V2_MODEL_RUNNER=1). Policies may ask for
`verdict`, `request_ids` and `history`; `eos` is that of TRIAGE_EOS, else of the model's configuration. Policies follow their files.

A request that a policy ends has finish_reason `stop`: vLLM gives a processor neither the request nor its id, and no way to end it as an
error, so `on_bad` may only be "stop".

Tested with the classes of vLLM 0.32.0 and 0.33.0 (`./dev engines`), without a model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:  # a checker has another vLLM, or none
    MoveDirectionality: Any
    _ForV1: TypeAlias = object
    _ForV2: TypeAlias = object
else:
    try:
        from vllm.v1.sample.logits_processor import LogitsProcessor as _ForV1
        from vllm.v1.sample.logits_processor import MoveDirectionality
    except ImportError as error:
        raise ImportError(f"triage.vllm needs vLLM with its V1 engine (pip install vllm), and it cannot be imported: {error}") from error
    try:
        from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as _ForV2
    except ImportError:  # an older one
        _ForV2 = None

from ._decoding import Ended, configured, new_requests, newest
from ._errors import InputError


def _of_engine(vllm_config: Any) -> tuple[Any, int, list[Any]]:
    """What `configured` gives, from the configuration of the engine."""
    additional = getattr(vllm_config, "additional_config", None)
    mine = dict(additional.get("triage", {})) if isinstance(additional, Mapping) else {}
    if (on_bad := mine.pop("on_bad", "stop")) != "stop":
        raise InputError(
            f"`on_bad` of triage.vllm is 'stop', the end as after `eos`; got {on_bad!r}. vLLM does not tell a processor of logits which "
            f"request a row belongs to and lets it end none as an error."
        )
    model = getattr(vllm_config, "model_config", None)
    texts = (getattr(getattr(model, name, None), "eos_token_id", None) for name in ("hf_text_config", "hf_config"))
    return configured(mine, next((each for each in texts if each is not None), None))


@dataclass(eq=False)
class _Request:
    number: int
    prompt: Sequence[int]
    output: Sequence[int]  # vLLM's own list, which grows


class LogitsProcessor(_ForV1):
    """For the V1 model runner, in which a request keeps a row until the engine says that it moved."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._steps, self._window, self._watches = _of_engine(vllm_config)
        self._requests: dict[int, _Request] = {}  # by row
        self._away: deque[_Request] = deque(maxlen=1024)
        self._ids: Tensor | None = None
        self._ended = Ended()
        self.verdict: Tensor | None = None  # of the last step

    def is_argmax_invariant(self) -> bool:
        return False

    def needs_output_token_ids(self) -> bool:
        return bool(self._steps.asks_for("history"))

    def update_state(self, batch_update: Any) -> None:
        self._ended.tell()
        if batch_update is None:
            return
        rows, self._ids = self._requests, None
        left = [*batch_update.removed, *(row for row, *_ in batch_update.added)]  # who is added may replace who was there
        self._away.extend(each for each in [rows.pop(row, None) for row in left] if each is not None)
        for row, _, prompt, output in batch_update.added:
            rows[row] = self._request(prompt or (), output)
        for a, b, way in batch_update.moved:
            from_a, from_b = rows.pop(a, None), rows.pop(b, None)
            if from_a is not None:
                rows[b] = from_a
            if way == MoveDirectionality.SWAP and from_b is not None:
                rows[a] = from_b
            elif from_b is not None:
                self._away.append(from_b)

    def _request(self, prompt: Sequence[int], output: Sequence[int]) -> _Request:
        """vLLM takes a request out that it preempts, or does not schedule in a step. It comes back with the list of tokens that it
        had; under asynchronous scheduling with another one, and is a new request."""
        for each in (*self._away, *self._requests.values()):  # a move later in the same update may take its row
            if each.output is output:
                if each in self._away:
                    self._away.remove(each)
                each.prompt = prompt
                return each
        return _Request(new_requests(1), prompt, output)

    def apply(self, logits: Tensor) -> Tensor:
        batch = [self._requests.get(row) for row in range(logits.shape[0])]
        if self._ids is None or len(self._ids) != len(batch):  # they change when the batch does, not with each step
            self._ids = torch.tensor([each.number if each else -1 for each in batch], dtype=torch.int64).to(logits.device)
        ids = self._ids

        def history() -> Tensor:
            tokens = [(each.prompt, each.output) if each else ((), ()) for each in batch]
            return newest(tokens, self._window, logits.device)

        given = {"request_ids": lambda: ids, "history": history}
        logits, self.verdict, _ = self._steps.run(logits, given, lambda: [str(each.number) if each else "" for each in batch])
        self._ended.note(self.verdict, [each.number if each else -1 for each in batch])
        return logits


if _ForV2 is not None:

    class LogitsProcessorV2(_ForV2):
        """For the V2 model runner, in which a request has a slot, and the rows of a step say which slots they are of."""

        def __init__(self, vllm_config: Any, req_states: Any) -> None:
            self._steps, self._window, self._watches = _of_engine(vllm_config)
            self._states = req_states
            self._numbers = torch.full((req_states.max_num_reqs,), -1, dtype=torch.int64)  # by slot
            self._ids = self._numbers.to(req_states.device, copy=True)
            self._changed = False
            self._ended = Ended()
            self.verdict: Tensor | None = None  # of the last step

        def add_request(self, req_idx: int, sampling_params: Any) -> bool:
            self._numbers[req_idx] = new_requests(1)
            self._changed = True
            return True

        def apply_staged_writes(self) -> None:
            self._ended.tell()
            if self._changed:
                self._ids = self._numbers.to(self._states.device, copy=True)
                self._changed = False

        def apply(self, logits: Tensor, ctx: Any) -> Tensor:
            slots = ctx.expanded_idx_mapping.to(torch.int64)
            ids = self._ids[slots]
            given = {"request_ids": lambda: ids, "history": lambda: self._history(slots, ctx.pos)}
            logits, self.verdict, _ = self._steps.run(logits, given, lambda: [str(each) for each in ids.tolist()])
            self._ended.note(self.verdict, ids)
            return logits

        def _history(self, slots: Tensor, pos: Tensor) -> Tensor:
            """The tokens up to the one at `pos`. Of drafts, which are not committed, there are none: they count as no token."""
            tokens = self._states.all_token_ids.gpu
            place = pos.to(torch.int64).unsqueeze(1) + torch.arange(1 - self._window, 1, device=tokens.device)
            there = (place >= 0) & (place < self._states.total_len.gpu[slots].unsqueeze(1))
            return torch.where(there, tokens[slots.unsqueeze(1), place.clamp(min=0, max=tokens.shape[1] - 1)].to(torch.int64), -1)
