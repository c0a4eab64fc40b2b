"""Times TorchGuard 1.0.4, eager and under torch.compile, and triage, at the same work in the same run.

    ./dev bench --torchguard [--models] [--quick] [--only REGEX] [--device cuda] [--write PAGE] [--json FILE]

Each line is one piece of work at one shape. For policies `read` is what torch.sum of the data takes. In every round each
candidate runs in turn, on one thread; figures are processor time, which other programs on the machine disturb least: the median
over the rounds and, after ±, half the distance between the quartiles. triage is timed by its own program
(tests/bench/torchguard_work.cpp), one process a round.

With --models the work is a model (an MLP, a block of a ResNet, two blocks of a transformer) with flags after every layer and a
repair at the end, and the figure is the time it takes beyond that of the same model without: forward, and a step of training.
triage's come from its own table `models`, measured in the same run; --write brings both tables up to date.

With --device the data lies on that device. Figures are then time on the wall, of 50 calls or more that the device is waited for
at the end of, and there are two columns more: the warm call of triage replayed as a CUDA graph, and inductor with CUDA graphs
(mode="reduce-overhead"). Only policies are timed there, and no pictures are drawn.

--write brings the table of a page up to date, and beside it images/POLICY.svg, the policies at one width against the rows
(tests/bench/plots.py). `bench_triage --write=PAGE` does it for the other tables.
"""
import argparse
import datetime
import importlib
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import types
import warnings

import plots
import torch

LOCATION = 7
SHAPES = [(32, 512), (256, 1024), (4096, 1024)]   # of the table
DEVICE_SHAPES = [(32, 512), (4096, 1024), (32, 152064)]   # the last: logits of a language model
PLOT_COLUMNS, PLOT_ROWS = 1024, [32, 256, 1024, 4096, 16384]
LIMITS = {"flag_nan": "a read of the data", "flag_nan_and_inf": "a read of the data", "detect_repair": "a copy, warm",
          "plain_repair": "a copy, warm",
          "zscore_clip": "a copy, warm", "softmax_repair": "softmax alone, warm", "branch": "tanh alone, warm"}
FAMILIES = {"torchguard": "triage", "torchguard_eager": "backend_eager", "torchguard_script": "script", "torchguard_limit": "limit",
            "torchguard_graph": "replayed"}
BATCHES = [32, 4096]
MARKS = "<!-- torchguard: begin -->", "<!-- torchguard: end -->"
DEVICE_MARKS = "<!-- torchguard on a GPU: begin -->", "<!-- torchguard on a GPU: end -->"


def load_torchguard():
    """`import torchguard` fails in 1.0.4: modules beside its package `src` shadow what they re-export. Its packages load
    under a parent that runs none of them."""
    found = importlib.util.find_spec("torchguard")
    if found is None:
        sys.exit("torchguard is not installed for this Python; pip install --no-deps torchguard==1.0.4")
    parent = types.ModuleType("torchguard")
    parent.__path__ = list(found.submodule_search_locations)
    sys.modules["torchguard"] = parent
    helpers = importlib.import_module("torchguard.src.err.helpers")
    control = importlib.import_module("torchguard.src.control")
    return types.SimpleNamespace(err=importlib.import_module("torchguard.src.err").err, fix=helpers.fix, push=helpers.push,
                                 flag_nan=helpers.flag_nan, flag_nan_and_inf=helpers.flag_nan_and_inf,
                                 IF=control.IF, IS=control.IS, features=None)


FEATURES = """
return policy {
  inputs = {"x"}, outputs = {"x", "f"},
  run = function(x)
    local f = flag_nan_and_inf(x, "features")
    return fix(x, f, "features")
  end,
}
"""


def load_triage():
    """The package of this build in the place of TorchGuard, with a policy in front of a model; None where the build has none."""
    if importlib.util.find_spec("triage") is None:
        return None
    triage = importlib.import_module("triage")
    policy = triage.load_source(FEATURES, "features.lua")
    return types.SimpleNamespace(err=triage.err, fix=triage.fix, flag_nan_and_inf=triage.flag_nan_and_inf, features=policy)


