"""What surrounds policies: keys, runtimes and watches that end, notebooks, metrics, NumPy, helpers for tests, types."""

from __future__ import annotations

import html.parser
import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DECLARED, PLAIN, ROOT, bad_batch

import triage
import triage.metrics
from triage import err, flags, testing

TEST = "tests = {{name = 'doubles', args = {z = {1.0, 2.0}}, expect = {z = {%s, 4.0}}}}"
DOUBLE = "return policy {inputs = {'z'}, outputs = {'z'}, run = function(z) return z * 2 end, " + TEST + "}"


# --- keys ---


def test_a_file_that_is_loaded_again_is_the_policy_that_is_there(policy_file):
    first = triage.load(policy_file)
    first.set_param("fallback", 3)
    assert triage.load(policy_file) is first and triage.load(str(policy_file)) is first
    policy_file.write_text(DECLARED.replace("0.5", "9.0"))
    again = triage.load(policy_file)
    assert again is first and again.version.number == 2 and again.params["fallback"] == 3
    other = triage.Runtime(backend="eager")
    beside = other.load(policy_file)
    assert beside is not first and beside.key != first.key and beside.params["fallback"] == 9
    assert triage.Runtime(backend="eager").load(policy_file) is beside


def test_a_file_that_broke_is_an_error_when_it_is_loaded_again(policy_file):
    first = triage.load(policy_file)
    policy_file.write_text("return function(")
    with pytest.raises(triage.LoadError, match=rf"version 1 of '{first.key}', which is loaded from this file, stays live") as caught:
        triage.load(policy_file)
    assert caught.value.line == 1 and first.version.number == 1
    policy_file.unlink()
    with pytest.raises(triage.FileError, match="there is no such file"):
        triage.load(policy_file)


def test_keys_are_the_same_in_every_run(tmp_path):
    """Files of one name have numbers in the order in which they were loaded first, also after the first of them is gone."""
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.lua").write_text(PLAIN)
    program = """
import os, sys, triage
a, b, c = (os.path.join(sys.argv[1], each, "one.lua") for each in "abc")
one, two = triage.load(a), triage.load(b)
print(one.key, two.key, triage.load(a).key)
del one
print(triage.load(c).key, triage.load(a).key, triage.load(b) is two, triage.load(a, key="mine").key)
"""
    said = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["one.lua one.lua#2 one.lua", "one.lua#3 one.lua True mine"]


def test_an_exported_program_finds_the_policy_of_a_cell_that_ran_twice(policy_file):
    class Model(torch.nn.Module):
        def forward(self, x):
            return cell(x)[0]

    cell = triage.load(policy_file)
    with torch.no_grad():
        program = torch.export.export(Model(), (bad_batch(),))
        cell = triage.load(policy_file)
        assert torch.equal(program.module()(bad_batch()), cell(bad_batch())[0])


# --- ends ---


def test_a_runtime_ends_with_its_block(policy_file):
    with triage.Runtime(backend="eager", limits=triage.Limits(seconds=2.0)) as runtime:
        policy, watch = runtime.load(policy_file), runtime.watch(policy_file.parent)
        assert runtime.options == {"backend": "eager", "seconds": 2.0} and not runtime.closed
    assert runtime.closed and "closed" in repr(runtime) and "closed" in repr(watch)
    assert torch.equal(policy(bad_batch())[0][2], torch.full((4,), 0.5))
    policy_file.write_text(DECLARED.replace("0.5", "2.5"))
    assert policy.reload() == "swapped" and policy(bad_batch())[0][2, 0] == 2.5
    runtime.close()
    for use in (
        lambda: runtime.load(policy_file), lambda: runtime.load_source(PLAIN), lambda: runtime.watch(policy_file.parent),
        lambda: runtime.metrics_text(), lambda: runtime.__enter__(),
    ):  # fmt: skip
        with pytest.raises(triage.InputError, match="closed: make another triage.Runtime"):
            use()
    with triage.Runtime(backend="eager", seconds=2.0) as another:
        assert another.load(policy_file) is not policy


def test_a_runtime_ends_while_other_threads_use_it(policy_file):
    for _ in range(10):
        runtime, said = triage.Runtime(backend="eager"), []

        def use(runtime=runtime, said=said):
            try:
                while True:
                    runtime.load_source(PLAIN)(bad_batch())
                    runtime.metrics_text()
                    runtime.watch(policy_file.parent).close()
            except triage.InputError as error:
                said.append(str(error))

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.02)
        runtime.close()
        for thread in threads:
            thread.join()
        assert len(said) == 3 and all("closed: make another" in each for each in said)


def test_a_watch_that_ended_says_so(policy_file):
    with triage.watch(policy_file.parent) as watch:
        pass
    assert watch.events() == [] and watch.wait(1) is None and list(watch) == []
    for use in (watch.rescan, watch.__enter__):
        with pytest.raises(triage.InputError, match=r"follows nothing: it was closed.*triage.watch\("):
            use()


