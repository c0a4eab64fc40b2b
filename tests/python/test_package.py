"""What the package brings beside its modules: the policy library and the program."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import triage


def test_the_policy_library():
    z, f = triage.load(triage.policies / "repair_zero.lua")(torch.tensor([[1.0, float("nan")], [1.0, 2.0]]))
    assert z.tolist() == [[0, 0], [1, 2]] and triage.err.has_nan(f).tolist() == [True, False]
    assert (triage.policies / "serving" / "lib").is_dir() and (triage.policies / "serving" / "nan_rows.lua").exists()


def test_the_program(tmp_path):
    if not (triage.policies.parent / "bin" / "triage").exists():
        pytest.skip("the program is not built")
    (tmp_path / "repair.lua").write_text("return function(z) return fix(z, flag_nan(z, 'a'), 'a') end")

    def run(*arguments):
        return subprocess.run([sys.executable, "-m", "triage", *arguments], capture_output=True, text=True, cwd=tmp_path)

    checked = run("check", "repair.lua")
    assert (checked.returncode, checked.stdout) == (0, "repair.lua: ok\n")
    assert run("test", str(triage.policies / "repair_zero.lua")).returncode == 0
    assert "nowhere.lua" in run("check", "nowhere.lua").stderr
