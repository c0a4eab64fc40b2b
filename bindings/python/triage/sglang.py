"""Serving policies in SGLang: a custom processor of logits.

The server finds the policies in its environment:

    TRIAGE_POLICIES=/etc/policies/nan_rows.lua TRIAGE_EOS=2 python -m sglang.launch_server --enable-custom-logit-processor ...

and a request asks for them, with a dict of custom params (it may be empty), by which SGLang tells a processor which request it is:

    {"text": ..., "custom_logit_processor": triage.sglang.LogitProcessor.to_str(), "sampling_params": {"custom_params": {}}}

With `{"triage_on_bad": "abort"}` in its custom params, a request that a policy ends is an error 503 for its client, who may send it
again, and SGLang does not keep its cache of keys and values for others. Without it (`"stop"`) its answer ends as after `eos`.

Policies may ask for `verdict`, `request_ids` and `history`. They follow their files. TRIAGE_DECISION_LOG is the file of a decision log,
which has the rid of each request with a bad row.

Tested with the classes of sglang 0.5.22 and 0.5.23 (`./dev engines`), without a model.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:  # a checker has another SGLang, or none
    CustomLogitProcessor: TypeAlias = object
else:
    try:
        from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor
    except ImportError as error:
        raise ImportError(f"triage.sglang needs SGLang (pip install sglang), and it cannot be imported: {error}") from error

from ._decoding import Ended, configured, newest

_log = logging.getLogger("triage")


@lru_cache(maxsize=1)  # SGLang makes a processor for every batch
def _shared() -> tuple[Any, int, list[Any], Ended]:
    return *configured({}, None), Ended()


@lru_cache(maxsize=1)
def _warn_of_nobody() -> None:
    _log.warning(
        "a request came without custom params, so SGLang does not tell which it is, and policies see neither its id nor its tokens: "
        "send custom_params={} with it"
    )


class LogitProcessor(CustomLogitProcessor):
    """Runs the policies of TRIAGE_POLICIES on the rows of the requests that ask for it."""

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any] | None] | None = None) -> Tensor:
        steps, window, _, ended = _shared()
        params = custom_param_list or [None] * logits.shape[0]
        requests = [_request(each) for each in params]
        names = [None if each is None else str(each.rid) for each in requests]

        def history() -> Tensor:
            tokens = [((), ()) if each is None else (each.origin_input_ids, each.output_ids) for each in requests]
            return newest(tokens, window, logits.device)

        def request_ids() -> Tensor:
            return torch.tensor([_number(each) for each in names], dtype=torch.int64).to(logits.device)

        if None in names and (steps.asks_for("history") or steps.asks_for("request_ids")):
            _warn_of_nobody()
        logits, verdict, _ = steps.run(logits, {"request_ids": request_ids, "history": history}, lambda: [each or "" for each in names])
        ended.note(verdict, names)
        _abort(verdict, [(each or {}).get("triage_on_bad", "stop") for each in params], requests)
        return logits


def _request(params: dict[str, Any] | None) -> Any:
    """SGLang's own object for the request, None if it did not say or is gone: the reference is weak."""
    try:
        request = (params or {}).get("__req__")
        return request if request is None or request.rid is not None else None
    except ReferenceError:
        return None


def _abort(verdict: Tensor, on_bad: list[Any], requests: list[Any]) -> None:
    """Ends the requests that asked for it in this very step: one later SGLang has ended them as after `eos`. So it waits for the device.
    An error would end the server; a value that is unknown is an error of its request alone."""
    asking = [row for row, each in enumerate(requests) if each is not None and on_bad[row] != "stop"]
    said = verdict.tolist() if asking else []
    for row in asking:
        if on_bad[row] != "abort":
            text = f'triage_on_bad in custom_params is "stop" or "abort"; got {on_bad[row]!r}'
            _finish(requests[row], text, HTTPStatus.BAD_REQUEST, "BadRequestError")
        elif said[row] == 2:
            requests[row].skip_radix_cache_insert = True
            text = "a policy ended this request, because its logits are bad; it may be sent again"
            _finish(requests[row], text, HTTPStatus.SERVICE_UNAVAILABLE, "BadLogitsError")


def _finish(request: Any, text: str, status: HTTPStatus, kind: str) -> None:
    if request.to_finish is None:  # else it ends already, for another reason
        batches = importlib.import_module("sglang.srt.managers.schedule_batch")
        request.to_finish = batches.FINISH_ABORT(text, status, kind)


def _number(name: str | None) -> int:
    """int64, the same for the same name; -1 for a row without a request."""
    return -1 if name is None else int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1
