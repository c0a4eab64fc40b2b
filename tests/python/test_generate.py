"""triage.LogitsProcessor in `generate` of transformers: models are made from a config, and broken in their weights or by a hook."""

from __future__ import annotations

import copy
import functools
import pickle
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from test_docs import run_page
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import triage
from triage import _decoding, _generate

pytestmark = pytest.mark.usefixtures("one_thread")
SERVING = ROOT / "scripts/policies/serving"
VOCABULARY, PAD, EOS, STEPS, BAD_TOKEN = 64, 0, 1, 10, 7
MODES = [{}, {"do_sample": True, "top_k": 12}, {"num_beams": 3}, {"num_beams": 2, "do_sample": True}]


@functools.cache
def policy(name: str) -> triage.Policy:
    return triage.load(SERVING / f"{name}.lua", key=f"serving/{name}")


def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=EOS, eos_token_id=EOS)).eval()


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, bos_token_id=EOS, eos_token_id=EOS, pad_token_id=PAD, tie_word_embeddings=False)
    return LlamaForCausalLM(config).eval()


def prompts(rows: int) -> torch.Tensor:
    return torch.randint(8, VOCABULARY, (rows, 3), generator=torch.Generator().manual_seed(3))


class Poison:
    """From the forward pass `step` on, the logits of some rows are a value; `rows` are those of the model, with beams."""

    def __init__(self, model, rows, step: int, value: float = float("nan"), tokens=slice(None)) -> None:
        self.rows, self.step, self.value, self.tokens, self.passes = rows, step, value, tokens, 0
        self._hook = model.register_forward_hook(self._poison)

    def _poison(self, model, inputs, output):
        if self.passes >= self.step:
            output.logits[self.rows, :, self.tokens] = self.value
        self.passes += 1
        return output

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._hook.remove()


def decode(model, processor, ids: torch.Tensor, seed: int = 5, **options) -> torch.Tensor:
    torch.manual_seed(seed)
    options = {"max_new_tokens": STEPS, "pad_token_id": PAD, "attention_mask": (ids != PAD).long(), **options}
    return model.generate(ids, logits_processor=[processor] if processor else None, **options)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("rows", [1, 2, 33])
def test_a_broken_request_ends_and_the_others_keep_their_tokens(mode, rows):
    model, ids, beams, bad = gpt2(), prompts(rows), mode.get("num_beams", 1), rows // 2
    whole = decode(model, None, ids, **mode)
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS, num_beams=beams)
    with Poison(model, slice(bad * beams, (bad + 1) * beams), step=2):
        broken = decode(model, processor, ids, **mode)
    length = min(whole.shape[1], broken.shape[1])
    for row in set(range(rows)) - {bad}:
        assert torch.equal(whole[row, :length], broken[row, :length])
        assert processor.ended[row] == -1
    already = EOS in whole[bad, 3:5].tolist()
    if beams == 1:  # two whole tokens, then the end
        assert broken[bad, 3:5].tolist() == whole[bad, 3:5].tolist()
    if not already:
        assert processor.ended[bad] == 2
        assert broken[bad, 5] == EOS and set(broken[bad, 6:].tolist()) <= {PAD, EOS}
    assert processor.verdicts.dtype == torch.int8 and processor.verdicts.shape[1] == rows * beams


def test_without_a_processor_transformers_draws_noise_or_raises():
    """What the policy is for."""
    model, ids = gpt2(), prompts(2)
    with Poison(model, slice(0, 1), step=2), pytest.raises(RuntimeError, match="inf.*nan"):
        decode(model, None, ids, do_sample=True)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_broken_weights(mode):
    """The embedding of one token is NaN: a request breaks when it says this token, or was asked with it."""
    model, ids, beams = llama(), prompts(6), mode.get("num_beams", 1)
    ids[4, 1] = BAD_TOKEN
    whole = decode(model, None, ids, **mode)
    with torch.no_grad():
        model.model.embed_tokens.weight[BAD_TOKEN] = float("nan")
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS, num_beams=beams)
    broken = decode(model, processor, ids, **mode)
    assert processor.ended[4] == 0 and broken[4, 3] == EOS
    healthy = [row for row in range(6) if BAD_TOKEN not in whole[row].tolist() and processor.ended[row] == -1]
    assert len(healthy) >= 3
    for row in healthy:
        if not (processor.verdicts.reshape(-1, 6, beams)[:, row] > 0).any():
            assert torch.equal(whole[row], broken[row, : whole.shape[1]])


