"""Draws what against_torchguard.py measured: one SVG a policy, time of a call against rows of the batch, both logarithmic.

    python3 tests/bench/plots.py FIGURES.json FOLDER

FIGURES.json is what `./dev bench --torchguard --json` writes; plain Python, no packages.
"""
import json
import math
import os
import re
import sys

WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 78, 210, 56, 58   # what the axes, the names of the lines and the title need
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
INK, GREY, RULE = "#1f2328", "#59636e", "#d8dee4"
NAME_HEIGHT = 17   # of a line's name at the right

# Colours that also those tell apart who see red and green alike (Okabe and Ito); each line has a marker of its own too.
LINES = {
    "script": ("triage, script", "#009e73", "triangle"),
    "backend_eager": ("triage, eager backend", "#56b4e9", "diamond"),
    "triage": ("triage, fused", "#0072b2", "circle"),
    "eager": ("{rival}, eager", "#d55e00", "square"),
    "inductor": ("{rival}, inductor", "#cc79a7", "cross"),
    "limit": (None, INK, None),   # named by what it is
}
WITHOUT_FLAGS = ["plain_repair"]   # for which one needs no TorchGuard


def ticks(low, high):
    """Powers of ten from below `low` to above `high`."""
    return [10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def duration(us):
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if us >= scale:
            return f"{us / scale:g} {unit}"
    return f"{us:g} µs"


def marker(kind, x, y, colour):
    shape = {"circle": f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4'/>",
             "square": f"<rect x='{x - 3.6:.1f}' y='{y - 3.6:.1f}' width='7.2' height='7.2'/>",
             "diamond": f"<path d='M{x:.1f} {y - 5:.1f}l5 5-5 5-5-5z'/>",
             "triangle": f"<path d='M{x:.1f} {y - 5:.1f}l4.6 8.4h-9.2z'/>",
             "cross": f"<path d='M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8' fill='none' stroke='{colour}' stroke-width='2.4'/>"}[kind]
    return f"<g fill='{colour}'>{shape}</g>"


def escaped(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def text(x, y, words, anchor="start", size=13, colour=INK, more=""):
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' font-size='{size}' fill='{colour}' {more}>{escaped(words)}</text>"


def apart(wanted, low, high):
    """Heights near the wanted ones, in their order, none nearer to the next than a name is high, all between the two limits."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    heights = list(wanted)
    floor = low
    for i in order:
        heights[i] = floor = max(heights[i], floor)
        floor += NAME_HEIGHT
    ceiling = high
    for i in reversed(order):
        heights[i] = min(heights[i], ceiling)
        ceiling = heights[i] - NAME_HEIGHT
    return heights


def draw(title, subtitle, lines):
    """`lines`: list of (name, colour, marker or None for a dashed line, [(rows, us), ...])."""
    points = [point for *_, line in lines for point in line]
    rows = sorted({point[0] for point in points})
    xs, ys = (rows[0], rows[-1]), ticks(min(p[1] for p in points), max(p[1] for p in points))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(row):
        return LEFT + (math.log(row) - math.log(xs[0])) / max(math.log(xs[1] / xs[0]), 1e-9) * (right - LEFT)

    def y(us):
        return bottom - (math.log(us) - math.log(ys[0])) / max(math.log(ys[-1] / ys[0]), 1e-9) * (bottom - TOP)

    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' {FONT} role='img'>",
           f"<title>{escaped(title)}</title>", f"<rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>",
           text(LEFT, 24, title, size=16, more="font-weight='600'"), text(LEFT, 42, subtitle, size=12, colour=GREY)]
    for us in ys:
        out.append(f"<path d='M{LEFT} {y(us):.1f}H{right}' stroke='{RULE}'/>")
        out.append(text(LEFT - 8, y(us) + 4, duration(us), anchor="end", size=12, colour=GREY))
    for row in rows:
        out.append(f"<path d='M{x(row):.1f} {TOP}V{bottom}' stroke='{RULE}'/>")
        out.append(text(x(row), bottom + 18, f"{row:,}".replace(",", " "), anchor="middle", size=12, colour=GREY))
    out.append(text((LEFT + right) / 2, HEIGHT - 14, "rows of the batch", anchor="middle", size=12, colour=GREY))
    out.append(text(18, (TOP + bottom) / 2, "time of one call", anchor="middle", size=12, colour=GREY,
                    more=f"transform='rotate(-90 18 {(TOP + bottom) / 2:.1f})'"))
    for name, colour, kind, line in lines:
        path = "M" + "L".join(f"{x(row):.1f} {y(us):.1f}" for row, us in line)
        style = f"stroke='{colour}' stroke-width='2'" if kind else f"stroke='{colour}' stroke-width='1.6' stroke-dasharray='6 4'"
        out.append(f"<path d='{path}' fill='none' stroke-linejoin='round' {style}/>")
        if kind:
            out.extend(marker(kind, x(row), y(us), colour) for row, us in line)
    names = apart([y(line[-1][1]) for *_, line in lines], TOP + 4, bottom)
    for (name, colour, kind, line), height in zip(lines, names):
        end = y(line[-1][1])
        out.append(f"<path d='M{right + 7} {end:.1f}L{right + 20} {height:.1f}' stroke='{colour}' stroke-width='1' fill='none' opacity='0.6'/>")
        if kind:
            out.append(marker(kind, right + 28, height, colour))
        else:
            out.append(f"<path d='M{right + 21} {height:.1f}h14' stroke='{colour}' stroke-width='1.6' stroke-dasharray='5 3'/>")
        out.append(text(right + 40, height + 4, name))
    return "\n".join([*out, "</svg>"]) + "\n"


def pictures(figures):
    """{policy: SVG} of all policies that were measured at two batch sizes or more of the same width."""
    width, about = figures["plot_columns"], figures["about"]
    found = {}
    for row in figures["rows"]:
        shape = re.fullmatch(r"(\d+)x(\d+)", row["shape"])
        if not shape or int(shape[2]) != width:
            continue
        for candidate in LINES:
            if candidate in row:
                found.setdefault(row["work"], {}).setdefault(candidate, []).append((int(shape[1]), row[candidate]["us"]))
        found[row["work"]]["limit_name"] = row.get("limit_name", "limit")
    drawn = {}
    for work, measured in found.items():
        rival = "PyTorch" if work in WITHOUT_FLAGS else "TorchGuard"
        lines = [((name or measured["limit_name"] or "limit").format(rival=rival), colour, kind, sorted(measured[candidate]))
                 for candidate, (name, colour, kind) in LINES.items() if candidate in measured]
        if len(lines[0][3]) > 1:
            drawn[work] = draw(work, f"float32, {width} columns, a few bad rows; {about['cpu']}, one thread, {about['date']}", lines)
    return drawn


def write(figures, folder):
    os.makedirs(folder, exist_ok=True)
    drawn = pictures(figures)
    for work, svg in drawn.items():
        with open(os.path.join(folder, f"{work}.svg"), "w", encoding="utf-8") as file:
            file.write(svg)
    return sorted(drawn)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as figures_file:
        print("\n".join(write(json.load(figures_file), sys.argv[2])))
