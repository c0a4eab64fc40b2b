"""Four clients load examples/server while its policy is edited, broken, pinned and rolled back; then it is told to end."""
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

server_path, policy_path = sys.argv[1:3]
results = []


def check(name, passed, seen=""):
    results.append(passed)
    if not passed:
        print(f"FAILED: {name}\n  {seen}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, method, path, body=None, headers={}):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ask_json(*arguments):
    status, text = ask(*arguments)
    return status, json.loads(text)


work = tempfile.TemporaryDirectory()
folder = pathlib.Path(work.name)
policy = folder / "repair.lua"
source = pathlib.Path(policy_path).read_text()
policy.write_text(source)
log = folder / "decisions.jsonl"
port, admin = free_port(), free_port()
server = subprocess.Popen([server_path, str(policy), "--port", str(port), "--admin-port", str(admin), "--log", str(log),
                           "--cache", str(folder / "cache")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
check("starts", server.stdout.readline().startswith("serving on port"))


def save(text):
    """As editors do, so that nobody reads half a file."""
    (folder / "new").write_text(text)
    os.replace(folder / "new", policy)


def live():
    return ask_json(admin, "GET", "/policies")[1]["policies"][0]


def becomes(done, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done(live()):
            return True
        time.sleep(0.05)
    return False


# --- what a client sees

good, bad = [0.1 * i for i in range(8)], [None] + [0.1] * 7
status, first = ask_json(port, "POST", "/predict", json.dumps({"samples": [good, bad, good], "ids": ["a", "b", "c"]}))
check("predicts", status == 200 and first["version"] == 1 and first["answered"] == "live", first)
kinds = first["predictions"]
check("names the bad sample alone", [p.get("errors", []) != [] for p in kinds] == [False, True, False], kinds)
check("says what was wrong", any("NAN @ logits" in e for e in kinds[1]["errors"]), kinds)
for body in ("", "{", "[]", '{"samples": 3}', '{"samples": [[1, 2]]}', '{"samples": [["x"]]}',
             json.dumps({"samples": [good], "ids": ["a", "b"]}), json.dumps({"samples": [good] * 5000})):
    status, text = ask(port, "POST", "/predict", body)
    check(f"refuses {body[:30]!r}", status == 400 and "error" in json.loads(text), (status, text))
check("an empty batch is fine", ask_json(port, "POST", "/predict", '{"samples": []}')[1]["predictions"] == [])
check("is healthy", ask(port, "GET", "/health")[0] == 200)

# --- four clients, while the policy changes

stop = threading.Event()
sent, failed, answers = [0] * 4, [], set()


def client(number):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"samples": [good, bad, good, good], "ids": ["a", "b", "c", "d"]})
    while not stop.is_set():
        connection.request("POST", "/predict", body, {"X-Request-Id": f"{number}-{sent[number]}"})
        response = connection.getresponse()
        content = json.loads(response.read())
        sent[number] += 1
        if response.status != 200 or [p["class"] for p in content["predictions"]][::2] != [k["class"] for k in kinds][::2]:
            failed.append((response.status, content))
        answers.add((content.get("version"), content.get("answered")))
    connection.close()


clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
for thread in clients:
    thread.start()
time.sleep(0.5)
save(source.replace("fallback = 0.0", "fallback = 0.0 * 1"))
check("a new version goes live", becomes(lambda p: p["live"] == 2), live())
save(source.replace("return fix", "return fixx"))
check("a broken one is refused", becomes(lambda p: p["error"] and p["live"] == 2), live())
save(source.replace("run = function(logits)", "run = function(logits)\n    while true do end"))
check("an endless one is refused", becomes(lambda p: p["error"] and "repair.lua" in p["error"] and p["live"] == 2), live())
save("")
check("an empty file is refused", becomes(lambda p: p["error"] and p["live"] == 2), live())
check("pins", ask_json(admin, "POST", "/policies/repair/pin?version=1")[1]["live"] == 1)
save(source.replace("fallback = 0.0", "fallback = 0.0 - 0"))
time.sleep(0.5)
check("stays pinned", live()["live"] == 1)
check("follows again", ask(admin, "POST", "/policies/repair/unpin")[0] == 200 and becomes(lambda p: p["live"] == 3), live())
check("rolls back", ask_json(admin, "POST", "/policies/repair/rollback?version=2")[1]["live"] == 2)
for path in ("/policies/nobody/pin?version=1", "/policies/repair/dance"):
    check(f"refuses {path}", ask(admin, "POST", path)[0] == 404)
for path in ("/policies/repair/pin", "/policies/repair/pin?version=99", "/policies/repair/pin?version=x"):
    check(f"refuses {path}", ask(admin, "POST", path)[0] == 400)
candidate = source.replace("fallback = 0.0", "fallback = 1.0 - 1.0")
state = ask_json(admin, "POST", "/policies/repair/canary?share=0.5", candidate)[1]
check("a canary answers beside it", state["live"] == 2 and state["candidate"]["state"] == "running", state)
check("one at a time", ask(admin, "POST", "/policies/repair/shadow", candidate)[0] == 400)
check("it gets its share", becomes(lambda p: p["candidate"]["candidate"]["calls"] > 20), live())
state = ask_json(admin, "POST", "/policies/repair/promote")[1]
check("is promoted", state["live"] == 4 and state["candidate"]["state"] == "promoted", state)
check("a bad one is refused", ask(admin, "POST", "/policies/repair/canary", "return 3")[0] == 400 and live()["live"] == 4)
state = ask_json(admin, "POST", "/policies/repair/shadow?share=1", source)[1]
check("another runs in the shadow", becomes(lambda p: p["candidate"]["shadow"]["compared"] > 20), live())
state = ask_json(admin, "POST", "/policies/repair/end")[1]
check("and gives the same bits", state["live"] == 4 and state["candidate"]["shadow"]["different"] == 0, state)
check("the page is there", "<h1>Policies</h1>" in ask(admin, "GET", "/")[1])
time.sleep(0.5)
stop.set()
for thread in clients:
    thread.join()
check("no request failed", not failed, failed[:3])
check("enough requests, of several versions", sum(sent) > 100 and len({v for v, _ in answers}) >= 3, (sent, answers))

# --- what operators see

statistics = live()["statistics"]
answered = statistics["answered"]
check("every call is counted, and the one with too many names as failed",
      answered["live"] + answered["canary"] == sum(sent) + 2 and answered["canary"] > 20 and answered["failed"] == 1 and statistics["calls"] == sum(sent) + 3, statistics)
check("every bad sample is counted", statistics["flagged"] == sum(sent) + 1, statistics)
check("by location and code", any(e["location"] == "logits" and e["code"] == "NAN" and e["samples"] == sum(sent) + 1
                                  for e in statistics["errors"]), statistics)
metrics = ask(admin, "GET", "/metrics")[1]
try:
    from prometheus_client.parser import text_string_to_metric_families
    samples = {s.name: s.value for f in text_string_to_metric_families(metrics) for s in f.samples if s.name.endswith("d_samples_total")}
    check("Prometheus' client reads the metrics", samples["triage_flagged_samples_total"] == sum(sent) + 1, samples)
except ImportError:
    print("skipped: python3 has no module prometheus_client")

# --- the end: what is being answered is answered

stop.clear()
refused = []


def last_client():
    while not stop.is_set():
        try:
            status, text = ask(port, "POST", "/predict", json.dumps({"samples": [good] * 4096}))
            if status != 200 or len(json.loads(text)["predictions"]) != 4096:
                failed.append((status, text[:200]))
        except ConnectionError:
            refused.append(True)  # the port is closed: no answer was begun
            return


clients = [threading.Thread(target=last_client) for _ in range(4)]
for thread in clients:
    thread.start()
time.sleep(0.5)
server.send_signal(signal.SIGTERM)
try:
    output, errors = server.communicate(timeout=60)
    check("ends on SIGTERM", server.returncode == 0, (server.returncode, errors))
except subprocess.TimeoutExpired:
    server.kill()
    check("ends on SIGTERM", False, "it does not end")
stop.set()
for thread in clients:
    thread.join()
check("nothing half-answered", not failed, failed[:3])
decisions = [json.loads(line) for line in log.read_text().splitlines()]
flagged = sum(any(s.get("sample_id") == "b" for s in d.get("samples", [])) for d in decisions)
dropped = sum(d.get("dropped", 0) for d in decisions)
check("each decision with a bad sample is in the log, or counted as dropped",
      sum(sent) + 1 - dropped <= flagged <= sum(sent) + 1, (flagged, dropped, sum(sent), decisions[:1]))

print(f"{results.count(True)} passed, {results.count(False)} failed")
sys.exit(not all(results))
