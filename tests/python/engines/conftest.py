"""Packages that the engines import on their way to the classes of these tests, and that the tests need not: each is a stand-in here.
What is of the engines themselves is theirs, but for their kernels of GPUs."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from unittest.mock import MagicMock

LEFT_OUT = ("torchvision", "tvm_ffi", "IPython", "sgl_kernel", "sglang.kernels", "torchao", "flashinfer", "xgrammar")


class Nothing(types.ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        if not name[0].isupper():
            return MagicMock()
        return type(name, (), {"__get_pydantic_core_schema__": classmethod(lambda *_: {"type": "any"})})  # may be the base of a class


class LeftOut(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in LEFT_OUT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Nothing(spec.name)

    def exec_module(self, module):
        pass


import transformers  # noqa: E402  asks for torchvision, and is to find none

transformers.PreTrainedModel  # noqa: B018
sys.meta_path.insert(0, LeftOut())
