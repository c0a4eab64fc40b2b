"""Results without data: what lets torch.compile and torch.export hold policies and operations on flags, for any batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._config import get_config, words_for
from ._errors import InputError
from ._policy import find

# The numbers of c10::ScalarType, as torch::jit's schemas have them.
_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip

_HOW = (
    'Declare the outputs in the policy: outputs = {"z", "f"}, signature = {z = Tensor(float32_t, {"N", 4}), '
    'f = Tensor(error_t, {"N", "words"})}. A name of a dimension must be one that an input has.'
)


def _bind(sizes: dict[str, Any], dims: Sequence[Any], tensor: Tensor) -> None:
    """Adds the sizes that the names in `dims` have in `tensor`."""
    rest = dims.index("...") if "..." in dims else len(dims)
    behind = len(dims) - rest - 1
    for i, dim in enumerate(dims):
        if isinstance(dim, str) and dim != "...":
            place = i if i < rest else tensor.dim() - behind + (i - rest - 1)
            if 0 <= place < tensor.dim():
                sizes.setdefault(dim, tensor.shape[place])


def _output(key: str, name: str, spec: dict[str, Any] | None, sizes: dict[str, Any], like: Tensor) -> Tensor:
    def unknown(what: str) -> InputError:
        return InputError(f"policy {key!r}: {what}, so torch.compile and torch.export do not know what it returns. {_HOW}")

    if spec is None:
        raise unknown(f"output `{name}` has no declared type")
    if not spec["flags"] and spec["dtype"] is None:
        raise unknown(f"output `{name}`, {spec['text']}, has no single dtype")
    shape = []
    for i, dim in enumerate(spec["dims"]):
        if spec["flags"] and i == 1 and dim not in sizes:
            dim = get_config().num_words
        if isinstance(dim, str) and dim in sizes:
            dim = sizes[dim]
        elif dim is None or isinstance(dim, str):
            raise unknown(f"output `{name}`, {spec['text']}, has a size that no input has")
        shape.append(dim)
    return like.new_empty(shape, dtype=get_config().flag_dtype if spec["flags"] else _DTYPES[spec["dtype"]])


@torch.library.register_fake("triage::run_policy")
def _run_policy(key: str, inputs: list[Tensor]) -> list[Tensor]:
    signature = find(key).signature
    names, input_types, output_types = signature["outputs"], signature["input_types"], signature["output_types"]
    if len(inputs) != len(signature["inputs"]):
        raise InputError(f"policy {key!r} takes {len(signature['inputs'])} inputs ({', '.join(signature['inputs'])}); got {len(inputs)}.")
    if not output_types:
        raise InputError(f"policy {key!r} declares no types of its outputs, so torch.compile and torch.export do not know what it returns. {_HOW}")
    sizes: dict[str, Any] = {}
    for spec, tensor in zip(input_types, inputs):
        if spec is not None:
            _bind(sizes, spec["dims"], tensor)
    return [_output(key, name, spec, sizes, inputs[0]) for name, spec in zip(names, output_types)]


# --- operations on flags: the library's own kernels for this, in C++, take sizes as numbers, and so would compile a program anew
# for each size of a batch ---


def _rows(dtype: torch.dtype):
    return lambda f, *_: f.new_empty((f.shape[0],), dtype=dtype)


def _flags(f: Tensor, *_: Any) -> Tensor:
    return f.new_empty(f.shape)


def _new(like: Tensor, num_slots: int, dtype: torch.dtype) -> Tensor:
    return like.new_empty((like.shape[0], words_for(num_slots, dtype)), dtype=dtype)


def _detected(z: Tensor, f: Tensor | None, location: int, num_slots: int, policy: int, dtype: torch.dtype) -> Tensor:
    return _new(z, num_slots, dtype) if f is None else _flags(f)


def _filled(z: Tensor, number: Any) -> Tensor:
    return torch.empty_like(z, dtype=torch.result_type(z, number))


def _fix(z: Tensor, f: Tensor, fallback: Any, *_: Any) -> tuple[Tensor, Tensor]:
    return _filled(z, fallback), _flags(f)


def _replace(z: Tensor, value: Any, *targets: Any) -> Tensor:
    return _filled(z, value) if any(targets) else torch.empty_like(z)


_lib = torch.library.Library("triage", "IMPL")
for _names, _meta in {
    "new": _new,
    "push push.where push.scalar merge clear": _flags,
    "is_ok is_err has_critical has_code has_domain match": _rows(torch.bool),
    "count_errors get_first_code get_first_location get_first_severity": _rows(torch.int32),
    "max_severity get_slot": _rows(torch.int64),
    "all_ok any_err": lambda f: f.new_empty((), dtype=torch.bool),
    "flag_nan flag_inf flag_nan_and_inf": _detected,
    "flag_oob_indices": lambda ids, num_embeddings, *rest: _detected(ids, *rest),
    "fix fix.scalar": _fix,
    "take_ok_p take_err_p": lambda f, z, fill: _filled(z, fill),
    "replace": _replace,
    "select": lambda cond, a, b: torch.empty_like(a),
    "guard_grad": lambda z, taken: torch.ops.aten.alias(z),
    "guard_grad.elements": lambda a, b, taken: a.expand(torch.broadcast_shapes(a.shape, b.shape)),
}.items():
    for _name in _names.split():
        _lib.impl(_name, _meta, "Meta", allow_override=True)
