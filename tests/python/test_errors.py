"""Mistakes are told in Python's words: exceptions of Python's classes, with a place and advice, and no name of C++ or Lua's own types."""

from __future__ import annotations

import errno
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from conftest import PLAIN, ROOT, bad_batch
from torch.utils.data import DataLoader, Dataset

import triage
from triage import err, flags
from triage._texts import in_python

# What a Python program cannot know: names of C++, of TorchScript's types and of Lua's, and dtypes as C++ prints them.
FOREIGN = re.compile(
    r"::|__torch__|RuntimeOptions|RunOptions|GenericDict|Declaration|pybind|Optional\[|List\[|Dict[\[(]|Unable to cast|Tracer|\bTensor\b|\bStrided\b|\bSparse|Float8|"
    r"got (?:Int|String|Double|Bool|None?Type|Float|Long)\b|\b(?:Float|Double|Long|Half|Bool|Byte|Char|Short)\b|\bNoneType\b"
)

ENDLESS = "local n = 0\nwhile true do n = n + 1 end"
GREEDY = "return function(z) return z + torch.ones({1000}) end"


def mistakes() -> dict[str, tuple]:
    """Each a call with z, f, a policy and an array, and the class that it raises."""
    r, s, t = triage.Runtime, triage.InputError, triage.InputTypeError
    return {
        "flag_nan(list)": (lambda z, f, p, a: triage.flag_nan([1.0]), t),
        "flag_nan(f=data)": (lambda z, f, p, a: triage.flag_nan(z, f=z), s),
        "flag_nan(config)": (lambda z, f, p, a: triage.flag_nan(z, config="x"), t),
        "flag_nan(location)": (lambda z, f, p, a: triage.flag_nan(z, 1.5), t),
        "flag_nan(0-dim)": (lambda z, f, p, a: triage.flag_nan(z[0, 0]), s),
        "flag_nan(other rows)": (lambda z, f, p, a: triage.flag_nan(z, "a", f[:3]), s),
        "flag_oob_indices(floats)": (lambda z, f, p, a: triage.flag_oob_indices(z, 3), s),
        "flag_oob_indices(text)": (lambda z, f, p, a: triage.flag_oob_indices(z.long(), "3"), t),
        "fix(array as f)": (lambda z, f, p, a: triage.fix(z, a), s),
        "fix(text)": (lambda z, f, p, a: triage.fix("z", f), t),
        "fix(fallback text)": (lambda z, f, p, a: triage.fix(z, f, fallback="x"), t),
        "fix(fallback shape)": (lambda z, f, p, a: triage.fix(z, f, fallback=torch.ones(3)), s),
        "fix(codes)": (lambda z, f, p, a: triage.fix(z, f, codes=3), t),
        "push(where list)": (lambda z, f, p, a: triage.push(f, 1, where=[True]), t),
        "push(where data)": (lambda z, f, p, a: triage.push(f, 1, where=z), s),
        "push(data)": (lambda z, f, p, a: triage.push(z, 1), s),
        "new(int)": (lambda z, f, p, a: err.new(3), t),
        "new_t(text)": (lambda z, f, p, a: err.new_t("x"), t),
        "merge(data)": (lambda z, f, p, a: err.merge(f, z), s),
        "has_domain": (lambda z, f, p, a: err.has_domain(f, "x"), t),
        "get_slot": (lambda z, f, p, a: err.get_slot(f, 99), s),
        "take_ok(int)": (lambda z, f, p, a: err.take_ok(f, 3), t),
        "replace(value)": (lambda z, f, p, a: err.replace(z, "x", [err.NAN]), t),
        "map_ok(no function)": (lambda z, f, p, a: err.map_ok(f, z, 3), t),
        "and_then(one result)": (lambda z, f, p, a: err.and_then(f, z, lambda z: z), t),
        "guard(no tensor)": (lambda z, f, p, a: err.guard(f, z, lambda z: 3, 1), t),
        "flags.repr(int)": (lambda z, f, p, a: flags.repr(3), t),
        "flags.repr(codes)": (lambda z, f, p, a: flags.repr(f, codes={"A": "x"}), t),
        "flags.save(int)": (lambda z, f, p, a: flags.save(f, 3), t),
        "flags.load(nothing)": (lambda z, f, p, a: flags.load("there-is-none.pt"), triage.FileError),
        "ErrorConfig(text)": (lambda z, f, p, a: triage.ErrorConfig(num_slots="x"), t),
        "ErrorConfig(0)": (lambda z, f, p, a: triage.ErrorConfig(num_slots=0), triage.ConfigError),
        "set_config(int)": (lambda z, f, p, a: triage.set_config(3), t),
        "register(int)": (lambda z, f, p, a: triage.ErrorLocation.register(3), t),
        "load(int)": (lambda z, f, p, a: triage.load(3), t),
        "load(key)": (lambda z, f, p, a: triage.load(p.path, key=3), t),
        "load(nothing)": (lambda z, f, p, a: triage.load("there-is-none.lua"), triage.FileError),
        "load_source(int)": (lambda z, f, p, a: triage.load_source(3), t),
        "load_source(endless)": (lambda z, f, p, a: r(instructions=10_000).load_source(ENDLESS), triage.LimitError),
        "load_source(slow)": (lambda z, f, p, a: r(seconds=0.01, instructions=0).load_source(ENDLESS), triage.TimeLimitError),
        "tensor memory": (lambda z, f, p, a: r(tensor_bytes=64).load_source(GREEDY)(torch.ones(1000)), triage.MemoryLimitError),
        "deadline": (lambda z, f, p, a: p.run([z], deadline=1e-9), triage.TimeLimitError),
        "call(int)": (lambda z, f, p, a: p(3), t),
        "call(two)": (lambda z, f, p, a: p(z, z), s),
        "call(dtype)": (lambda z, f, p, a: p(z.double()), triage.ValidationError),
        "call(shape)": (lambda z, f, p, a: p(z[:, :2]), triage.ValidationError),
        "call(objects)": (lambda z, f, p, a: p(np.array(["a"])), t),
        "call(meta)": (lambda z, f, p, a: p(z.to("meta")), triage.Error),
        "call(sparse)": (lambda z, f, p, a: p(z.to_sparse()), triage.PolicyError),
        "call(param)": (lambda z, f, p, a: p(z, fallback=1.0), s),
        "operation(float8)": (lambda z, f, p, a: triage.load_source(PLAIN)(z.to(torch.float8_e4m3fn)), triage.PolicyError),
        "operation(sparse)": (lambda z, f, p, a: triage.flag_nan(z.to_sparse()), s),
        "run(int)": (lambda z, f, p, a: p.run(3), t),
        "run(text)": (lambda z, f, p, a: p.run("x"), t),
        "run(params list)": (lambda z, f, p, a: p.run([z], params=[1]), t),
        "run(params key)": (lambda z, f, p, a: p.run([z], params={3: 1}), t),
        "run(params tensor)": (lambda z, f, p, a: p.run([z], params={"fallback": z}), s),
        "run(info)": (lambda z, f, p, a: p.run([z], info=[]), t),
        "run(state_key)": (lambda z, f, p, a: p.run([z], state_key=3), t),
        "run(deadline)": (lambda z, f, p, a: p.run([z], deadline="x"), t),
        "run(on_error)": (lambda z, f, p, a: p.run([z], on_error="x"), s),
        "run(misspelled)": (lambda z, f, p, a: p.run([z], dead_line=3), s),
        "prepare(int)": (lambda z, f, p, a: p.prepare(3), t),
        "set_param(int)": (lambda z, f, p, a: p.set_param(3, 1), t),
        "manual_seed(-1)": (lambda z, f, p, a: p.manual_seed(-1), s),
        "manual_seed(2**70)": (lambda z, f, p, a: p.manual_seed(2**70), s),
        "pin(text)": (lambda z, f, p, a: p.pin("a"), t),
        "rollback(text)": (lambda z, f, p, a: p.rollback("x"), t),
        "replace(int)": (lambda z, f, p, a: p.replace(3), t),
        "save_state(int)": (lambda z, f, p, a: p.save_state(3), t),
        "watch(nothing)": (lambda z, f, p, a: triage.watch("there-is-none"), triage.FileError),
        "watch(debounce)": (lambda z, f, p, a: triage.watch(".", debounce="x"), t),
        "Runtime(print)": (lambda z, f, p, a: r(print=print), s),
        "Runtime(misspelled)": (lambda z, f, p, a: r(backnd=None), s),
        "Runtime(backend)": (lambda z, f, p, a: r(backend="fusd"), s),
        "Runtime(switch)": (lambda z, f, p, a: r(fullgraph=3), t),
        "Runtime(seed)": (lambda z, f, p, a: r(seed=2**70), s),
        "Runtime(trial_seconds)": (lambda z, f, p, a: r(trial_seconds=-1), triage.ConfigError),
        "Runtime(reload_latency_ratio)": (lambda z, f, p, a: r(reload_latency_ratio=0.5), triage.ConfigError),
        "Runtime(state_keys)": (lambda z, f, p, a: r(state_keys=0), triage.ConfigError),
        "Runtime(limits)": (lambda z, f, p, a: r(limits={"seconds": -1}), triage.ConfigError),
        "Runtime(limits text)": (lambda z, f, p, a: r(limits=triage.Limits(seconds="x")), t),
        "LogitsProcessor(int)": (lambda z, f, p, a: triage.LogitsProcessor(3), t),
        "LogitsProcessor(params)": (lambda z, f, p, a: triage.LogitsProcessor(p, params=[1]), t),
        "LogitsProcessor(num_beams)": (lambda z, f, p, a: triage.LogitsProcessor(p, num_beams="x"), t),
    }


