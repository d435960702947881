#!/usr/bin/env python3
"""Compares infer with Hugging Face transformers, live, on the same weights.

Checks, each a line of the table that is printed; the exit status is 1 if any of them fails:

  logits   infer's logits at every position of a pass that fills the context, against transformers'
           in float32: max |difference| over max |logit|, at most --tolerance
  stages   the same for every stage's activations, over each stage's own largest value
  greedy   200 tokens of greedy text, which infer makes with its KV cache: equal to transformers' up
           to the first step whose two best logits are closer than the tolerance
  rescore  the same tokens scored by transformers in one pass without a cache: each must be the best
           token of its step, or as good within the tolerance; this holds beyond the first tie as well
  chunks   the same for the tokens that follow a long prompt which infer takes in chunks of 96 tokens
  cpu      with --device cuda: infer's logits on the GPU against infer's on the CPU, as in "logits"
  bf16     with --device cuda and --dtype bf16, instead of all of these: the relative error of infer's
           logits, ||got - want|| / ||want|| with transformers' in float32 as want, is at most 1.2 x that of
           transformers in bfloat16, on the same device; and the tokens of a greedy text, made with the
           KV cache, are as good as the best within twice the largest error that this allows
  eval     with --text: bits per byte as infer eval gives them, against transformers' on the same windows

The models are the shipped weights cut to each depth; random weights in GPT-2's geometry with 1 and 12 layers or those of
--sizes, which `infer export` writes for transformers to read; a tiny model as PyTorch, nanoGPT, minGPT, llm.c and others
save it, with an adapter that peft merges, and as `infer export` writes each; and GGUF files of each packed type. With
--dtype f32,bf16 both types are checked against one computation of the reference. On a machine with a GPU:

    parity/parity.py --device cuda --reference-device cuda --dtype f32,bf16 --sizes gpt2,gpt2-medium,gpt2-large,gpt2-xl
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import safetensors.torch
import torch
import transformers

import golden
import reference

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEW_TOKENS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infer", type=pathlib.Path, default=ROOT / "bin" / "infer", help="the program (default bin/infer)")
    parser.add_argument("--weights", type=pathlib.Path, default=ROOT / "weights" / "shakespeare", help="the shipped weights")
    parser.add_argument("--device", default="auto", help="passed to infer: auto, cpu, reference, cuda")
    parser.add_argument("--reference-device", default="cpu", help="where transformers computes: cpu or cuda (default cpu)")
    parser.add_argument("--sizes", default="", help="random models of these sizes, such as gpt2,gpt2-xl, instead of GPT-2 with 1 and 12 layers")
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16", "f32,bf16"),
                        help="passed to infer; with bf16 the random weights are exported as bfloat16, so both sides hold the same numbers")
    parser.add_argument("--tolerance", type=float, default=reference.TOLERANCE, help="allowed max |difference| / max |logit| (default 1e-4)")
    parser.add_argument("--text", type=pathlib.Path, help="a text to compare bits per byte on")
    parser.add_argument("--text-bytes", type=int, default=32768, help="how much of the text to use (default its first 32768 bytes)")
    parser.add_argument("--only", choices=("shipped", "random", "forms"), help="check only one kind of model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    reference.TOLERANCE = args.tolerance
    where = torch.cuda.get_device_name() if args.reference_device.startswith("cuda") else "CPU"
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, float32, attention eager, {where}; "
          f"infer --device {args.device} --dtype {args.dtype}; tolerance {args.tolerance:g}")
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        if args.only in (None, "shipped"):
            check_shipped(args, scratch, report)
        if args.only in (None, "random"):
            for size in args.sizes.split(",") if args.sizes else ():
                check_size(args, scratch, report, size)
            for layers in (1, 12) if not args.sizes else ():
                check_random(args, scratch, report, layers)
        if args.only in (None, "forms"):
            check_forms(args, scratch / "forms", report)
            check_gguf(args, scratch / "gguf", report)
    report.close()


class Report:
    """Prints a line for each check and counts those that failed."""

    def __init__(self):
        self.checks = self.failed = 0
        print(f"{'model':24} {'check':8} {'result':6} {'seconds':>7}  detail")
        self.start = time.monotonic()

    def line(self, model: str, check: str, ok: bool, detail: str) -> None:
        self.checks += 1
        self.failed += not ok
        now = time.monotonic()
        print(f"{model:24} {check:8} {'ok' if ok else 'FAILED':6} {now - self.start:7.1f}  {detail}", flush=True)
        self.start = now

    def close(self) -> None:
        print(f"{self.checks - self.failed} passed, {self.failed} failed")
        if self.failed or not self.checks:
            sys.exit(1)


class Infer:
    """The program under test, with one model and one depth."""

    def __init__(self, args: argparse.Namespace, model: pathlib.Path, layers: int, scratch: pathlib.Path, dtype: str,
                 device: str | None = None):
        self.program, self.scratch = args.infer, scratch
        self.flags = ["--model", model, "--layers", layers, "--device", device or args.device, "--dtype", dtype]

    def run(self, *arguments) -> str:
        command = [str(a) for a in (self.program, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\nended with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def file_of(self, ids: list[int]) -> str:
        path = self.scratch / "ids"
        path.write_text(",".join(map(str, ids)))
        return f"@{path}"

    def dump(self, ids: list[int], stage: str) -> np.ndarray:
        """A stage's activations, or with lm_head the logits: [T, width] float32."""
        out = self.scratch / "dump.npy"
        out.unlink(missing_ok=True)
        self.run("dump", *self.flags, "--ids", self.file_of(ids), "--stage", stage, "--out", out)
        return np.load(out)

    def greedy(self, ids: list[int], n: int, *flags) -> list[int]:
        """The n best tokens after `ids`, of which <|endoftext|> may be one."""
        return json.loads(self.run(*self.flags, *flags, "--temp", 0, "-n", n, "--ignore-eos", "--json", "--quiet",
                                   "--ids", self.file_of(ids)))["ids"]

    def bits_per_byte(self, text: pathlib.Path) -> float:
        return json.loads(self.run("eval", *self.flags, "--text", text, "--json"))["bits_per_byte"]


