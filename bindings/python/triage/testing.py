"""For tests of policies in Python, with pytest or anything else that understands `assert`.

    from triage import testing

    def test_repair():
        testing.check_policy("repair.lua")                                # the tests that the policy has in its own file
        repair = triage.load("repair.lua")
        testing.assert_isolated(repair, torch.randn(8, 4))                # a bad sample changes no other

    @pytest.mark.parametrize("name, z", testing.bad_batches(torch.randn(8, 4)))
    def test_it_stays_finite(name, z):
        assert triage.load("repair.lua")(z)[0].isfinite().all()

Each helper raises AssertionError with what was compared, where it differs, and the values.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import _arguments as arguments
from ._arguments import Array
from ._errors import InputError
from ._policy import Policy, Runtime

__all__ = ["BadBatch", "assert_isolated", "assert_same_bits", "bad_batches", "check_policy"]

_numbers = itertools.count()  # of policies that were checked: each has a key of its own
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class BadBatch(NamedTuple):
    """A batch, and the name of what is bad in it."""

    name: str
    batch: Tensor


def _kinds(dtype: torch.dtype) -> dict[str, float | int | bool]:
    """The values at the edges of a dtype."""
    if dtype == torch.bool:
        return {"True": True, "False": False}
    if dtype.is_complex:
        raise InputError(f"bad_batches: `like` is of a floating dtype, an integer dtype or bool; got {dtype}.")
    if not dtype.is_floating_point:
        ends = torch.iinfo(dtype)
        return {"zero": 0, "largest": ends.max, "lowest": ends.min, **({} if ends.min == 0 else {"-1": -1})}
    info = torch.finfo(dtype)
    return {
        "nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "largest": info.max, "lowest": info.min,
        "smallest": info.smallest_normal, "subnormal": info.smallest_normal / 2, "zero": 0.0, "-zero": -0.0,
    }  # fmt: skip


def bad_batches(like: Array) -> list[BadBatch]:
    """Batches like this one, with the samples in dim 0, that go wrong in production: one element, one sample and the whole batch with each
    value at the edge of the dtype (NaN, Inf, the largest, the smallest, ...), and batches of one sample and of none. `like` stays as it is."""
    like = arguments.tensor("bad_batches", "like", like).detach()
    if like.dim() == 0:
        raise InputError("bad_batches: `like` has the samples in dim 0; got a tensor without dims.")
    batches = [BadBatch("no samples", like[:0].clone()), BadBatch("one sample", like[:1].clone())]
    for name, value in _kinds(like.dtype).items():
        batches.append(BadBatch(f"all {name}", torch.full_like(like, value)))
        if like.numel():
            row = like.shape[0] // 2
            sample, element = like.clone(), like.clone()
            sample[row] = value
            element[row].view(-1)[-1] = value
            batches += [BadBatch(f"{name} in sample {row}", sample), BadBatch(f"{name} in an element of sample {row}", element)]
    return batches


def assert_same_bits(actual: Array, expected: Array, what: str = "the tensors") -> None:
    """Dtype, shape and every bit are the same: NaN equals NaN of the same payload, and -0.0 is not 0.0."""
    a, b = arguments.tensor("assert_same_bits", "actual", actual), arguments.tensor("assert_same_bits", "expected", expected)
    if a.dtype != b.dtype or a.shape != b.shape:
        raise AssertionError(f"{what} differ: {a.dtype} {tuple(a.shape)}, and expected is {b.dtype} {tuple(b.shape)}.")
    differs = _bits(a) != _bits(b)
    if differs.dim() > a.dim():  # both parts of a complex number
        differs = differs.any(-1)
    if differs.any():
        first = tuple(differs.nonzero()[0].tolist())
        count = int(differs.sum())
        raise AssertionError(
            f"{what} differ in {count} of {a.numel()} elements, first at {first}: {a[first].item()!r}, and expected is {b[first].item()!r}."
        )


def _bits(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.view(_INTEGERS[tensor.element_size()]) if tensor.dtype.is_floating_point else tensor


def assert_isolated(policy: Policy, *inputs: Array, samples: Sequence[int] | None = None) -> None:
    """A bad sample changes no other: with each value of `bad_batches` in one sample, all others have the bits that they had.

    inputs: a healthy batch, with the samples in dim 0 of every input that has as many rows as the first. samples: the ones to break
    (default: the first, the middle and the last). Outputs with another number of rows are not compared. Random numbers begin anew for each
    call, and so does state."""
    tensors = [arguments.tensor("assert_isolated", f"inputs[{i}]", each).detach() for i, each in enumerate(inputs)]
    if not tensors or tensors[0].dim() == 0 or tensors[0].shape[0] < 2:
        raise InputError("assert_isolated: a batch of at least 2 samples in dim 0 shows whether they are isolated; pass one.")
    rows = tensors[0].shape[0]
    if samples is None:
        samples = sorted({0, rows // 2, rows - 1})
    before = _call(policy, tensors)
    names = policy.outputs or tuple(f"output {i}" for i in range(1, len(before) + 1))
    for at, tensor in enumerate(tensors):
        if tensor.dim() == 0 or tensor.shape[0] != rows:
            continue
        for kind, value in _kinds(tensor.dtype).items():
            for sample in samples:
                broken = tensor.clone()
                broken[sample] = value
                after = _call(policy, [*tensors[:at], broken, *tensors[at + 1 :]])
                others = [row for row in range(rows) if row != sample % rows]
                for name, one, other in zip(names, after, before, strict=True):
                    if other.dim() and other.shape[0] == rows and one.shape == other.shape:
                        what = f"sample {sample} of `{policy.inputs[at]}` became {kind}, and other samples of `{name}` with it"
                        _same_rows(one, other, others, f"{policy.key}: {what}")


def _call(policy: Policy, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    policy.manual_seed(0)
    if policy.signature["state"]:
        policy.reset_state()
    return policy.run(inputs)


def _same_rows(actual: Tensor, expected: Tensor, rows: Sequence[int], what: str) -> None:
    if actual.dtype != expected.dtype:
        raise AssertionError(f"{what}: they are {actual.dtype}, and were {expected.dtype}.")
    for row in rows:
        assert_same_bits(actual[row], expected[row], f"{what}: sample {row}: its values")


def check_policy(path: str | os.PathLike[str], runtime: Runtime | None = None) -> Policy:
    """Loads a policy, with a runtime of its own if none is given, and runs the tests that it has in its own file, as a reload does before
    a version goes live. Returns the policy. A file that does not load raises as `triage.load` does; a test that fails, AssertionError."""
    file = arguments.path("check_policy", "path", path)
    own = Runtime(reload_latency_ratio=0) if runtime is None else runtime
    policy = own.load(file, key=f"check_policy of {os.path.abspath(file)} {next(_numbers)}")
    with open(file, encoding="utf-8", errors="surrogateescape") as text:
        source = text.read()
    if policy.replace(source + "\n") == "refused":
        error = policy.version.last_error
        raise AssertionError(f"{file}: {error.message if error else 'the tests of the policy failed'}")
    policy.rollback(1)
    return policy
