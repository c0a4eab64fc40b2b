"""Results without data: what lets torch.compile and torch.export hold policies and operations on flags, for any batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ._config import get_config, words_for
from ._errors import InputError, called
from ._policy import find

# The numbers of c10::ScalarType, as torch::jit's schemas have them.
_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16,
}  # fmt: skip


def _bind(sizes: dict[str, Any], dims: Sequence[Any], tensor: Tensor) -> None:
    """Adds the sizes that the names in `dims` have in `tensor`."""
    rest = dims.index("...") if "..." in dims else len(dims)
    behind = len(dims) - rest - 1
    for i, dim in enumerate(dims):
        if isinstance(dim, str) and dim != "...":
            place = i if i < rest else tensor.dim() - behind + (i - rest - 1)
            if 0 <= place < tensor.dim():
                sizes.setdefault(dim, tensor.shape[place])


def _output(spec: dict[str, Any] | None, sizes: dict[str, Any], like: Tensor) -> Tensor | None:
    """None where the declared type leaves something open."""
    if spec is None or not (spec["flags"] or spec["dtype"] in _DTYPES):
        return None
    shape = []
    for i, dim in enumerate(spec["dims"]):
        if spec["flags"] and i == 1 and dim not in sizes:
            dim = get_config().num_words
        if isinstance(dim, str) and dim in sizes:
            dim = sizes[dim]
        elif dim is None or isinstance(dim, str):
            return None
        shape.append(dim)
    return like.new_empty(shape, dtype=get_config().flag_dtype if spec["flags"] else _DTYPES[spec["dtype"]])


def _declared(key: str, inputs: list[Tensor], signature: dict[str, Any]) -> list[Tensor] | None:
    """The outputs by their declared types; None where these leave something open."""
    names, input_types, output_types = signature["outputs"], signature["input_types"], signature["output_types"]
    if not output_types:
        return None
    sizes: dict[str, Any] = {}
    for spec, tensor in zip(input_types, inputs):
        if spec is not None:
            _bind(sizes, spec["dims"], tensor)
    outputs = []
    for _, spec in zip(names, output_types):
        output = _output(spec, sizes, inputs[0])
        if output is None:
            return None
        outputs.append(output)
    return outputs


def _of_form(form: str, inputs: list[Tensor]) -> list[Tensor]:
    """Outputs of the form that a program was told (bindings/python/forms.h)."""
    numbers = iter(map(int, form.split(",")))
    opens: list[Any] = [0] * next(numbers)
    for tensor in inputs[: next(numbers)]:
        next(numbers)  # the dtype
        for dim in range(next(numbers)):
            size = next(numbers)
            if size < 0:
                opens[-1 - size] = tensor.shape[dim]
    outputs = []
    for _ in range(next(numbers)):
        dtype, like, rank = next(numbers), next(numbers), next(numbers)
        shape = []
        for _ in range(rank):
            is_product, size = next(numbers), next(numbers)
            for open in opens:
                factor = next(numbers)
                if factor:
                    size = size * open if is_product else size + factor * open
            shape.append(size)
        outputs.append(inputs[0].new_empty(shape, dtype=_DTYPES[dtype], device=inputs[like].device if like >= 0 else "cpu"))
    return outputs


@torch.library.register_fake("triage::run_policy")  # type: ignore[untyped-decorator]
def _run_policy(key: str, inputs: list[Tensor], autocast: str = "", form: str = "", source: str = "") -> list[Tensor]:
    if form:
        return _of_form(form, inputs)
    signature = find(key).signature
    if len(inputs) != len(signature["inputs"]):
        raise InputError(f"policy {key!r} takes {len(signature['inputs'])} inputs ({', '.join(signature['inputs'])}); got {len(inputs)}.")
    if not inputs:
        raise InputError(f"policy {key!r} has no inputs: torch.compile and torch.export hold policies of tensors. Call it outside of the program.")
    declared = _declared(key, inputs, signature)
    return _of_form(called(find(key)._native().form, inputs, autocast), inputs) if declared is None else declared


@torch.library.register_fake("triage::run_policy_train")  # type: ignore[untyped-decorator]
def _run_policy_train(key: str, inputs: list[Tensor], differentiable: list[int], autocast: str, form: str, serial: int) -> list[Tensor]:
    return [*_run_policy(key, inputs, autocast, form), torch.empty((1,), dtype=torch.uint8, device="cpu")]


@torch.library.register_fake("triage::run_policy_backward")  # type: ignore[untyped-decorator]
def _run_policy_backward(ticket: Tensor, gradients: list[Tensor | None], inputs: list[Tensor], differentiable: list[int]) -> list[Tensor]:
    return [inputs[i].new_empty(inputs[i].shape) for i in differentiable]


# --- operations on flags: the library's own kernels for this, in C++, take sizes as numbers, and so would compile a program anew
# for each size of a batch ---


def _rows(dtype: torch.dtype) -> Callable[..., Tensor]:
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


_lib = torch.library.Library("triage", "IMPL")  # type: ignore[no-untyped-call]
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
    "guard_grad.elements": lambda a, b, taken: a.expand(torch.broadcast_shapes(a.shape, b.shape)),  # type: ignore[no-untyped-call]
}.items():
    for _name in _names.split():
        _lib.impl(_name, _meta, "Meta", allow_override=True)  # type: ignore[no-untyped-call]
