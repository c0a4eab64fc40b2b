"""Shadows, canaries, bundles and the options of the decision log from Python."""

import hashlib
import json
import math
import multiprocessing
import pickle
import time

import pytest
import torch
import triage

LIVE = """return policy { name = "repair", inputs = {"z"}, outputs = {"z", "f"},
  run = function(z) return fix(z, flag_nan(z, "logits"), "logits", {fallback = 0.0}) end }"""
OTHER = LIVE.replace("fallback = 0.0", "fallback = 5.0")
BATCH = torch.tensor([[1.0], [float("nan")]])


def repaired(policy):
    return policy(BATCH)[0][1, 0].item()


def wait_until(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("nothing happened within a minute")


def test_a_policy_without_a_candidate_says_so():
    policy = triage.load_source(LIVE)
    assert policy.candidate() is None
    with pytest.raises(triage.InputError, match="no candidate"):
        policy.promote()
    with pytest.raises(triage.InputError, match="candidate"):
        policy.end_candidate()


def test_a_shadow_answers_no_call_and_its_differences_are_counted():
    policy = triage.load_source(LIVE)
    assert policy.shadow_source(OTHER, share=1.0).number == 2
    assert [repaired(policy) for _ in range(10)] == [0.0] * 10
    wait_until(lambda: policy.candidate().shadow["compared"] == 10)
    report = policy.candidate()
    assert (report.kind, report.state, report.version, report.live_version) == ("shadow", "running", 2, 1)
    assert report.shadow["different"] == 10 and report.shadow["max_difference"] == 5.0
    assert report.live["calls"] == 10 and report.candidate["flagged"] == 10
    assert "shadow of" in str(report)
    policy.promote()
    assert repaired(policy) == 5.0 and policy.candidate().state == "promoted"
    policy.rollback(1)
    assert repaired(policy) == 0.0


def test_a_canary_answers_its_share_until_its_rules_or_the_host_end_it(tmp_path):
    policy = triage.load_source(LIVE)
    file = tmp_path / "next.lua"
    file.write_text(OTHER)
    policy.canary(file, share=1.0, promote_after=0)
    info = {}
    policy.run([BATCH], info=info)
    assert info["answered"] == "canary"
    assert policy.end_candidate().state == "ended" and repaired(policy) == 0.0
    policy.canary_source(OTHER, share=1.0, promote_after=3)
    for _ in range(3):
        repaired(policy)
    wait_until(lambda: policy.candidate().state == "promoted")
    assert repaired(policy) == 5.0


def test_what_a_candidate_refuses():
    policy = triage.load_source(LIVE)
    with pytest.raises(triage.LoadError) as refused:
        policy.shadow_source("x(")
    assert refused.value.line == 1
    with pytest.raises(triage.FileError):
        policy.canary("/no/such/file.lua")
    with pytest.raises(triage.InputError, match="share"):
        policy.shadow_source(OTHER, share=2.0)
    with pytest.raises(triage.InputTypeError, match="canary_source: `promote_after` is an int of 0 or more; got str 'ten'"):
        policy.canary_source(OTHER, promote_after="ten")
    with pytest.raises(TypeError):
        policy.shadow(1.0)


def write_bundle(folder, version, a, b):
    sources = {"a.lua": f"return function(z) return z + {a} end", "b.lua": f"return function(z) return z + {b} end"}
    for name, source in sources.items():
        (folder / name).write_text(source)
    listed = {name: hashlib.sha256(source.encode()).hexdigest() for name, source in sources.items()}
    (folder / "bundle.json").write_text(json.dumps({"name": "pair", "version": version, "policies": listed}))


def both(bundle):
    return tuple(bundle.policy(name)(torch.zeros(1, 1)).item() for name in ("a", "b"))


@pytest.fixture
def folder(tmp_path):
    write_bundle(tmp_path, "one", 1, 10)
    return tmp_path


def test_a_bundle_changes_as_a_whole_and_back(folder):
    with triage.Runtime() as runtime:
        bundle = runtime.load_bundle(folder)
        assert runtime.load_bundle(str(folder)) is bundle
        assert (bundle.name, bundle.policies, both(bundle)) == ("pair", ("a", "b"), (1, 10))
        assert bundle.policy("a") is bundle.policy("a") and bundle.policy("a").path == str(folder / "a.lua")
        first = bundle.version
        assert (first.number, first.version, first.policies, first.last_error) == (1, "one", {"a": 1, "b": 1}, None)
        write_bundle(folder, "two", 2, 20)
        assert bundle.reload() == "swapped" and both(bundle) == (2, 20)
        bundle.rollback(1)
        assert both(bundle) == (1, 10) and [each.version for each in bundle.versions()] == ["one", "two"]
        bundle.pin(2)
        write_bundle(folder, "three", 3, 30)
        bundle.reload()
        assert both(bundle) == (2, 20) and bundle.version.pinned
        assert bundle.unpin() == "swapped" and both(bundle) == (3, 30)
        write_bundle(folder, "four", 4, "(")
        assert bundle.reload() == "refused" and both(bundle) == (3, 30)
        assert bundle.version.last_error.line == 1 and "newest refused" in repr(bundle)


def test_a_watch_follows_a_bundle(folder):
    with triage.Runtime() as runtime:
        bundle = runtime.load_bundle(folder)
        with runtime.watch(folder) as watch:
            write_bundle(folder, "two", 2, 20)
            wait_until(lambda: both(bundle) == (2, 20))
            wait_until(lambda: any(event.kind == "reloaded" for event in watch.events()))


def test_what_a_bundle_and_its_policies_refuse(folder):
    bundle = triage.load_bundle(folder)
    with pytest.raises(triage.InputError, match="c.*a, b"):
        bundle.policy("c")
    with pytest.raises(triage.InputError, match="bundle"):
        bundle.policy("a").rollback(1)
    with pytest.raises(triage.FileError):
        triage.load_bundle(folder / "none")


def answer(policy):
    return policy(torch.zeros(1, 1)).item()


def version_in_child(_):
    bundle = triage.load_bundle(CHILDS[0])
    return bundle.version.version, bundle.reload(), bundle.policies


CHILDS = []


def test_a_bundle_in_a_forked_child(folder):
    bundle = triage.load_bundle(folder)
    CHILDS[:] = [folder]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(version_in_child, (0,)) == ("one", "unchanged", ("a", "b"))
    assert bundle.version.version == "one"


def test_a_bundle_of_a_closed_runtime_loads_nothing(folder):
    with triage.Runtime() as runtime:
        bundle = runtime.load_bundle(folder)
        policy = bundle.policy("a")
    for operation in (bundle.reload, bundle.unpin, lambda: bundle.rollback(1), lambda: bundle.pin(1)):
        with pytest.raises(triage.InputError, match="closed"):
            operation()
    assert bundle.version.number == 1 and answer(policy) == 1.0


def test_policies_of_a_bundle_are_pickled_and_used_in_forked_children(folder):
    bundle = triage.load_bundle(folder)
    policy = bundle.policy("b")
    assert policy.key == "pair/b"
    assert pickle.loads(pickle.dumps(policy)) is policy
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(answer, (policy,)) == 10.0


def test_a_bundle_in_a_compiled_function(folder):
    policy = triage.load_bundle(folder).policy("a")
    compiled = torch.compile(lambda x: policy(x) * 2, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(3, 1)).tolist() == [[4.0]] * 3


def test_the_decision_log_masks_and_drops_fields(tmp_path):
    file = tmp_path / "decisions.jsonl"
    log = triage.DecisionLog(file, drop=["path"], mask=["decision_id"], mask_key="secret", clean_share=1.0)
    with triage.Runtime(decision_log=log) as runtime:
        policy = runtime.load_source(LIVE)
        policy.run([BATCH], decision_id="request 7", sample_ids=["s0", "s1"])
        policy.run([torch.ones(2, 1)], decision_id="request 8")
        runtime.flush()
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    calls = [line for line in lines if "event" not in line]
    assert len(calls) == 2 and all("path" not in line for line in lines)
    assert calls[0]["decision_id"] != "request 7" and calls[0]["decision_id"] != calls[1]["decision_id"]
    assert "s1" in json.dumps(calls[0])
    again = pickle.loads(pickle.dumps(triage.Runtime(decision_log=tmp_path / "other.jsonl").load_source(LIVE)))
    assert repaired(again) == 0.0


def test_the_decision_log_has_bounds(tmp_path):
    file = tmp_path / "decisions.jsonl"
    log = triage.DecisionLog(
        file, events=False, max_samples=1, max_file_bytes=2000, max_files=2, queue_records=64,
        capsules=tmp_path / "capsules", max_capsules=2, capsule_bad_rows=True,
    )  # fmt: skip
    with triage.Runtime(decision_log=log, state_age=60) as runtime:
        policy = runtime.load_source(LIVE)
        for _ in range(20):
            policy(torch.full((3, 1), math.nan))
            runtime.flush()
    files = sorted(tmp_path.glob("decisions*.jsonl"))
    lines = [json.loads(line) for each in files for line in each.read_text().splitlines()]
    assert len(files) == 3 and all(each.stat().st_size <= 2000 for each in files)
    assert lines and all("event" not in line and len(line["samples"]) == 1 for line in lines)
    assert len(list((tmp_path / "capsules").iterdir())) == 2


def test_what_a_decision_log_refuses(tmp_path):
    with pytest.raises(triage.InputTypeError, match="DecisionLog: `drop` is a list of names of fields; got str 'path'"):
        triage.Runtime(decision_log=triage.DecisionLog(tmp_path / "log", drop="path"))
    with pytest.raises(triage.ConfigError):
        triage.Runtime(decision_log=triage.DecisionLog(tmp_path / "log", clean_share=2.0))
    with pytest.raises(triage.InputTypeError, match="DecisionLog: `events` is True or False; got str 'no'"):
        triage.Runtime(decision_log=triage.DecisionLog(tmp_path / "log", events="no"))
    with pytest.raises(triage.InputError, match="DecisionLog: `max_files` is"):
        triage.Runtime(decision_log=triage.DecisionLog(tmp_path / "log", max_files=-1))
    with pytest.raises(triage.InputTypeError, match="`decision_log` is a path"):
        triage.Runtime(decision_log=7)
