"""triage.sglang with the classes of SGLang itself: its requests, its batches, and the function that applies processors to a batch."""

from __future__ import annotations

import inspect
from array import array
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("sglang")
from sglang.srt.layers.sampler import apply_custom_logit_processor  # noqa: E402
from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req  # noqa: E402
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor  # noqa: E402
from sglang.srt.sampling.sampling_batch_info import ProcessorEntry  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402

import triage.sglang  # noqa: E402

SERVING = Path(__file__).resolve().parents[3] / "scripts/policies/serving"
EOS, NAN, GONE = 2, float("nan"), [float("-inf"), float("-inf"), 0.0, float("-inf")]
TEXT = triage.sglang.LogitProcessor.to_str()


@pytest.fixture
def policies(monkeypatch):
    def use(*names: str) -> None:
        monkeypatch.setenv("TRIAGE_POLICIES", ":".join(str(SERVING / f"{each}.lua") for each in names))
        monkeypatch.setenv("TRIAGE_EOS", str(EOS))
        triage.sglang._shared.cache_clear()

    return use


def request(rid: str, prompt=(1,), output=(), **custom) -> Req:
    params = SamplingParams(max_new_tokens=8, custom_params=custom)
    params.normalize(None)
    given = Req(rid, "", array("q", prompt), params, custom_logit_processor=TEXT, vocab_size=4)
    given.output_ids.extend(output)
    return given


class Batch(SimpleNamespace):
    def __len__(self):
        return len(self.custom_params)


def apply(logits: torch.Tensor, requests: list[Req], rows: list[int]) -> torch.Tensor:
    """Rows that did not ask for the processor are left out, as SGLang does."""
    entry = ProcessorEntry(CustomLogitProcessor.from_str(TEXT), rows, torch.tensor(rows))
    params = [each.sampling_params.custom_params for each in requests]
    apply_custom_logit_processor(logits, Batch(custom_params=params, custom_logit_processor={1: entry}, device="cpu"))
    return logits


def bad(rows: int, *which: int) -> torch.Tensor:
    x = torch.arange(rows * 4, dtype=torch.float32).reshape(rows, 4)
    x[list(which)] = NAN
    return x


def test_the_processor_has_the_parameters_of_the_interface():
    assert issubclass(triage.sglang.LogitProcessor, CustomLogitProcessor)
    mine, theirs = (inspect.signature(each.__call__).parameters for each in (triage.sglang.LogitProcessor, CustomLogitProcessor))
    assert list(mine) == list(theirs)
    assert list(inspect.signature(FINISH_ABORT).parameters)[:3] == ["message", "status_code", "err_type"]
    assert type(CustomLogitProcessor.from_str(TEXT)) is triage.sglang.LogitProcessor


def test_a_batch(policies):
    policies("nan_rows")
    requests = [request(each) for each in "abc"]
    out = apply(bad(3, 0, 2), requests, [1, 2])
    assert out[0].isnan().all() and torch.equal(out[1], bad(3)[1]) and out[2].tolist() == GONE
    requests[2].output_ids.append(EOS)
    requests[2].eos_token_ids = {EOS}
    requests[2].update_finish_state()
    assert requests[2].finished_reason.to_json()["type"] == "stop"


def test_history(policies):
    policies("repetition")
    requests = [request("a", [9] * 50, [9] * 20), request("b", range(10), [3])]
    assert [row.tolist() == GONE for row in apply(bad(2), requests, [0, 1])] == [True, False]


def test_an_aborted_request_is_an_error_and_leaves_no_cache(policies):
    policies("nan_rows")
    requests = [request("a", triage_on_bad="abort"), request("b", triage_on_bad="abort"), request("c", triage_on_bad="again")]
    assert not requests[0].skip_radix_cache_insert
    apply(bad(3, 0), requests, [0, 1, 2])
    for each in requests:
        each.output_ids.append(EOS)
        each.update_finish_state()
    reason, _, wrong = (each.finished_reason and each.finished_reason.to_json() for each in requests)
    assert (reason["type"], reason["status_code"], reason["err_type"]) == ("abort", 503, "BadLogitsError")
    assert requests[0].skip_radix_cache_insert and not requests[1].skip_radix_cache_insert
    assert requests[1].to_finish is None and getattr(requests[1].finished_reason, "status_code", None) is None
    assert (wrong["type"], wrong["status_code"]) == ("abort", 400) and "got 'again'" in wrong["message"]
