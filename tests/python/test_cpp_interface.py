"""What hosts in C++ have, Python has under the same name, or docs/python.md lists it among what Python does not have."""

import inspect
import re
from pathlib import Path

import triage
from triage import _options, _rollouts

ROOT = Path(__file__).parents[2]
HEADERS = ROOT / "runtime" / "include" / "triage"

# Under another name in Python.
RENAMED = {
    "decisions": "decision_log",
    "run_named": "run",
    "capsule_dir": "capsules",
    "stop": "close",
    "revert_if": "failures",  # its fields are options of their own
    "breaks": "graph_breaks",
}
# C++ alone has these forms: conversions, moves, what a tuple or a dict is in Python.
OF_CPP = {"operator", "bool", "move", "void", "const", "size", "flags_outputs", "result", "N", "i", "NamedTensors"}


def members(name: str) -> set[str]:
    """The public methods and fields of a class in the headers."""
    for header in HEADERS.glob("*.h"):
        found = re.search(rf"^(?:class|struct)(?: TRIAGE_API)? {name} \{{$(.*?)^\}};", header.read_text(), re.M | re.S)
        if found:
            break
    else:
        raise AssertionError(f"no header has {name}")
    public = re.sub(r"//.*", "", found[1].split("\n private:")[0])
    names = set()
    for statement in re.split(r"[;{}]", public):
        statement = " ".join(statement.split())
        default = re.match(r"[^()=]*?(\w+) =", statement) or re.match(r"std::function<.*> (\w+) =", statement)
        method = re.search(r"(\w+)\(", statement)
        field = re.fullmatch(r"[\w:<>,&* ()]+ (\w+)", statement)
        one = default or method or field
        if one:
            names.add(one[1])
    return {name for name in names - {name} - OF_CPP if not name.isdigit()}


def attributes(of: object) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


TWINS: dict[str, set[str]] = {
    "RuntimeOptions": {*_options._OF_RUNTIMES, "limits"},
    "RunOptions": set(_options.OPTIONS_OF_CALLS),
    "DecisionLogOptions": set(inspect.signature(triage.DecisionLog).parameters),
    "Limits": set(inspect.signature(triage.Limits).parameters),
    "ShadowOptions": set(_rollouts.ShadowOptions.__annotations__),
    "CanaryOptions": set(_rollouts.CanaryOptions.__annotations__),
    "RevertIf": set(_rollouts.CanaryOptions.__annotations__),
    "Runtime": attributes(triage.Runtime),
    "Policy": attributes(triage.Policy),
    "Bundle": attributes(triage.Bundle),
    "Watch": attributes(triage.Watch),
    "WatchOptions": set(inspect.signature(triage.watch).parameters),
}


def listed() -> set[str]:
    section = (ROOT / "docs" / "python.md").read_text().split("## What only Lua and C++ have")[1].split("\n## ")[0]
    return set(re.findall(r"`(\w+)`", section))


def test_python_has_what_hosts_in_cpp_have_or_its_page_says_that_it_has_not() -> None:
    missing = {
        f"{name}::{member}"
        for name, twin in TWINS.items()
        for member in members(name)
        if member not in twin and RENAMED.get(member) not in twin and member not in listed()
    }
    assert not missing, sorted(missing)


def test_the_headers_are_read() -> None:
    assert {"load", "define", "load_bundle", "watch", "policies"} <= members("Runtime")
    assert {"run", "shadow", "set_state", "unmasked_rows"} <= members("Policy")
    assert {"seed", "print", "verify", "log", "state_age"} <= members("RuntimeOptions")
    assert sum(len(members(name)) for name in TWINS) > 100


def test_what_the_page_says_is_missing_is_missing() -> None:
    names = set().union(*TWINS.values()) | attributes(triage)
    present = {name for name in listed() & names if name not in {"err", "save_state", "load_state", "policies"}}
    assert not present, sorted(present)
