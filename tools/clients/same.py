"""Answers do not depend on load: `same.py http://127.0.0.1:8080 MODEL`.

64 different requests with fixed seeds are asked one by one, then all at once in two random orders; each must have the same answer.
Start the server with a small `--kv-memory` to have jobs preempted too. Needs nothing but Python.
"""

import json
import random
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

URL, MODEL = sys.argv[1], sys.argv[2]


def ask(i):
    rng = random.Random(i)
    shared = "Long ago, when the sea was young, there was a small boat and an old man. " * (i % 4)
    body = {"model": MODEL, "seed": i, "max_tokens": rng.choice([4, 16, 40, 120]), "temperature": rng.choice([0, 0.7, 1.2])}
    body["n"] = rng.choice([1, 1, 2])
    body["messages"] = [{"role": "user", "content": f"{shared}Story {rng.randrange(20)}, please. " * rng.choice([1, 3])}]
    if i % 8 == 0:
        body["response_format"] = {"type": "json_object"}
    request = urllib.request.Request(f"{URL}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=600) as response:
        return [c["message"]["content"] for c in json.load(response)["choices"]]


def metric(name):
    with urllib.request.urlopen(f"{URL}/metrics") as response:
        return sum(float(v) for v in re.findall(rf"^{name}{{.*}} (\S+)$", response.read().decode(), re.M))


alone = [ask(i) for i in range(64)]
different = 0
for seed in (1, 2):
    order = random.Random(seed).sample(range(64), 64)
    with ThreadPoolExecutor(64) as pool:
        together = dict(zip(order, pool.map(ask, order)))
    different += sum(together[i] != alone[i] for i in range(64))
print(f"{different} of 128 answers differ; {metric('hf2q_preemptions_total'):.0f} preemptions, {metric('hf2q_prefix_hits_total'):.0f} prefix hits")
sys.exit(different)
