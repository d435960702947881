#!/usr/bin/env python3
"""Writes what Holistic Trace Analysis says of recordings of PyTorch, for tests to compare.

    pip install HolisticTraceAnalysis==0.5.0 'pandas<3' 'numpy<2'
    HTA_DISABLE_NS_ROUNDING=1 ./run_hta.py kineto.json.gz rank0.json.gz ... > hta.csv

Without the environment variable HTA rounds the begin and the end of each event to whole
microseconds, and a kernel of one microsecond then takes none. With pandas 3 its kernel sequences
fail. Times are printed in ns. HTA has them as microseconds since the machine started, in
floating point, so that the last digit of a begin can differ.
"""
import contextlib
import csv
import importlib.metadata
import os
import sys
import tempfile

from hta.trace_analysis import TraceAnalysis

NS = 1000  # of the microsecond in which HTA counts


def figures(analysis):
    """Yields (analysis, item, value) of a recording.

    Times are in ns. A kernel has the sum, the least and the most; an operator its time on the GPU.
    """
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    for item in ["idle_time", "compute_time", "non_compute_time", "kernel_time"]:
        yield "temporal", item, round(row[item + "(us)"] * NS)

    _, kernels = analysis.get_gpu_kernel_breakdown(
        num_kernels=10_000, duration_ratio=1, include_memory_kernels=True, visualize=False)
    for _, row in kernels.iterrows():
        items = ["sum (us)", "min (us)", "max (us)"]
        yield "kernel", row["name"], " ".join(str(round(row[item] * NS)) for item in items)

    idle, _ = analysis.get_idle_time_breakdown(visualize=False)
    for _, row in idle.iterrows():
        yield "idle", row["idle_category"], round(row["idle_time"] * NS)

    launches = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]
    yield "launches", "count", len(launches)
    for item in ["cpu_duration", "gpu_duration", "launch_delay"]:
        yield "launches", item, round(launches[item].sum() * NS)

    queue = analysis.get_queue_length_summary()
    for _, row in queue["queue_length"].iterrows():
        for item in ["count", "mean", "max"]:
            yield "queue length", item, row[item]

    with tempfile.TemporaryDirectory() as out:  # HTA also writes a recording there
        sequences = analysis.get_frequent_cuda_kernel_sequences(
            operator_name="aten::", output_dir=out, min_pattern_len=1, visualize=False)
    if "pattern" not in sequences:
        return  # the recording has no operators
    sequences["operator"] = sequences["pattern"].str.split("|").str[0]
    sums = sequences.groupby("operator").sum(numeric_only=True)
    for operator, row in sums.iterrows():
        yield "operator", operator, round(row["GPU kernel duration (us)"] * NS)


def main():
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["hta", "recording", "analysis", "item", "value"])
    version = importlib.metadata.version("HolisticTraceAnalysis")
    for path in sys.argv[1:]:
        with contextlib.redirect_stdout(sys.stderr):  # HTA prints on its way
            rows = list(figures(TraceAnalysis(trace_files={0: os.path.abspath(path)})))
        for row in rows:
            out.writerow([version, os.path.basename(path), *row])


if __name__ == "__main__":
    if not os.environ.get("HTA_DISABLE_NS_ROUNDING"):
        sys.exit("run_hta.py: set HTA_DISABLE_NS_ROUNDING=1; without it HTA rounds to whole microseconds")
    main()
