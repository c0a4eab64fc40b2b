"""What the tests share, and the closing line that ./dev test reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import triage

ROOT = Path(__file__).resolve().parents[2]

DECLARED = """
return policy {
  outputs = {"z", "f"},
  signature = {z = Tensor(float32_t, {"N", 4}), f = Tensor(error_t, {"N", "words"})},
  params = {fallback = 0.5, weights = {1.0, 2.0}},
  run = function(z, p)
    local f = flag_nan_and_inf(z, "logits")
    return fix(z, f, "logits", {fallback = p.fallback})
  end,
}
"""

PLAIN = 'return function(z) local f = flag_nan_and_inf(z, "logits"); return fix(z, f, "logits") end'


def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    terminalreporter.write_line(f"{len(stats.get('passed', []))} passed, {failed} failed")


def bad_batch(rows: int = 8) -> torch.Tensor:
    """Row 2 has a NaN."""
    z = torch.arange(rows * 4, dtype=torch.float32).reshape(rows, 4)
    z[2, 1] = float("nan")
    return z


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    file = tmp_path / "repair.lua"
    file.write_text(DECLARED)
    return file


@pytest.fixture
def policy(policy_file: Path) -> triage.Policy:
    return triage.load(policy_file)


@pytest.fixture
def one_thread():
    """Small models gain nothing by more threads, which wait for each other where the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
