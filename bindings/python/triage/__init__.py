"""triage: per-sample error records and scripted recovery for PyTorch.

    policy = triage.load("repair.lua")
    z, f = policy(logits)
    print(triage.flags.repr(f))
"""

from pathlib import Path as _Path

from . import _library  # isort: skip  checks that the library fits this PyTorch, and loads it
from . import _logs  # isort: skip  before runtimes, which it outlives at the end of the process
from . import _fake, err, flags, metrics, testing
from ._build import TRIAGE_VERSION as __version__
from ._bundles import Bundle
from ._config import AccumulationConfig, Dedupe, ErrorConfig, ErrorLocation, Order, Priority, get_config, set_config
from ._errors import (
    ConfigError,
    Error,
    FileError,
    GraphBreakError,
    InputError,
    InputTypeError,
    LimitError,
    LoadError,
    MemoryLimitError,
    PolicyError,
    TimeLimitError,
    ValidationError,
)
from ._events import BundleVersion, Event, LoadFailure, Version
from ._generate import Finding, LogitsProcessor
from ._options import DecisionLog, Limits
from ._policy import Policy, Runtime, Watch, load, load_bundle, load_source, metrics_text, watch
from ._rollouts import CandidateReport
from ._short import find, fix, flag_inf, flag_nan, flag_nan_and_inf, flag_oob_indices, has_err, push

policies = _Path(__file__).with_name("policies")
"""The folder of the policy library: triage.load(triage.policies / "zscore_clip.lua")."""

__all__ = [
    "AccumulationConfig", "Bundle", "BundleVersion", "CandidateReport", "ConfigError", "DecisionLog", "Dedupe", "Error",
    "ErrorConfig", "ErrorLocation", "Event", "FileError", "Finding", "GraphBreakError", "InputError", "InputTypeError",
    "LimitError", "Limits", "LoadError", "LoadFailure", "LogitsProcessor", "MemoryLimitError", "Order", "Policy", "PolicyError",
    "Priority", "Runtime", "TimeLimitError", "ValidationError", "Version", "Watch", "err", "find", "fix", "flag_inf", "flag_nan",
    "flag_nan_and_inf", "flag_oob_indices", "flags", "get_config", "has_err", "load", "load_bundle", "load_source", "metrics",
    "metrics_text", "policies", "push", "set_config", "testing", "watch",
]  # fmt: skip

for _name in __all__:  # messages and pickles name the public place: triage.InputError
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "triage"
