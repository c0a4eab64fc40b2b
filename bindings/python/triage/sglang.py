"""Serving policies in SGLang: a custom processor of logits.

The server finds the policies in its environment:

    TRIAGE_POLICIES=/etc/policies/nan_rows.lua TRIAGE_EOS=2 python -m sglang.launch_server --enable-custom-logit-processor ...

and a request asks for them, with a dict of custom params (it may be empty), by which SGLang tells a processor which request it is:

    {"text": ..., "custom_logit_processor": triage.sglang.LogitProcessor.to_str(), "sampling_params": {"custom_params": {}}}

Policies may ask for `verdict`, `request_ids` and `history`. They follow their files.

Written against sglang 0.5.23 (python/sglang/srt/sampling/custom_logit_processor.py, python/sglang/srt/layers/sampler.py), and tested
with a stand-in of this interface, not with the engine.
"""

from __future__ import annotations

import hashlib
import logging
from functools import lru_cache
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
        requests = [_request(each) for each in custom_param_list or [None] * logits.shape[0]]
        names = [None if each is None else str(each.rid) for each in requests]

        def history() -> Tensor:
            tokens = [((), ()) if each is None else (each.origin_input_ids, each.output_ids) for each in requests]
            return newest(tokens, window, logits.device)

        def request_ids() -> Tensor:
            return torch.tensor([_number(each) for each in names], dtype=torch.int64).to(logits.device)

        if None in names and (steps.asks_for("history") or steps.asks_for("request_ids")):
            _warn_of_nobody()
        logits, verdict, _ = steps.run(logits, {"request_ids": request_ids, "history": history})
        ended.note(verdict, names)
        return logits


def _request(params: dict[str, Any] | None) -> Any:
    """SGLang's own object for the request, None if it did not say or is gone: the reference is weak."""
    try:
        request = (params or {}).get("__req__")
        return request if request is None or request.rid is not None else None
    except ReferenceError:
        return None


def _number(name: str | None) -> int:
    """int64, the same for the same name; -1 for a row without a request."""
    return -1 if name is None else int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1
