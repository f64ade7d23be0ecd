"""Random load on a running server: `soak.py http://127.0.0.1:8080 MODEL SECONDS [PID]`.

One request in five is given up halfway, some bodies are no requests, some readers are slow. Afterwards the server must be idle, its
counts must add up, no page may be in use, and with PID its memory must have stayed flat. Needs nothing but Python.
"""

import http.client
import json
import random
import re
import socket
import sys
import threading
import time
import urllib.parse

URL, MODEL, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
PID = sys.argv[4] if len(sys.argv) > 4 else None
HOST = urllib.parse.urlparse(URL)
THREADS = 12
END = time.time() + SECONDS
counts = {}
lock = threading.Lock()


def count(name):
    with lock:
        counts[name] = counts.get(name, 0) + 1


def memory():
    """Resident bytes that are not those of mapped files."""
    with open(f"/proc/{PID}/status") as status:
        return int(re.search(r"RssAnon:\s+(\d+)", status.read()).group(1)) * 1024


def metrics():
    connection = http.client.HTTPConnection(HOST.hostname, HOST.port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def body(rng):
    words = ["sea", "moon", "rain", "boat", "light", "story", "old", "little", "tree", "why"]
    shared = "Long ago, when the sea was young, there was a small boat. " * rng.randrange(3)
    text = shared + " ".join(rng.choices(words, k=rng.choice([3, 10, 40, 120])))
    ask = {"model": MODEL, "max_tokens": rng.choice([1, 8, 24, 64]), "seed": rng.randrange(9), "stream": rng.random() < 0.5}
    if rng.random() < 0.3:
        return "/v1/completions", {**ask, "prompt": text, "n": rng.choice([1, 1, 2])}
    if rng.random() < 0.1:
        return "/v1/embeddings", {"model": MODEL, "input": [text, "x"]}
    ask["messages"] = [{"role": "user", "content": text}]
    if rng.random() < 0.2:
        ask["response_format"] = {"type": "json_object"}
    if rng.random() < 0.2:
        ask |= {"logprobs": True, "top_logprobs": 3}
    return "/v1/chat/completions", ask


def malformed(rng):
    junk = rng.choice(["", "{", "[]", '{"model": 1}', "\0" * 100, '{"model": "%s", "messages": {}}' % MODEL, "[" * 500])
    connection = http.client.HTTPConnection(HOST.hostname, HOST.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", junk)
    status = connection.getresponse().status
    assert status == 400, status
    count("malformed")


def given_up(rng):
    path, ask = body(rng)
    text = json.dumps({**ask, "max_tokens": 400} if "input" not in ask else ask)
    stream = socket.create_connection((HOST.hostname, HOST.port), timeout=120)
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST.netloc}\r\ncontent-length: {len(text)}\r\n\r\n"
    stream.sendall((head + text)[: rng.choice([40, 10_000_000])].encode())
    time.sleep(rng.random() * 0.5)
    stream.close()
    count("given up")


def slow(rng):
    path, ask = body(rng)
    text = json.dumps({**ask, "stream": True} if "input" not in ask else ask)
    stream = socket.create_connection((HOST.hostname, HOST.port), timeout=120)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stream.sendall(f"POST {path} HTTP/1.1\r\nhost: {HOST.netloc}\r\nconnection: close\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode())
    while stream.recv(256):
        time.sleep(0.005)
    count("slow")


def whole(rng):
    path, ask = body(rng)
    connection = http.client.HTTPConnection(HOST.hostname, HOST.port, timeout=300)
    connection.request("POST", path, json.dumps(ask))
    response = connection.getresponse()
    text = response.read().decode()
    assert response.status in (200, 429), (response.status, text)
    if response.status == 200 and ask.get("stream"):
        assert text.endswith("data: [DONE]\n\n"), text[-300:]
    count(f"status {response.status}")


def worker(number):
    rng = random.Random(number)
    while time.time() < END:
        kind = rng.random()
        action = given_up if kind < 0.2 else malformed if kind < 0.25 else slow if kind < 0.3 else whole
        try:
            action(rng)
        except Exception as error:  # noqa: BLE001 - counted, and the rest is to go on
            count(f"error {action.__name__}: {error!r:.200}")


threads = [threading.Thread(target=worker, args=(n,)) for n in range(THREADS)]
for thread in threads:
    thread.start()
sizes = []
while any(thread.is_alive() for thread in threads):
    time.sleep(min(5, max(0.5, SECONDS / 40)))
    if PID:
        sizes.append(memory())
for _ in range(200):
    found = metrics()
    if sum(v for k, v in found.items() if k.startswith(("hf2q_jobs_running", "hf2q_jobs_waiting"))) == 0:
        break
    time.sleep(0.1)


def total(prefix, part=""):
    return sum(v for k, v in found.items() if k.startswith(prefix) and part in k)


ended = total("hf2q_jobs_finished") + total("hf2q_jobs_cancelled") + total("hf2q_jobs_failed")
checks = {
    "no job is left": total("hf2q_jobs_running") + total("hf2q_jobs_waiting") == 0,
    "jobs add up": total("hf2q_jobs_submitted") == ended,
    "no job failed": total("hf2q_jobs_failed") == 0,
    "no page is in use": total("hf2q_pages", 'state="in_use"') == 0,
    "no error": not any(name.startswith("error") for name in counts),
}
if PID:
    early, late = max(sizes[len(sizes) // 4 : len(sizes) // 2]), max(sizes[len(sizes) // 2 :])
    print(f"memory: {early / 2**20:.1f} MiB in the second quarter, {late / 2**20:.1f} MiB in the second half")
    checks["memory is flat"] = late <= early * 1.05
print(json.dumps(counts, indent=1), f"jobs {int(total('hf2q_jobs_submitted'))}, preemptions {int(total('hf2q_preemptions'))}")
for name, ok in checks.items():
    print("ok     " if ok else "FAILED ", name)
sys.exit(sum(not ok for ok in checks.values()))
