#!/usr/bin/env python3
"""Times one peer on one case, in a process of its own; peers.py starts it.

    worker.py torch|onnxruntime|openvino CASE-FOLDER THREADS REPEATS-AS-JSON

Prints one JSON object: the engine's version and, for each work, median, p10 and p90 in milliseconds
and the largest relative difference of its logits from those the case expects.
"""

import importlib
import json
import pathlib
import sys
import time

import numpy as np

from case import Case

WARM_UP = 3


def main() -> None:
    engine, folder, threads, repeats = sys.argv[1:]
    case = Case.read(pathlib.Path(folder))
    module = importlib.import_module("peer_" + engine)
    peer = module.Peer(case, int(threads))
    results = {work: measure(case, work, peer.prepare(work), n) for work, n in json.loads(repeats).items()}
    print(json.dumps({"version": module.VERSION, "works": results}))


def measure(case: Case, work: str, run, repeats: int) -> dict[str, float]:
    error = difference(case, work, run())
    if hasattr(run, "rewind"):  # the cache grows: let its mean length in the timed steps be case.past
        run.rewind(case.past - repeats // 2 - WARM_UP)
    for _ in range(WARM_UP):
        run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1e6)
    p10, median, p90 = np.percentile(times, (10, 50, 90))
    return {"median_ms": median, "p10_ms": p10, "p90_ms": p90, "error": error}


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