def test_a_hypothesis_that_breaks_alone_is_not_chosen():
    model, ids = gpt2(), prompts(2)
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS, num_beams=3)
    with Poison(model, slice(1, 2), step=3):  # the second of three hypotheses of request 0
        broken = decode(model, processor, ids, num_beams=3)
    assert processor.ended.tolist() == [-1, -1] and (processor.verdicts[3:, 1] == 2).any()
    assert EOS not in broken[0, 3:].tolist()


def test_some_nan_are_repaired_and_the_request_goes_on():
    model, ids = gpt2(), prompts(3)
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS)
    with Poison(model, slice(1, 2), step=4, tokens=slice(30, 40)):
        broken = decode(model, processor, ids, min_new_tokens=STEPS)
    assert processor.verdicts[:4].sum() == 0 and processor.verdicts[4:, 1].tolist() == [1] * (STEPS - 4)
    assert processor.verdicts[:, [0, 2]].sum() == 0 and not set(broken[1, 7:].tolist()) & set(range(30, 40))
    first = processor.report()[0]
    assert (first.step, first.row, first.request, first.verdict) == (4, 1, 1, 1)
    assert [each.code_name for each in first.errors] == ["NAN", "FALLBACK_VALUE"]
    assert processor.flags.shape[:2] == (STEPS, 3)


def test_min_new_tokens_do_not_keep_a_broken_request_alive():
    model, ids = gpt2(), prompts(2)
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=[EOS, 2])
    with Poison(model, slice(0, 1), step=1):
        broken = decode(model, processor, ids, min_new_tokens=STEPS, eos_token_id=[EOS, 2])
    assert broken[0, 4] == EOS and processor.ended.tolist() == [1, -1]


def test_a_request_that_ended_by_itself_is_not_judged_any_more():
    model, ids = gpt2(), prompts(2)
    say = triage.load_source(  # ends row 0 by the model's own choice: token EOS wins in step 1
        "return policy { outputs = {'logits', 'verdict', 'f'}, run = function(logits, ids) "
        "return logits, torch.zeros({logits:size(0)}, {dtype = torch.int8}), flag_nan(logits) end }"
    )
    processor = triage.LogitsProcessor(say, policy("nan_rows"), eos=EOS, inputs={"ids": lambda input_ids: input_ids})
    with Poison(model, 0, step=1, value=50.0, tokens=EOS), Poison(model, slice(0, 1), step=2):
        broken = decode(model, processor, ids)
    assert broken[0, 4] == EOS and processor.ended.tolist() == [-1, -1] and processor.report() == []


@pytest.mark.parametrize("beams", [1, 2])
def test_who_ended_a_request_is_told(beams, caplog):
    model, ids, ends = gpt2(), prompts(3), []
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS, num_beams=beams, on_end=lambda *end: ends.append(end))
    with Poison(model, slice(beams, 2 * beams), step=3), caplog.at_level("WARNING", logger="triage"):
        broken = decode(model, processor, ids, num_beams=beams, min_new_tokens=STEPS)
    assert ends == [(1, 3)]
    assert [each.message.split(" (")[0] for each in caplog.records if "ended" in each.message] == ["a policy ended request 1"]
    assert processor.finish_reasons(broken) == ["other", "policy", "other"]
    assert processor.finish_reasons(broken.repeat_interleave(2, 0))[1:4] == ["other", "policy", "policy"]
    for wrong, error in ((broken[:2], "of 3 requests; got 2"), (broken[0], "its `sequences`"), (None, "its `sequences`")):
        with pytest.raises(triage.InputError, match=error):
            processor.finish_reasons(wrong)
    with pytest.raises(triage.InputTypeError, match="on_end"):
        triage.LogitsProcessor(policy("nan_rows"), eos=EOS, on_end=3)