# --- notebooks ---


class Balanced(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags_of(text: str) -> set[str]:
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert not parser.open
    return parser.tags


HARMLESS = {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "code", "span", "br"}


def test_a_policy_in_a_notebook(policy, policy_file):
    policy(bad_batch())
    text = policy._repr_html_()
    for part in (
        "triage.Policy repair",
        "version 1",
        f"key <code>{policy.key}</code>",
        "Tensor(float32_t, {&quot;N&quot;, 4})",
        "fallback",
        "flagged",
        "logits",
        "NAN",
    ):
        assert part in text, part
    assert tags_of(text) <= HARMLESS and "refused" not in text
    policy_file.write_text("return function(z <script>alert(1)</script>")
    policy.reload()
    assert "the newest file was refused" in policy._repr_html_() and tags_of(policy._repr_html_()) <= HARMLESS


def test_nothing_that_a_script_says_becomes_markup():
    source = """return policy {name = "<img src=x onerror=alert(1)>", outputs = {"f"}, params = {k = {default = 1.0, min = 0, help = "<b onload='x'>&"}},
      codes = {["MISSING"] = 4}, run = function(z, p) return flag_nan(z, "<script>'&\\"") end}"""
    hostile = triage.load_source(source, "<i>.lua")
    f = hostile(bad_batch())
    for text in (hostile._repr_html_(), flags.html(f)._repr_html_()):
        assert tags_of(text) <= HARMLESS and "<script" not in text and "<img" not in text
        assert "&lt;script&gt;" in text


def test_flags_in_a_notebook():
    f = err.push(triage.flag_nan(bad_batch(), "encoder"), err.UNKNOWN, "gate", where=torch.arange(8) > 5)
    view = flags.html(f)
    assert repr(view) == flags.repr(f) and view.html == view._repr_html_()
    assert "<td>2</td>" in view.html and "CRITICAL</span> NAN @ encoder" in view.html and "5 of 8 samples without an entry" in view.html
    assert "and 2 more with entries; 5 of 8" in flags.html(f, most=1).html
    assert "8 of 8 samples without an entry" in flags.html(err.new_t(8)).html and "<table>" not in flags.html(err.new_t(8)).html
    assert "MINE @ gate" in flags.html(err.push(err.new_t(1), 4, "gate"), codes={"MINE": 4}).html


# --- metrics ---


@pytest.mark.skipif(not importlib.util.find_spec("prometheus_client"), reason="no prometheus_client")
def test_metrics_in_the_registry_of_prometheus_client(policy_file):
    import prometheus_client
    from prometheus_client.parser import text_string_to_metric_families

    first, second = triage.Runtime(), triage.Runtime(backend="eager")
    one, two = first.load(policy_file, key="metrics 1"), second.load_source(PLAIN, 'with "quotes"\\.lua')
    one(bad_batch()), two(bad_batch()), two(bad_batch())
    registry = prometheus_client.CollectorRegistry()
    registry.register(triage.metrics.Collector(first, second))
    served = prometheus_client.generate_latest(registry).decode()
    families = {each.name: each for each in text_string_to_metric_families(served)}
    calls: dict[str, float] = {}
    for sample in families["triage_calls"].samples:
        calls[sample.labels["path"]] = calls.get(sample.labels["path"], 0) + sample.value
    assert calls == {str(policy_file): 1, 'with "quotes"\\.lua': 2}
    assert families["triage_call_seconds"].type == "histogram"
    assert registry.get_sample_value("triage_samples_total", {"policy": "repair", "path": str(policy_file)}) == 8
    second.close()
    assert "quotes" not in prometheus_client.generate_latest(registry).decode()
    default = triage.load_source(PLAIN, "of the default.lua")
    default(bad_batch())
    registry = prometheus_client.CollectorRegistry()
    registry.register(triage.metrics.Collector())
    assert "of the default.lua" in prometheus_client.generate_latest(registry).decode()


def test_a_collector_takes_runtimes():
    with pytest.raises(triage.InputTypeError, match="metrics.Collector: `runtimes` is one triage.Runtime or several; got str 'x'"):
        triage.metrics.Collector("x")


# --- NumPy ---


def test_arrays_go_in_without_a_copy(policy):
    array = bad_batch().numpy()
    for z, f in (policy(array), policy(z=array), policy.run([array]), policy.run({"z": array}), policy.run([array], deadline=60)):
        assert torch.equal(z[2], torch.full((4,), 0.5)) and flags.summary(f) == {"logits": {"NAN": 1, "FALLBACK_VALUE": 1}}
    same = triage.load_source("return policy {outputs = {'z'}, run = function(z) return z end}")
    assert same(array).data_ptr() == array.ctypes.data and np.shares_memory(same(array).numpy(), array)
    policy.prepare(array)
    f = triage.flag_nan(array, "a")
    assert flags.summary(f) == {"a": {"NAN": 1}} and triage.has_err(f.numpy())
    assert torch.equal(triage.fix(array, f.numpy(), "a")[0], triage.fix(bad_batch(), f, "a")[0])
    assert torch.equal(err.push(f, 1, "b", where=np.arange(8) > 3), err.push(f, 1, "b", where=torch.arange(8) > 3))
    assert err.new(array).shape == (8, 4) and torch.equal(err.take_ok(f, array), bad_batch()[[0, 1, 3, 4, 5, 6, 7]])


@pytest.mark.parametrize(
    "array, text",
    [
        (
            np.array([["a"]]),
            'input 1 is a NumPy array of <U1, a dtype that PyTorch has not; convert it, as in array.astype\\("float32"\\).',
        ),
        (np.array([[1]], dtype=object), "input 1 is a NumPy array of object, a dtype that PyTorch has not"),
        (np.ones((2, 4), np.float32)[::-1], r"that PyTorch cannot read \(.*\); pass array.copy\(\) in native byte order"),
        (np.ones((2, 4), ">f4"), "in native byte order"),
        (np.float32(1.0), "input 1 is a tensor or a NumPy array; got float32 "),
    ],
)
def test_arrays_that_torch_has_not(policy, array, text):
    with pytest.raises(triage.InputError, match=text):
        policy(array)


# --- helpers for tests ---


def test_check_policy_runs_the_tests_of_the_file(tmp_path):
    file = tmp_path / "double.lua"
    file.write_text(DOUBLE % "2.0")
    policy = testing.check_policy(file)
    assert torch.equal(policy(torch.ones(2)), torch.full((2,), 2.0)) and policy.version.number == 1
    testing.check_policy(file)
    testing.check_policy(ROOT / "scripts/policies/serving/nan_rows.lua", triage.Runtime(backend="eager"))
    file.write_text(DOUBLE % "3.0")
    with pytest.raises(AssertionError, match=r"double.lua: the policy 'double' fails its own tests: 'doubles'"):
        testing.check_policy(file)
    file.write_text("return function(")
    with pytest.raises(triage.LoadError):
        testing.check_policy(file)


def test_bad_batches():
    like = torch.ones(4, 3)
    batches = dict(testing.bad_batches(like))
    assert len(batches) == 2 + 3 * 9 and torch.equal(like, torch.ones(4, 3))
    assert batches["nan in sample 2"].isnan().sum() == 3 and batches["nan in an element of sample 2"].isnan().sum() == 1
    assert batches["all -zero"].signbit().all() and batches["no samples"].shape == (0, 3) and batches["one sample"].shape == (1, 3)
    assert 0 < batches["all subnormal"][0, 0] < torch.finfo(torch.float32).smallest_normal
    assert set(dict(testing.bad_batches(torch.ones(2, 2, dtype=torch.uint8)))) >= {"all largest", "all zero"}
    assert dict(testing.bad_batches(np.ones((2, 2), np.int64)))["all lowest"][0, 0] == -(2**63)
    assert len(testing.bad_batches(torch.ones(2, dtype=torch.bool))) == 8
    assert all(each.batch.dtype == torch.bfloat16 for each in testing.bad_batches(torch.ones(2, 2, dtype=torch.bfloat16)))
    with pytest.raises(triage.InputError, match="got torch.complex64"):
        testing.bad_batches(torch.ones(2, dtype=torch.complex64))


def test_same_bits():
    nan = torch.tensor([1.0, float("nan")])
    testing.assert_same_bits(nan, nan.clone())
    testing.assert_same_bits(np.ones(2), torch.ones(2, dtype=torch.float64))
    for dtype in (torch.float16, torch.bfloat16, torch.bool, torch.int8, torch.complex64):
        testing.assert_same_bits(torch.ones(2).to(dtype), torch.ones(2).to(dtype))
    with pytest.raises(AssertionError, match=r"^the tensors differ in 1 of 2 elements, first at \(1,\): -0.0, and expected is 0.0.$"):
        testing.assert_same_bits(torch.tensor([1.0, -0.0]), torch.tensor([1.0, 0.0]))
    with pytest.raises(AssertionError, match="^a and b differ: torch.float32 .2,., and expected is torch.float64 .2,.[.]$"):
        testing.assert_same_bits(torch.ones(2), torch.ones(2, dtype=torch.float64), "a and b")


def test_isolated(policy):
    testing.assert_isolated(policy, torch.randn(6, 4))
    mean = triage.load_source("return policy {outputs = {'z'}, run = function(z) return z - z:mean(0, true) end}", "mean.lua")
    with pytest.raises(
        AssertionError,
        match=r"mean.lua.*: sample 0 of `z` became nan, and other samples of `z` with it: sample 1: its values differ in 4 of 4",
    ):
        testing.assert_isolated(mean, torch.randn(6, 4))
    counting = triage.load_source(
        "return policy {outputs = {'y'}, state = {n = {shape = {}}}, run = function(z, s) local n = s.n + 1 return z * 0 + torch.rand_like(z) + n, {n = n} end}"
    )
    with pytest.raises(AssertionError, match="sample 1 of `z` became nan|sample 0 of `z`"):
        testing.assert_isolated(triage.load_source("return function(z) return z:cumsum(0) end"), torch.randn(3, 2), samples=[0])
    testing.assert_isolated(counting, torch.randn(3, 2))
    with pytest.raises(triage.InputError, match="at least 2 samples"):
        testing.assert_isolated(policy, torch.randn(1, 4))


# --- types ---

GOOD = """
import numpy as np
import torch
import triage
from triage import err, flags, testing
from triage.metrics import Collector

with triage.Runtime(backend="eager", on_error="last_good", limits=triage.Limits(seconds=1.0), seed=3) as runtime:
    policy: triage.Policy = runtime.load("repair.lua")
outputs: torch.Tensor | tuple[torch.Tensor, ...] = policy(torch.ones(2, 4))
first, second = policy(np.ones((2, 4)))
z, f = policy.run([torch.ones(2, 4), np.ones(3)], params={"k": 1.0}, deadline=1.0, on_error="raise")
fine: torch.Tensor = err.is_ok(f)
repaired, g = triage.fix(z, triage.flag_nan(z, "a"), "a", codes=[err.NAN])
with triage.watch(".") as watch:
    for event in watch:
        kind: str = event.kind
rows: list[flags.TableRow] = flags.to_table(f)
text: str = flags.html(f).html
Collector(runtime)
for name, batch in testing.bad_batches(z):
    testing.assert_same_bits(batch, batch)
try:
    policy(z)
except triage.PolicyError as error:
    place: tuple[str, int, str, str] = (error.file, error.line, error.traceback, error.hint)
processor = triage.LogitsProcessor(policy, eos=2)
ended: torch.Tensor = processor.ended
"""
BAD = {
    'triage.Runtime(backnd="eager")': "Runtime",
    'triage.Runtime(on_error="ignore")': "Runtime",
    "triage.Runtime(seed='x')": "Runtime",
    "policy.run([z], dead_line=1)": "run",
    'policy.run([z], on_error="no")': "run",
    "triage.Limits(second=1)": "Limits",
    "policy.pin('a')": "pin",
    "x: int = policy(z)": "assignment",
}


def check_types(tool: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    package = Path(triage.__file__).parent.parent
    environment = {**os.environ, "MYPYPATH": str(package), "PYTHONPATH": str(package)}
    return subprocess.run(tool, cwd=folder, capture_output=True, text=True, env=environment, timeout=600)


@pytest.mark.skipif(not importlib.util.find_spec("mypy"), reason="no mypy")
def test_types_in_strict_mode(tmp_path):
    (tmp_path / "good.py").write_text(GOOD)
    head = 'import torch\nimport triage\npolicy = triage.load("a.lua")\nz = torch.ones(2)\n'
    (tmp_path / "bad.py").write_text(head + "\n".join(BAD))
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary"]
    said = check_types([*mypy, "-p", "triage"], tmp_path)
    assert said.returncode == 0, said.stdout
    said = check_types([*mypy, "--follow-imports=silent", "good.py"], tmp_path)
    assert said.returncode == 0, said.stdout
    said = check_types([*mypy, "--follow-imports=silent", "bad.py"], tmp_path)
    lines = {int(line.split(":")[1]) for line in said.stdout.splitlines() if ": error:" in line}
    assert lines == set(range(5, 5 + len(BAD))), said.stdout


@pytest.mark.skipif(not importlib.util.find_spec("pyright"), reason="no pyright")
def test_types_in_pyright(tmp_path):
    (tmp_path / "good.py").write_text("# pyright: strict\n" + GOOD)
    head = '# pyright: strict\nimport torch\nimport triage\npolicy = triage.load("a.lua")\nz = torch.ones(2)\n'
    (tmp_path / "bad.py").write_text(head + "\n".join(BAD))
    pyright = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    if check_types([*pyright, "--version"], tmp_path).returncode:
        pytest.skip("pyright cannot get the program that it is a wrapper of")
    said = check_types([*pyright, "good.py"], tmp_path)
    assert said.returncode == 0, said.stdout
    said = check_types([*pyright, "bad.py"], tmp_path)
    lines = {int(line.split(":")[1]) for line in said.stdout.splitlines() if " error: " in line}
    assert lines == set(range(6, 6 + len(BAD))), said.stdout