@pytest.mark.parametrize("name", mistakes())
def test_no_message_has_a_name_that_python_has_not(name, policy):
    call, expected = mistakes()[name]
    z = torch.ones(8, 4)
    with pytest.raises(expected) as caught:
        call(z, triage.flag_nan(z), policy, np.ones((8, 4), dtype=np.float32))
    message = str(caught.value)
    assert not FOREIGN.search(message), message
    assert len(message) < 600
    error = caught.value
    assert isinstance(error.file, str) and isinstance(error.line, int) and isinstance(error.traceback, str) and isinstance(error.hint, str)
    assert error.hint in message
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.file, again.line, again.traceback, again.hint) == (
        type(error), message, error.file, error.line, error.traceback, error.hint,
    )  # fmt: skip


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda p: triage.flag_nan([1.0]), "flag_nan: `z` is a tensor or a NumPy array; got list [1.0]."),
        (lambda p: triage.flag_nan(torch.ones(2), config="x"), "flag_nan: `config` is a triage.ErrorConfig; got str 'x'."),
        (lambda p: p.run([torch.ones(1, 4)], params=[1]), "run: `params` is a dict of values by name; got list [1]."),
        (lambda p: p.run([torch.ones(1, 4)], info=[]), "run: `info` is a dict, which the call fills; got list []."),
        (lambda p: p.run([torch.ones(1, 4)], state_key=3), "run: `state_key` is a str; got int 3."),
        (lambda p: p.run([torch.ones(1, 4)], deadline="x"), "run: `deadline` is the time for the call, in seconds above 0; got str 'x'."),
        (lambda p: p.run(3), "KEY: run takes a list of tensors, or a dict of them by name; got int 3."),
        (lambda p: p(3), "KEY: input 1 is a tensor or a NumPy array; got int 3."),
        (lambda p: p(torch.ones(2, 5)), "DimensionMismatchError: policy 'repair': input 'z': dimension 1: expected 4, got 5; "
                                        "it is torch.float32 (2, 5) and declared torch.float32 (N, 4)"),
        (lambda p: p(torch.ones(1, 4), fallback=1.0),
         "KEY: `fallback` is a param; its inputs are: z. A param is given to run: policy.run([...], params={'fallback': ...})."),
        (lambda p: p(torch.ones(1, 4), deadline=1.0),
         "KEY: there is no input `deadline`; its inputs are: z. `deadline` is an option of run: policy.run([...], deadline=...)."),
        (lambda p: p.run([torch.ones(1, 4)], fallback=1.0),
         "run: `fallback` is a param of KEY, not an option: run([...], params={'fallback': ...})."),
        (lambda p: p.pin("a"), "pin: `number` is the number of a version; got str 'a'."),
        (lambda p: p.manual_seed(-1), "manual_seed: `seed` is an int of 0 or more; got -1."),
        (lambda p: triage.load(3), "load: `path` is a path: a str or an os.PathLike; got int 3."),
        (lambda p: triage.load_source(3), "load_source: `source` is a str; got int 3."),
        (lambda p: triage.watch(".", debounce="x"), "watch: `debounce` is a number of seconds, 0 or more; got str 'x'."),
        (lambda p: triage.Runtime(on_slow_reload="refus"),
         "Runtime: `on_slow_reload` is \"warn\", \"refuse\" or \"shadow\"; got 'refus'; did you mean 'refuse'?"),
        (lambda p: p.run([torch.ones(1, 4)], trace="x"),
         "run: there is no option `trace`; did you mean 'trace_id'? There are: params, info, on_error, deadline, state_key, decision_id, trace_id, sample_ids."),
    ],
)  # fmt: skip
def test_messages(call, message, policy_file):
    policy = triage.load(policy_file)
    with pytest.raises(triage.InputError) as caught:
        call(policy)
    assert str(caught.value) == message.replace("KEY", policy.key)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda z: triage.flag_nan(z, 5000), "an id of 0 to 1023, or None; got int 5000."),
        (lambda z: triage.fix(z, z), "`f` is not a flags tensor, but torch.float32 (8, 4)"),
        (lambda z: err.push(err.new(z), "x"), "a code is a number of 0 to 15, such as err.NAN; got str 'x'."),
    ],
)
def test_a_mistake_inside_a_compiled_function_shows_its_message(call, message):
    with pytest.raises(Exception) as caught:
        torch.compile(call, fullgraph=True, backend="eager")(torch.ones(8, 4))
    assert re.search(r"raised exception \w+\(.*" + re.escape(message), str(caught.value))
    with pytest.raises(triage.InputError) as caught:
        torch.compile(call, backend="eager")(torch.ones(8, 4))
    assert message in str(caught.value)