@pytest.mark.parametrize("assistant", [True, False])
def test_assisted_decoding_tells_of_taken_tokens_alone(assistant):
    model, ids, ends = gpt2(), prompts(1), []
    helped = {"assistant_model": copy.deepcopy(model)} if assistant else {"prompt_lookup_num_tokens": 2}
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS, assisted=True, on_end=lambda *end: ends.append(end))
    with Poison(model, slice(None), step=3):
        tokens = decode(model, processor, ids, eos_token_id=EOS, **helped)
    assert ends == []
    assert processor.finish_reasons(tokens) == ["policy"]
    assert ends == [(0, processor.ended.tolist()[0])]


def test_a_callback_may_end_the_generation():
    def stop(request, step):
        raise RuntimeError(f"request {request}")

    model, processor = gpt2(), triage.LogitsProcessor(policy("nan_rows"), eos=EOS, on_end=stop)
    with Poison(model, slice(1, 2), step=2), pytest.raises(RuntimeError, match="request 1"):
        decode(model, processor, prompts(3))


def test_finish_reasons_of_healthy_requests():
    model, ids = gpt2(), prompts(2)
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS)
    with Poison(model, slice(1, 2), step=2, value=1e9, tokens=EOS):  # a likely token
        tokens = decode(model, processor, ids, min_new_tokens=1)
    assert processor.finish_reasons(tokens)[1] == "eos" and processor.ended.tolist() == [-1, -1]


def test_quarantine_follows_the_request():
    model, ids = gpt2(), prompts(3)
    processor = triage.LogitsProcessor(policy("nan_rows"), policy("quarantine"), eos=EOS, params={"most": 2, "steps": 4})
    with Poison(model, slice(1, 2), step=3, tokens=slice(30, 40)):
        broken = decode(model, processor, ids, min_new_tokens=STEPS)
    assert processor.verdicts[:5, 1].tolist() == [0, 0, 0, 1, 2] and processor.ended.tolist() == [-1, 4, -1]
    assert broken[1, 7] == EOS
    codes = [each.location_name for each in processor.report()[-1].errors]
    assert "nan_rows" in codes and "quarantine" in codes


def test_padding_is_no_history():
    """The token in front of shorter prompts may be that of their beginning, which then says the same over and over."""
    ids = torch.full((3, 60), PAD)
    ids[1], ids[2, -33:] = torch.tensor([9, 10] * 30), 9
    options = {"params": {"tokens": 32}, "eos": EOS}
    for pad, ended in (PAD, [-1, 0, 0]), (-1, [0, 0, 0]):
        processor = triage.LogitsProcessor(policy("repetition"), pad=pad, history=33, **options)
        processor(ids, torch.zeros(3, VOCABULARY))
        assert processor.ended.tolist() == ended
    processor = triage.LogitsProcessor(policy("repetition"), pad=PAD, **options)
    decode(gpt2(), processor, ids[1:], max_new_tokens=1)
    assert processor.ended.tolist() == [0, 0]
    with pytest.raises(triage.InputError, match="pass pad="):
        triage.LogitsProcessor(policy("repetition"), eos=EOS)


def test_a_step_reads_no_value(monkeypatch):
    """On a device, each of these methods would wait; the policies themselves wait for none."""
    ids = prompts(4)
    processor = triage.LogitsProcessor(*map(policy, ["nan_rows", "repetition", "quarantine"]), eos=[EOS, 2], pad=PAD, num_beams=2)
    processor(ids, torch.zeros(4, VOCABULARY))
    monkeypatch.setattr(_generate, "comes_later", lambda verdict: True)
    monkeypatch.setattr(_decoding.Ended, "note", lambda self, verdict, requests: None)  # which copies it without waiting
    read = []
    for name in "item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__index__", "__float__":
        original = getattr(torch.Tensor, name)
        spy = lambda x, *rest, name=name, original=original: (read.append(name), original(x, *rest))[1]  # noqa: E731
        monkeypatch.setattr(torch.Tensor, name, spy)
    processor(torch.cat([ids, ids[:, :1]], 1), torch.full((4, VOCABULARY), float("nan")))
    verdicts, ended, flags = processor.verdicts, processor.ended, processor.flags
    assert read == [] and len(verdicts) == len(flags) == 2
    assert ended.tolist() == [1, 1] and read == ["tolist"]


