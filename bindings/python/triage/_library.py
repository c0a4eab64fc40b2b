"""Loads the library, once. It fits one version of PyTorch: another has other C++ classes, and would end the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

try:
    from . import _build
except ImportError:
    raise ImportError(
        f"{Path(__file__).parent} is the source of the package, without its library: build it with `./dev wheel`, install the wheel, "
        f"and take the source out of PYTHONPATH."
    ) from None


def _release(version: str) -> str:
    """MAJOR.MINOR, within which PyTorch keeps its binary interface."""
    return ".".join(version.split(".")[:2])


def check(running: str) -> None:
    if _release(running) != _build.TORCH_VERSION:
        raise ImportError(
            f"this build of triage is for PyTorch {_build.TORCH_VERSION}, and PyTorch {running} is here. "
            f"Install torch=={_build.TORCH_VERSION}.*, or build triage for the one that is here: `./dev wheel`."
        )


def load() -> None:
    check(torch.__version__)
    try:
        operators: Any = torch.ops
        operators.load_library(Path(__file__).with_name("libtriage_torch.so"))
    except OSError as error:
        raise ImportError(f"the library of triage cannot be loaded: {error}") from None


load()