def test_none_is_the_default(policy):
    z = bad_batch()
    options = {"params": None, "info": None, "on_error": None, "deadline": None, "state_key": None, "decision_id": None, "trace_id": None}
    assert torch.equal(policy.run([z], **options)[0], policy(z)[0])
    assert triage.Runtime(backend=None, limits=None).options == triage.Runtime(limits=triage.Limits()).options == {}


def test_bases_of_python(tmp_path):
    bases = {
        triage.FileError: OSError, triage.InputError: ValueError, triage.InputTypeError: TypeError, triage.ConfigError: ValueError,
        triage.TimeLimitError: TimeoutError, triage.MemoryLimitError: MemoryError, triage.LimitError: RuntimeError, triage.PolicyError: RuntimeError,
    }  # fmt: skip
    for each, base in bases.items():
        assert issubclass(each, base) and issubclass(each, triage.Error) and each.__module__ == "triage"
    missing = tmp_path / "missing.lua"
    with pytest.raises(OSError) as caught:
        triage.load(missing)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))
    assert str(caught.value) == f"cannot load the policy '{missing}': there is no such file"
    with pytest.raises(OSError) as caught:
        triage.load(tmp_path)
    assert caught.value.errno == errno.EISDIR


def test_hints(tmp_path):
    def hint(call) -> str:
        with pytest.raises(triage.Error) as caught:
            call()
        return caught.value.hint

    z = torch.ones(8, 4)
    assert hint(lambda: triage.flag_nan(z, f=z)) == "Pass the config that the flags were made with."
    assert hint(lambda: triage.Runtime(trial_seconds=-1)) == "give 0 where calls alone end a trial, or a number above 0"
    assert (
        hint(lambda: triage.Runtime(instructions=10_000).load_source(ENDLESS))
        == "reduce the work, or raise the `limits` of its triage.Runtime"
    )
    broken = "return function(z) if z:sum():item() > 0 then return z end return z + 1 end"
    assert hint(lambda: triage.Runtime(fullgraph=True).load_source(broken)(z)).startswith("Keep it a tensor: ")
    assert hint(lambda: triage.load(tmp_path / "none.lua")) == ""