def test_left_padding():
    model, ids = llama(), prompts(4)
    ids[0, 0] = ids[1, :2] = PAD
    whole = decode(model, None, ids)
    processor = triage.LogitsProcessor(policy("nan_rows"), policy("masked_rows"), eos=EOS)
    with Poison(model, slice(1, 2), step=3, value=float("inf")):
        broken = decode(model, processor, ids)
    assert processor.ended[1] == 3 and torch.equal(whole[[0, 2, 3]], broken[[0, 2, 3], : whole.shape[1]])


@pytest.mark.parametrize("assistant", [True, False])
def test_assisted_decoding(assistant):
    model, ids = gpt2(), prompts(1)
    options = {"assistant_model": gpt2()} if assistant else {"prompt_lookup_num_tokens": 2}
    whole = decode(model, None, ids)
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=EOS, assisted=True)
    assert torch.equal(decode(model, processor, ids, **options), whole) and processor.ended.tolist() == [-1]
    processor.reset()
    with Poison(model, slice(0, 1), step=2):
        broken = decode(model, processor, ids, **options)
    assert processor.ended[0] >= 1 and broken[0, -1] == EOS
    assert torch.equal(broken[0, :-1], whole[0, : broken.shape[1] - 1])
    with pytest.raises(triage.InputError, match="assisted=True"):
        decode(model, triage.LogitsProcessor(policy("nan_rows"), eos=EOS), ids, **options)
    with pytest.raises(triage.InputError, match="state"):
        triage.LogitsProcessor(policy("quarantine"), eos=EOS, assisted=True)


def test_a_reload_while_it_generates(tmp_path: Path):
    file = tmp_path / "logits.lua"
    text = (SERVING / "nan_rows.lua").read_text()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/rows.lua").write_text((SERVING / "lib/rows.lua").read_text())
    file.write_text(text)
    model, ids = gpt2(), prompts(2)
    processor = triage.LogitsProcessor(file, eos=EOS)
    with triage.watch(tmp_path) as watch:

        class Edit(Poison):  # from step 3 on NaN end a request that could go on; the file changes before step 6
            def _poison(self, model, inputs, output):
                if self.passes == 6:
                    file.write_text(text.replace("rows.verdict(ending, has_nan)", "rows.verdict(ending | has_nan, 0)"))
                    file.write_text(file.read_text().split("  tests = {")[0] + "}\n")
                    assert watch.wait(60).kind == "reloaded"
                return super()._poison(model, inputs, output)

        with Edit(model, slice(0, 1), step=3, tokens=slice(30, 40)):
            decode(model, processor, ids, min_new_tokens=STEPS)
    assert processor.verdicts[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]


ANY = "return policy {{ outputs = {{'logits', 'verdict', 'f'}}, {more} run = function(logits{p}) return {returned} end }}"
FINE = "torch.zeros({logits:size(0)}, {dtype = torch.int8})"


def test_versions_with_other_params_come_and_go_in_a_generation(tmp_path: Path):
    """A version may have params more than the one that the processor began with, and the one before may come back."""
    file = tmp_path / "logits.lua"
    file.write_text(ANY.format(more="", p="", returned=f"logits, {FINE}, flag_nan(logits)"))
    shared, ids, steps = triage.load(file), prompts(2), []
    processor = triage.LogitsProcessor(shared, eos=EOS)

    def step() -> float:
        steps.append(processor(torch.cat([ids, ids[:, :1].expand(2, len(steps))], 1), torch.zeros(2, 4))[0, 0].item())
        return steps[-1]

    assert step() == 0
    file.write_text(ANY.format(more="params = {eos = 9},", p=", p", returned=f"logits + p.eos, {FINE}, flag_nan(logits)"))
    assert shared.reload() == "swapped" and step() == EOS
    again, steps = processor, []
    processor = triage.LogitsProcessor(shared, eos=EOS)
    assert step() == EOS
    shared.rollback(1)
    assert step() == 0 and len(again.verdicts) == len(processor.verdicts) == 2


