"""Processes that PyTorch's launcher starts: torchrun and `triage exec --ranks env`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ["TRIAGE_BUILD"]) / "bin" / "triage"


def launch(script: Path) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node=3", "--standalone"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [*launcher, str(PROGRAM), "exec", "--ranks", "env", "--timeout", "60", str(script)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture(scope="module", autouse=True)
def has_ranks() -> None:
    said = subprocess.run([PROGRAM, "exec", "--ranks", "1", "-e", "return"], capture_output=True, text=True).stderr
    if "built without" in said:
        pytest.skip("the program was built without the headers of Gloo")


def test_a_launcher_starts_the_processes() -> None:
    ran = launch(ROOT / "examples" / "training" / "ranks.lua")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "960 samples, 1 with errors\n"
        "left out: 1 bad batch, 1 overflow; the scale is 512; the weights are the same\n"
    )


def test_a_process_that_fails_ends_the_run(tmp_path: Path) -> None:
    script = tmp_path / "fails.lua"
    script.write_text('if dist.rank():item() == 1 then error("no data here") end dist.agree(torch.tensor({true}))')
    ran = launch(script)
    assert ran.returncode != 0
    assert "fails.lua:1: no data here" in ran.stderr
