#!/usr/bin/env python3
"""Times infer beside PyTorch, ONNX Runtime, OpenVINO, llama.cpp and CTranslate2: same weights, machine, threads and run.

Geometries: A = 6 layers of 384 channels and B = 1 layer (the shipped weights, V=257); C = GPT-2 with one
layer and D = GPT-2, with random weights (V=50257). Works: decode (one token, KV cache filled to `past`),
prefill-all and prefill-last (T tokens, logits of every row or of the last; the KV cache is kept).

  f32    float32 throughout
  bf16   weights in bfloat16; arithmetic and cache in the types that each engine then uses. ONNX Runtime and
         CTranslate2 have no bfloat16 on a CPU and are skipped
  q8     8-bit weights: llama.cpp's q8_0, and CTranslate2's int8 (one scale per row instead of one per 32 weights)

Each engine runs in a process of its own, up to --rounds times, engines taking turns; a further round starts only if
its work is still within its share of --minutes. In a process the work runs back to
back with the same input, so caches are warm; after up to 3 warm-up runs the median of the rest counts, up to a number
that depends on the work or for some seconds. The tables show medians over processes; the list of every engine adds
the lowest and the highest process. "infer / peer" is the ratio of the medians, "lowest" that of the lowest
processes, which other work on the machine disturbs least. The floor is infer's own ('infer bench --help'), measured
in each of its processes; the lowest counts. Peers are called from Python, which costs them some tens of microseconds
a call; infer times itself in Go. The docstring of each bench/peer_*.py says how that peer is run.

Before anything is timed, the logits of each peer and of infer are compared with those of Hugging Face transformers in
float32. The token with the largest logit must be the same, or its float32 logit must be within the tolerance of the
largest one: such a tie is printed.
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
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "parity"))

import numpy as np
import safetensors.torch
import torch

import reference
from case import WORKS, Case

PEERS = {"torch": "PyTorch", "torch-onednn": "PyTorch, oneDNN", "torch-compile": "torch.compile", "onnxruntime": "ONNX Runtime",
         "openvino": "OpenVINO", "llama": "llama.cpp", "ctranslate2": "CTranslate2"}
DTYPES = {
    "f32": ("torch", "torch-onednn", "torch-compile", "onnxruntime", "openvino", "llama", "ctranslate2"),
    "bf16": ("torch", "torch-compile", "openvino", "llama"),
    "q8": ("llama", "ctranslate2"),
}
# Of the largest |logit|. float32: the same function, computed well. bfloat16 and 8 bits round every weight, some
# engines activations too, which random weights do not forgive; a wrong graph is off by far more.
TOLERANCES = {"f32": 1e-3, "bf16": 3e-2, "q8": 5e-2}

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
    parser.add_argument("--threads", type=int, default=physical_cores(), help="threads of every engine (default: physical cores)")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each engine and geometry at most (default 3)")
    parser.add_argument("--minutes", type=float, default=15, help="about how long all takes at most; each has one process at least (default 15)")
    parser.add_argument("--only", default="ABCD", help="geometries, such as AB (default ABCD)")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help=f"dtypes to measure (default {','.join(DTYPES)})")
    parser.add_argument("--peers", default=",".join(p for p in PEERS if p != "torch-onednn" or not mkl_is_fast()),
                        help=f"peers to measure, of {', '.join(PEERS)} (default all; torch-onednn only on AMD's CPUs, "
                             "where PyTorch's MKL is slow)")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file as well")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / f"{datetime.date.today()}-bench-peers.txt",
                        help="write the output to this file as well (default build/DATE-bench-peers.txt)")
    args = parser.parse_args()

    chosen, dtypes = args.peers.split(","), args.dtypes.split(",")
    if not set(chosen) <= set(PEERS) or not set(dtypes) <= set(DTYPES) or not set(args.only) <= set(GEOMETRIES):
        parser.error(f"--peers takes {', '.join(PEERS)}, --dtypes {', '.join(DTYPES)}, --only {''.join(GEOMETRIES)}")
    engines = {d: ["infer"] + [p for p in chosen if p in DTYPES[d]] for d in dtypes}
    torch.set_num_threads(args.threads)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout = Tee(sys.stdout, args.out.open("w"))
    print(f"run of {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%MZ}, commit {commit()}")
    print(f"{cpu_name()}, {os.cpu_count()} CPUs, {args.threads} threads, load {os.getloadavg()[0]:.1f}; "
          f"{platform.system()} {platform.release()}, Python {platform.python_version()}", flush=True)

    # runs[dtype][letter][work][engine]: one {median_ms, p10_ms, p90_ms, error, token, ...} per process
    runs = {d: {letter: {work: {e: [] for e in engines[d]} for work in WORKS} for letter in args.only} for d in dtypes}
    cases, versions, others = {}, {}, {}
    began, done, parts = time.monotonic(), 0, len(args.only) * len(dtypes)
    for letter in args.only:
        # A folder at a time: D's files are several times 500 MB.
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            model, case = make_case(args, letter, pathlib.Path(folder))
            cases[letter] = case
            repeats = dict(zip(WORKS, GEOMETRIES[letter][-1]))
            for dtype in dtypes:
                done += 1
                for round in range(args.rounds):
                    now = time.monotonic() - began
                    if round > 0 and now + (now - start) / round > 60 * args.minutes * done / parts:
                        break
                    start = now if round == 0 else start
                    turn = (round + done) % len(engines[dtype])
                    for engine in engines[dtype][turn:] + engines[dtype][:turn]:
                        note(f"{letter} {dtype}, round {round + 1} of {args.rounds}: {engine}")
                        if engine == "infer":
                            works = run_infer(args, model, case, dtype, repeats, check=round == 0)
                        else:
                            versions[engine], works = run_peer(engine, case, dtype, args.threads, repeats)
                        for work, result in works.items():
                            check(case, letter, dtype, work, engine, result)
                            runs[dtype][letter][work][engine].append(result)
                note("")
                print(f"{datetime.datetime.now():%H:%M:%S} {letter} {dtype} is done", file=sys.stderr, flush=True)
            others |= start_and_memory(args, letter, model, case, engines)

    for dtype in dtypes:
        print_table(dtype, cases, runs[dtype], engines[dtype])
    print_others(others)
    print_ties(runs)
    versions["infer"] = subprocess.run([args.infer, "--version"], capture_output=True, text=True).stdout.strip().removeprefix("infer ")
    print("\nversions: " + ", ".join(f"{PEERS.get(e, e)} {v}" for e, v in versions.items()) + f"; load at the end {os.getloadavg()[0]:.1f}")
    if args.json:
        args.json.write_text(json.dumps({
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "cpu": cpu_name(),
            "threads": args.threads, "versions": versions, "runs": runs, "start_and_memory": others}, indent=1) + "\n")
    sys.stdout.flush()
    print(f"written to {args.out}; docs/measurements/README.md says how tables are made of it", file=sys.stderr)


class Tee:
    """Writes to two files at once."""

    def __init__(self, *files):
        self.files = files

    def write(self, text: str) -> None:
        for file in self.files:
            file.write(text)

    def flush(self) -> None:
        for file in self.files:
            file.flush()


def commit() -> str:
    """What infer is built from, as git names it."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


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