def policies(tg):
    """As someone who has TorchGuard would write them."""
    err = tg.err

    def flag_nan(x):
        return tg.flag_nan(x, LOCATION)

    def flag_nan_and_inf(x):
        return tg.flag_nan_and_inf(x, LOCATION)

    def detect_repair(x):
        return tg.fix(x, tg.flag_nan_and_inf(x, LOCATION), LOCATION, fallback=0.0)

    def zscore_clip(x):
        f = tg.flag_nan_and_inf(x, LOCATION)
        x = torch.where(err.is_err(f).unsqueeze(1), torch.zeros_like(x), x)
        mean, limit = x.mean(-1, keepdim=True), 3 * (x.std(-1, keepdim=True) + 1e-6)
        far = (x - mean).abs() > limit
        f = tg.push(f, err.VALUE_CLAMPED, LOCATION, where=far.any(-1))
        return torch.where(far, mean + limit * torch.sign(x - mean), x), f

    def softmax_repair(x):
        f = tg.flag_nan_and_inf(x, LOCATION)
        p = x.softmax(-1)
        return torch.where(err.is_err(f).unsqueeze(1), torch.full_like(p, 1 / x.shape[1]), p), f

    def branch(x):
        f = tg.flag_nan_and_inf(x, LOCATION)
        clipped = torch.nan_to_num(x, 0.0, 1e4, -1e4).clamp(-10, 10)
        y = torch.where(err.has_inf(f).unsqueeze(1), clipped, torch.tanh(x))
        return torch.where(err.has_nan(f).unsqueeze(1), torch.zeros_like(x), y), f

    def plain_repair(x):  # without flags, as someone who has no TorchGuard would
        bad = ~torch.isfinite(x).all(-1)
        return torch.where(bad[:, None], torch.zeros_like(x), x), bad

    return [flag_nan, flag_nan_and_inf, detect_repair, zscore_clip, softmax_repair, branch, plain_repair]


def operations(tg, rows):
    err = tg.err
    x, mask = torch.randn(rows, 8), torch.rand(rows) < 0.2
    empty, codes = err.new(x), mask.to(torch.int64)
    first = tg.push(empty, err.NAN, 3, where=mask)
    second = tg.push(empty, err.INF, 4, where=~mask)
    return {"new": (lambda x: err.new(x), (x,)),
            "push(where)": (lambda f, m: tg.push(f, err.NAN, 3, where=m), (first, mask)),
            "push(codes)": (lambda f, c: err.push(f, c, 3), (first, codes)),
            "merge": (lambda a, b: err.merge(a, b), (first, second)),
            "is_ok": (lambda f: err.is_ok(f), (first,)),
            "has_code": (lambda f: err.has_code(f, err.NAN), (first,)),
            "count_errors": (lambda f: err.count_errors(f), (first,))}


class Looks:
    """`look(h, name)` of a model: records what is not finite, where flags are wanted."""

    def __init__(self, tg, x):
        self.tg, self.flags = tg, tg.err.new(x) if tg else None

    def __call__(self, h, location):
        if self.tg:
            self.flags = self.tg.flag_nan_and_inf(h, location, self.flags)
        return h

    def repaired(self, x):
        if not self.tg:
            return x
        if self.tg.features:
            x, self.flags = self.tg.features(x)
            return x
        return self.tg.fix(x, self.tg.flag_nan_and_inf(x, 1, self.flags), 1, fallback=0.0)[0]


def mlp(rows, width, training):
    linear = torch.nn.Linear
    layers = torch.nn.ModuleList([linear(width, 2 * width), linear(2 * width, 2 * width), linear(2 * width, width)])

    def forward(look, x):
        x = torch.relu(look(layers[0](x), 1))
        x = torch.relu(look(layers[1](x), 2))
        return look(layers[2](x), 3)
    return "MLP", layers, forward, torch.randn(rows, width)