@pytest.mark.parametrize(
    "returned",
    [
        f"logits, flag_nan(logits), {FINE}",  # flags have as many words as there are rows here
        "logits, torch.zeros({logits:size(0)}), flag_nan(logits)",
        "logits, torch.zeros({1}, {dtype = torch.int8}), flag_nan(logits)",
        f"logits[{{{{}}, {{0, 2}}}}], {FINE}, flag_nan(logits)",
        f"logits, {FINE}, flag_nan(logits)[{{{{0, 2}}}}]",
    ],
)
def test_a_policy_that_returns_something_else_is_refused(returned):
    other = triage.load_source(ANY.format(more="", p="", returned=returned))
    with pytest.raises(triage.InputError, match="a policy on logits returns three"):
        triage.LogitsProcessor(other)(prompts(4), torch.zeros(4, 4))


def test_several_threads_share_a_policy():
    model, nan_rows = gpt2(), policy("nan_rows")
    serial = [decode(model, None, prompts(4) - i) for i in range(4)]
    found: dict[int, tuple] = {}

    def work(i: int) -> None:
        processor = triage.LogitsProcessor(nan_rows, policy("quarantine"), eos=EOS)
        ids = prompts(4) - i
        options = {"max_new_tokens": STEPS, "pad_token_id": PAD, "attention_mask": torch.ones_like(ids)}
        found[i] = model.generate(ids, logits_processor=[processor], **options), processor.ended

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for i, whole in enumerate(serial):
        assert torch.equal(found[i][0], whole) and found[i][1].tolist() == [-1] * 4


def test_copies_and_pickles_go_on():
    nan_rows, ids = policy("nan_rows"), prompts(2)
    processor = triage.LogitsProcessor(nan_rows, eos=EOS, num_beams=2)
    scores = torch.zeros(2, 4)
    scores[1] = float("nan")
    processor(ids, scores)
    for other in pickle.loads(pickle.dumps(processor)), copy.deepcopy(processor):
        other(torch.cat([ids, ids[:, :1]], 1), scores)
        assert len(other.verdicts) == 2 and len(processor.verdicts) == 1
        assert other.verdicts.tolist() == [[0, 2], [0, 2]] and other.ended.tolist() == [-1]


def test_num_beams_that_differ_from_those_of_generate_are_an_error():
    """Without them an ended hypothesis would be the best one of its request."""
    model, ids = gpt2(), prompts(2)
    with pytest.raises(triage.InputError, match="`generate` runs with num_beams=3, and this processor was made for 1: give it num_beams=3"):
        decode(model, triage.LogitsProcessor(policy("nan_rows"), eos=EOS), ids, num_beams=3)
    with pytest.raises(triage.InputError, match="runs with num_beams=1, and this processor was made for 2"):
        decode(model, triage.LogitsProcessor(policy("nan_rows"), eos=EOS, num_beams=2), ids, num_beams=1)
    options = copy.deepcopy(model.generation_config)
    options.num_beams = 2
    with pytest.raises(triage.InputError, match="num_beams=2"):
        decode(model, triage.LogitsProcessor(policy("nan_rows"), eos=EOS), ids, generation_config=options)


def test_a_version_with_another_param_has_its_value_in_the_same_step():
    body = "run = function(logits, p) return logits {}, torch.zeros({{logits:size(0)}}, {{dtype = torch.int8}}), err.new(logits) end"
    with_param = "return policy {inputs = {'logits'}, outputs = {'logits', 'verdict', 'f'}, params = {more = 1.0}, " + body.format("+ p.more") + "}"
    without = "return policy {inputs = {'logits'}, outputs = {'logits', 'verdict', 'f'}, " + body.format("+ 0.5") + "}"
    one = triage.load_source(without)
    assert one.replace(with_param) == "swapped"
    processor = triage.LogitsProcessor(one, params={"more": 7.0})
    ids, scores = torch.ones(2, 9, dtype=torch.int64), torch.zeros(2, 4)
    assert processor(ids[:, :3], scores)[0, 0] == 7
    one.rollback(1)
    assert processor(ids[:, :4], scores)[0, 0] == 0.5
    one.rollback(2)
    assert processor(ids[:, :5], scores)[0, 0] == 7


