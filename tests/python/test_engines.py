"""triage.vllm and triage.sglang against stand-ins of the interfaces of vLLM 0.33.0 and sglang 0.5.23: no engine runs here.
tests/python/engines has the classes of the engines themselves."""

from __future__ import annotations

import abc
import enum
import importlib
import json
import logging
import os
import pickle
import subprocess
import sys
import types
import weakref
from types import SimpleNamespace

import pytest
import torch
from conftest import ROOT

import triage
from triage import _decoding

SERVING = ROOT / "scripts/policies/serving"
EOS, NAN, GONE = 2, float("nan"), [float("-inf"), float("-inf"), 0.0, float("-inf")]


def put(monkeypatch, name: str, **contents) -> None:
    """A module, and the packages above it."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        path = ".".join(parts[:i])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, types.ModuleType(path))
            sys.modules[path].__path__ = []
    vars(sys.modules[name]).update(contents)


class MoveDirectionality(enum.Enum):
    UNIDIRECTIONAL = enum.auto()
    SWAP = enum.auto()


class V1(abc.ABC):
    @abc.abstractmethod
    def __init__(self, vllm_config, device, is_pin_memory): ...
    @abc.abstractmethod
    def apply(self, logits): ...
    @abc.abstractmethod
    def is_argmax_invariant(self): ...
    @abc.abstractmethod
    def update_state(self, batch_update): ...


class V2(abc.ABC):
    def __init__(self, vllm_config, req_states): ...
    def add_request(self, req_idx, sampling_params):
        return True

    def apply_staged_writes(self): ...
    @abc.abstractmethod
    def apply(self, logits, ctx): ...


class Custom(abc.ABC):
    @abc.abstractmethod
    def __call__(self, logits, custom_param_list=None): ...
    @classmethod
    def to_str(cls):
        return json.dumps({"callable": pickle.dumps(cls).hex()})  # SGLang: dill, which names an importable class in the same way

    @staticmethod
    def from_str(text):
        return pickle.loads(bytes.fromhex(json.loads(text)["callable"]))()


@pytest.fixture
def engines(monkeypatch):
    put(monkeypatch, "vllm.v1.sample.logits_processor", LogitsProcessor=V1, MoveDirectionality=MoveDirectionality)
    put(monkeypatch, "vllm.v1.worker.gpu.sample.logits_processor", LogitsProcessor=V2)
    put(monkeypatch, "sglang.srt.sampling.custom_logit_processor", CustomLogitProcessor=Custom)
    put(monkeypatch, "sglang.srt.managers.schedule_batch", FINISH_ABORT=lambda *given: given)
    monkeypatch.delenv("TRIAGE_POLICIES", raising=False)
    monkeypatch.delenv("TRIAGE_EOS", raising=False)
    monkeypatch.delenv("TRIAGE_DECISION_LOG", raising=False)
    yield SimpleNamespace(vllm=importlib.import_module("triage.vllm"), sglang=importlib.import_module("triage.sglang"))
    for name in "vllm", "sglang":
        del sys.modules[f"triage.{name}"]
        delattr(triage, name)


def path(name: str) -> str:
    return str(SERVING / f"{name}.lua")


def config(*policies: str, **options):
    mine = {"policies": [path(each) for each in policies], **options}
    return SimpleNamespace(additional_config={"triage": mine}, model_config=SimpleNamespace(hf_config=SimpleNamespace(eos_token_id=EOS)))


def v1(engines, *policies: str, **options):
    return engines.vllm.LogitsProcessor(config(*policies, **options), torch.device("cpu"), False)


def update(removed=(), added=(), moved=()):
    return SimpleNamespace(batch_size=0, removed=removed, added=added, moved=moved)


def logits(*bad: int, rows: int = 3) -> torch.Tensor:
    x = torch.arange(rows * 4, dtype=torch.float32).reshape(rows, 4)
    x[list(bad), 0] = NAN
    return x


def test_vllm_v1_ends_rows_and_keeps_the_others(engines, caplog):
    processor = v1(engines, "nan_rows")
    assert issubclass(type(processor), V1) and not processor.is_argmax_invariant() and not processor.needs_output_token_ids()
    processor.update_state(update(added=[(row, None, [1], []) for row in range(3)]))
    given = logits()
    given[1] = NAN
    with caplog.at_level(logging.WARNING, "triage"):
        out = processor.apply(given.clone())
        processor.update_state(None)
    assert out[1].tolist() == GONE and torch.equal(out[[0, 2]], given[[0, 2]])
    assert processor.verdict.tolist() == [0, 2, 0]
    assert [record.args[0] for record in caplog.records] == [processor._requests[1].number]


def test_vllm_v1_requests_move(engines):
    """Quarantine with two bad steps of the same request, in other rows."""
    processor = v1(engines, "nan_rows", "quarantine", params={"most": 2, "steps": 8})
    processor.update_state(update(added=[(row, None, [1], []) for row in range(3)]))
    assert processor.apply(logits(0)).isnan().sum() == 0 and processor.verdict.tolist() == [1, 0, 0]
    processor.update_state(update(moved=[(0, 2, MoveDirectionality.SWAP)]))
    processor.apply(logits(0))  # row 0 is another request now: its first bad step
    assert processor.verdict.tolist() == [1, 0, 0]
    processor.apply(logits(2))  # the second of the request that moved
    assert processor.verdict.tolist() == [0, 0, 2]
    processor.apply(logits(0))  # the second of the one that it changed places with
    assert processor.verdict.tolist() == [2, 0, 2]
    processor.update_state(update(removed=[2, 0], moved=[(1, 0, MoveDirectionality.UNIDIRECTIONAL)]))
    processor.apply(logits(0, rows=1))
    assert processor.verdict.tolist() == [1]
    processor.update_state(update(added=[(1, None, [1], [])]))  # the row of a request that is gone: another one
    processor.apply(logits(1, rows=2))
    assert processor.verdict.tolist() == [0, 1]


def test_vllm_v1_a_request_that_was_away_is_the_one_that_it_was(engines):
    """vLLM takes requests out of the batch that it preempts or does not schedule, and adds them with the list of tokens that they had."""
    processor = v1(engines, "nan_rows", "quarantine", params={"most": 2, "steps": 8})
    outputs = [[], [], []]
    processor.update_state(update(added=[(row, None, [1], outputs[row]) for row in range(3)]))
    processor.apply(logits(1))
    processor.update_state(update(moved=[(2, 1, MoveDirectionality.UNIDIRECTIONAL)]))  # no word of the row whose place it takes
    processor.apply(logits(1, rows=2))
    processor.update_state(update(added=[(2, None, [1], outputs[1])]))
    processor.apply(logits(2))
    assert processor.verdict.tolist() == [0, 0, 2]
    processor.update_state(update(added=[(1, None, [1], []), (2, None, [1], outputs[2])]))  # in the rows of others that leave
    processor.apply(logits(1, 2))
    assert processor.verdict.tolist() == [0, 1, 2]


def test_vllm_v1_history_is_prompt_and_output(engines):
    processor = v1(engines, "repetition", params={"tokens": 32}, history=40)
    assert processor.needs_output_token_ids()
    output: list[int] = []
    processor.update_state(update(added=[(0, None, [9] * 20, output), (1, None, None, list(range(60))), (2, None, [3, 4], [])]))
    processor.apply(logits())
    assert processor.verdict.tolist() == [0, 0, 0]
    output += [9] * 12
    out = processor.apply(logits())
    assert processor.verdict.tolist() == [2, 0, 0] and out[0].tolist() == GONE


def v2_states(slots: int, length: int):
    def buffer(*size):
        return SimpleNamespace(gpu=torch.zeros(size, dtype=torch.int32))

    return SimpleNamespace(device=torch.device("cpu"), max_num_reqs=slots, all_token_ids=buffer(slots, length), total_len=buffer(slots))


def test_vllm_v2_slots(engines):
    processor = engines.vllm.LogitsProcessorV2(config("nan_rows", "quarantine", params={"most": 2}), v2_states(4, 16))
    assert isinstance(processor, V2)
    for slot in 3, 1:
        assert processor.add_request(slot, None)
    processor.apply_staged_writes()

    def step(slots: list[int], *bad: int) -> list[int]:
        rows = torch.tensor(slots, dtype=torch.int32)
        processor.apply(logits(*bad, rows=len(slots)), SimpleNamespace(expanded_idx_mapping=rows, pos=torch.zeros_like(rows)))
        return processor.verdict.tolist()

    assert step([3, 1], 0) == [1, 0]
    assert step([1, 3], 0) == [1, 0]
    assert step([1, 3], 1) == [0, 2]
    processor.add_request(3, None)  # the slot of a request that is gone
    processor.apply_staged_writes()
    assert step([3, 1], 0) == [1, 0]


def test_vllm_v2_history(engines):
    states = v2_states(3, 64)
    states.all_token_ids.gpu[2, :40] = 9
    states.all_token_ids.gpu[0, :40] = 9
    states.total_len.gpu[:] = torch.tensor([20, 0, 40])
    processor = engines.vllm.LogitsProcessorV2(config("repetition", params={"tokens": 32}), states)
    rows, pos = torch.tensor([0, 2]), torch.tensor([19, 39])
    processor.apply(logits(rows=2), SimpleNamespace(expanded_idx_mapping=rows, pos=pos))
    assert processor.verdict.tolist() == [0, 2]
    assert processor._history(rows, pos)[0, -21:].tolist() == [-1] + [9] * 20


def test_an_older_vllm_without_the_second_runner(monkeypatch, engines):
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu.sample.logits_processor", None)
    older = importlib.reload(engines.vllm)
    assert older._ForV2 is None and isinstance(v1(engines, "nan_rows"), V1)


def test_the_environment_says_what_the_configuration_does_not(engines, monkeypatch):
    nothing = SimpleNamespace(additional_config={}, model_config=None)
    with pytest.raises(triage.InputError, match="TRIAGE_POLICIES"):
        engines.vllm.LogitsProcessor(nothing, torch.device("cpu"), False)
    monkeypatch.setenv("TRIAGE_POLICIES", os.pathsep.join([path("nan_rows"), path("masked_rows")]))
    with pytest.raises(triage.InputError, match="eos=2"):
        engines.vllm.LogitsProcessor(nothing, torch.device("cpu"), False)
    monkeypatch.setenv("TRIAGE_EOS", "two")
    with pytest.raises(triage.InputError, match="TRIAGE_EOS"):
        engines.vllm.LogitsProcessor(nothing, torch.device("cpu"), False)
    monkeypatch.setenv("TRIAGE_EOS", "2")
    processor = engines.vllm.LogitsProcessor(nothing, torch.device("cpu"), False)
    assert processor.apply(torch.full((1, 4), float("-inf")))[0].tolist() == GONE
    with pytest.raises(triage.InputError, match="has no `policy`"):
        v1(engines, "nan_rows", policy="x")
    with pytest.raises(triage.InputError, match="`history` is a number"):
        v1(engines, "nan_rows", history=0)
    with pytest.raises(triage.InputError, match="asks for an input `temperature`"):
        v1(engines, "temperature_floor")


def test_policies_in_an_engine_follow_their_files(engines, tmp_path):
    file = tmp_path / "end.lua"
    text = (
        "return policy { outputs = {'logits', 'verdict', 'f'}, run = function(logits) "
        "return logits, torch.zeros({logits:size(0)}, {dtype = torch.int8}) + VERDICT, flag_nan(logits) end }"
    )
    file.write_text(text.replace("VERDICT", "0"))
    configured = SimpleNamespace(additional_config={"triage": {"policies": str(file), "eos": EOS}})
    processor = engines.vllm.LogitsProcessor(configured, torch.device("cpu"), False)
    processor.apply(logits())
    assert processor.verdict.tolist() == [0, 0, 0]
    file.write_text(text.replace("VERDICT", "1"))
    assert processor._watches[0].wait(60).kind == "reloaded"
    processor.apply(logits())
    assert processor.verdict.tolist() == [1, 1, 1]


class Request:
    def __init__(self, rid: str, prompt=(), output=()):
        self.rid, self.origin_input_ids, self.output_ids = rid, list(prompt), list(output)
        self.to_finish, self.skip_radix_cache_insert = None, False


def sglang(engines, monkeypatch, *policies: str):
    monkeypatch.setenv("TRIAGE_POLICIES", os.pathsep.join(path(each) for each in policies))
    monkeypatch.setenv("TRIAGE_EOS", str(EOS))
    return Custom.from_str(engines.sglang.LogitProcessor.to_str())


def params(*requests, **others):
    return [{"__req__": weakref.proxy(each), **others} for each in requests]


def test_sglang_rows_and_requests(engines, monkeypatch, caplog):
    processor = sglang(engines, monkeypatch, "nan_rows", "quarantine")
    a, b = Request("a"), Request("b")
    given = logits(rows=2)
    given[1] = NAN
    with caplog.at_level(logging.WARNING, "triage"):
        out = processor(given.clone(), params(a, b))
        assert out[1].tolist() == GONE and torch.equal(out[0], given[0]) and out.shape == given.shape
        for rows in (a, b), (b, a):  # SGLang makes a processor for each batch: what is remembered is not in it
            out = Custom.from_str(engines.sglang.LogitProcessor.to_str())(logits(rows.index(a), rows=2), params(*rows))
            assert out[rows.index(a)].tolist() != GONE
        out = processor(logits(1, rows=2), params(b, a))  # the third bad step of a
        assert out[1].tolist() == GONE
        processor(logits(rows=1), params(b))
    assert [record.args[0] for record in caplog.records] == ["b", "a"]


def bad_requests(log) -> list[list[str]]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [[sample.get("sample_id") for sample in line["samples"]] for line in lines if "samples" in line]


def test_the_decision_log_of_an_engine_names_requests(engines, monkeypatch, tmp_path):
    given = logits(rows=2)
    given[1] = NAN
    log = tmp_path / "sglang.jsonl"
    monkeypatch.setenv("TRIAGE_DECISION_LOG", str(log))
    processor = sglang(engines, monkeypatch, "nan_rows", "quarantine")
    a, b = Request("a"), Request("b-7")
    processor(given.clone(), params(a, b))
    processor(given.clone(), [*params(a), None])
    engines.sglang._shared()[0].policies[0]._runtime.flush()
    assert bad_requests(log) == [["b-7"], [None]]  # this row has no request

    log = tmp_path / "vllm.jsonl"
    processor = v1(engines, "nan_rows", decision_log=str(log))
    processor.update_state(update(added=[(0, None, [1], []), (1, None, [2], [])]))
    processor.apply(given.clone())
    processor._steps.policies[0]._runtime.flush()
    assert bad_requests(log) == [[str(processor._requests[1].number)]]


def test_sglang_aborts_the_requests_that_ask_for_it(engines, monkeypatch):
    processor = sglang(engines, monkeypatch, "nan_rows")
    a, b, c, d, e = (Request(each) for each in "abcde")
    e.to_finish = "another reason"
    given = logits(rows=6)
    given[[0, 2, 4, 5]] = NAN
    asked = params(a, b, triage_on_bad="abort") + params(c) + params(d, triage_on_bad="retry") + params(e, triage_on_bad="abort")
    out = processor(given, [*asked, {"triage_on_bad": "abort"}])  # the last does not say who it is
    assert a.to_finish[1:] == (503, "BadLogitsError") and a.skip_radix_cache_insert and out[0].tolist() == GONE
    assert [(each.to_finish, each.skip_radix_cache_insert) for each in (b, c)] == [(None, False)] * 2 and out[2].tolist() == GONE
    assert d.to_finish[1] == 400 and "got 'retry'" in d.to_finish[0] and e.to_finish == "another reason"


def test_vllm_refuses_to_abort(engines):
    assert v1(engines, "nan_rows", on_bad="stop")
    with pytest.raises(triage.InputError, match="got 'abort'. vLLM does not tell"):
        v1(engines, "nan_rows", on_bad="abort")
    with pytest.raises(triage.InputError, match="got 'abort'. vLLM does not tell"):
        engines.vllm.LogitsProcessorV2(config("nan_rows", on_bad="abort"), v2_states(4, 16))


def test_sglang_in_the_oldest_python(engines, monkeypatch):
    class Int(int):  # as 3.10 has it: without a default
        @classmethod
        def from_bytes(cls, bytes, byteorder):
            return int.from_bytes(bytes, byteorder)

    monkeypatch.setattr(engines.sglang, "int", Int, raising=False)
    assert engines.sglang._number("a") != engines.sglang._number("b")


def test_sglang_history_and_requests_that_do_not_say_who_they_are(engines, monkeypatch, caplog):
    processor = sglang(engines, monkeypatch, "repetition")
    a, b = Request("a", [9] * 50, [9] * 20), Request("b", range(10), [3])
    assert [row.tolist() == GONE for row in processor(logits(rows=2), params(a, b))] == [True, False]
    with caplog.at_level(logging.WARNING, "triage"):
        gone = params(a)
        del a
        for each in None, [None, None, None], [{}, {}, {}], gone * 3:
            assert torch.equal(processor(logits(), each), logits())
    assert sum("custom_params={}" in record.getMessage() for record in caplog.records) == 1


def test_without_the_engines_all_else_works_and_the_error_says_what_is_missing():
    code = (
        "import sys\n"
        "for name in 'transformers', 'vllm', 'sglang': sys.modules[name] = None\n"
        "import torch, triage\n"
        f"processor = triage.LogitsProcessor({path('nan_rows')!r}, eos=2)\n"
        "processor(torch.zeros(1, 1, dtype=torch.int64), torch.full((1, 4), float('nan')))\n"
        "assert processor.ended.tolist() == [0] and 'torch._dynamo' not in sys.modules\n"
        "for name in 'vllm', 'sglang':\n"
        "    try: __import__('triage.' + name)\n"
        "    except ImportError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "triage.vllm needs vLLM" in said and "pip install sglang" in said


def test_numbers_of_requests_are_not_used_twice():
    first = _decoding.new_requests(3)
    assert _decoding.new_requests(1) == first + 3