def resnet_block(rows, channels, size, training):
    conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
    layers = torch.nn.ModuleList([conv(channels, channels, 3, padding=1, bias=False), norm(channels, track_running_stats=not training),
                                  conv(channels, channels, 3, padding=1, bias=False), norm(channels, track_running_stats=not training)])
    layers.train(training)

    def forward(look, x):
        h = torch.relu(look(layers[1](look(layers[0](x), 1)), 2))
        h = look(layers[3](look(layers[2](h), 3)), 4)
        return look(torch.relu(h + x), 5)
    return "ResNet block", layers, forward, torch.randn(rows, channels, size, size)


def transformer(rows, length, width, training):
    linear, norm = torch.nn.Linear, torch.nn.LayerNorm
    layers = torch.nn.ModuleList(layer for _ in range(2) for layer in (
        norm(width), linear(width, 3 * width), linear(width, width), norm(width), linear(width, 4 * width), linear(4 * width, width)))

    def forward(look, x):
        b, t, d = x.shape
        for first in (0, 6):
            norm1, qkv, out, norm2, up, down = (layers[first + i] for i in range(6))
            q, k, v = look(qkv(look(norm1(x), first + 1)), first + 2).reshape(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
            mixed = torch.softmax(q * 0.125 @ k.transpose(-2, -1), -1) @ v
            x = x + look(out(mixed.transpose(1, 2).reshape(b, t, d)), first + 3)
            h = torch.nn.functional.gelu(look(up(look(norm2(x), first + 4)), first + 5))
            x = look(x + look(down(h), first + 6), first + 7)
        return x
    return "2 transformer blocks", layers, forward, torch.randn(rows, length, width)


def classifier(rows, width, training):
    """The example of docs/python.md: bad rows are repaired in front of the model, and do not count in its loss."""
    layers = torch.nn.ModuleList([torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, 10)])
    return "repair, classifier", layers, lambda look, x: layers[1](torch.relu(layers[0](look.repaired(x)))), noise(rows, width)


# As tests/bench/models.cpp has them; of the last only Python.
MODELS = [(mlp, 32, 512), (mlp, 256, 512), (resnet_block, 8, 64, 28), (resnet_block, 4, 128, 14), (transformer, 8, 64, 256),
          (transformer, 4, 128, 512), (classifier, 256, 512)]


def model_calls(tg, layers, forward, x, training, compiled):
    """(without flags, with flags after each layer and a repair): one forward pass, or one step of training."""
    clean, parameters = x.nan_to_num(0, 0, 0), list(layers.parameters())
    with torch.no_grad():
        target = torch.randn_like(forward(Looks(None, clean), clean))

    def plain(x):
        return forward(Looks(None, x), x)

    def flagged(x):
        look = Looks(tg, x)
        return tg.fix(forward(look, x), look.flags, 15, fallback=0.0)

    def step(output):
        loss = torch.nn.functional.mse_loss(output, target)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                parameter.sub_(gradient, alpha=1e-3)

    if compiled:
        torch._dynamo.reset()
        plain, flagged = (torch.compile(function, fullgraph=True, dynamic=False) for function in (plain, flagged))
    if not training:
        return lambda: plain(clean), lambda: flagged(x)
    return lambda: step(plain(clean)), lambda: step(flagged(x)[0])


