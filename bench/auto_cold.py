#!/usr/bin/env python3
"""Grades `infer --device auto`: is it as fast as the better device, process start included?

Each of 60 combinations of prompt, tokens and layers runs as whole processes, one after another in random order, in
rounds until the time is over:

  cpu          --device cpu
  cuda         --device cuda
  auto-fresh   --device auto on a machine without a history of runs
  auto-learned --device auto with the history of 16 runs of other shapes, eight on each device

The better device is the one whose median process is shorter. A combination is graded twice: the median process of
auto over that of the better device, and the median process of the device that auto took over that of the better one,
which leaves out the noise of auto's own processes. Prompts are ids, so that weights without a tokenizer do. There are
no drafts, which --device auto does not make and whose times the history does not have.

  python3 bench/auto_cold.py -m weights/shakespeare --seconds 300 -o auto-cold.csv
  taskset -c 0,1 python3 bench/auto_cold.py --ways cpu,cuda,auto-learned --prompts 6,40,300,800 --tokens 100,400,700,1300,2000 --layers 1,3,6 -o auto-cold-2-cores.csv

The second one has a slower CPU, whose border to the GPU lies among the combinations.
"""

import argparse
import csv
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

OTHERS = [(20, 100, 1), (20, 500, 4), (500, 100, 4), (500, 500, 1), (200, 10, 3), (60, 700, 3), (600, 20, 6), (10, 400, 6)]

COLUMNS = ["prompt", "tokens", "layers", "way", "wall_ms", "device", "dtype", "threads", "open_ms", "load_ms", "prefill_ms", "decode_ms", "first_token_ms", "loading", "cpu_predicted_ms", "cuda_predicted_ms"]


def run(o, cache, flags, prompt, tokens, layers):
    """Returns the milliseconds of one process, and its JSON."""
    ids = ",".join(str(i * 7 % 250) for i in range(prompt))
    command = [o.infer, "-m", o.model, "--ids", ids, "-n", str(tokens), "--layers", str(layers), "--ignore-eos", "--seed", "1", "--speculate", "off", "--json", "--quiet", *flags]
    began = time.perf_counter()
    p = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "XDG_CACHE_HOME": str(cache), "GPT2SCOPE_HISTORY": ""})
    wall = 1e3 * (time.perf_counter() - began)
    if p.returncode:
        sys.exit(f"{' '.join(command)} ended with {p.returncode}: {p.stderr}")
    return wall, json.loads(p.stdout)


def grade(rows):
    """Writes a table for each way of auto."""
    by = {}
    for r in rows:
        by.setdefault((r["prompt"], r["tokens"], r["layers"]), {}).setdefault(r["way"], []).append(r)
    for way in sorted({r["way"] for r in rows if r["way"].startswith("auto")}):
        ran, took, slower = [], [], 0
        print(f"\n{way}, ms\nprompt  tokens  layers      cpu     cuda     auto  took  auto/better  taken/better  predicted: cpu, cuda")
        for key, ways in sorted(by.items()):
            if not {"cpu", "cuda", way} <= ways.keys():
                continue
            ms = {w: statistics.median(r["wall_ms"] for r in ways[w]) for w in ["cpu", "cuda", way]}
            better, device = min(ms["cpu"], ms["cuda"]), ways[way][-1]["device"]
            ran.append(ms[way] / better)
            took.append(ms[device] / better)
            slower += ms[device] > better
            print("%6d  %6d  %6d" % key + " %8.1f %8.1f %8.1f  %-4s  %11.3f  %12.3f  " % (ms["cpu"], ms["cuda"], ms[way], device, ran[-1], took[-1])
                  + "%(cpu_predicted_ms)s, %(cuda_predicted_ms)s" % ways[way][-1])
        if ran:
            print(f"{way}: {len(ran)} combinations; auto / better device: mean {statistics.mean(ran):.3f}, worst {max(ran):.3f}; "
                  f"taken / better device: mean {statistics.mean(took):.3f}, worst {max(took):.3f}; {slower} took the slower one")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("-m", "--model", default="weights/shakespeare")
    a.add_argument("--infer", default="bin/infer", help="the program")
    a.add_argument("--seconds", type=float, default=300, help="of the rounds")
    a.add_argument("--rounds", type=int, default=sys.maxsize, help="end after so many, though there is time left")
    a.add_argument("-o", "--out", default="auto-cold.csv", help="a row for each process")
    a.add_argument("--prompts", default="6,40,120,300,800", help="tokens of the prompts")
    a.add_argument("--tokens", default="2,32,256,900", help="new tokens")
    a.add_argument("--layers", default="1,2,6")
    a.add_argument("--ways", default="cpu,cuda,auto-fresh,auto-learned")
    a.add_argument("--gpu", default="cuda", help="the device in place of cuda, to try the script without a GPU")
    o = a.parse_args()
    flags = {"cpu": ["--device", "cpu"], "cuda": ["--device", o.gpu], "auto-fresh": [], "auto-learned": []}
    ways = o.ways.split(",")
    jobs = list(itertools.product(*[[int(n) for n in x.split(",")] for x in [o.prompts, o.tokens, o.layers]]))

    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder)
        history = cache / "gpt2scope" / "history.jsonl"
        rng, rows = random.Random(1), []
        with open(o.out, "w", newline="") as f:
            w = csv.DictWriter(f, COLUMNS)
            w.writeheader()

            def measure(way, name, shape):
                wall, j = run(o, cache, flags[way], *shape)
                record = json.loads(history.read_text().splitlines()[-1])["measured"]
                chose = j.get("auto")
                loading = " ".join(f"{l['what']}={l['ms']:.1f}" for l in j.get("loading", []))
                predicted = [round(chose[d]["total_ms"], 1) if chose else "" for d in ["cpu", "gpu"]]
                r = dict(zip(COLUMNS, [*shape, name, round(wall, 2), j["configuration"]["device"], j["configuration"]["dtype"], j["configuration"].get("threads", ""), *[round(record[p + "_ms"], 3) for p in ["open", "load", "prefill", "decode"]],
                                       round(j["timings"]["first_token_ms"], 2), loading, *predicted]))
                w.writerow(r)
                f.flush()
                return r

            for shape in OTHERS:
                for way in ["cpu", "cuda"]:
                    measure(way, way + "-learning", shape)
            learned = history.read_bytes()
            end = time.time() + o.seconds
            for _ in range(o.rounds):
                if time.time() >= end:
                    break
                rng.shuffle(jobs)
                for shape, way in [(s, w) for s in jobs for w in rng.sample(ways, len(ways))]:
                    if time.time() < end:
                        history.write_bytes(learned if way == "auto-learned" else b"")
                        rows.append(measure(way, way, shape))
    grade(rows)


if __name__ == "__main__":
    main()
