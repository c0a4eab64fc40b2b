"""err and flags: the golden sequences, and each operation the same inside compiled programs."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import warnings

import pytest
import torch
from conftest import ROOT, bad_batch

import triage
from triage import err, flags

CARRIERS = {"int64": torch.int64, "float64": torch.float64, "int32": torch.int32, "float32": torch.float32}
INTEGERS = {torch.int64: torch.int64, torch.float64: torch.int64, torch.int32: torch.int32, torch.float32: torch.int32}


def config_of(priority, order, dedupe, slots, carrier) -> triage.ErrorConfig:
    how = triage.AccumulationConfig(triage.Priority[priority], triage.Order[order], triage.Dedupe[dedupe])
    return triage.ErrorConfig(int(slots), CARRIERS[carrier], how)


def slots_of(f: torch.Tensor) -> list[str]:
    """The records as tests/data/flags.txt writes them."""
    words = f.view(INTEGERS[f.dtype])
    width = 8 * words.element_size()
    texts = []
    for row in words.tolist():
        text = "".join(f"{word >> bit & 0xFFFF:04x}" for word in row for bit in range(0, width, 16))
        while text.endswith("0000"):
            text = text[:-4]
        texts.append(text or "-")
    return texts


def flags_of(records: list[str], config: triage.ErrorConfig) -> torch.Tensor:
    width = 64 if config.flag_dtype in (torch.int64, torch.float64) else 32
    rows = []
    for text in records:
        slots = [] if text == "-" else [int(text[i : i + 4], 16) for i in range(0, len(text), 4)]
        row = [0] * config.num_words
        for i, slot in enumerate(slots):
            row[i * 16 // width] |= slot << i * 16 % width
        rows.append([word - (1 << width) if word >> width - 1 else word for word in row])
    return torch.tensor(rows, dtype=INTEGERS[config.flag_dtype]).view(config.flag_dtype)


def step(f: torch.Tensor, words: list[str], config: triage.ErrorConfig) -> torch.Tensor:
    kind, rest = words[0], words[1:]
    if kind == "merge":
        return err.merge(f, flags_of(rest, config), config=config)
    if kind == "clear":
        return err.clear(f, int(rest[0]))
    location, severity, *codes = rest
    location, severity = int(location), int(severity)
    if kind == "codes":
        return err.push(f, torch.tensor([int(code) for code in codes]), location, severity=severity, config=config)
    if kind == "scalar":
        return err.push_scalar(f, int(codes[0]), location, severity=severity, config=config)
    mask = torch.tensor([mark == "1" for mark in codes[1]])
    return err.push(f, int(codes[0]), location, severity=severity, where=mask, config=config)


def bits(f: torch.Tensor, asked, numbers) -> list[int]:
    answers = [asked(f, number).tolist() for number in numbers]
    return [sum(1 << number for number, answer in zip(numbers, answers) if answer[row]) for row in range(f.shape[0])]


def answers(f: torch.Tensor) -> list[str]:
    columns = [err.is_ok(f).int().tolist(), err.count_errors(f).tolist(), err.max_severity(f).tolist()]
    texts = [[str(n) for n in column] for column in columns]
    texts.append([f"{n:x}" for n in bits(f, err.has_code, range(16))])
    texts.append([str(n) for n in err.has_critical(f).int().tolist()])
    texts.append([f"{n:x}" for n in bits(f, err.has_domain, range(4))])
    for column in (err.has_fallback(f).int(), err.get_first_code(f), err.get_first_location(f), err.get_first_severity(f)):
        texts.append([str(n) for n in column.tolist()])
    return [" ".join(row) for row in zip(*texts)]


def test_golden_sequences():
    steps = queries = 0
    for line in (ROOT / "tests/data/flags.txt").read_text().splitlines():
        kind, *words = line.split()
        if kind == "case":
            *parts, n = words
            config = config_of(*parts)
            f, asked = err.new_t(int(n), config=config), []
        elif kind == "=":
            assert slots_of(f) == words, line
            steps += 1
        elif kind == "?":
            asked = asked or answers(f)
            assert asked.pop(0) == " ".join(words), line
            queries += 1
        else:
            f, asked = step(f, [kind, *words], config), []
    assert steps > 1000 and queries > 500


def every_operation(x: torch.Tensor, ids: torch.Tensor) -> list[torch.Tensor]:
    f = triage.flag_inf(x, "c", triage.flag_nan(x, "b", triage.flag_nan_and_inf(x, "a")))
    f = triage.flag_oob_indices(ids, 2, "ids", f)
    g = err.push(err.merge(err.new(x), f), err.NAN, "p", where=x[:, 0] > 0)
    g = err.push(err.push_scalar(g, err.UNKNOWN), x[:, 0].nan_to_num(0).long() % 16, "q")
    g = err.guard(err.clear(g, err.UNKNOWN), x, lambda z: z.sum(-1) > 0, err.OVERFLOW, "g")
    asked = [
        err.is_ok(g), err.is_err(g), err.has_nan(g), err.has_inf(g), err.has_fallback(g), err.has_critical(g), err.all_ok(g),
        err.any_err(g), err.count_errors(g), err.max_severity(g), err.get_first_code(g), err.get_first_location(g),
        err.get_first_severity(g), err.has_code(g, 3), triage.find(1, g), err.has_domain(g, 1), err.get_slot(g, 1),
    ]  # fmt: skip
    results = [f, g, *asked]
    results += triage.fix(x, f, "fix")
    results += triage.fix(x, f, "fix", fallback=lambda: x.nan_to_num(0).mean(), codes=[err.NAN])
    results += triage.fix(ids, f, fallback=0.5)
    results += triage.fix(ids, f)
    results += err.recover_with_fallback(f, x, 1.0, "r", severity=err.ERROR)
    results += [err.take_ok_p(f, x), err.take_err_p(f, x, 2), err.replace(x, 0, [err.NAN, "posinf", 3, 5.0])]
    results += [err.map_ok(f, x, torch.tanh), err.map_err(f, x, torch.zeros_like), err.map_err_flags(f, torch.zeros_like)]
    results += err.and_then(f, x, lambda z: (z * 2, triage.flag_inf(z, "s")))
    results += err.bind(f, x, lambda z: (z * 2, triage.flag_nan(z, "s")))
    return results


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_every_operation_compiles_to_the_same_bits(backend):
    compiled = torch.compile(every_operation, fullgraph=True, backend=backend)
    for rows in (8, 3):
        x, ids = bad_batch(rows), torch.arange(rows * 2).reshape(rows, 2) - 1
        for i, (plain, fast) in enumerate(zip(every_operation(x, ids), compiled(x, ids), strict=True)):
            assert plain.dtype == fast.dtype and torch.equal(plain.nan_to_num(9), fast.nan_to_num(9)), i


def test_one_program_serves_every_batch_size():
    compiled = torch.compile(lambda x: triage.fix(x, triage.flag_nan(x, "x"), "x"), fullgraph=True, backend="aot_eager")
    torch._dynamo.utils.counters.clear()
    for rows in (8, 5, 7, 3):
        compiled(bad_batch(rows))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # of one size, and of any


def test_flags_are_read():
    f = triage.flag_nan(bad_batch(), "encoder.2")
    assert flags.summary(f) == {"encoder.2": {"NAN": 1}}
    (entry,) = flags.unpack(f, 2)
    assert (entry.code, entry.severity, entry.code_name, entry.location_name) == (err.NAN, err.CRITICAL, "NAN", "encoder.2")
    assert flags.unpack(f, -6) == [entry] and flags.unpack(f) == []
    assert flags.unpack_all(f)[2] == [entry] and len(flags.unpack_all(f)) == 8
    (row,) = flags.to_table(f)
    assert (row.sample, row.slot, row.location) == (2, 0, triage.ErrorLocation.get("encoder.2"))
    assert flags.pretty_print(f, 0) == "[OK] No errors" and "NAN" in flags.pretty_print(f, 2)
    assert triage.has_err(f) and not triage.has_err(f[:2])
    with pytest.raises(triage.InputError, match="no sample 8; the flags have 8"):
        flags.unpack(f, 8)


def test_flags_are_read_with_the_names_of_a_policy():
    own = triage.load_source(
        "return policy {outputs = {'f'}, codes = {MISSING = 4}, run = function(z)\n"
        "  return push(err.new(z), err.MISSING, 'rows', {where = z:isnan():any(-1)}) end}"
    )
    f = own(bad_batch())
    codes = own.signature["codes"]
    assert codes == {"MISSING": 4}
    assert flags.summary(f) == {"rows": {"CODE_4": 1}} and flags.summary(f, codes=codes) == {"rows": {"MISSING": 1}}
    assert "1xMISSING @ rows" in flags.repr(f, codes=codes) and "MISSING" in flags.pretty_print(f, 2, codes=codes)
    assert [entry.code_name for entry in flags.unpack(f, 2, codes=codes)] == ["MISSING"]
    assert flags.unpack_all(f, codes=codes)[2][0].code_name == flags.to_table(f, codes=codes)[0].code_name == "MISSING"
    assert own.statistics()["flags"][0]["code"] == "MISSING"
    with pytest.raises(triage.Error, match="no error code 99"):
        flags.repr(f, codes={"MISSING": 99})


def test_flags_go_through_files_with_their_names(tmp_path):
    f = err.push(triage.flag_nan(bad_batch(), "encoder.2"), 4, "gate")
    flags.save(f, tmp_path / "f.pt", codes={"MISSING": 4})
    assert torch.equal(torch.load(tmp_path / "f.pt", weights_only=True), f)  # the value of the file is the tensor
    read = (
        "import sys, triage; triage.ErrorLocation.register('mine'); f, codes = triage.flags.load(sys.argv[1])\n"
        "print(triage.flags.repr(f, codes=codes), codes)"
    )
    command = [sys.executable, "-c", read, tmp_path / "f.pt"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "ErrorFlags(8 samples, 9 errors: 8xMISSING, 1xNAN @ encoder.2, gate) {'MISSING': 4}\n"
    own, codes = flags.load(str(tmp_path / "f.pt"))
    assert torch.equal(own, f) and codes == {"MISSING": 4}
    with pytest.raises(triage.Error, match="No such file"):
        flags.load(tmp_path / "none.pt")
    with pytest.raises(triage.InputError):
        flags.save(torch.ones(2, 3, dtype=torch.int16), tmp_path / "z.pt")


def test_rows_are_selected():
    z = bad_batch(4)
    f = triage.flag_nan(z)
    fine, bad = err.partition(f, z)
    assert torch.equal(fine, z[[0, 1, 3]]) and torch.equal(bad.nan_to_num(9), z[2:3].nan_to_num(9))
    assert torch.equal(err.get_err(f), f[2:3]) and torch.equal(err.Ok(f, z), fine)
    with pytest.raises(triage.InputError, match="does not have the 4 samples"):
        err.take_ok(f, z[:2])


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: err.is_err(torch.zeros(3, 4)), "`f` is not a flags tensor, but torch.float32 .3, 4."),
        (lambda: triage.fix(err.new_t(2), torch.zeros(2, 4)), "fix: `f` is not a flags tensor"),
        (lambda: err.push(err.new_t(2), 16), "err.push: a code is a number of 0 to 15"),
        (lambda: err.push(err.new_t(2), 1, 5000), "a location is a path"),
        (lambda: err.replace(torch.zeros(1), 0, []), "empty"),
        (lambda: err.replace(torch.zeros(1), 0, ["nana"]), "no target 'nana'"),
        (lambda: triage.ErrorConfig(num_slots=0), "num_slots"),
        (lambda: triage.ErrorConfig(flag_dtype=torch.int16), "flag_dtype"),
        (lambda: err.map_ok(err.new_t(2), torch.zeros(2), lambda z: 1), "must return a tensor"),
    ],
)
def test_wrong_arguments(call, text):
    with pytest.raises(triage.Error, match=text):
        call()


def test_the_configuration_of_the_process():
    before = triage.get_config()
    try:
        triage.set_config(triage.ErrorConfig(num_slots=4, flag_dtype=torch.float32))
        assert triage.flag_nan(bad_batch()).dtype == torch.float32
        made = triage.load_source('return function(z) return flag_nan(z, "z") end')(bad_batch())
        assert made.dtype == torch.float32 and made.shape == (8, 2)
        assert err.is_err(made).tolist() == [False, False, True] + [False] * 5
    finally:
        triage.set_config(before)


@pytest.mark.skipif(not importlib.util.find_spec("torchguard"), reason="no torchguard")
def test_flags_of_torchguard_are_read_as_they_are(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests/bench"))
    torchguard = importlib.import_module("against_torchguard").load_torchguard()
    z = bad_batch()
    theirs = torchguard.flag_nan(z, 3)
    assert torch.equal(theirs, triage.flag_nan(z, 3))
    assert flags.unpack(theirs, 2)[0].code == err.NAN
    assert torchguard.err.has_nan(triage.flag_nan(z, 3)).tolist() == err.has_nan(theirs).tolist()
    assert torch.equal(torchguard.err.push(theirs, err.OVERFLOW, 9), err.push(theirs, err.OVERFLOW, 9))


def test_questions_take_the_configuration_of_their_flags():
    config = triage.ErrorConfig(num_slots=6)
    foreign = torch.tensor([[0, (3 | err.NAN << 2 | 9 << 6) << 48]])  # slot 7, which the configuration does not use
    assert len(flags.unpack(foreign, 0, config=config)) == err.count_errors(foreign, config=config).item() == 1
    assert err.has_nan(foreign, config=config).item() and triage.find(err.NAN, foreign, config=config).item()
    assert triage.has_err(foreign, config=config) and not err.is_ok(foreign, config=config).item()
    assert err.is_ok(err.clear(foreign, err.NAN, config=config), config=config).item()
    with pytest.raises(triage.InputError, match="ErrorConfig"):
        err.has_code(foreign, err.NAN, config=6)


def test_a_fallback_that_makes_integers_floats_is_told():
    ids = torch.tensor([[16777217, 2]])
    f = err.push(err.new(ids), err.NAN, "ids")
    with pytest.warns(UserWarning, match="the fallback is 0.0, so all samples of torch.int64 become floats"):
        assert triage.fix(ids, f, "ids", fallback=0.0)[0].dtype == torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert triage.fix(ids, f, "ids", fallback=0)[0].dtype == torch.int64
        assert triage.fix(ids, f, "ids")[0].dtype == torch.int64
