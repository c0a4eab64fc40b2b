"""What notebooks show of policies and flags. Every text is escaped: names and messages come from scripts and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._policy import Policy
    from .flags import TableRow

_BAD = {"CRITICAL": "#c62828", "ERROR": "#e65100", "WARN": "#9a7d00"}


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th style='text-align:left'>{escape(each)}</th>" for each in heads)
    body = "".join("<tr>" + "".join(f"<td style='text-align:left'>{escape(str(each))}</td>" for each in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _types(names: Sequence[str], specs: Sequence[Any], ranges: dict[str, str]) -> list[tuple[str, str]]:
    found = []
    for i, name in enumerate(names):
        spec = specs[i] if i < len(specs) else None
        found.append((name, " ".join(each for each in (spec["text"] if spec else "any", ranges.get(name, "")) if each)))
    return found


def of_policy(policy: Policy) -> str:
    signature, version, statistics = policy.signature, policy.version, policy.statistics()
    live = f"version {version.number}" + (", pinned" if version.pinned else "") + (", on trial" if version.on_trial else "")
    where = f"{live} of {escape(policy.path or 'text')} · key <code>{escape(policy.key)}</code>"
    parts = [f"<div><b>triage.Policy {escape(policy.name)}</b> · {where}</div>"]
    if version.last_error:
        why = f"the newest file was refused: <code>{escape(version.last_error.message)}</code>"
        parts.append(f"<div style='color:{_BAD['CRITICAL']}'>{why}</div>")
    rows = [("input", *each) for each in _types(signature["inputs"], signature["input_types"], {})]
    rows += [("output", *each) for each in _types(signature["outputs"], signature["output_types"], signature["output_ranges"])]
    rows += [("param", name, f"{value}{_range(signature['param_ranges'].get(name))}") for name, value in policy.params.items()]
    rows += [("state", name, "") for name in signature["state"]]
    parts.append(table(("", "name", "type or value"), rows))
    counts = [("calls", statistics["calls"]), ("samples", statistics["samples"]), ("flagged", statistics["flagged"])]
    counts += [("repaired", statistics["repaired"]), ("median of a call", f"{statistics['latency_p50'] * 1e6:.1f} µs")]
    parts.append(table([name for name, _ in counts], [[value for _, value in counts]]))
    if statistics["flags"]:
        flagged = [(each["location"], each["code"], each["severity"], each["count"]) for each in statistics["flags"]]
        parts.append(table(("location", "code", "severity", "count"), flagged))
    return "<div>" + "".join(parts) + "</div>"


def _range(allowed: dict[str, Any] | None) -> str:
    if not allowed:
        return ""
    texts = [f"at least {allowed['min']}"] if allowed["min"] is not None else []
    texts += [f"at most {allowed['max']}"] if allowed["max"] is not None else []
    texts += [f"one of {', '.join(map(str, allowed['values']))}"] if allowed["values"] else []
    texts += [allowed["help"]] if allowed["help"] else []
    return f" ({'; '.join(texts)})" if texts else ""


def of_flags(title: str, samples: int, rows: Sequence[TableRow], most: int) -> str:
    """`rows`: all entries, samples in order. Shows those of the first `most` samples that have one."""
    by_sample: dict[int, list[TableRow]] = {}
    for row in rows:
        by_sample.setdefault(row.sample, []).append(row)
    shown = list(by_sample.items())[:most]
    lines = [f"<div><b>{escape(title)}</b></div>"]
    if shown:
        left_aligned = "style='text-align:left'"
        texts = [(sample, "<br>".join(map(_entry, entries))) for sample, entries in shown]
        body = "".join(f"<tr><td>{sample}</td><td {left_aligned}>{text}</td></tr>" for sample, text in texts)
        head = f"<tr><th>sample</th><th {left_aligned}>entries</th></tr>"
        lines.append(f"<table><thead>{head}</thead><tbody>{body}</tbody></table>")
    left = len(by_sample) - len(shown)
    fine = samples - len(by_sample)
    lines.append(f"<div>{f'and {left} more with entries; ' if left else ''}{fine} of {samples} samples without an entry</div>")
    return "<div>" + "".join(lines) + "</div>"


def _entry(row: TableRow) -> str:
    color = _BAD.get(row.severity_name, "inherit")
    return f"<span style='color:{color}'>{escape(row.severity_name)}</span> {escape(row.code_name)} @ {escape(row.location_name)}"
