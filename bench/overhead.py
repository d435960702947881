#!/usr/bin/env python3
"""Measures what recording costs: passes with each recorder beside passes without, in processes that take turns.

Prints a JSON object a row: phase, recorder, the medians over the rounds in ms, and how much longer in percent. The row
"none" is the same without a recorder once more, which is the noise. --recorder names recorders (host on the CPU, stamps and
cupti on a GPU), --rounds how many processes of each kind run; other arguments, such as -m random:gpt2 --device cuda
--mode graph, go to 'infer bench'.
"""

import argparse
import json
import os
import statistics
import subprocess

INFER = os.environ.get("INFER", os.path.join(os.path.dirname(__file__), "../bin/infer"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recorder", default="host", help="such as stamps,cupti")
    parser.add_argument("--rounds", type=int, default=5)
    options, arguments = parser.parse_known_args()
    for phase in ("decode", "prefill"):
        times = {kind: [] for kind in ["", "none", *options.recorder.split(",")]}
        for _ in range(options.rounds):
            for kind, of_kind in times.items():
                command = [INFER, "bench", "--json", "--quiet", "--no-floor", "--phase", phase, *arguments]
                if kind not in ("", "none"):
                    command += ["--recorder", kind]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                of_kind.append(json.loads(done.stdout)["median_ms"])
        baseline = statistics.median(times.pop(""))
        for kind, of_kind in times.items():
            recorded = statistics.median(of_kind)
            row = {"phase": phase, "recorder": kind, "baseline_ms": baseline, "recorded_ms": recorded}
            print(json.dumps(row | {"longer_percent": round(100 * (recorded / baseline - 1), 2)}), flush=True)


main()
