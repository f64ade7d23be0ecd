"""Asks a running server for answers that keep to random JSON schemas, and times them.

    hf2q serve MODEL --threads 2
    python3 tools/schemas/served.py http://127.0.0.1:8080 MODEL [--random 200] [--seed 1]

Every answer that ends by itself must validate with `jsonschema`. In turn with each of them the same prompt is answered
without a schema, with as many tokens; compared are the times of a token after the first. Needs Python 3.10 or newer and
`pip install jsonschema`.
"""

import argparse
import http.client
import json
import random
import statistics
import sys
import time
import urllib.parse

import jsonschema

from check import Maker


def stream(address, body):
    """The text, why it ended, tokens, seconds of a token after the first; or the status that refuses."""
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        return {"status": response.status, "message": response.read().decode()}
    text, finish, usage, times = "", None, None, []
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            piece = choice["delta"].get("content")
            if piece:
                text += piece
                times.append(time.perf_counter())
            finish = choice["finish_reason"] or finish
    tokens = usage["completion_tokens"]
    each = (times[-1] - times[0]) / (tokens - 1) if tokens > 8 and len(times) > 4 else None
    return {"status": 200, "text": text, "finish": finish, "tokens": tokens, "each": each}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    address, maker = urllib.parse.urlparse(args.url), Maker(random.Random(args.seed))
    counts = {"finished and valid": 0, "INVALID": 0, "unfinished": 0, "refused": 0}
    ratios = []
    for i in range(args.random):
        schema = maker.schema()
        messages = [{"role": "user", "content": f"Give me an example of record {i} as JSON: {json.dumps(schema)}"}]
        body = {"model": args.model, "messages": messages, "max_tokens": args.tokens, "seed": i}
        form = {"type": "json_schema", "json_schema": {"name": "record", "schema": schema}}
        formed = stream(address, body | {"response_format": form})
        if formed["status"] != 200:
            counts["refused"] += 1
            print(formed["message"])
            continue
        if formed["finish"] != "stop":
            counts["unfinished"] += 1
        else:
            try:
                jsonschema.validate(json.loads(formed["text"]), schema, jsonschema.Draft202012Validator)
                counts["finished and valid"] += 1
            except (ValueError, jsonschema.ValidationError) as error:
                counts["INVALID"] += 1
                print(f"{json.dumps(schema)}\n  {formed['text']!r}: {error}")
        free = stream(address, body | {"max_tokens": max(formed["tokens"], 9), "ignore_eos": True})
        if formed["each"] and free["each"]:
            ratios.append(formed["each"] / free["each"])
    print(json.dumps(counts))
    if ratios:
        print(f"time of a token with a schema, without it 1: median {statistics.median(ratios):.3f} of {len(ratios)} pairs")
    sys.exit(counts["INVALID"] + counts["refused"])


if __name__ == "__main__":
    main()
