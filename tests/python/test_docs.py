"""The code of a page runs in the order of the page and prints what it says; so does the example."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import runpy
import sys
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.usefixtures("one_thread")


def blocks(page: str) -> list[tuple[str, int, str]]:
    """(language, line, text)"""
    text = (ROOT / page).read_text()
    return [(m[1], text[: m.start()].count("\n") + 2, m[2]) for m in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


def run_page(page: str, folder: Path) -> int:
    """Runs the Python of a page in the working directory `folder`; returns how many lines it promised and printed."""
    names = {"__name__": "page"}
    promised = 0
    for language, line, text in blocks(page):
        if language == "lua" and (named := re.match(r"-- (\S+\.lua)\n", text)):
            (folder / named[1]).write_text(text)
        if language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + text, page, "exec"), names)
        said, place = printed.getvalue(), 0
        for wanted in re.findall(r"# --> (.*)", text):
            place = said.find(wanted, place)
            assert place >= 0, f"{page}, the block of line {line}: expected {wanted!r} in:\n{said}"
            place += len(wanted)
            promised += 1
    return promised


def test_the_page_runs_and_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page("docs/python.md", tmp_path) > 20


@pytest.mark.parametrize("arguments", [["--plain"], []])
def test_the_example(arguments, monkeypatch, capsys):
    if not arguments and not importlib.util.find_spec("transformers"):
        pytest.skip("no transformers")
    example = str(ROOT / "examples/python/decode.py")
    monkeypatch.setattr(sys, "argv", [example, *arguments])
    runpy.run_path(example, run_name="__main__")
    said = capsys.readouterr().out
    assert "step  3: version 1, request 2: NAN at logits" in said
    assert "step  7: reloaded logits.lua: version 2" in said
    assert "step  7: version 2, request 2: NAN at logits" in said
    assert re.search(r"request 2: \[29, .*, 0, 0, 0, 0, 1, 1, 1, 1, 1\]", said)
    assert "requests [0, 1, 3]: the same tokens as without the broken one" in said
    assert "24 calls, 9 of 96 rows flagged, 9 repaired" in said