def is_rounded(args: argparse.Namespace, dtype: str) -> bool:
    """Whether infer computes in bfloat16; on the CPU it holds weights so and computes in float32."""
    return dtype == "bf16" and args.device.startswith("cuda")


def check_forms(args: argparse.Namespace, scratch: pathlib.Path, report: Report) -> None:
    golden.make_forms(scratch)
    golden.make_adapter(scratch / "lora")
    for folder in sorted(scratch.iterdir()):
        expected = safetensors.torch.load_file(folder / "expected.safetensors")
        ids, want = expected["ids"].tolist(), expected["lm_head"]
        source, flags = folder, []
        if folder.name == "lora":
            source, flags = golden.TESTDATA / "models" / "plain", ["--lora", folder]
        infer = Infer(args, source, "all", scratch, "f32", "cpu")
        infer.flags += flags
        check_logits(report, folder.name, infer, ids, want)
        for kind in ("hf",) if "nanogpt" in folder.name else ("hf", "gguf"):  # a GGUF file cannot say the exact GELU
            copy = folder / ("copy." + kind)
            infer.run("export", "--model", source, *flags, "--tokenizer", "none", "--format", kind, "--out", copy)
            check_logits(report, f"{folder.name} as {kind}", Infer(args, copy, "all", scratch, "f32", "cpu"), ids, want)


def check_gguf(args: argparse.Namespace, scratch: pathlib.Path, report: Report) -> None:
    scratch.mkdir()
    sys.path.insert(0, str(golden.TESTDATA))
    import gguf
    import make_gguf
    random = np.random.default_rng(3)
    make_gguf.GEOMETRY |= {"n_embd": 256, "n_head": 4}
    weights = make_gguf.random_weights()
    ids = list(range(make_gguf.GEOMETRY["n_positions"]))
    for name in make_gguf.BLOCKS:
        kind, path = gguf.GGMLQuantizationType[name], scratch / f"{name}.gguf"
        wide = {}

        def pack(matrix: np.ndarray) -> np.ndarray:
            packed = make_gguf.blocks(random, name, *matrix.shape)
            wide[len(wide)] = gguf.quants.dequantize(packed, kind)
            return packed

        make_gguf.write(weights, path, kind, pack)
        matrices = iter(wide.values())
        state = {n: torch.tensor(w) for n, w in weights.items()}
        state["wte.weight"] = torch.tensor(next(matrices))
        for i in range(make_gguf.GEOMETRY["n_layer"]):
            for of in make_gguf.LINEAR:
                state[f"h.{i}.{of}.weight"] = torch.tensor(next(matrices).T.copy())
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**make_gguf.GEOMETRY)).eval()
        model.transformer.load_state_dict(state)
        check_logits(report, name, Infer(args, path, "all", scratch, "f32", "cpu"), ids, reference.logits(model.double(), ids))


