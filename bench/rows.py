#!/usr/bin/env python3
"""Measures a fixed list of passes on a GPU, the work that gpu_peers.py gives other engines.

Prints a JSON object a row, as soon as it is measured: what 'infer bench --json' prints of the pass, with its floor, and
its name as "work". The last row is the time from the start of a process to its first token. Arguments, such as
--dtype f32, go to infer. Exit status 1 if a row failed.
"""

import json
import os
import statistics
import subprocess
import sys
import time

INFER = os.environ.get("INFER", os.path.join(os.path.dirname(__file__), "../bin/infer"))
ONE_LAYER, SMALL = "random:L=1,C=768,NH=12,V=50257,T=1024", ",C=384,NH=6,V=257,T=1024"
DECODE = "--phase decode --past 512"
PREFILL = "--phase prefill --prompt-len 1024 --logits all"
ROWS = [
    ("decode, gpt2 with 1 layer", ONE_LAYER, DECODE),
    ("decode, gpt2", "random:gpt2", DECODE),
    ("decode, gpt2-xl", "random:gpt2-xl", DECODE),
    ("decode, 6 x 384, V=257", "random:L=6" + SMALL, DECODE),
    ("decode, 1 x 384, V=257", "random:L=1" + SMALL, DECODE),
    ("prefill 1024, gpt2 with 1 layer", ONE_LAYER, PREFILL),
    ("prefill 1024, gpt2", "random:gpt2", PREFILL),
    ("forward 8 x 1024, gpt2", "random:gpt2", PREFILL + " --batch 8"),
    ("forward 24 x 1024, gpt2 with 1 layer", ONE_LAYER, PREFILL + " --batch 24"),
    ("prefill 1024, gpt2-xl", "random:gpt2-xl", PREFILL),
]


def first_token(arguments):
    """Milliseconds from the start of a process to the first byte of its text."""
    command = [INFER, *"-p ROMEO: -n 1 --temp 0 --ignore-eos --quiet --device cuda".split(), *arguments]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if not process.stdout.read(1):
            sys.exit("infer wrote no text: see above")
        return 1e3 * (time.perf_counter() - begin)


def main():
    failed = False
    arguments = sys.argv[1:]
    for work, model, passes in ROWS:
        command = [INFER, "bench", "--json", "--quiet", "--device", "cuda", "-m", model, *passes.split(), *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        failed |= done.returncode != 0
        row = json.loads(done.stdout) if done.returncode == 0 else {"error": f"status {done.returncode}"}
        print(json.dumps({"work": work, "model": model} | row), flush=True)
    times = sorted(first_token(arguments) for _ in range(5))
    print(json.dumps({"work": "process start to first token, built-in model", "median_ms": statistics.median(times)}))
    sys.exit(failed)


main()
