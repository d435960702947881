#!/usr/bin/env python3
"""Times infer beside PyTorch, ONNX Runtime and OpenVINO: same weights, machine, threads and run.

Geometries: A = 6 layers of 384 channels and B = 1 layer (the shipped weights, V=257); C = GPT-2 with one
layer and D = GPT-2, with random weights (V=50257). Works: decode (one token, KV cache filled to `past`),
prefill-all and prefill-last (T tokens, logits of every row or of the last; the KV cache is kept).

Everything is float32. Each engine runs in a process of its own, --rounds times, engines taking turns. In a
process the work runs back to back with the same input, so caches are warm; after 3 warm-up runs the median
of the rest counts. The table shows the median over processes, with the lowest and highest process in brackets.
The ratio is that of the medians; "lowest" is that of the lowest processes, which other work on the machine disturbs least.
Before it is timed, each peer's logits, and infer's, are compared with those of Hugging Face transformers.
Peers are called from Python, which costs them some tens of microseconds a call; infer times itself in Go.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "parity"))

import numpy as np
import safetensors.torch
import torch

import reference
from case import WORKS, Case

PEERS = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
TOLERANCE = 1e-3  # of the largest |logit|: the same function, computed well

# Letter: model, layers, T of a prefill, tokens in the cache of a decode step, timed runs of each work in a process.
# The model is the shipped directory or what `infer export` takes.
GEOMETRIES = {
    "A": ("shipped", 6, 256, 128, (100, 20, 20)),
    "B": ("shipped", 1, 256, 128, (200, 50, 50)),
    "C": ("random:L=1,C=768,NH=12,V=50257,T=1024", 1, 1024, 512, (30, 5, 7)),
    "D": ("random:L=12,C=768,NH=12,V=50257,T=1024", 12, 1024, 512, (20, 3, 3)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infer", type=pathlib.Path, default=ROOT / "bin" / "infer", help="the program (default bin/infer)")
    parser.add_argument("--weights", type=pathlib.Path, default=ROOT / "weights" / "shakespeare", help="the shipped weights")
    parser.add_argument("--threads", type=int, default=physical_cores(), help="of every engine (default: physical cores)")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each engine and geometry (default 3)")
    parser.add_argument("--only", default="ABCD", help="geometries, such as AB (default ABCD)")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"which peers (default {','.join(PEERS)})")
    parser.add_argument("--no-infer", action="store_true", help="time the peers alone (infer still exports C and D)")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file as well")
    args = parser.parse_args()

    peers = args.peers.split(",")
    if not set(peers) <= set(PEERS):
        parser.error(f"--peers takes {', '.join(PEERS)}")
    engines = peers if args.no_infer else ["infer"] + peers
    torch.set_num_threads(args.threads)
    print(f"{cpu_name()}, {os.cpu_count()} CPUs, {args.threads} threads, load {os.getloadavg()[0]:.1f}; "
          f"{platform.system()} {platform.release()}, Python {platform.python_version()}")

    # runs[letter][work][engine]: one {median_ms, p10_ms, p90_ms, error} per process
    runs = {letter: {work: {e: [] for e in engines} for work in WORKS} for letter in args.only}
    versions = {}
    for letter in args.only:
        # A folder at a time: D's files are several times 500 MB.
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            model, case = make_case(args, letter, pathlib.Path(folder))
            repeats = dict(zip(WORKS, GEOMETRIES[letter][-1]))
            for round in range(args.rounds):
                turn = round % len(engines)
                for engine in engines[turn:] + engines[:turn]:
                    note(f"{letter}, round {round + 1} of {args.rounds}: {engine}")
                    if engine == "infer":
                        works = run_infer(args, model, case, repeats, check=round == 0)
                    else:
                        versions[engine], works = run_peer(engine, case, args.threads, repeats)
                    for work, result in works.items():
                        if not result.get("error", 0) <= TOLERANCE:
                            raise SystemExit(f"{engine} computes something else in {letter} {work}: its logits are off by "
                                             f"{result['error']:.1e} x the largest; times of it would mean nothing")
                        runs[letter][work][engine].append(result)
            print_rows(letter, case, runs[letter], engines, header=letter == args.only[0])
    if "infer" in engines:
        versions["infer"] = subprocess.run([args.infer, "--version"], capture_output=True, text=True).stdout.strip().removeprefix("infer ")
    print("versions: " + ", ".join(f"{PEERS.get(e, e)} {versions[e]}" for e in engines) + f"; load at the end {os.getloadavg()[0]:.1f}")
    if args.json:
        args.json.write_text(json.dumps({
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cpu": cpu_name(),
            "threads": args.threads, "versions": versions, "runs": runs}, indent=1) + "\n")


def make_case(args: argparse.Namespace, letter: str, folder: pathlib.Path) -> tuple[pathlib.Path, Case]:
    """Writes the weights and what transformers computes with them. Returns the checkpoint's directory too."""
    note(f"{letter}: writing weights and expected logits")
    model, layers, tokens, past, _ = GEOMETRIES[letter]
    if model == "shipped":
        checkpoint = args.weights
    else:
        checkpoint = folder / "checkpoint"
        subprocess.run([args.infer, "export", "--model", model, "--out", checkpoint], check=True, stdout=subprocess.DEVNULL)
    gpt2 = reference.load(checkpoint, layers)
    cfg = gpt2.config
    if (cfg.activation_function not in ("gelu_new", "gelu_pytorch_tanh") or cfg.scale_attn_by_inverse_layer_idx
            or not cfg.scale_attn_weights or not cfg.tie_word_embeddings):
        raise SystemExit(f"{checkpoint}: the peers are written for plain GPT-2 (gelu_new, tied lm_head)")
    case = Case(folder, layers, cfg.n_embd, cfg.n_head, cfg.vocab_size, cfg.layer_norm_epsilon, tokens, past)
    case.write()

    c, last = case.channels, f"transformer.h.{layers - 1}.attn.c_attn."
    state = {name: t for name, t in gpt2.state_dict().items() if name != "lm_head.weight"}
    weights = {name.removeprefix("transformer."): t for name, t in state.items()}
    for part in ("weight", "bias"):
        weights["last.q." + part] = state[last + part][..., :c].clone()
        weights["last.kv." + part] = state[last + part][..., c:].clone()
    safetensors.torch.save_file({n: t.contiguous() for n, t in weights.items()}, case.weights_file)

    ids = torch.randint(case.vocab, (tokens,), generator=torch.Generator().manual_seed(5000))
    with torch.inference_mode():
        out = gpt2(ids[None], use_cache=True)
    positions = torch.tensor([0, 1, past // 2, past - 1, past, past + 1, tokens - 2, tokens - 1])
    expected = {"ids": ids, "positions": positions, "logits": out.logits[0, positions],
                "last": out.logits[0, -1], "decode": out.logits[0, past]}
    for i, layer in enumerate(out.past_key_values.layers):
        expected[f"past.{i}.k"], expected[f"past.{i}.v"] = layer.keys[0, :, :past], layer.values[0, :, :past]
    safetensors.torch.save_file({n: t.contiguous().clone() for n, t in expected.items()}, folder / "expected.safetensors")
    return checkpoint, case


def run_peer(engine: str, case: Case, threads: int, repeats: dict[str, int]) -> tuple[str, dict[str, dict]]:
    """One process of a peer that does every work. Returns its version and its results by work."""
    # glibc gives large blocks back to the system at once and gets them anew, page by page, in every run. PyTorch suffers most.
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
                                "OMP_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, ROOT / "bench" / "worker.py", engine, case.folder, str(threads), json.dumps(repeats)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{engine} failed: {done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    return result["version"], result["works"]


def run_infer(args: argparse.Namespace, model: pathlib.Path, case: Case, repeats: dict[str, int], check: bool) -> dict[str, dict]:
    """infer's results by work, each in a process of its own."""
    def run(*arguments) -> str:
        command = [str(a) for a in (args.infer, *arguments, "--layers", case.layers, "--device", "cpu", "--dtype", "f32",
                                    "--threads", args.threads)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\nended with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    works = {}
    for work, n in repeats.items():
        phase = ["--phase", "decode", "--past", case.past] if work == "decode" else [
            "--phase", "prefill", "--prompt-len", case.tokens, "--logits", work.removeprefix("prefill-")]
        works[work] = json.loads(run("bench", "-m", model, *phase, "--repeat", n, "--json"))
    if check:
        expected, ids, out = case.expected(), case.folder / "ids", case.folder / "infer.npy"
        ids.write_text(",".join(map(str, expected["ids"])))
        run("dump", "-m", model, "--ids", f"@{ids}", "--stage", "lm_head", "--out", out)
        got, want = np.load(out)[expected["positions"]], expected["logits"]
        error = float(np.abs(got - want).max() / np.abs(want).max())
        works["prefill-all"]["error"] = error if np.isfinite(error) else float("inf")
        out.unlink()
    return works


def print_rows(letter: str, case: Case, runs: dict, engines: list[str], header: bool) -> None:
    if header:
        titles = "".join(f"{PEERS.get(e, e):>26}" for e in engines)
        print(f"\nmedian ms (lowest - highest process)\n{'':32}{titles}" + ("" if "infer" not in engines else "   infer / fastest peer"))
    for work in WORKS:
        size = f"past={case.past}" if work == "decode" else f"T={case.tokens}"
        line = f"{letter}  {work:13} {size:9}" + " " * 6
        medians = {}
        for engine in engines:
            values = [r["median_ms"] for r in runs[work][engine]]
            medians[engine] = statistics.median(values)
            line += f"{milliseconds(medians[engine]):>9} ({milliseconds(min(values))} - {milliseconds(max(values))})".rjust(26)
        if "infer" in medians and len(medians) > 1:
            fastest = min((e for e in medians if e != "infer"), key=medians.get)
            lowest = {e: min(r["median_ms"] for r in runs[work][e]) for e in engines}
            ratio = lowest["infer"] / min(t for e, t in lowest.items() if e != "infer")
            line += f"   {medians['infer'] / medians[fastest]:5.2f} x {PEERS[fastest]}, lowest {ratio:.2f} x"
        print(line, flush=True)


def milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def note(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\r", file=sys.stderr, flush=True)


def cpu_name() -> str:
    try:
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def physical_cores() -> int:
    """Cores this process may run on, not counting a core's second hardware thread."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in usable:
        try:
            cores.add(pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            cores.add(str(cpu))
    return len(cores)


if __name__ == "__main__":
    main()
