"""Drafts change no answer: `drafts.py PLAIN_URL DRAFTED_URL TEXT_FILE COUNT [SEED]`.

Two servers of the same model file, one of them started with `--draft`. COUNT requests (pieces of a text, or random token ids; greedy
and sampled; one choice or two; stop strings; JSON) are asked of both, eight at once, and the choices must be the same,
logarithmic probabilities included. Needs nothing but Python.
"""

import json
import random
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

PLAIN, DRAFTED, FILE, COUNT = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else 0
TEXT = open(FILE, encoding="utf-8").read()


def models(url):
    with urllib.request.urlopen(f"{url}/v1/models") as response:
        return json.load(response)["data"][0]


MODEL = models(PLAIN)
if MODEL["status"]["value"] != "loaded":
    sys.exit("the model is not loaded yet")


def body(i):
    rng = random.Random(SEED * 1_000_003 + i)
    if rng.random() < 0.3:
        prompt = [rng.randrange(MODEL["meta"]["n_vocab"]) for _ in range(rng.randint(1, 60))]
    else:
        at = rng.randrange(len(TEXT) - 600)
        prompt = TEXT[at : at + rng.randint(20, 600)]
        prompt += prompt[: rng.randint(0, len(prompt))] if rng.random() < 0.5 else ""
    body = {"model": MODEL["id"], "prompt": prompt, "seed": i, "max_tokens": rng.choice([1, 5, 24, 48]),
            "temperature": rng.choice([0, 0, 0.5, 1.0, 1.5]), "n": rng.choice([1, 1, 1, 2])}
    if rng.random() < 0.3:
        body["logprobs"] = 3
    if rng.random() < 0.2:
        body["stop"] = rng.choice(["e", ". ", "the", "\n"])
    if rng.random() < 0.1:
        body["structured_outputs"] = {"regex": "[a-z ]{1,40}"}
    return body


def ask(url, i):
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body(i)).encode())
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)["choices"]


def metric(name):
    with urllib.request.urlopen(f"{DRAFTED}/metrics") as response:
        return sum(float(v) for v in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", response.read().decode(), re.M))


different = 0
for first in range(0, COUNT, 64):
    numbers = range(first, min(first + 64, COUNT))
    with ThreadPoolExecutor(8) as pool:
        plain = list(pool.map(lambda i: ask(PLAIN, i), numbers))
        drafted = list(pool.map(lambda i: ask(DRAFTED, i), numbers))
    for i, a, b in zip(numbers, plain, drafted):
        if a != b:
            different += 1
            print(json.dumps(body(i))[:400], "\n ", json.dumps(a)[:400], "\n ", json.dumps(b)[:400])
print(f"{different} of {COUNT} answers differ; "
      f"{metric('hf2q_accepted_tokens_total'):.0f} of {metric('hf2q_drafted_tokens_total'):.0f} drafted tokens accepted")
sys.exit(different > 0)