def noise(rows, columns):
    """Of which about five rows hold a NaN or an infinity."""
    bad = [float("nan"), float("inf"), float("-inf")]
    x = torch.randn(rows, columns)
    for row in range(0, rows, max(1, rows // 5)):
        x[row, row * 7 % columns] = bad[row % 3]
    return x


def micros(function, arguments, seconds, on_device):
    """Time of one call, over calls that take about so many seconds together: of the processor, or on the wall if a device works."""
    def now():
        if on_device:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.thread_time()

    for _ in range(3 if on_device else 1):
        function(*arguments)
    start = now()
    function(*arguments)
    once = max(now() - start, 1e-7)
    calls = max(50 if on_device else 1, min(5000, int(seconds / once)))
    start = now()
    for _ in range(calls):
        function(*arguments)
    return (now() - start) / calls * 1e6


def compare_models(options, tg):
    """The rows of the table of models: for each what flags cost, as the time with them over the time without."""
    rows, triage = [], load_triage()
    wanted = [(make, sizes, training) for training in (False, True) for make, *sizes in MODELS]
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        page = [f"--write={options.write}"] if options.write else []
        subprocess.run([options.program, "--table=models", f"--json={file.name}", *page], check=True, stdout=sys.stderr)
        ours = {(line["work"], line["shape"]): line for line in json.load(open(file.name))["tables"]["models"]}
    for make, sizes, training in wanted:
        torch.manual_seed(0)
        name, layers, forward, x = make(*sizes, training)
        work, shape = f"{name}, {'step' if training else 'forward'}", "x".join(map(str, x.shape))
        if not re.search(options.only, f"{work}/{shape}"):
            continue
        row = {"work": work, "shape": shape}
        for candidate in ("fused", "TorchScript"):
            if (f"{work}, {candidate}", shape) in ours:
                row[candidate] = ours[f"{work}, {candidate}", shape]["ratio"]
        with torch.set_grad_enabled(training):
            for candidate in ("eager", "inductor", "python") if not options.quick else ("eager",):
                library = tg if candidate != "python" else triage
                if library is None:
                    continue
                calls = model_calls(library, layers, forward, x, training, candidate != "eager")
                times = [[], []]
                for _ in range(3 * options.rounds):
                    for call, taken in zip(calls, times):
                        taken.append(micros(call, (), options.seconds, False))
                row[candidate] = statistics.median(with_flags / without for without, with_flags in zip(*times))
                row[f"{candidate}_us"] = [statistics.median(taken) for taken in times]
        rows.append(row)
        print(model_row(row), flush=True)
    return rows


MODEL_COLUMNS = {"fused": "triage, fused", "TorchScript": "triage, TorchScript", "python": "triage in Python, inductor", "eager": "TorchGuard eager", "inductor": "TorchGuard, inductor"}
MODEL_MARKS = "<!-- torchguard models: begin -->", "<!-- torchguard models: end -->"


def model_head():
    return f"| model | shape | {' | '.join(MODEL_COLUMNS.values())} |\n|---|---|{'---|' * len(MODEL_COLUMNS)}"


def model_row(row):
    def percent(candidate):
        return f"{100 * (row[candidate] - 1):+.1f} %" if candidate in row else ""
    return f"| {row['work']} | {row['shape']} | {' | '.join(percent(candidate) for candidate in MODEL_COLUMNS)} |"


class Bench:
    def __init__(self, options):
        self.options, self.rows, self.on_device = options, [], options.device != "cpu"
        self.markdown_head, self.markdown_row = (device_head(), device_row) if self.on_device else (markdown_head(), markdown_row)

    def triage(self, name):
        """{candidate: µs} of what the program has under that name: for policies, the script, both backends and the limit."""
        done = subprocess.run([self.options.program, f"--benchmark_filter=^torchguard(_[a-z]+)?/{re.escape(name)}$",
                               "--benchmark_format=json", f"--benchmark_min_time={self.options.seconds}"],
                              capture_output=True, text=True, check=True,
                              env={**os.environ, "TRIAGE_TEST_DEVICE": self.options.device})
        scale = {"ns": 1e-3, "us": 1, "ms": 1e3}
        clock = "real_time" if self.on_device else "cpu_time"
        results = {FAMILIES[result["name"].split("/")[0]]: result[clock] * scale[result["time_unit"]]
                   for result in json.loads(done.stdout)["benchmarks"]}
        if "triage" not in results:
            sys.exit(f"{self.options.program} has no benchmark torchguard/{name}")
        return results

    def compare(self, work, shape, function, arguments, read=None):
        name = f"{work}/{shape}"
        if not re.search(self.options.only, name):
            return
        candidates = {}
        if read:
            candidates["read"] = lambda: micros(read, (), self.options.seconds, self.on_device)
        candidates["eager"] = lambda: micros(function, arguments, self.options.seconds, self.on_device)
        row = {"work": work, "shape": shape, "limit_name": LIMITS.get(work)}
        if not self.options.quick:
            torch._dynamo.reset()
            compiled = torch.compile(function, fullgraph=True, dynamic=False)
            start = time.perf_counter()
            compiled(*arguments)
            row["compile_s"] = time.perf_counter() - start
            candidates["inductor"] = lambda: micros(compiled, arguments, self.options.seconds, self.on_device)
            if self.on_device:
                graph = torch.compile(function, fullgraph=True, dynamic=False, mode="reduce-overhead")
                candidates["inductor_graph"] = lambda: micros(graph, arguments, self.options.seconds, self.on_device)
        times = {}
        for _ in range(self.options.rounds):
            for candidate, time_of_call in self.triage(name).items():
                times.setdefault(candidate, []).append(time_of_call)
            for candidate, run in candidates.items():
                times.setdefault(candidate, []).append(run())
        for candidate, values in times.items():
            quartiles = statistics.quantiles(values, n=4)
            row[candidate] = {"us": statistics.median(values), "spread_us": (quartiles[2] - quartiles[0]) / 2, "rounds": values}
        self.rows.append(row)
        if in_table(row):
            print(self.markdown_row(row), flush=True)

    def run(self):
        tg = load_torchguard()
        print(self.markdown_head, flush=True)
        shapes = DEVICE_SHAPES if self.on_device else SHAPES + [(rows, PLOT_COLUMNS) for rows in PLOT_ROWS if (rows, PLOT_COLUMNS) not in SHAPES]
        with torch.no_grad():
            for policy in policies(tg):
                for rows, columns in shapes:
                    x = noise(rows, columns).to(self.options.device)
                    self.compare(policy.__name__, f"{rows}x{columns}", policy, (x,), read=x.sum)
            for rows in [] if self.on_device else BATCHES:
                for name, (function, arguments) in operations(tg, rows).items():
                    self.compare(name, str(rows), function, arguments)


def in_table(row):
    return "x" not in row["shape"] or row["shape"] in [f"{rows}x{columns}" for rows, columns in SHAPES + DEVICE_SHAPES]


def goals(row):
    """How many times faster than (eager, inductor) triage is to be; 0: no goal."""
    if "x" not in row["shape"]:
        return (50 if row["work"].startswith(("push", "merge")) else 0), 20
    large = row["shape"] == "4096x1024"
    if row["work"] == "plain_repair":
        return 0, 2 if large else 10
    return 0, 6 if large else 20


def verdict(row):
    said = []
    for candidate, goal in zip(("eager", "inductor"), goals(row)):
        if goal and candidate in row:
            faster = row[candidate]["us"] / row["triage"]["us"]
            said.append(f"{candidate} {goal}: {'within' if faster >= goal else 'over'}")
    return ", ".join(said)


def markdown_head():
    return ("| work | shape | triage, µs | TorchGuard eager, µs | inductor, µs | eager / triage | inductor / triage | triage / read | goal |\n"
            "|---|---|---|---|---|---|---|---|---|")


def cell(row, candidate):
    if candidate not in row:
        return ""
    digits = 1 if row[candidate]["us"] >= 10 else 2
    return f"{row[candidate]['us']:.{digits}f} ± {row[candidate]['spread_us']:.{digits}f}"


def markdown_row(row):
    def ratio(above, below):
        return f"{row[above]['us'] / row[below]['us']:.3g}" if above in row and below in row else ""

    return (f"| {row['work']} | {row['shape']} | {cell(row, 'triage')} | {cell(row, 'eager')} | {cell(row, 'inductor')} | "
            f"{ratio('eager', 'triage')} | {ratio('inductor', 'triage')} | {ratio('triage', 'read')} | {verdict(row)} |")


DEVICE_COLUMNS = {"read": "read, µs", "limit": "limit, µs", "script": "triage, script, µs", "triage": "triage, captured, µs",
                  "replayed": "triage, CUDA graph, µs", "eager": "TorchGuard eager, µs", "inductor": "inductor, µs",
                  "inductor_graph": "inductor, CUDA graphs, µs"}


def device_head():
    return f"| work | shape | {' | '.join(DEVICE_COLUMNS.values())} |\n|---|---|{'---|' * len(DEVICE_COLUMNS)}"


def device_row(row):
    return f"| {row['work']} | {row['shape']} | {' | '.join(cell(row, candidate) for candidate in DEVICE_COLUMNS)} |"


def machine():
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    return {"cpu": model, "cores": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version(),
            "torch": torch.__version__, "threads": torch.get_num_threads(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}


def replaced(text, begin, end, content):
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def about_line(about, on_device):
    where = torch.cuda.get_device_name() if on_device else f"{about['cores']} cores, one thread"
    return (f"{about['date']}, {about['cpu']}, {where}. TorchGuard 1.0.4 on PyTorch {about['torch']}, "
            f"Python {about['python']}; {about['triage']}. The load of the machine was {about['load_before']:.1f} when the run began "
            f"and {about['load']:.1f} when it ended. {'Time on the wall' if on_device else 'Processor time'}, medians of "
            f"{about['rounds']} rounds, ± half the distance between the quartiles.")


def write_page(page, bench, about, drawn):
    """Replaces what stands between the marks."""
    with open(page) as file:
        text = file.read()
    table = "\n".join([bench.markdown_head, *[bench.markdown_row(row) for row in bench.rows if in_table(row)]])
    head = about_line(about, bench.on_device)
    images = "\n".join(f"![{work}: time of a call against the rows of the batch](images/{work}.svg)" for work in drawn)
    begin, end = DEVICE_MARKS if bench.on_device else MARKS
    text = replaced(text, begin, end, f"{head}\n\n{table}" + (f"\n\n{images}" if images else ""))
    with open(page, "w") as file:
        file.write(text)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--program", required=True, help="bench_triage (./dev fills it in)")
    arguments.add_argument("--quick", action="store_true", help="three short rounds, without torch.compile")
    arguments.add_argument("--only", default="", metavar="REGEX", help="of names such as merge/4096")
    arguments.add_argument("--models", action="store_true", help="what flags cost on whole models, instead of policies and operations")
    arguments.add_argument("--device", default="cpu", help="where the data lies, such as cuda")
    arguments.add_argument("--rounds", type=int, help="default 7, with --quick 3")
    arguments.add_argument("--write", metavar="PAGE", help="puts the tables and pictures into this page, between its marks")
    arguments.add_argument("--json", metavar="FILE")
    options = arguments.parse_args()
    options.rounds = max(2, options.rounds or (3 if options.quick else 7))
    options.seconds = 0.02 if options.quick else 0.05
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    load_before = os.getloadavg()[0]
    bench = Bench(options)
    if options.models:
        tg = load_torchguard()
        print(model_head(), flush=True)
        models = compare_models(options, tg)
    else:
        bench.run()
    version = subprocess.run([options.program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    about = {**machine(), "load_before": load_before, "rounds": options.rounds, "triage": version}
    figures = {"about": about, "models": models} if options.models else {"about": about, "plot_columns": PLOT_COLUMNS, "rows": bench.rows}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=1)
    if options.write and options.models:
        with open(options.write) as file:
            page = file.read()
        with open(options.write, "w") as file:
            file.write(replaced(page, *MODEL_MARKS, f"{about_line(about, False)}\n\n" + "\n".join([model_head(), *map(model_row, models)])))
    elif options.write:
        drawn = [] if bench.on_device else plots.write(figures, os.path.join(os.path.dirname(options.write), "images"))
        write_page(options.write, bench, about, drawn)


if __name__ == "__main__":
    main()