class Failing(Dataset):
    def __init__(self, policy, z):
        self.policy, self.z = policy, z

    def __len__(self):
        return 1

    def __getitem__(self, i):
        return self.policy(self.z)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_an_exception_of_a_worker_keeps_its_place(tmp_path, context):
    file = tmp_path / "fails.lua"
    file.write_text("return function(z)\n  return z:mm(z)\nend\n")
    policy = triage.load(file)
    with pytest.raises(triage.PolicyError) as caught:
        list(DataLoader(Failing(policy, torch.ones(2, 3)), num_workers=1, multiprocessing_context=context))
    assert (caught.value.file, caught.value.line) == (str(file), 2)
    file.write_text("return function(z)\n  return z +\nend\n")
    loading = Loading(str(file))
    with pytest.raises(triage.LoadError) as caught:
        list(DataLoader(loading, num_workers=1, multiprocessing_context=context))
    assert (caught.value.file, caught.value.line) == (str(file), 3)


def test_a_missing_file_in_a_worker_is_the_one_that_is_named(tmp_path):
    missing = str(tmp_path / "missing.lua")
    with pytest.raises(OSError) as caught:
        list(DataLoader(Loading(missing), num_workers=1, multiprocessing_context="fork"))
    assert (type(caught.value), caught.value.errno, caught.value.filename) == (triage.FileError, errno.ENOENT, missing)


