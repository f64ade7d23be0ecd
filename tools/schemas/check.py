"""Checks that constrained answers keep to their JSON schemas.

A set of schemas is given to `cargo run --release -p hf2q-grammar --example schemas`, which draws answers from what each
schema allows (evenly, or as a model would with --model), and what it ends by itself is validated with `jsonschema`.
Instances that a published test set calls invalid must be refused, and answers must hold no text that is no JSON.

    python3 tools/schemas/check.py --runner target/release/examples/schemas --vocabulary FILE.gguf \
        [--suite FOLDER] [--random 200] [--answers 5] [--seed 1] [--call gemma4]

FOLDER is `json/tests/draft2020-12` of the official JSON Schema Test Suite, which the source package of `jsonschema` on
PyPI holds. Needs Python 3.10 or newer and `pip install jsonschema`.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
from collections import Counter

import jsonschema


def suite(folder):
    """Schemas of the published set with their instances."""
    cases = []
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        for case in json.loads(path.read_text()):
            instances = [test["data"] for test in case["tests"]]
            valid = [test["valid"] for test in case["tests"]]
            cases.append({"name": f"{path.stem}: {case['description']}", "schema": case["schema"],
                          "instances": instances, "valid": valid})
    return cases


class Maker:
    """Random schemas, as clients write them: objects of objects, lists, choices, bounds."""

    def __init__(self, rng):
        self.rng = rng

    def text(self):
        rng = self.rng
        schema = {"type": "string"}
        kind = rng.randrange(6)
        if kind == 0:
            schema["maxLength"] = rng.randint(1, 12)
            schema["minLength"] = rng.randint(0, schema["maxLength"])
        elif kind == 1:
            schema["pattern"] = rng.choice(["^[a-z]{2,5}$", "^[A-Z][0-9]+", "x|y", "[0-9]{3}$", r"^\d{2}-\w+$"])
        elif kind == 2:
            schema = {"enum": rng.sample(["red", "green", "blue", "ü", "a b", "\"quoted\""], rng.randint(1, 4))}
        elif kind == 3:
            schema["format"] = rng.choice(["date", "time", "date-time", "uuid", "email", "ipv4", "hostname"])
        return schema

    def number(self):
        rng = self.rng
        schema = {"type": rng.choice(["integer", "number"])}
        if rng.random() < 0.5:
            low = rng.randint(-100, 100)
            schema["minimum"] = low
            schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.randint(1, 500)
        elif rng.random() < 0.3:
            schema["type"] = "integer"
            schema["multipleOf"] = rng.choice([2, 5, 7, 10])
        return schema

    def value(self, depth):
        rng = self.rng
        simple = [self.text, self.number, lambda: {"type": "boolean"}, lambda: {"type": "null"},
                  lambda: {"const": rng.choice([1, "one", True, None, -2.5])},
                  lambda: {"type": ["string", "null"], "maxLength": 8}]
        nested = [lambda: self.object(depth - 1), lambda: self.list(depth - 1),
                  lambda: {"anyOf": [self.value(depth - 1) for _ in range(rng.randint(2, 3))]}]
        return rng.choice(simple + nested * 2 if depth > 0 else simple)()

    def list(self, depth):
        rng = self.rng
        schema = {"type": "array", "items": self.value(depth), "maxItems": rng.randint(1, 4)}
        if rng.random() < 0.5:
            schema["minItems"] = rng.randint(0, schema["maxItems"])
        if rng.random() < 0.2:
            schema["prefixItems"] = [self.value(depth)]
        return schema

    def object(self, depth):
        rng = self.rng
        names = rng.sample(["id", "name", "kind", "größe", "items", "a b", "x-y", "parent"], rng.randint(0, 5))
        schema = {"type": "object", "properties": {name: self.value(depth) for name in names}}
        if names and rng.random() < 0.8:
            schema["required"] = rng.sample(names, rng.randint(1, len(names)))
        if rng.random() < 0.8:
            schema["additionalProperties"] = False
        elif rng.random() < 0.5:
            schema["additionalProperties"] = self.value(0)
        return schema

    def schema(self):
        rng = self.rng
        schema = self.object(3) if rng.random() < 0.8 else self.value(3)
        if rng.random() < 0.2 and schema.get("type") == "object":
            schema["$defs"] = {"node": self.object(1)}
            schema["properties"]["ref"] = {"$ref": "#/$defs/node"}
        return schema


def run(args, cases):
    command = [args.runner, args.vocabulary]
    command += ["--answers", str(args.answers), "--seed", str(args.seed), "--limit", str(args.limit)]
    command += ["--call", args.call] if args.call else []
    lines = [{"schema": c["schema"], "instances": [] if args.call else c.get("instances", [])} for c in cases]
    lines = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n") if line]


def check(case, result, counts, problems):
    if "error" in result:
        counts["schemas refused"] += 1
        return
    counts["schemas taken"] += 1
    validator = jsonschema.validators.validator_for(case["schema"], jsonschema.Draft202012Validator)(case["schema"])
    for text, finished in result["answers"]:
        if not finished:
            counts["answers unfinished"] += 1
            continue
        counts["answers finished"] += 1
        try:
            error = next(iter(validator.iter_errors(json.loads(text))), None)
        except ValueError as bad:
            error = bad
        if error is not None:
            counts["answers INVALID"] += 1
            problems.append(f"{json.dumps(case['schema'])}\n  answer {text!r}: {error}")
    for data, valid, accepted in zip(case.get("instances", []), case.get("valid", []), result["accepted"]):
        counts[f"{'valid' if valid else 'invalid'} instances {'accepted' if accepted else 'refused'}"] += 1
        if accepted and not valid:
            problems.append(f"{case['name']}: accepts {json.dumps(data)} of {json.dumps(case['schema'])}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runner", required=True)
    parser.add_argument("--vocabulary", required=True)
    parser.add_argument("--suite")
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--answers", type=int, default=5)
    parser.add_argument("--limit", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--call", help="the schemas are those of a function that must be called, in this notation")
    parser.add_argument("--refusals", action="store_true")
    args = parser.parse_args()
    maker = Maker(random.Random(args.seed))
    sets = {"random": [{"name": "random", "schema": maker.schema()} for _ in range(args.random)]}
    if args.suite:
        sets["suite"] = suite(args.suite)
    failed = False
    for name, cases in sets.items():
        counts, problems = Counter(), []
        results = run(args, cases)
        assert len(results) == len(cases), "the runner ended early"
        for case, result in zip(cases, results):
            check(case, result, counts, problems)
            if args.refusals and "error" in result:
                print(f"  {result['error']}: {json.dumps(case['schema'])[:150]}")
        print(name)
        for key in sorted(counts):
            print(f"  {key}: {counts[key]}")
        print("\n".join(problems[:40]))
        failed |= bool(problems) or counts["answers finished"] == 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