def test_what_does_not_fit_is_said():
    nan_rows, ids, scores = policy("nan_rows"), prompts(2), torch.zeros(2, 4)
    for arguments, options, message in [
        ((), {"eos": EOS}, "at least one"),
        ((nan_rows,), {}, "eos=2"),
        ((nan_rows,), {"eos": -1}, "id of a token"),
        ((nan_rows,), {"eos": 1.0}, "id of a token"),
        ((nan_rows,), {"eos": "</s>"}, "id of a token"),
        ((nan_rows, 3), {"eos": EOS}, "got int"),
        ((nan_rows,), {"eos": EOS, "params": {"most": 2}}, "param `most`"),
        ((nan_rows,), {"eos": EOS, "inputs": {"temperature": ids}}, "asks for the input `temperature`"),
        ((policy("temperature_floor"),), {"eos": EOS}, "asks for an input `temperature`"),
        ((nan_rows,), {"eos": EOS, "num_beams": 0}, "`num_beams` is an int of 1 or more; got 0"),
        ((nan_rows,), {"eos": EOS, "num_beams": None}, "`num_beams` is an int of 1 or more; got None"),  # as a GenerationConfig has it where nobody chose
    ]:
        with pytest.raises(triage.InputError, match=message):
            triage.LogitsProcessor(*arguments, **options)
    with pytest.raises(triage.InputError, match="returned 2 tensors"):
        triage.LogitsProcessor(triage.load_source("return function(x) return x, flag_nan(x) end"))(ids, scores)
    with pytest.raises(triage.InputError, match="num_beams=4"):
        triage.LogitsProcessor(nan_rows, eos=EOS, num_beams=4)(ids, scores)
    with pytest.raises(triage.PolicyError, match="beyond the vocabulary"):
        triage.LogitsProcessor(nan_rows, eos=9)(ids, scores)
    processor = triage.LogitsProcessor(nan_rows, eos=EOS)
    assert processor.verdicts.shape == (0, 0) and processor.ended.shape == (0,) and processor.report() == []
    processor(ids, scores)
    with pytest.raises(triage.InputError, match="Make one for each"):
        processor(ids, scores)
    processor.reset()
    processor(ids[:1], scores[:1])
    assert processor.verdicts.shape == (1, 1)


@pytest.mark.parametrize("eos", [EOS, [EOS, 2], torch.tensor([EOS, 2]), torch.tensor(EOS), np.int64(EOS), np.array([EOS])], ids=repr)
def test_the_token_that_ends_a_request_may_be_given_as_tokenizers_and_configs_have_it(eos):
    processor = triage.LogitsProcessor(policy("nan_rows"), eos=eos)
    assert processor(prompts(1), torch.full((1, 4), float("nan")))[0, EOS] == 0


def test_an_input_of_the_host():
    processor = triage.LogitsProcessor(policy("temperature_floor"), eos=EOS, inputs={"temperature": torch.tensor([0.5, -1.0])})
    scores = processor(prompts(2), torch.ones(2, 4))
    assert scores.tolist() == [[2.0] * 4, [float("-inf"), 0.0, float("-inf"), float("-inf")]] and processor.ended.tolist() == [-1, 0]


def test_the_page_runs_and_prints_what_it_says(tmp_path, monkeypatch):
    shutil.copytree(SERVING, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert run_page("docs/language-models.md", tmp_path) == 5


def test_findings_have_the_names_that_policies_give_to_codes():
    source = (
        "return policy {inputs = {'logits'}, outputs = {'logits', 'verdict', 'f'}, codes = {%s = 4}, run = function(logits)\n"
        "  local bad = logits:isnan():any(-1)\n"
        "  local f = push(err.new(logits), 4, 'logits', {where = bad})\n"
        "  return logits:nan_to_num(0), bad:to(torch.int8), f end}"
    )
    first = triage.load_source(source % "MISSING", key="names/first")
    other = triage.load_source(source % "STALE", key="names/other")
    scores = torch.zeros((2, VOCABULARY))
    scores[1] = float("nan")
    for policies, name in ((first,), "MISSING"), ((first, other), "CODE_4"):
        processor = triage.LogitsProcessor(*policies, eos=EOS)
        processor(prompts(2), scores)
        assert {entry.code_name for found in processor.report() for entry in found.errors} == {name}