def check_shipped(args: argparse.Namespace, scratch: pathlib.Path, report: Report) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.weights)
    model = reference.load(args.weights, device=args.reference_device)
    ids = tokenizer.encode((ROOT / "parity" / "prompt.txt").read_text())[:model.config.n_positions]
    depth = model.config.n_layer
    for layers in range(depth, 0, -1):  # downwards: truncate cuts the model in place
        reference.truncate(model, layers)
        want = reference.logits(model, ids)
        for dtype in args.dtype.split(","):
            infer = Infer(args, args.weights, layers, scratch, dtype)
            name = f"shipped, {layers} of {depth} layers"
            if is_rounded(args, dtype):
                check_rounded(args, report, name, infer, args.weights, layers, model, ids, want)
                continue
            check_logits(report, name, infer, ids, want)
            if layers == depth:
                check_devices(args, report, name, infer, args.weights, layers, dtype, ids)
                check_stages(args, report, name, infer, model, ids[:96])
                check_chunks(report, name, infer, model, ids[:700])
            check_greedy(report, name, infer, model, ids[:64])
            if args.text and layers in (1, depth):
                check_eval(report, name, infer, model, tokenizer, args.text, args.text_bytes)


def check_random(args: argparse.Namespace, scratch: pathlib.Path, report: Report, layers: int) -> None:
    check_exported(args, scratch, report, f"random gpt2, {layers} layers", f"random:L={layers},C=768,NH=12,V=50257,T=1024",
                   "bf16" if "bf16" in args.dtype else "f32", 4000 + layers, stages=layers == 1, chunks=True, own_greedy=True)


def check_size(args: argparse.Namespace, scratch: pathlib.Path, report: Report, size: str) -> None:
    small = size in ("gpt2", "gpt2-medium")
    check_exported(args, scratch, report, f"random {size}", f"random:{size}", "bf16", 5000, stages=False, chunks=small, own_greedy=small)


def check_exported(args: argparse.Namespace, scratch: pathlib.Path, report: Report, name: str, spec: str, exported: str, seed: int,
                   stages: bool, chunks: bool, own_greedy: bool) -> None:
    """Checks a random model that infer writes, as `exported`, and transformers reads."""
    folder = scratch / "model"
    shutil.rmtree(folder, ignore_errors=True)
    Infer(args, folder, 1, scratch, "f32").run("export", "--model", spec, "--out", folder, "--dtype", exported)
    model = reference.load(folder, device=args.reference_device)
    layers = model.config.n_layer
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(model.config.vocab_size, (model.config.n_positions,), generator=rng).tolist()
    want = reference.logits(model, ids)
    for dtype in args.dtype.split(","):
        infer = Infer(args, folder, layers, scratch, dtype)
        if is_rounded(args, dtype):
            check_rounded(args, report, name, infer, folder, layers, model, ids, want)
            continue
        check_logits(report, name, infer, ids, want)
        if layers <= 12:
            check_devices(args, report, name, infer, folder, layers, dtype, ids)
        if stages:
            check_stages(args, report, name, infer, model, ids[:96])
        if chunks:
            check_chunks(report, name, infer, model, ids[:700])
        if own_greedy:
            check_greedy(report, name, infer, model, ids[:64])
        else:
            check_rescored(report, name, "rescore", model, ids[:64], infer.greedy(ids[:64], 64), 64)


def relative_error(got: np.ndarray, want: torch.Tensor) -> tuple[float, int]:
    """max |got - want| / max |want|, infinite for NaN or another shape; and the row where it is."""
    want = want.numpy()
    if got.shape != want.shape or got.dtype != np.float32:
        print(f"  expected float32 {want.shape} from infer, found {got.dtype} {got.shape}")
        return float("inf"), 0
    rows = np.abs(got - want).max(-1)
    if not np.isfinite(rows).all():
        return float("inf"), int(np.argmin(np.isfinite(rows)))
    return float(rows.max() / np.abs(want).max()), int(rows.argmax())


def check_logits(report: Report, name: str, infer: Infer, ids: list[int], want: torch.Tensor) -> None:
    error, row = relative_error(infer.dump(ids, "lm_head"), want)
    report.line(name, "logits", error <= reference.TOLERANCE,
                f"{len(ids)} positions, max |difference| / max |logit| = {error:.1e}, at position {row}")


def check_devices(args: argparse.Namespace, report: Report, name: str, infer: Infer, model: pathlib.Path, layers: int, dtype: str,
                  ids: list[int]) -> None:
    """infer on the GPU against infer on the CPU."""
    if not args.device.startswith("cuda"):
        return
    on_cpu = Infer(args, model, layers, infer.scratch, dtype, device="cpu")
    error, row = relative_error(infer.dump(ids, "lm_head"), torch.from_numpy(on_cpu.dump(ids, "lm_head")))
    report.line(name, "cpu", error <= reference.TOLERANCE,
                f"{len(ids)} positions, max |difference| / max |logit| = {error:.1e}, at position {row}")


