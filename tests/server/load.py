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
        connection.request(method, path, body, headers, encode_chunked="Transfer-Encoding" in headers)
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
drain = 3
server = subprocess.Popen([server_path, str(policy), "--port", str(port), "--admin-port", str(admin), "--log", str(log),
                           "--capsules", str(folder / "capsules"), "--cache", str(folder / "cache"), f"--drain={drain}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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


# --- how it starts

def start(*arguments):
    """Of a server that must not start: its status and what it says."""
    ran = subprocess.run([server_path, *arguments], capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stderr.strip().splitlines()[-1]


for text in ("99999", "80x", "abc", "", "0", "-1"):
    status, said = start(str(policy), "--port", text)
    check(f"refuses --port {text!r}", status == 1 and said == f"--port is a whole number from 1 to 65535, got '{text}'", said)
status, said = start(str(policy), "--port", str(port), "--admin-port", str(free_port()))
check("refuses a port that is taken", status == 1 and f"port {port} " in said and "in use" in said, said)
status, said = start(str(policy), "--port", str(free_port()), f"--admin-port={admin}")
check("also that of operators", status == 1 and f"port {admin} " in said and "in use" in said, said)
status, said = start(str(folder / "gone" / "repair.lua"))
check("refuses a folder that is not there", status == 1 and "gone" in said and "create it" in said, said)
sources = [s for s in pathlib.Path(policy_path).parents[1].glob("*") if s.suffix in (".cpp", ".h")]
lines = [line for s in sources for line in s.read_text().splitlines() if line.strip() and not line.strip().startswith("//")]
check("is an example: it has less than 400 lines of code", len(lines) < 400, len(lines))

# --- what a client sees

status, text = ask(admin, "GET", "/metrics")
first_recompiles = [line for line in text.splitlines() if line.startswith("triage_recompiles_total{")]

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
check("the first call is warm", [line for line in ask(admin, "GET", "/metrics")[1].splitlines()
                                 if line.startswith("triage_recompiles_total{")] == first_recompiles)
deep = '{"samples": [[%s, 1, 2, 3, 4, 5, 6, 7]]}'
for name, value in (("lists", "[" * 100000 + "]" * 100000), ("open lists", "[" * 100000), ("objects", '{"a":' * 100000),
                    ("a word", '"' + "x" * 100000 + '"')):
    status, text = ask(port, "POST", "/predict", deep % value)
    check(f"refuses {name} for a number", status == 400 and len(text) < 8192 and "error" in json.loads(text), (status, text[:200]))
form = {"Content-Type": "application/x-www-form-urlencoded"}
many = json.dumps({"samples": [[number / 3 for number in range(8)]] * 1000})
check("curl's content type has no limit of its own", ask(port, "POST", "/predict", many, form)[0] == 200)
for headers in (form, {"Content-Type": "application/json"}, {"Transfer-Encoding": "chunked"}):
    status, text = ask(port, "POST", "/predict", [b" " * 65536] * 65 if "Transfer-Encoding" in headers else " " * (5 << 20), headers)
    check(f"limits bodies, {headers}", status == 413 and "bytes" in json.loads(text)["error"], (status, text))
for method, path, expected in (("GET", "/nothing", 404), ("GET", "/predict", 404), ("BREW", "/", 400)):
    status, text = ask(port, method, path)
    check(f"says why not {method} {path}", status == expected and "error" in json.loads(text), (status, text))
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
status, text = ask(admin, "POST", "/policies/repair/rollback?version=1")
check("rolls back to the first", status == 200 and json.loads(text)["live"] == 1, text)
status, text = ask(admin, "POST", "/policies/repair/unpin")
check("without a pin, unpin does nothing", status == 400 and "pinned" in json.loads(text)["error"] and live()["live"] == 1, text)
check("rolls back", ask_json(admin, "POST", "/policies/repair/rollback?version=2")[1]["live"] == 2)
for path in ("/policies/nobody/pin?version=1", "/policies/repair/dance", "/policies/a/b/pin", "/policies/../pin", "/policies/..%2Frepair/pin"):
    status, text = ask(admin, "POST", path)
    check(f"refuses {path}", status == 404 and "error" in json.loads(text), (status, text))
for command in ("pin", "pin?version=99", "pin?version=x", "rollback?version=1abc", "rollback?version=99999999999", "canary?share=abc",
                "canary?share=0.5x", "shadow?share=nan", "shadow?share=2"):
    status, text = ask(admin, "POST", "/policies/repair/" + command, source)
    check(f"refuses {command}", status == 400 and "sto" not in json.loads(text)["error"], (status, text))
    if "=" in command and "99" not in command.split("=")[1][:2]:
        check(f"says what is expected, {command}", "number from" in text, text)
for origin in ("http://example.com", "null", f"http://localhost:{port}", f"https://localhost:{admin}"):
    status, text = ask(admin, "POST", "/policies/repair/rollback?version=1", "", {"Origin": origin, "Host": f"localhost:{admin}"})
    check(f"refuses commands of {origin}", status == 403 and "error" in json.loads(text) and live()["live"] == 2, (status, text))
rebound = {"Origin": f"http://example.com:{admin}", "Host": f"example.com:{admin}"}
check("also if its name leads here", ask(admin, "POST", "/policies/repair/rollback?version=1", "", rebound)[0] == 403)
own = {"Origin": f"http://localhost:{admin}", "Host": f"localhost:{admin}"}
check("but not its own", ask(admin, "POST", "/policies/repair/rollback?version=2", "", own)[0] == 200)
with socket.create_connection(("127.0.0.1", admin), timeout=4) as plain:
    plain.sendall(b"POST /policies/repair/unpin HTTP/1.1\r\nHost: x\r\n\r\n")
    check("a command needs no body", plain.recv(100).startswith(b"HTTP/1.1 400"))
check("says since when", all(time.strptime(v["since"], "%Y-%m-%dT%H:%M:%SZ") for v in live()["versions"]), live())
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
      answered["live"] + answered["canary"] == sum(sent) + 3 and answered["canary"] > 20 and answered["failed"] == 1 and statistics["calls"] == sum(sent) + 4, statistics)
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

# --- the end: what comes before the end of the drain is answered

idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(64)]
status, text = ask(port, "GET", "/health")
check("64 idle clients keep nobody out", status == 200, (status, text))
stop.clear()
lost, answered_late, closing, refused = [], [], [], []
ends = float("inf")  # when the drain does


def last_client():
    """A connection for each request: the hardest case at the end."""
    body = json.dumps({"samples": [good] * 1024})
    while not stop.is_set():
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/predict", body)
            response = connection.getresponse()
            text = response.read()
            if response.status != 200 or len(json.loads(text)["predictions"]) != 1024:
                failed.append((response.status, text[:200]))
            elif began > ends - drain:
                answered_late.append(began)
                closing.append(response.headers.get_all("Connection"))
        except (OSError, http.client.HTTPException) as error:
            # Before the end of the drain (less what a busy machine may be late), no request is refused or lost.
            (lost if began < ends - 0.5 else refused).append((began, repr(error)))
            return
        finally:
            connection.close()


kept = http.client.HTTPConnection("127.0.0.1", port, timeout=60)  # was open before
kept.request("GET", "/health")
kept.getresponse().read()
clients = [threading.Thread(target=last_client) for _ in range(4)]
for thread in clients:
    thread.start()
time.sleep(0.5)
ends = time.monotonic() + drain
server.send_signal(signal.SIGTERM)
time.sleep(0.3)
kept.request("GET", "/health")
response = kept.getresponse()
check("says that it drains", response.status == 503 and b"draining" in response.read())
check("and closes connections", response.headers.get_all("Connection") == ["close"] and not response.headers.get("Keep-Alive"),
      response.headers)
check("the page says so", ask_json(admin, "GET", "/policies")[1]["draining"])
slow = socket.create_connection(("127.0.0.1", port))
slow.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 15\r\n\r\n")
time.sleep(max(0, ends - time.monotonic()) + 0.7)
slow.sendall(b'{"samples": []}')
check("a request that began before the end is answered after it", slow.recv(100).startswith(b"HTTP/1.1 200"))
try:
    output, errors = server.communicate(timeout=60)
    check("ends on SIGTERM", server.returncode == 0, (server.returncode, errors))
except subprocess.TimeoutExpired:
    server.kill()
    check("ends on SIGTERM", False, "it does not end")
stop.set()
for thread in clients:
    thread.join()
for connection in idle + [slow]:
    connection.close()
check("no request is lost before the end of the drain", not lost, lost)
check("requests are answered while it drains", len(answered_late) > 4, len(answered_late))
check("and each answer closes its connection", all(c == ["close"] for c in closing), closing[:3])
check("and then refused", len(refused) == 4, refused)
check("nothing half-answered", not failed, failed[:3])
decisions = [json.loads(line) for line in log.read_text().splitlines()]
flagged = sum(any(s.get("sample_id") == "b" for s in d.get("samples", [])) for d in decisions)
dropped = sum(d.get("dropped", 0) for d in decisions)
check("each decision with a bad sample is in the log, or counted as dropped",
      sum(sent) + 1 - dropped <= flagged <= sum(sent) + 1, (flagged, dropped, sum(sent), decisions[:1]))

capsules = [d["capsule"] for d in decisions if "capsule" in d]
check("decisions name capsules", capsules and all(pathlib.Path(c).is_file() for c in capsules[-1:]), decisions[:1])
own_names = [d["decision_id"] for d in decisions if "decision_id" in d and any(s.get("sample_id") == "b" for s in d.get("samples", []))]

# --- a second start

port, admin = free_port(), free_port()
server = subprocess.Popen([server_path, str(policy), "--port", str(port), "--admin-port", str(admin), "--drain", "60"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
server.stdout.readline()
again = ask_json(port, "POST", "/predict", json.dumps({"samples": [bad]}))[1]
check("names of decisions do not repeat", again["decision"] != first["decision"] and first["decision"] in own_names,
      (first["decision"], again["decision"], own_names[:3]))
trickle = socket.create_connection(("127.0.0.1", port))
trickle.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
for _ in range(2):
    server.send_signal(signal.SIGTERM)
    time.sleep(0.3)
began, end = time.monotonic(), time.monotonic() + 60
while server.poll() is None and time.monotonic() < end:
    try:
        trickle.sendall(b" ")
    except OSError:
        break
    time.sleep(1)
check("a second SIGTERM ends the drain, and a slow client cannot hold the server", server.wait(60) == 0 and time.monotonic() - began < 45,
      time.monotonic() - began)
trickle.close()

print(f"{results.count(True)} passed, {results.count(False)} failed")
sys.exit(not all(results))
