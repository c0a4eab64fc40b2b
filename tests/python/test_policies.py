"""Policies: calls, errors, versions, hot reload, threads, processes."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import DECLARED, PLAIN, ROOT, bad_batch
from torch.utils.data import DataLoader, Dataset

import triage
from triage import _build, _library


def repaired(z: torch.Tensor, value: float = 0.5) -> torch.Tensor:
    z = z.clone()
    z[2] = value
    return z


def test_a_call_by_position_and_by_name(policy):
    z, f = policy(bad_batch())
    assert torch.equal(z, repaired(bad_batch()))
    assert triage.flags.repr(f) == "ErrorFlags(8 samples, 2 errors: 1xNAN, 1xFALLBACK_VALUE @ logits)"
    assert torch.equal(policy(z=bad_batch())[0], z)


def test_one_output_is_no_tuple():
    assert torch.equal(triage.load_source("return function(z) return z + 1 end")(torch.zeros(2)), torch.ones(2))


def test_params(policy):
    assert policy.params == {"fallback": 0.5, "weights": [1.0, 2.0]}
    assert torch.equal(policy.run([bad_batch()], params={"fallback": 7})[0], repaired(bad_batch(), 7.0))
    assert torch.equal(policy(bad_batch())[0], repaired(bad_batch()))
    policy.set_param("fallback", 3)
    policy.set_param("weights", (1, 2.5))
    assert torch.equal(policy(bad_batch())[0], repaired(bad_batch(), 3.0))
    assert policy.params["fallback"] == 3
    with pytest.raises(TypeError):
        policy.params["fallback"] = 4
    with pytest.raises(triage.InputError, match="unknown|no param"):
        policy.set_param("falback", 1)
    with pytest.raises(triage.InputError, match="a number, a boolean, a list"):
        policy.set_param("fallback", "high")


def test_params_are_what_the_policy_allows():
    source = (
        "return policy {inputs = {'z'}, outputs = {'z'}, "
        "params = {k = {default = 2.0, min = 0, max = 9, help = 'the scale'}, size = {default = 1, values = {1, 2}}, on = true}, "
        "run = function(z, p) if p.on then return z * p.k end return z end}"
    )
    policy = triage.load_source(source)
    assert policy.params == {"k": 2.0, "size": 1, "on": True}
    ranges = policy.signature["param_ranges"]
    assert ranges["k"] == {"min": 0, "max": 9, "finite": True, "values": [], "help": "the scale"}
    assert ranges["size"]["values"] == [1, 2] and ranges["on"]["min"] is None
    for value in -1, 10, float("nan"), float("inf"):
        with pytest.raises(triage.InputError, match=r"param 'k' must .* \(the scale\)"):
            policy.set_param("k", value)
        with pytest.raises(triage.InputError, match="param 'k' must"):
            policy.run([torch.ones(2)], params={"k": value})
    assert policy.params["k"] == 2.0
    with pytest.raises(triage.InputError, match="must be one of 1, 2, got 3"):
        policy.set_param("size", 3)
    with pytest.raises(triage.InputError, match="is a boolean"):
        policy.set_param("on", 1)
    for huge, message in (10**30, "got 1e\\+30; it takes one of 1, 2"), (10**400, "at most 64 bits"), ([10**30], "got a list"):
        with pytest.raises(triage.InputError, match=message):
            policy.set_param("size", huge)
        with pytest.raises(triage.InputError, match=message):
            policy.run([torch.ones(2)], params={"size": huge})
    assert torch.equal(policy(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(policy.run([torch.ones(2)], params={"on": False})[0], torch.ones(2))
    policy.set_param("on", False)
    assert torch.equal(policy(torch.ones(2)), torch.ones(2))
    assert len(policy.graphs()) == 2 and policy.graph_breaks() == []


def test_params_from_numpy(policy):
    for value in np.float32(2), np.int64(2), np.float64(2):
        policy.set_param("fallback", value)
        assert policy.params["fallback"] == 2 and type(policy.params["fallback"]) in (int, float)
    for value in np.array([3.0, 4.0]), [np.float32(3), 4], (True, 4):
        policy.set_param("weights", value)
    assert policy.params["weights"] == [1, 4]
    assert policy.run([bad_batch()], params={"fallback": np.float32(7)})[0][2, 0] == 7
    switch = triage.load_source("return policy {outputs = {'z'}, params = {on = true}, run = function(z, p) return p.on and z or -z end}")
    assert switch.run([torch.ones(1)], params={"on": np.bool_(False)})[0].item() == -1


def test_options_of_a_call(policy):
    info = {}
    policy.run({"z": bad_batch()}, info=info, decision_id="request 7", deadline=5)
    assert (info["version"], info["answered"], info["flagged"], info["repaired"]) == (1, "live", 1, 1)
    with pytest.raises(triage.InputError, match="run: there is no option `dead_line`; did you mean 'deadline'"):
        policy.run([bad_batch()], dead_line=5)
    for word in ("ignore", ""):
        with pytest.raises(triage.InputError, match='"pass_through"'):
            policy.run([bad_batch()], on_error=word)


def test_on_error_of_a_runtime_and_of_a_call():
    source = 'return policy {outputs = {"z"}, run = function(z) return z:mm(z) end}'
    lenient = triage.Runtime(on_error="pass_through", count_flags=False).load_source(source)
    assert torch.equal(lenient(torch.ones(2, 3)), torch.ones(2, 3))
    with pytest.raises(triage.PolicyError) as caught:
        lenient.run([torch.ones(2, 3)], on_error="raise")
    assert caught.value.line == 1 and caught.value.file.endswith("policy.lua") and "mm" in str(caught.value)


def test_errors_name_file_and_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    broken = Path("broken.lua")
    broken.write_text("return function(z)\n  return z +\nend\n")
    with pytest.raises(triage.LoadError) as caught:
        triage.load(broken)
    assert (caught.value.file, caught.value.line) == (str(broken), 3) and str(caught.value).startswith(f"{broken}:3:")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), again.line) == (triage.LoadError, str(caught.value), 3)
    with pytest.raises(triage.FileError, match="no such file"):
        triage.load("missing.lua")
    with pytest.raises(triage.InputError, match="Runtime: there is no option `backnd`; did you mean 'backend'.*on_slow_reload"):
        triage.Runtime(backnd="eager")
    with pytest.raises(triage.Error, match="fusd.*fused"):
        triage.Runtime(backend="fusd")
    with pytest.raises(triage.InputError, match="on_slow_reload.*\"warn\", \"refuse\" or \"shadow\"; got 'maybe'"):
        triage.Runtime(on_slow_reload="maybe")
    with pytest.raises(triage.Error, match="`reload_latency_ratio` is 0.5"):
        triage.Runtime(reload_latency_ratio=0.5)
    with pytest.raises(triage.Error, match="`trial_seconds` is -1"):
        triage.Runtime(trial_seconds=-1)


@pytest.mark.parametrize("gate", ["warn", "refuse", "shadow"])
def test_a_gate_may_keep_a_version_that_breaks_its_graph_from_calls(tmp_path, gate):
    file = tmp_path / "p.lua"
    source = "return policy {{ inputs = {{'z'}}, outputs = {{'z'}}, run = function(z) {} end }}"
    file.write_text(source.format("return z * 2"))
    policy = triage.Runtime(on_new_graph_breaks=gate, reload_latency_ratio=0, trial_seconds=0.5).load(file)
    policy(torch.ones(2))
    file.write_text(source.format("if z:sum():item() > 1e9 then return z end return z * 3"))
    assert policy.reload() == ("swapped" if gate == "warn" else "refused")
    assert policy(torch.ones(2))[0].item() == (3 if gate == "warn" else 2)


@pytest.mark.parametrize("call", ["plain", "compiled"])
def test_a_text_of_a_script_may_be_any_bytes(call):
    """A message may quote a line that it cuts in the middle of a character. Python takes no such text."""
    source = r"return policy {outputs = {'z'}, signature = {z = Tensor(float32_t, {'N'})}, run = function(z) error('\xc3 end', 0) end}"
    broken = triage.load_source(source)
    with pytest.raises(RuntimeError, match=r"\\xc3 end"):
        broken(torch.ones(2)) if call == "plain" else torch.ops.triage.run_policy(broken.key, [torch.ones(2)])
    assert broken.replace(r"error('\xff', 0)") == "refused" and broken.version.last_error.message.endswith(r"\xff")
    with pytest.raises(triage.FileError, match="cannot load the policy"):
        triage.load("a\0b.lua")


def test_wrong_inputs(policy):
    with pytest.raises(triage.ValidationError, match=r"input 'z'"):
        policy(torch.zeros(2, 5))
    with pytest.raises(triage.InputError, match="2 were given|got 2|takes 1"):
        policy(bad_batch(), bad_batch())
    with pytest.raises(triage.InputError, match="input 1 is a tensor or a NumPy array; got list"):
        policy([1.0])
    with pytest.raises(triage.InputError, match="there is no input `x`.*its inputs are: z"):
        policy(x=bad_batch())
    long = triage.load_source("return function(logits, masks) return logits end", "long.lua")
    with pytest.raises(triage.InputError, match="there is no input `mask`; did you mean 'masks'. Its inputs are: logits, masks"):
        long(logits=bad_batch(), mask=bad_batch())
    with pytest.raises(triage.InputError, match=r"run\(\[z\]\)"):
        policy.run(bad_batch())
    with pytest.raises(triage.InputError, match="by position"):
        policy(bad_batch(), z=bad_batch())


def test_gradients_of_an_eager_call_are_zero_for_repaired_rows(policy):
    z = bad_batch().requires_grad_()
    policy(z)[0].sum().backward()
    wanted = torch.ones(8, 4)
    wanted[2] = 0
    assert torch.equal(z.grad, wanted)


def test_what_it_says_of_itself(policy, policy_file):
    policy(bad_batch())
    assert repr(policy) == f"<triage.Policy repair (z) -> (z, f), version 1 of {policy_file}>"
    assert policy.path == str(policy_file) and policy.name == "repair"
    assert policy.signature["input_types"][0]["text"] == 'Tensor(float32_t, {"N", 4})'
    statistics = policy.statistics()
    assert (statistics["calls"], statistics["flagged"], statistics["repaired"]) == (1, 1, 1)
    assert {"location": "logits", "code": "NAN", "severity": "CRITICAL", "count": 1} in statistics["flags"]
    assert f'path="{policy_file}"' in triage.metrics_text()
    assert "triage::fix" in policy.graphs()[0] and policy.graph_breaks() == []


def test_versions_reload_rollback_and_pin(policy, policy_file):
    assert policy.reload() == "unchanged"
    policy_file.write_text(DECLARED.replace("0.5", "9.0"))
    assert policy.reload() == "swapped" and policy.version.number == 2
    assert torch.equal(policy(bad_batch())[0], repaired(bad_batch(), 9.0))
    policy_file.write_text("return function(")
    assert policy.reload() == "refused"
    assert policy.version.last_error.line == 1 and "newest file refused" in repr(policy)
    policy.rollback(1)
    assert torch.equal(policy(bad_batch())[0], repaired(bad_batch()))
    assert [(v.number, v.live) for v in policy.versions()] == [(1, True), (2, False)]
    policy.pin(2)
    assert policy.version.pinned
    policy_file.write_text(DECLARED)
    assert policy.reload() == "unchanged" and policy.unpin() == "swapped"
    for number in 99, 2**32 + 1:  # the latter has the low bits of a version that there is
        with pytest.raises(triage.InputError, match="99|no version"):
            policy.rollback(number)


def test_watch(policy, policy_file):
    with triage.watch(policy_file.parent) as watch:
        assert watch.wait(0) is None
        policy_file.write_text(DECLARED.replace("0.5", "2.0"))
        event = watch.wait(60)
        assert (event.kind, event.path, event.version) == ("reloaded", str(policy_file), 2)
        policy_file.write_text("return function(")
        refused = watch.wait(60)
        assert (refused.kind, refused.line, refused.file) == ("refused", 1, str(policy_file))
        (policy_file.parent / "new.lua").write_text(PLAIN)
        watch.rescan()
        assert [event.kind for event in watch.events()] == ["added"]
        with pytest.raises(triage.InputError, match="seconds of 0 or more"):
            watch.wait(-1)
    assert watch.wait(5) is None and "closed" in repr(watch)
    with pytest.raises(triage.FileError):
        triage.watch(policy_file.parent / "missing")


def test_calls_in_four_threads_go_on_while_it_reloads(policy, policy_file):
    stop, seen, wrong = threading.Event(), set(), []

    def call():
        while not stop.is_set():
            z, _ = policy(bad_batch())
            seen.add(float(z[2, 0]))
            if not torch.equal(z[0], bad_batch()[0]):
                wrong.append(z)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(10):
        policy_file.write_text(DECLARED.replace("0.5", f"{number}.25"))
        assert policy.reload() == "swapped"
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong and len(seen) > 2 and policy.version.number == 11


def test_limits_are_the_budgets_of_a_script():
    endless = "local n = 0\nwhile true do n = n + 1 end"
    for options in ({"limits": {"instructions": 10_000, "script_bytes": 1 << 24}}, {"instructions": 10_000}):
        with pytest.raises(triage.LimitError, match="instructions"):
            triage.Runtime(**options).load_source(endless)
    tensors = triage.Runtime(limits={"tensor_bytes": 64})
    with pytest.raises(triage.LimitError):
        tensors.load_source("return function(z) return z + torch.ones({1000}) end")(torch.ones(1000))
    with pytest.raises(triage.InputError, match="did you mean 'seconds'"):
        triage.Runtime(limits={"second": 1})
    with pytest.raises(triage.InputError, match="given twice"):
        triage.Runtime(limits={"seconds": 1}, seconds=2)
    with pytest.raises(triage.InputError, match="`limits` is a triage.Limits, or a dict with instructions.*; got int 5"):
        triage.Runtime(limits=5)
    with pytest.raises(triage.InputError, match="instructions"):
        triage.Runtime(limits={"instructions": -1})


def test_a_call_leaves_the_interpreter_to_other_threads():
    """While one thread is inside a call that takes long, another counts: with the lock held it could not."""
    slow = triage.Runtime(seconds=60.0).load_source(
        "return function(z) local y = z for i = 1, 40 do y = y:mm(z):tanh() end return y end"
    )
    z = torch.randn(512, 512)
    slow(z)
    counted, during, running = 0, 0, threading.Event()

    def call():
        nonlocal during
        running.set()
        before = counted
        slow(z)
        during = counted - before

    thread = threading.Thread(target=call)
    thread.start()
    running.wait()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # nobody takes the lock: only who lets go of it makes room
    try:
        while thread.is_alive():
            counted += 1
            time.sleep(0)
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert during > 10


def test_copies_and_pickles(policy, policy_file):
    assert copy.deepcopy(policy) is policy and copy.copy(policy) is policy
    assert pickle.loads(pickle.dumps(policy)) is policy
    policy.set_param("fallback", 6)
    program = (
        "import pickle, sys, torch, triage\n"
        "p = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(p.path, p.key, p.params['fallback'], p(torch.full((1, 4), float('nan')))[0][0, 0].item())\n"
    )
    told = subprocess.run([sys.executable, "-c", program, pickle.dumps(policy).hex()], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [str(policy_file), policy.key, "6", "6.0"]


def test_keys(policy_file):
    first = triage.load(policy_file, key="one key")
    assert triage.load(policy_file, key="one key") is first
    with pytest.raises(triage.InputError, match="The key 'one key' is taken"):
        triage.load_source(PLAIN, key="one key")
    del first
    triage.load_source(PLAIN, key="one key")


class Rows(Dataset):
    def __init__(self, policy):
        self.policy = policy

    def __len__(self):
        return 8

    def __getitem__(self, i):
        z, f = self.policy(bad_batch()[i : i + 1])
        return z[0], f[0], os.getpid()


def test_forked_workers_of_a_DataLoader(policy):
    policy.set_param("fallback", 4.0)
    policy.set_param("weights", (1, 2.5))
    policy(bad_batch())
    with triage.watch(os.path.dirname(policy.path)):
        loader = DataLoader(Rows(policy), batch_size=4, num_workers=2, multiprocessing_context="fork")
        batches = list(loader)
    assert torch.equal(torch.cat([z for z, _, _ in batches]), repaired(bad_batch(), 4.0))
    assert os.getpid() not in torch.cat([pid for _, _, pid in batches]).tolist()
    assert policy.statistics()["calls"] == 1


def test_a_forked_child_ends(policy, policy_file):
    """The watch and runtime that it inherits have no threads there: their end would wait forever."""
    program = (
        "import os, sys, torch, triage\n"
        "policy = triage.load(sys.argv[1])\n"
        "watch = triage.watch(os.path.dirname(sys.argv[1]))\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    print(policy(torch.zeros(1, 4))[0].shape, watch.wait(0.1), flush=True)\n"
        "    try: watch.rescan()\n"
        "    except triage.InputError as error: print('refused')\n"
        "    del policy, watch\n"
        "    sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-c", program, str(policy_file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert said.splitlines() == ["torch.Size([1, 4]) None", "refused", "7"]


def test_an_error_in_a_worker_reaches_the_loop(policy):
    class Bad(Rows):
        def __getitem__(self, i):
            return self.policy(torch.zeros(1, 5))

    with pytest.raises(triage.ValidationError, match="input 'z'"):
        list(DataLoader(Bad(policy), num_workers=1, multiprocessing_context="fork"))


def test_state_is_of_a_key_and_survives(tmp_path):
    source = """return policy {outputs = {"n"}, state = {n = {shape = {}}},
      run = function(z, s) local n = s.n + z:sum() return n, {n = n} end}"""
    counting = triage.load_source(source)
    z = torch.ones(1)
    assert [counting.run([z], state_key=k)[0].item() for k in ("a", "a", "b")] == [1, 2, 1]
    counting.save_state(tmp_path / "state.pt")
    counting.reset_state()
    assert counting.run([z], state_key="a")[0].item() == 1
    counting.load_state(tmp_path / "state.pt")
    assert counting.run([z], state_key="a")[0].item() == 3


def test_a_library_for_another_pytorch_is_refused_before_it_is_loaded():
    with pytest.raises(ImportError, match=rf"this build of triage is for PyTorch {_build.TORCH_VERSION}, and PyTorch 1.13.1 is here"):
        _library.check("1.13.1")
    _library.check(_build.TORCH_VERSION + ".1+cu130")


def test_the_source_without_its_library_says_what_to_do():
    command = [sys.executable, "-c", "import triage"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bindings/python"), "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert said.returncode == 1 and "is the source of the package, without its library: build it with `./dev wheel`" in said.stderr


def test_versions_agree():
    assert triage.__version__ == torch.ops.triage._version()
    assert f'#define TRIAGE_VERSION "{triage.__version__}"' in (ROOT / "runtime/include/triage/version.h").read_text()


def test_an_interpreter_ends_while_threads_of_triage_free_tensors_that_it_knows(tmp_path):
    """Lua garbage holds inputs; the thread that frees a version frees them. Each child is an interpreter that ends."""
    (tmp_path / "keep.lua").write_text("local kept\nreturn policy{inputs = {'z'}, run = function(z) kept = z; return z + 1 end}")
    program = """
import os, signal, sys, torch, triage
for i, end in enumerate(["", "del policy, runtime", "del runtime"] * 2):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, (i, end)
        continue
    signal.alarm(60)
    runtime = triage.Runtime(backend="eager")
    policy = runtime.load("keep.lua")
    for version in range(6):
        z = torch.ones(4, 4)
        z.tag = "known to Python"
        policy(z)
        open("keep.lua", "a").write(f"\\n-- {i} {version}")
        policy.reload()
    del z
    exec(end)
    break
else:
    print("done")
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