def check_rounded(args: argparse.Namespace, report: Report, name: str, infer: Infer, folder: pathlib.Path, layers: int, model,
                  ids: list[int], want: torch.Tensor) -> None:
    """bfloat16: infer is about as near to float32 as transformers in bfloat16 is."""
    rounded = reference.load(folder, layers, args.reference_device, torch.bfloat16)
    theirs = reference.logits(rounded, ids)
    del rounded
    got = torch.from_numpy(infer.dump(ids, "lm_head"))
    allowed, error = distance(theirs, want), distance(got, want)
    worst, largest = relative_error(theirs.numpy(), want)[0], relative_error(got.numpy(), want)[0]
    report.line(name, "bf16", error <= 1.2 * allowed,
                f"{len(ids)} positions, relative error {error:.2e}, transformers {allowed:.2e}, ratio {error / allowed:.2f}; "
                f"max |difference| / max |logit| {largest:.1e} and {worst:.1e}")
    check_rescored(report, name, "rescore", model, ids[:64], infer.greedy(ids[:64], 64), 64, 1.2 * worst)


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want||, infinite for another shape or what is not finite."""
    if got.shape != want.shape or not got.isfinite().all():
        return float("inf")
    return float((got - want).norm(dtype=torch.float64) / want.norm(dtype=torch.float64))


def check_stages(args: argparse.Namespace, report: Report, name: str, infer: Infer, model, ids: list[int]) -> None:
    stages = reference.activations(model, ids)
    if args.device.startswith("cuda"):  # a process for each stage, and each opens the GPU: the first and the last layer
        between = tuple(f"h.{i}." for i in range(1, model.config.n_layer - 1))
        stages = {stage: want for stage, want in stages.items() if not stage.startswith(between)}
    errors = {stage: relative_error(infer.dump(ids, stage), want)[0] for stage, want in stages.items()}
    worst = max(errors, key=errors.get)
    report.line(name, "stages", errors[worst] <= reference.TOLERANCE,
                f"{len(stages)} stages, {len(ids)} positions, worst {worst} with {errors[worst]:.1e}")


def check_greedy(report: Report, name: str, infer: Infer, model, ids: list[int]) -> None:
    got = infer.greedy(ids, NEW_TOKENS)
    want, gaps, peaks = reference.greedy(model, ids, NEW_TOKENS)
    certain = reference.certain_steps(gaps, peaks)
    same = next((i for i, (g, w) in enumerate(zip(got, want)) if g != w), min(len(got), len(want)))
    report.line(name, "greedy", len(got) == NEW_TOKENS and same >= certain and certain > 0,
                f"{same} of {NEW_TOKENS} tokens equal, first tie at step {certain}" if certain < NEW_TOKENS
                else f"{same} of {NEW_TOKENS} tokens equal")

    check_rescored(report, name, "rescore", model, ids, got, NEW_TOKENS)


def check_chunks(report: Report, name: str, infer: Infer, model, ids: list[int]) -> None:
    check_rescored(report, name, "chunks", model, ids, infer.greedy(ids, 32, "--chunk", 96), 32)


def check_rescored(report: Report, name: str, check: str, model, ids: list[int], got: list[int], n: int,
                   tolerance: float | None = None) -> None:
    tolerance = reference.TOLERANCE if tolerance is None else tolerance
    if len(got) != n or not all(0 <= i < model.config.vocab_size for i in got):
        report.line(name, check, False, f"expected {n} tokens of the vocabulary, found {len(got)}, or some outside it")
        return
    rows = reference.logits(model, ids + got[:-1])[len(ids) - 1:]
    behind = rows.max(-1).values - rows.gather(1, torch.tensor(got)[:, None])[:, 0]
    worst = float((behind / rows.abs().max()).max())
    # infer's and transformers' logits may each be off by the tolerance, in opposite directions.
    report.line(name, check, worst <= 2 * tolerance,
                f"{n} tokens after {len(ids)}: chosen logit behind the best by {worst:.1e} x max |logit| at most")


def check_eval(report: Report, name: str, infer: Infer, model, tokenizer, text: pathlib.Path, size: int) -> None:
    part = infer.scratch / "text"
    part.write_bytes(text.read_bytes()[:size])
    ids = tokenizer.encode(part.read_text(encoding="utf-8", errors="surrogateescape"))
    if len(ids) != part.stat().st_size:
        raise SystemExit(f"{text}: {part.stat().st_size} bytes became {len(ids)} tokens; bits per byte need one token per byte")
    got, want = infer.bits_per_byte(part), reference.bits_per_byte(model, ids)
    report.line(name, "eval", abs(got - want) <= 1e-4, f"{len(ids)} bytes: {got:.5f} bits per byte, transformers {want:.5f}")


if __name__ == "__main__":
    main()