class Loading(Dataset):
    def __init__(self, file: str):
        self.file = file

    def __len__(self):
        return 1

    def __getitem__(self, i):
        triage.load(self.file, key=f"in a worker: {self.file}")


def _load(file: str) -> None:
    triage.load(file, key="in a process of its own")


def test_an_exception_of_another_process_is_whole(tmp_path):
    file = tmp_path / "broken.lua"
    file.write_text("return function(z)\n  return z +\nend\n")
    with pytest.raises(triage.LoadError):
        triage.load(file)  # so that this process knows the whole path, which is long here
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(triage.LoadError) as caught:
        pool.submit(_load, str(file)).result()
    assert (caught.value.file, caught.value.line) == (str(file), 3)


def test_texts_of_reloads_are_in_pythons_words(tmp_path):
    file = tmp_path / "p.lua"
    source = "return policy {{ inputs = {{'z'}}, outputs = {{'z'}}, run = function(z) {} end }}"
    file.write_text(source.format("return z * 2"))
    policy = triage.Runtime(on_new_graph_breaks="refuse", reload_latency_ratio=0, trial_seconds=0.5).load(file)
    policy(torch.ones(2))
    file.write_text(source.format("if z:sum():item() > 1e9 then return z end return z * 3"))
    with triage.watch(tmp_path):
        assert policy.reload() == "refused"
    message = policy.version.last_error.message
    assert "`on_new_graph_breaks` keeps it from calls" in message and not re.search("RuntimeOptions|::", message)


def test_no_text_of_the_sources_keeps_a_name_of_their_interface():
    """Texts that a script, a file or a call can provoke: whoever writes a new one finds here what Python would show."""
    text = re.compile(r'"((?:[^"\\]|\\.)*)"')
    names = re.compile(r"\b(?:RuntimeOptions|RunOptions|Policy|Runtime|ReloadGate|ErrorConfig)::\w|\btriage::[A-Z]\w+")
    seen, left = 0, []
    for folder in ("runtime/policy", "runtime/backends", "runtime/flags", "runtime/location", "runtime/typing", "bindings/lua", "bindings/python"):
        for file in sorted((ROOT / folder).rglob("*.cpp")):
            code = re.sub(r"^\s*(?:#include|//).*$", "", file.read_text(), flags=re.M)
            for found in text.findall(re.sub(r'"\s*\n\s*"', "", code)):
                if names.search(found):
                    seen += 1
                    left += [f"{file.name}: {said}"] if "::" in (said := in_python(found.replace("{}", "x"))) else []
    assert seen > 20 and not left, "\n".join(left)


def test_declared_types_stay_lua_where_a_script_is_to_be_changed():
    with pytest.raises(triage.LoadError, match=r'signature = \{ z = Tensor\(float32_t, \{"N", 512\}\) \}'):
        triage.load_source("return policy {outputs={'z'}, signature={y=Tensor(floating_t,{'N'})}, run=function(z) return z end}")
