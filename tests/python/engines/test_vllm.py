"""triage.vllm with the classes of vLLM itself: its builder of batch updates, its loaders, its states of requests."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("vllm")
import vllm.platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402

vllm.platforms.current_platform = CpuPlatform()  # it takes the one that its wheel was built for
from vllm import SamplingParams  # noqa: E402
from vllm.v1.sample.logits_processor import (  # noqa: E402
    BatchUpdateBuilder,
    LogitsProcessor,
    MoveDirectionality,
    build_logitsprocs,
)
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, build_custom_logits_processors  # noqa: E402
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as OfV2  # noqa: E402

import triage.vllm  # noqa: E402

SERVING = Path(__file__).resolve().parents[3] / "scripts/policies/serving"
EOS, NAN, GONE = 2, float("nan"), [float("-inf"), float("-inf"), 0.0, float("-inf")]


def config(*policies: str, **options):
    mine = {"policies": [str(SERVING / f"{each}.lua") for each in policies], **options}
    return SimpleNamespace(
        additional_config={"triage": mine},
        model_config=SimpleNamespace(hf_config=SimpleNamespace(eos_token_id=EOS)),
        speculative_config=None,
        scheduler_config=SimpleNamespace(max_num_seqs=8),
    )


def logits(*bad: int, rows: int = 3) -> torch.Tensor:
    x = torch.arange(rows * 4, dtype=torch.float32).reshape(rows, 4)
    x[list(bad), 0] = NAN
    return x


@pytest.mark.parametrize(("mine", "theirs"), [(triage.vllm.LogitsProcessor, LogitsProcessor), (triage.vllm.LogitsProcessorV2, OfV2)])
def test_methods_have_the_parameters_of_the_interface(mine, theirs):
    assert issubclass(mine, theirs) and not inspect.isabstract(mine)
    overridden = [name for name in vars(mine) if callable(getattr(theirs, name, None)) and name in vars(theirs)]
    assert {"__init__", "apply"} <= set(overridden)
    for name in overridden:
        assert list(inspect.signature(getattr(mine, name)).parameters) == list(inspect.signature(getattr(theirs, name)).parameters), name


def test_contexts_and_states_have_what_is_read_of_them():
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcRequestState

    assert {"expanded_idx_mapping", "pos"} <= {each.name for each in fields(LogitsContext)}
    assert {"device", "max_num_reqs", "all_token_ids", "total_len"} <= {each.name for each in fields(LogitsProcRequestState)}


def of_v1(*policies: str, **options):
    """Made as the model runner makes it, from the name on the command line."""
    built = build_logitsprocs(config(*policies, **options), torch.device("cpu"), False, False, ["triage.vllm:LogitsProcessor"])
    found = [each for each in built.non_argmax_invariant if isinstance(each, triage.vllm.LogitsProcessor)]
    assert len(found) == 1
    return found[0]


def test_v1_follows_the_updates_of_a_batch():
    processor, batch = of_v1("nan_rows", "quarantine", params={"most": 2, "steps": 8}), BatchUpdateBuilder()
    outputs: list[list[int]] = [[], [], []]
    batch.added += [(row, SamplingParams(), [1], outputs[row]) for row in range(3)]
    processor.update_state(batch.get_and_reset(3))
    processor.apply(logits(0))
    assert processor.verdict.tolist() == [1, 0, 0]
    processor.update_state(batch.get_and_reset(3))  # nothing happened: None
    batch.moved.append((0, 2, MoveDirectionality.SWAP))
    processor.update_state(batch.get_and_reset(3))
    processor.apply(logits(0, 2))  # the first bad step of one, the second of the other
    assert processor.verdict.tolist() == [1, 0, 2]
    batch.removed_append(0)
    assert batch.pop_removed() == 0  # vLLM takes the free row for the one that it adds
    batch.added.append((0, SamplingParams(), None, []))
    processor.update_state(batch.get_and_reset(3))
    processor.apply(logits(0))  # the first of the new one; who was ended stays so
    assert processor.verdict.tolist() == [1, 0, 2]
    batch.removed_append(0)
    batch.moved.append((2, 0, MoveDirectionality.UNIDIRECTIONAL))
    processor.update_state(batch.get_and_reset(2))
    processor.apply(logits(0, rows=2))
    assert processor.verdict.tolist() == [2, 0]


def test_v1_ends_a_row_and_keeps_the_others():
    processor, batch = of_v1("nan_rows"), BatchUpdateBuilder()
    batch.added += [(row, SamplingParams(), [1], []) for row in range(3)]
    processor.update_state(batch.get_and_reset(3))
    given = logits()
    given[1] = NAN
    out = processor.apply(given.clone())
    assert out[1].tolist() == GONE and torch.equal(out[[0, 2]], given[[0, 2]])


def test_v2_follows_the_slots():
    states = SimpleNamespace(device=torch.device("cpu"), max_num_reqs=4, vocab_size=4, prompt_len=None, prefill_len=None)
    states.all_token_ids = SimpleNamespace(gpu=torch.full((4, 64), 9, dtype=torch.int32))
    states.total_len = SimpleNamespace(gpu=torch.tensor([20, 0, 40, 0], dtype=torch.int32))
    settings = config("nan_rows", "repetition", params={"tokens": 32})
    (processor,) = build_custom_logits_processors(settings, states, False, ["triage.vllm:LogitsProcessorV2"])
    for slot in 2, 0:
        assert processor.add_request(slot, SamplingParams())
    processor.apply_staged_writes()
    rows = torch.tensor([0, 2], dtype=torch.int32)
    others = {each.name: None for each in fields(LogitsContext)}
    given = logits(0, rows=2)
    out = processor.apply(given, LogitsContext(**{**others, "expanded_idx_mapping": rows, "pos": torch.tensor([19, 39])}))
    assert processor.verdict.tolist() == [1, 2] and out[1].tolist() == GONE
    assert (processor._ids[[2, 0]].diff() == 1).all()


@pytest.mark.parametrize("runner", ["LogitsProcessor", "LogitsProcessorV2"])
def test_a_request_cannot_be_aborted(runner):
    with pytest.raises(triage.InputError, match="on_bad"):
        getattr(triage.vllm, runner)(config("nan_rows", on_bad="abort"), *([None] * (2 if runner == "LogitsProcessor" else 1)))
