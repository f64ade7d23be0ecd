"""Drafts change no answer, whatever the model, the drafter and the caches: `drafts_all.py HF2Q TEXT_FILE COUNT MODEL=DRAFTER...`.

For each pair, cache format and (with `ngram`) shape of drafts two servers are started, one without drafts, and `drafts.py` asks both;
COUNT requests in all, each pair's share with seeds of its own. DRAFTER is what `--draft` takes. Needs nothing but Python.
"""

import itertools
import re
import subprocess
import sys
from pathlib import Path

HF2Q, TEXT, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3])
FORMATS = ["f32", "f16", "bf16", "q8_0", "tq8", "k=tq6,v=tq4", "tq4,recent:off", "tq2"]


class Server:
    def __init__(self, model, kv, drafts):
        args = [HF2Q, "serve", f"m={model}", "--port", "0", "--device", "cpu", "-t", "1", "-c", "512", "--kv", kv]
        self.process = subprocess.Popen(args + drafts, stderr=subprocess.PIPE, text=True)
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.match(r"listening on (http://\S+)", line):
                self.url = found[1]
                return
        sys.exit(f"{' '.join(args + drafts)}: {said}")

    def __enter__(self):
        return self.url

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def cases():
    for pair, kv in itertools.product(sys.argv[4:], FORMATS):
        model, drafter = pair.split("=", 1)
        for shape in ["chain", "tree", "auto"] if drafter == "ngram" else ["auto"]:
            # A fixed depth drafts at every token, whether it pays or not.
            yield model, drafter, kv, ["--draft", drafter, "--draft-shape", shape, "--draft-depth", "4"]


every = list(cases())
share = -(-COUNT // len(every))
asked = different = 0
for seed, (model, drafter, kv, drafts) in enumerate(every):
    with Server(model, kv, []) as plain, Server(model, kv, drafts) as drafted:
        args = [sys.executable, Path(__file__).with_name("drafts.py"), plain, drafted, TEXT, str(share), str(seed)]
        ran = subprocess.run(args, stdout=subprocess.PIPE, text=True)
    asked += share
    different += ran.returncode != 0
    said = ran.stdout.strip().splitlines() or ["it has failed"]
    print(Path(model).name, Path(drafter).name, kv, drafts[3], ":", said[-1], flush=True)
    if ran.returncode:
        print(ran.stdout)
print(f"{asked} requests in {len(every)} cases; {different} cases with answers that differ")
sys.exit(different > 0)
