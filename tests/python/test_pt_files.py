"""What torch.save writes, as scripts read it."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

PROGRAM = Path(os.environ["TRIAGE_BUILD"]) / "bin" / "triage"
# Of these torch.save writes storages of bytes, beside which the dtype stands.
NAMES = ["uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]


def run(tmp_path: Path, script: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "reads.lua").write_text(script)
    return subprocess.run([PROGRAM, "exec", "reads.lua"], cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_without_storages_of_their_own(tmp_path: Path, name: str) -> None:
    values = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 6.0]])
    whole = values.to(getattr(torch, name))
    torch.save({"all": whole, "part": whole.t()[1:], "other": values}, tmp_path / "x.pt")
    ran = run(
        tmp_path,
        """local file = torch.load("x.pt")
        print(file.all.dtype, file.part:size(0), file.part:stride(0))
        print(file.all:to(torch.float32):equal(file.other), file.part:to(torch.float32):equal(file.other:t():slice(0, 1)))
        print(torch.load("x.pt:part"):to(torch.float32):sum():item())
        """,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [f"torch.{name}", "2", "1", "true", "true", "13.0"]


def test_a_dtype_that_no_format_has_is_named_with_its_entry(tmp_path: Path) -> None:
    torch.save({"good": torch.ones(2), "odd": torch.zeros(2, dtype=torch.float8_e4m3fnuz)}, tmp_path / "x.pt")
    ran = run(tmp_path, 'print(torch.load("x.pt:good"):sum():item()) torch.load("x.pt:odd")')
    assert ran.stdout == "2.0\n"
    assert "x.pt" in ran.stderr and "odd" in ran.stderr and "torch.float8_e4m3fnuz" in ran.stderr
