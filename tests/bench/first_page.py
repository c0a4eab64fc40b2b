"""Makes what docs/performance.md begins with anew from the tables of docs/performance-tables.md: the picture of seven policies,
their table, and the list of what is over its goal. It measures nothing.

    python3 tests/bench/first_page.py

Run it after `./dev bench` has written tables. Plain Python, no packages; tests/house/performance.cpp holds the page to the tables.
"""
import math
import os
import re

import plots

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
SHAPE = "256x1024"
POLICIES = {
    "flag_nan": "records rows with a NaN",
    "flag_nan_and_inf": "records rows with a NaN or Inf",
    "plain_repair": "sets such rows to 0.0, without flags",
    "detect_repair": "records such rows and sets them to 0.0",
    "zscore_clip": "clips at three standard deviations of the row",
    "softmax_repair": "`softmax`; sets bad rows to 1 / columns",
    "branch": "per row: zeros, clamped values or `tanh`",
}
CANDIDATES = ["triage", "inductor", "eager"]   # the columns of the comparison, and keys of plots.LINES
WIDTH, LEFT, RIGHT, TOP, ROW = 760, 150, 130, 92, 34


def rows_by_heading(page):
    """[(heading, cells of a row)] of the tables that the benches write, and the line that tells of their machine."""
    heading, inside, rows, machine = "", False, [], ""
    for line in page.split("\n"):
        if line.startswith("## "):
            heading = line[3:]
        elif re.match(r"<!-- (bench \w+|torchguard): (begin|end) -->", line):
            inside = "begin" in line
        elif inside and line.startswith("| ") and not line.startswith(("| |", "| work |")):
            rows.append((heading, [cell.strip() for cell in line.strip("|").split("|")]))
        elif inside and re.match(r"\d{4}-\d\d-\d\d, ", line):
            machine = line
    return rows, machine


def anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def figure(cell):
    return float(cell.split(" ")[0])


def compared(rows):
    """{policy: cells of its row in the comparison with TorchGuard}"""
    return {cells[0]: cells for heading, cells in rows if heading == "Against TorchGuard" and cells[1] == SHAPE}


def table(rows):
    fused = {cells[0]: cells for heading, cells in rows if heading == "Policies on the fused backend" and cells[1] == SHAPE}
    lines = ["| policy | what it does | `fused` | limit | ratio | goal | inductor / triage | goal |", "|---|---|---|---|---|---|---|---|"]
    for policy, does in POLICIES.items():
        _, _, took, limit, limit_took, ratio, goal, verdict = fused[policy]
        faster, rival = compared(rows)[policy][6], compared(rows)[policy][8]
        rival_goal, rival_verdict = re.fullmatch(r"inductor (\d+): (\w+)", rival).groups()
        lines.append(f"| `{policy}` | {does} | {took.split(' ±')[0]} us | {limit}, {limit_took} | {ratio} | {goal}, {verdict} | "
                     f"{faster} | {rival_goal}, {rival_verdict} |")
    return "\n".join(lines)


def over(rows):
    """What has a goal and misses it, by the sections of the tables."""
    found = {}
    for heading, cells in rows:
        with_goal, names = found.setdefault(heading, [0, []])
        if "within" in cells[-1] or "over" in cells[-1]:
            found[heading][0] = with_goal + 1
        if "over" in cells[-1]:
            name = re.sub(r", (Int|Float|Double|every sample bad)$", "", cells[0].removeprefix("... ").replace(": ... ", ": "))
            names.append(name)
    lines, fine = [], []
    for heading, (with_goal, names) in found.items():
        link = f"[{heading}](performance-tables.md#{anchor(heading)})"
        if names:
            lines.append(f"- {link}, {len(names)} of {with_goal}: {'; '.join(dict.fromkeys(names))}.")
        elif with_goal:
            fine.append(f"{link} ({with_goal})")
    return "\n".join([*lines, f"- None of {', '.join(fine)}."])


def picture(rows, machine):
    """A line a policy, a mark a candidate, on a logarithmic axis of time."""
    measured = {policy: {name: figure(cells[2 + i]) for name, i in zip(CANDIDATES, (0, 2, 1))} for policy, cells in compared(rows).items()}
    times = [us for policy in POLICIES for us in measured[policy].values()]
    ticks = plots.ticks(min(times), max(times))
    right, bottom = WIDTH - RIGHT, TOP + ROW * len(POLICIES)

    def x(us):
        return LEFT + math.log(us / ticks[0]) / math.log(ticks[-1] / ticks[0]) * (right - LEFT)

    date, cpu = machine.split(", ")[:2]
    title = f"One call on {SHAPE.replace('x', ' x ')} float32"
    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {bottom + 52}' width='{WIDTH}' height='{bottom + 52}' {plots.FONT} role='img'>",
           f"<title>{title}</title>", f"<rect width='{WIDTH}' height='{bottom + 52}' fill='#ffffff'/>",
           plots.text(20, 26, title, size=16, more="font-weight='600'"), plots.text(20, 44, f"{cpu}, one thread, {date}", size=12, colour=plots.GREY)]
    for i, name in enumerate(CANDIDATES):
        words, colour, kind = plots.LINES[name]
        out += [plots.marker(kind, LEFT + 6 + 165 * i, 68, colour), plots.text(LEFT + 18 + 165 * i, 72, words.format(rival="TorchGuard"), size=12)]
    out.append(plots.text(WIDTH - 20, 72, "inductor / triage", anchor="end", size=12, colour=plots.GREY))
    for us in ticks:
        out += [f"<path d='M{x(us):.1f} {TOP}V{bottom}' stroke='{plots.RULE}'/>",
                plots.text(x(us), bottom + 18, plots.duration(us), anchor="middle", size=12, colour=plots.GREY)]
    for i, policy in enumerate(POLICIES):
        height = TOP + ROW * (i + 0.5)
        ends = [x(us) for us in measured[policy].values()]
        out += [plots.text(LEFT - 14, height + 4, policy, anchor="end"),
                f"<path d='M{min(ends):.1f} {height}H{max(ends):.1f}' stroke='{plots.RULE}' stroke-width='3'/>"]
        out += [plots.marker(plots.LINES[name][2], x(us), height, plots.LINES[name][1]) for name, us in measured[policy].items()]
        out.append(plots.text(WIDTH - 20, height + 4, f"{compared(rows)[policy][6]} x", anchor="end"))
    out.append(plots.text(20, bottom + 42, "Logarithmic; less is better. plain_repair has no flags: its rivals are PyTorch alone.", size=12, colour=plots.GREY))
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    with open(os.path.join(DOCS, "performance-tables.md"), encoding="utf-8") as file:
        rows, machine = rows_by_heading(file.read())
    with open(os.path.join(DOCS, "images", "policies.svg"), "w", encoding="utf-8") as file:
        file.write(picture(rows, machine))
    first_page = os.path.join(DOCS, "performance.md")
    with open(first_page, encoding="utf-8") as file:
        page = file.read()
    for mark, content in (("policies", table(rows)), ("over", over(rows))):
        begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
        before, rest = page.split(begin)
        page = before + begin + content + "\n" + end + rest.split(end)[1]
    with open(first_page, "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()
