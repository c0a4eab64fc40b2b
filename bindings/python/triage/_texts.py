"""Texts that come from C++, in the words of Python: a message names what a Python program can see and change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

_DTYPES = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Half": "float16", "BFloat16": "bfloat16",
    "Float": "float32", "Double": "float64", "ComplexFloat": "complex64", "ComplexDouble": "complex128", "Bool": "bool",
    "UInt16": "uint16", "UInt32": "uint32", "UInt64": "uint64",
}  # fmt: skip
_DTYPE = "|".join(sorted(_DTYPES, key=len, reverse=True))

_Words: TypeAlias = "str | Callable[[re.Match[str]], str]"


def _table(*rows: tuple[str, _Words]) -> list[tuple[re.Pattern[str], _Words]]:
    return [(re.compile(pattern), words) for pattern, words in rows]


def _shape(sizes: str) -> str:
    """As Python writes it: (8,) for one."""
    return f"({sizes}{',' if sizes and ',' not in sizes else ''})"


def _dtype(found: re.Match[str]) -> str:
    return f"torch.{_DTYPES.get(found[0], found[0].lower())}"


def _layout(name: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return f"torch.{'sparse_coo' if words == 'sparse' else words if words.startswith(('s', 'j')) else f'_{words}'}"


# What a text says of the C++ interface, and what Python has in its place. First those that name one thing, then whole families.
_WORDS = _table(
    (r"or have the host raise triage::Limits", "or raise the `limits` of its triage.Runtime"),
    (r"or raise triage::Limits", "or raise the `limits` of its triage.Runtime"),
    (r"triage::Limits", "the `limits` of its triage.Runtime"),
    (r"RuntimeOptions::limits: ", "limits: "),
    (r"give ReloadGate::warn, refuse or shadow", 'give "warn", "refuse" or "shadow"'),
    (r"RuntimeOptions::on_new_graph_breaks = refuse or shadow", 'on_new_graph_breaks="refuse" or "shadow"'),
    (r"RuntimeOptions::on_slow_reload = refuse or shadow", 'on_slow_reload="refuse" or "shadow"'),
    (r"(?:RuntimeOptions|RunOptions)::(\w+)", r"`\1`"),
    (r"; use triage::Bundle for that", "; use triage.load_bundle for that"),
    (r" \(Runtime::define_module\)", " (a C++ program; Python cannot)"),
    (r" \(Runtime::define, define_tensor, define_module\)", " (Runtime.define, define_tensor)"),
    (r" \(triage::define_dist\)", " (a C++ program can; Python cannot)"),
    (r" \(triage::FunctionOptions\)", " (`pure=True`)"),
    (r"\btriage::Runtime::load\b|\bRuntime::load\b", "triage.load"),
    (r"\bRuntime::watch\b", "triage.watch"),
    (r"\blayout (Strided|Sparse|SparseCsr|SparseCsc|SparseBsr|SparseBsc|Mkldnn|Jagged)\b", lambda found: f"layout {_layout(found[1])}"),
    (rf"\b(?:(?:{_DTYPE})(?:, | or )){{2,}}(?:{_DTYPE})\b", lambda found: re.sub(r"\w+", _dtype, found[0].replace(" or ", ", "))),
    (r"(?<=is a tensor of )(\w+)(?=;)", lambda found: _dtype(found)),
    (r"\btriage::([A-Z]\w*)", r"triage.\1"),
    (r"\b([A-Z]\w*)::(\w+)", r"\1.\2"),
    (r"\btriage::(\w+)", r"\1"),
    (
        rf"\b({_DTYPE})(?= (?:words\b|of shape)| ?[\[{{]\d)|(?<=got )({_DTYPE})(?=\.)",
        lambda found: f"torch.{_DTYPES[found[1] or found[2]]}",
    ),
    (r"\b((?:[Ff]lags? and )?[Ss]hapes? |torch\.\w+ (?:of shape )?)\[([\d, ]*)\]", lambda found: found[1] + _shape(found[2])),
    (r"(?<=and )\[([\d, ]*)\](?=\))", lambda found: _shape(found[1])),
    (r"(?<=z's shape )\[([\d, ]*)\]", lambda found: _shape(found[1])),
    (r"(torch\.\w+) \{([\d, ]*)\}", lambda found: f"{found[1]} {_shape(found[2])}"),
)

_KINDS = {"floating_t": "a floating dtype", "integer_t": "an integer dtype", "any_t": "any dtype", "error_t": "flags"}
_DECLARED = re.compile(r"Tensor\((\w+_t)(?:, \{([^{}]*)\})?\)")


def _declared(found: re.Match[str]) -> str:
    kind = _KINDS.get(found[1], f"torch.{found[1][:-2]}")
    return kind if found[2] is None else f"{kind} {_shape(found[2].replace(chr(34), ''))}"


def in_python(text: str) -> str:
    """`text`, without names of the C++ interface."""
    if "::" not in text and not _TENSOR.search(text):
        return text
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


_TENSOR = re.compile(rf"\b({_DTYPE})\b")


def types_in_python(text: str) -> str:
    """Of an input that does not fit: types as a policy declares them, as PyTorch writes them. Messages about a script keep them."""
    text = re.sub(r"\bit is (\w+) \((?=[\d, )])", r"it is torch.\1 (", text)
    return _DECLARED.sub(_declared, re.sub(r"\b(expected|got) ((?:b?float|u?int|complex)\d+|bool)\b", r"\1 torch.\2", text))


# --- arguments that PyTorch's own conversion refused: its text shows the whole value, and the declaration in C++ ---

_REFUSED = re.compile(
    r"(?:\w+::)?(\w+)(?:\.\w+)?\(\) Expected a value of type '(.+?)' for argument '(\w+)' but instead found type '(.+?)'", re.S
)
_TYPES = {
    "Tensor": "a tensor", "Optional[Tensor]": "a tensor or None", "List[Tensor]": "a list of tensors", "str": "a str",
    "int": "an int of at most 64 bits", "float": "a float", "number": "a number", "bool": "a bool",
    "Dict[str, int]": "a dict of str to int", "Dict[str, Any]": "a dict with str as keys, and numbers of at most 64 bits",
}  # fmt: skip


def refused(text: str) -> str | None:
    """The message for such a text, None for any other."""
    found = _REFUSED.match(text)
    if found is None:
        return None
    operation, expected, name, got = found.groups()
    argument = "an argument" if name.startswith("_") else f"`{name}`"
    return f"{operation.lstrip('_')}: {argument} is {_TYPES.get(expected, f'of type {expected}')}; got {got}."


# --- advice ---

_VERBS = (
    "add|allow|build|call|check|choose|compute|convert|create|declare|drop|give|install|keep|leave|link|load|lower|make|move|name|open|pass|"
    "pick|put|raise|read|reduce|remove|rename|return|send|set|start|take|try|turn|use|wait|write|did you mean|is the name right"
)
_HINT = re.compile(r"^\s*Hint: (.*)$", re.M)
_ADVICE = re.compile(rf"(?:; |\. |, (?=did you))(?=(?:{_VERBS})\b)", re.I)


def advice_in(text: str) -> str:
    """What a message says to do: the text behind its last "Hint:", or its last clause that tells to do something; "" without one."""
    hints = _HINT.findall(text)
    if hints:
        return str(hints[-1]).strip()
    starts = [found.end() for found in _ADVICE.finditer(text)]
    return text[starts[-1] :].strip() if starts else ""