def run_peer(engine: str, case: Case, dtype: str, threads: int, repeats: dict[str, int]) -> tuple[str, dict[str, dict]]:
    """One process of a peer that does every work. Returns its version and its results by work."""
    # glibc gives large blocks back to the system at once and gets them anew, page by page, in every run. PyTorch suffers most.
    # What torch.compile has compiled is kept for the next round.
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
                                "OMP_NUM_THREADS": str(threads), "PYTHONDONTWRITEBYTECODE": "1",
                                "TORCHINDUCTOR_CACHE_DIR": str(case.folder / "inductor")}
    command = [sys.executable, ROOT / "bench" / "worker.py", engine, case.folder, dtype, str(threads), json.dumps(repeats)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{engine} failed in {dtype} with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    return result["version"], result["works"]


def run_infer(args: argparse.Namespace, model: pathlib.Path, case: Case, dtype: str, repeats: dict[str, int], check: bool) -> dict[str, dict]:
    """infer's results by work, each in a process of its own."""
    def run(*arguments) -> str:
        command = [str(a) for a in (args.infer, *arguments, "--layers", case.layers, "--device", "cpu", "--dtype", dtype,
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

        def first_token(n: int, *chunk) -> int:
            ids.write_text(",".join(map(str, expected["ids"][:n])))
            return json.loads(run("-m", model, "--ids", f"@{ids}", *chunk, "-n", 1, "--temp", 0, "--ignore-eos", "--json"))["ids"][0]

        # A prompt of past + 1 tokens in chunks of past tokens ends with a decode step.
        works["decode"]["token"] = first_token(case.past + 1, "--chunk", case.past)
        works["prefill-last"]["token"] = first_token(case.tokens)
        run("dump", "-m", model, "--ids", f"@{ids}", "--stage", "lm_head", "--out", out)
        logits = np.load(out)
        got, want = logits[expected["positions"]], expected["logits"]
        error = float(np.abs(got - want).max() / np.abs(want).max())
        works["prefill-all"] |= {"error": error if np.isfinite(error) else float("inf"), "token": int(logits[-1].argmax())}
        out.unlink()
    return works


def check(case: Case, letter: str, dtype: str, work: str, engine: str, result: dict) -> None:
    """Ends the program if the logits or the best token are wrong; records a tie as result["gap"]."""
    tolerance = TOLERANCES[dtype]
    if not result.get("error", 0) <= tolerance:
        raise SystemExit(f"{engine} is wrong in {letter} {dtype} {work}: its logits are off by {result['error']:.1e} x the largest, "
                         f"allowed are {tolerance:.0e}; its times would mean nothing")
    if "token" in result:
        logits = case.expected()["decode" if work == "decode" else "last"]
        result["gap"] = float((logits.max() - logits[result["token"]]) / np.abs(logits).max())
        if not result["gap"] <= tolerance:
            raise SystemExit(f"{engine} continues with another token in {letter} {dtype} {work}: expected {logits.argmax()}, found {result['token']}")


def print_table(dtype: str, cases: dict[str, Case], runs: dict, engines: list[str]) -> None:
    """A row for each work: infer, its floor, the fastest peer; then every engine's times."""
    print(f"\n{dtype}, median ms over processes")
    peers = [e for e in engines if e != "infer"]
    if peers:
        print(f"{'':28}{'floor':>9}{'infer':>9}{'% of floor':>12}   {'fastest peer':27}{'infer / peer':>13}{'lowest':>8}")
        for letter, work, times in rows(cases, runs):
            floor = min(r["floor_ms"] for r in runs[letter][work]["infer"])
            medians, lowest = ({e: f(t) for e, t in times.items()} for f in (statistics.median, min))
            fastest = min(peers, key=medians.get)
            print(f"{title(letter, work, cases)}{milliseconds(floor):>9}{milliseconds(medians['infer']):>9}{100 * floor / medians['infer']:11.0f}%   "
                  f"{PEERS[fastest]:17}{milliseconds(medians[fastest]):>9} {medians['infer'] / medians[fastest]:13.2f}"
                  f"{lowest['infer'] / min(lowest[p] for p in peers):8.2f}")
    print(f"\n{dtype}, every engine: median (lowest - highest process), ms\n{'':17}" + "".join(f"{PEERS.get(e, e):>20}" for e in engines))
    for letter, work, times in rows(cases, runs):
        print(f"{letter}  {work:14}" + "".join(
            f"{milliseconds(statistics.median(t))} ({milliseconds(min(t))}-{milliseconds(max(t))})".rjust(20) for t in times.values()))
    for letter, work, _ in rows(cases, runs):
        for engine in engines:
            if setting := runs[letter][work][engine][0].get("setting"):
                print(f"{PEERS[engine]} in {letter} {work}: {setting}")


def rows(cases: dict[str, Case], runs: dict):
    for letter in cases:
        for work in WORKS:
            yield letter, work, {e: [r["median_ms"] for r in rs] for e, rs in runs[letter][work].items()}


def title(letter: str, work: str, cases: dict[str, Case]) -> str:
    return f"{letter}  {work:13} {f'past={cases[letter].past}' if work == 'decode' else f'T={cases[letter].tokens}':10}"


def print_ties(runs: dict) -> None:
    """Says what the check of first tokens found."""
    ties = [f"{PEERS.get(engine, engine)} in {letter} {dtype} {work}: {result['gap']:.1e}"
            for dtype, letters in runs.items() for letter, works in letters.items() for work, es in works.items()
            for engine, results in es.items() for result in results[:1] if result.get("gap", 0) > 0]
    if ties:
        print("\nfirst tokens: all agree except for ties; the gap between their float32 logits, x the largest logit: " + "; ".join(ties))
    else:
        print("\nfirst tokens: all agree")


def start_and_memory(args: argparse.Namespace, letter: str, model: pathlib.Path, case: Case, engines: dict[str, list[str]]) -> dict:
    """A: milliseconds from start to first token; D: peak memory of a process that decodes at `past` tokens."""
    found = {}
    bare = [sys.executable, str(ROOT / "bench" / "peer_llama.py")]
    for dtype in engines:
        gguf = case.folder / f"{dtype}.gguf"
        for engine in ("infer", "llama"):
            if engine not in engines[dtype]:
                continue
            if letter == "A":
                command = ([str(args.infer), "-m", str(model), "-p", "ROMEO:", "-n", "2", "--layers", "all", "--json", "--device", "cpu", "--dtype", dtype,
                            "--threads", str(args.threads)] if engine == "infer" else bare + [str(gguf), "6", str(args.threads)])
                outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(5)]
                found[f"{engine} {dtype} start"] = [
                    json.loads(o)["timings"]["first_token_ms"] if engine == "infer" else float(o) for o in outputs]
            if letter == "D":
                command = ([str(args.infer), "bench", "-m", str(model), "--past", str(case.past), "--no-floor", "--device", "cpu", "--dtype", dtype,
                            "--threads", str(args.threads)] if engine == "infer" else bare + [str(gguf), str(case.past), str(args.threads)])
                found[f"{engine} {dtype} peak"] = peak_memory(command)
    return found


def peak_memory(command: list[str]) -> float:
    """The peak resident memory of a command in MiB. A process's peak includes its memory before exec, so a small process starts it."""
    small = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    peak = subprocess.run([sys.executable, "-S", "-c", small, *command], capture_output=True, text=True)
    if peak.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {peak.stderr.strip()[-2000:]}")
    return int(peak.stdout) / (1024 if sys.platform != "darwin" else 1 << 20)


def print_others(found: dict) -> None:
    if not found:
        return
    print("\nstart to first token of A, ms, median of 5 (lowest - highest): of infer from the start of the process, of llama.cpp "
          "from\nopening the file; peak resident memory of a process that decodes in D, MiB (llama.cpp's with Python's)")
    for engine in ("infer", "llama"):
        for dtype in DTYPES:
            start, peak = found.get(f"{engine} {dtype} start"), found.get(f"{engine} {dtype} peak")
            if start or peak:
                spread = f"{statistics.median(start):.1f} ({min(start):.1f} - {max(start):.1f})" if start else "-"
                print(f"{PEERS.get(engine, engine):12}{dtype:8}{spread:>24}{f'{peak:.0f}' if peak else '-':>10}")


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


def mkl_is_fast() -> bool:
    """Whether MKL, which computes PyTorch's float32 products on x86-64, takes its fast paths: it does not on AMD's CPUs."""
    try:
        return "AuthenticAMD" not in pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return True


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
