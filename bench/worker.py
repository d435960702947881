#!/usr/bin/env python3
"""Times one peer on one case, in a process of its own; peers.py starts it.

    worker.py ENGINE CASE-FOLDER DTYPE THREADS REPEATS-AS-JSON

ENGINE is what follows "peer_" in a module's name; torch-compile is its way "compile". Prints one JSON object: the
engine's version and, for each work, median, p10 and p90 in milliseconds, the largest relative difference of its
logits from those the case expects, and the token with the largest logit.

A peer's prepare returns a function that does the work once and returns the logits. It may have attributes:
  rewind(to)   sets the KV cache to its first `to` tokens; for engines whose decode step extends the cache
  logits()     returns the logits, if the timed function does not
  steps(n)     times n decode steps itself
  setting      what was chosen for the work
"""

import importlib
import json
import pathlib
import sys
import time

import numpy as np

from case import Case

WARM_UP = 3
SECONDS = 5.0  # a work is not repeated after this time, except to reach LEAST repetitions
LEAST = 3


def main() -> None:
    engine, folder, dtype, threads, repeats = sys.argv[1:]
    case = Case.read(pathlib.Path(folder))
    name, *way = engine.split("-")
    module = importlib.import_module("peer_" + name)
    peer = module.Peer(case, int(threads), dtype, *way)
    results = {work: measure(case, work, peer.prepare(work), n) for work, n in json.loads(repeats).items()}
    print(json.dumps({"version": module.VERSION, "works": results}))


def measure(case: Case, work: str, run, repeats: int) -> dict:
    logits = np.asarray(run.logits() if hasattr(run, "logits") else run(), np.float32)
    result = {"error": difference(case, work, logits), "token": int(logits.reshape(-1, case.vocab)[-1].argmax()),
              "setting": getattr(run, "setting", "")}
    if hasattr(run, "rewind"):  # the cache grows: let its mean length in the timed steps be case.past
        run.rewind(case.past - repeats // 2 - WARM_UP)
    if hasattr(run, "steps"):
        run.steps(repeats)
        times = run.steps(repeats)
    else:
        times = times_of(run, repeats)
    p10, median, p90 = np.percentile(times, (10, 50, 90))
    return {"median_ms": median, "p10_ms": p10, "p90_ms": p90, "repeat": len(times)} | result


def times_of(run, repeats: int) -> list[float]:
    def repeat(most: int, least: int, seconds: float) -> list[float]:
        times = []
        while len(times) < most and (len(times) < least or sum(times) < 1e3 * seconds):
            start = time.perf_counter_ns()
            run()
            times.append((time.perf_counter_ns() - start) / 1e6)
        return times

    repeat(WARM_UP, 1, SECONDS / 10)
    return repeat(repeats, LEAST, SECONDS)


def difference(case: Case, work: str, logits: np.ndarray) -> float:
    """max |got - wanted| / max |wanted| over the rows that the case keeps."""
    expected = case.expected()
    got, want = {
        "decode": lambda: (logits, expected["decode"]),
        "prefill-all": lambda: (logits[expected["positions"]], expected["logits"]),
        "prefill-last": lambda: (logits, expected["last"]),
    }[work]()
    if got.shape != want.shape:
        raise SystemExit(f"{work}: logits of shape {got.shape}, expected {want.shape}")
    error = float(np.abs(got - want).max() / np.abs(want).max())
    return error if np.isfinite(error) else float("inf")


if __name__ == "__main__":
    main()
