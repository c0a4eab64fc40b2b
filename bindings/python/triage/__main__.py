"""The program `triage`: `python -m triage check repair.lua`, and the command `triage` where the package is installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).with_name("bin") / "triage"
    if not program.exists():
        sys.exit(f"triage: this build of the package is without its program ({program}); build it with ./dev build")
    os.execv(program, ["triage", *sys.argv[1:]])


if __name__ == "__main__":
    main()
