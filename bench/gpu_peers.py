#!/usr/bin/env python3
"""Times PyTorch and transformers on an NVIDIA GPU, on the same work as rows.py.

Random weights of each geometry in bfloat16, a KV cache of fixed size, all in one process on one GPU:

  eager       a GPT-2 written with torch functions alone: addmm, layer_norm and fused attention
              (scaled_dot_product_attention, its flash kernel if the work allows it)
  graph       the same recorded in a CUDA graph and replayed
  compile     the same by torch.compile (max-autotune-no-cudagraphs), and recorded in a CUDA graph

A decode step takes one token with `past` tokens in the cache, its position in device memory (a graph needs
it there), and ends with the argmax on the device. A prefill or forward gives the logits of all rows in bfloat16 and
fills the cache. The vocabulary is padded to a multiple of 128, which is faster for lm_head. Times are of whole
passes between two CUDA events, back to back; the median counts, with the 10th and 90th percentile. The best of
the three is the peer. "start" is a process that imports transformers, loads a checkpoint of the shipped geometry
and gives its first token.

Before anything is timed, the model's logits are compared with transformers' on the same weights in float32, for
a prefill and for decode steps with the cache; a difference over 1e-3 of the largest logit ends the program.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F

# Work: name, layers, channels, heads, vocabulary, batch, T, past, whether to compile in a --quick run too.
# T=1 is a decode step.
ROWS = [
    ("decode, gpt2 with 1 layer", 1, 768, 12, 50257, 1, 1, 512, True),
    ("decode, gpt2", 12, 768, 12, 50257, 1, 1, 512, True),
    ("decode, gpt2-xl", 48, 1600, 25, 50257, 1, 1, 512, False),
    ("decode, 6 x 384, V=257", 6, 384, 6, 257, 1, 1, 512, False),
    ("decode, 1 x 384, V=257", 1, 384, 6, 257, 1, 1, 512, False),
    ("prefill 1024, gpt2 with 1 layer", 1, 768, 12, 50257, 1, 1024, 0, True),
    ("prefill 1024, gpt2", 12, 768, 12, 50257, 1, 1024, 0, True),
    ("forward 8 x 1024, gpt2", 12, 768, 12, 50257, 8, 1024, 0, False),
    ("forward 24 x 1024, gpt2 with 1 layer", 1, 768, 12, 50257, 24, 1024, 0, False),
    ("prefill 1024, gpt2-xl", 48, 1600, 25, 50257, 1, 1024, 0, False),
]
CONTEXT = 1024
TOLERANCE = 1e-3  # of the largest |logit|, in float32: the same function


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="compile only a few rows, and repeat less")
    parser.add_argument("--only", default="", help="measure only rows whose name contains this text")
    parser.add_argument("--seconds", type=float, default=150, help="start no compilation after this many seconds (default 150)")
    parser.add_argument("--row-seconds", type=float, default=60, help="abandon a compilation after this many seconds (default 60)")
    parser.add_argument("--no-start", action="store_true", help="do not measure the start of a process")
    parser.add_argument("--device", default="cuda", help="cuda (default), or cpu to try the script out: its times then mean nothing")
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file as well")
    args = parser.parse_args()
    began = time.monotonic()
    over = lambda: time.monotonic() - began > args.seconds  # noqa: E731

    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("highest")
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    versions |= check(args.device)
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{name}, " + ", ".join(f"{k} {v}" for k, v in versions.items()) + ", bfloat16, greedy")
    print(f"{'work':40} {'way':8} {'median ms':>10}  p10 - p90")
    results = []
    rows = [row for row in ROWS if args.only in row[0]]
    for row in rows:
        results += measure_row(args, row, compiled=False)
    if not args.no_start:
        results += measure_start(args, 2 if args.quick else 3)
    if args.device == "cuda":  # compilations take long, so they come last; those of --quick first
        for row in sorted(rows, key=lambda row: not row[-1]):
            if over() or args.quick and not row[-1]:
                print(f"{row[0]:40} compile  skipped: " + (f"{args.seconds:.0f} s have passed (--seconds)" if over() else "--quick"))
                continue
            results += measure_row(args, row, compiled=True)

    print(f"\n{'work':40} best of PyTorch and transformers")
    for work in dict.fromkeys(r["work"] for r in results):
        best = min((r for r in results if r["work"] == work and "median_ms" in r), key=lambda r: r["median_ms"], default=None)
        if best:
            print(f"{work:40} {best['median_ms']:10.4f} ms  {best['way']}")
    if args.json:
        args.json.write_text(json.dumps({"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                                         "device": name, "versions": versions, "dtype": "bf16", "rows": results}, indent=1) + "\n")


class GPT2:
    """GPT-2 with a KV cache of fixed size: C channels, NH heads, HS head size, L layers, Vp padded vocabulary."""

    def __init__(self, layers: int, channels: int, heads: int, vocab: int, batch: int, device: str, dtype: torch.dtype, cache: bool = True):
        self.heads, self.vocab, self.channels = heads, vocab, channels
        padded = (vocab + 127) // 128 * 128
        make = lambda *shape, std=0.02: torch.empty(*shape, device=device).normal_(0, std).to(dtype)  # noqa: E731
        C = channels
        self.wte, self.wpe = make(padded, C), make(CONTEXT, C, std=0.01)
        ones, zeros = torch.ones(C, device=device, dtype=dtype), torch.zeros(C, device=device, dtype=dtype)
        self.ln_f = (ones, zeros)
        self.layers = [dict(
            ln_1=(ones, zeros), ln_2=(ones, zeros),
            c_attn=(make(3 * C), make(C, 3 * C)), attn_proj=(make(C), make(C, C)),
            c_fc=(make(4 * C), make(C, 4 * C)), mlp_proj=(make(C), make(4 * C, C))) for _ in range(layers)]
        shape = (batch, heads, CONTEXT, channels // heads) if cache else (0,)
        self.cache = [(torch.zeros(shape, device=device, dtype=dtype), torch.zeros(shape, device=device, dtype=dtype)) for _ in range(layers)]
        self.keys = torch.arange(CONTEXT, device=device)

    def linear(self, x, layer, name):
        return torch.addmm(layer[name][0], x, layer[name][1])

    def heads_of(self, x, batch):  # (B*T, C) -> (B, NH, T, HS)
        return x.view(batch, -1, self.heads, self.channels // self.heads).transpose(1, 2)

    def block(self, x, layer, cache, batch, pos, attend):
        C = self.channels
        q, k, v = (self.heads_of(t, batch) for t in self.linear(F.layer_norm(x, (C,), *layer["ln_1"]), layer, "c_attn").split(C, 1))
        a = attend(q, k, v, cache, pos).transpose(1, 2).reshape(-1, C)
        x = x + self.linear(a, layer, "attn_proj")
        m = F.gelu(self.linear(F.layer_norm(x, (C,), *layer["ln_2"]), layer, "c_fc"), approximate="tanh")
        return x + self.linear(m, layer, "mlp_proj")

    def prefill(self, ids):  # (B, T) -> logits (B*T, Vp)
        B, T = ids.shape

        def attend(q, k, v, cache, pos):
            cache[0][:, :, :T].copy_(k)
            cache[1][:, :, :T].copy_(v)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        x = (self.wte[ids] + self.wpe[:T]).view(B * T, self.channels)
        for layer, cache in zip(self.layers, self.cache):
            x = self.block(x, layer, cache, B, None, attend)
        return F.layer_norm(x, (self.channels,), *self.ln_f) @ self.wte.T

    def decode(self, ids, pos):  # ids (B, 1), pos (1): how many tokens the cache holds -> logits (B, Vp)
        mask = (self.keys <= pos)[None, None, None]

        def attend(q, k, v, cache, pos):
            cache[0].index_copy_(2, pos, k)
            cache[1].index_copy_(2, pos, v)
            return F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=mask)

        x = (self.wte[ids] + self.wpe[pos]).view(-1, self.channels)
        for layer, cache in zip(self.layers, self.cache):
            x = self.block(x, layer, cache, len(ids), pos, attend)
        return F.layer_norm(x, (self.channels,), *self.ln_f) @ self.wte.T

    def decode_known(self, ids, pos, length: int):
        """A decode step whose number of keys is a constant of the recorded graph, so that it reads only that part of the cache."""

        def attend(q, k, v, cache, pos):
            cache[0].index_copy_(2, pos, k)
            cache[1].index_copy_(2, pos, v)
            return F.scaled_dot_product_attention(q, cache[0][:, :, :length], cache[1][:, :, :length])

        x = (self.wte[ids] + self.wpe[pos]).view(-1, self.channels)
        for layer, cache in zip(self.layers, self.cache):
            x = self.block(x, layer, cache, len(ids), pos, attend)
        return F.layer_norm(x, (self.channels,), *self.ln_f) @ self.wte.T


def check(device: str) -> dict[str, str]:
    """Compares the model with transformers' on the same weights, in float32. Returns transformers' version."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(1)
    config = transformers.GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=257, n_positions=CONTEXT, bos_token_id=0, eos_token_id=0)
    judge = transformers.GPT2LMHeadModel(config).eval().to(device)
    model = GPT2(2, 128, 4, 257, 1, device, torch.float32)
    state = {n: t.normal_(0, 0.2) if t.dim() > 1 else t.add_(torch.randn_like(t) * 0.1) for n, t in judge.state_dict().items() if n != "lm_head.weight"}
    model.wte[:257], model.wpe = state["transformer.wte.weight"], state["transformer.wpe.weight"]
    pair = lambda name: (state[f"transformer.{name}.weight"], state[f"transformer.{name}.bias"])  # noqa: E731
    model.ln_f = pair("ln_f")
    for i, layer in enumerate(model.layers):
        for ours, theirs in (("c_attn", "attn.c_attn"), ("attn_proj", "attn.c_proj"), ("c_fc", "mlp.c_fc"), ("mlp_proj", "mlp.c_proj")):
            layer[ours] = pair(f"h.{i}.{theirs}")[::-1]
        layer["ln_1"], layer["ln_2"] = pair(f"h.{i}.ln_1"), pair(f"h.{i}.ln_2")

    ids = torch.randint(257, (1, 70), device=device)
    want = judge(ids).logits[0]
    errors = {"prefill": off(model.prefill(ids)[:, :257], want)}
    model.prefill(ids[:, :64])
    steps = [model.decode(ids[:, t:t + 1], torch.tensor([t], device=device)) for t in range(64, 70)]
    errors["decode"] = off(torch.cat(steps)[:, :257], want[64:])
    model.prefill(ids[:, :69])
    errors["decode, length known"] = off(model.decode_known(ids[:, 69:], torch.tensor([69], device=device), 70)[:, :257], want[69:])
    for what, error in errors.items():
        if not error <= TOLERANCE:
            raise SystemExit(f"{what}: the peer's logits differ from transformers' by {error:.1e} x the largest; its times would mean nothing")
    return {"transformers": transformers.__version__, "logits off by": f"{max(errors.values()):.0e}"}


def off(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max() / want.abs().max())


@contextlib.contextmanager
def limit(seconds: float):
    """Raises TimeoutError in code that runs longer."""
    def late(*_):
        raise TimeoutError(f"not done after {seconds:.0f} s")
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure_row(args: argparse.Namespace, row: tuple, compiled: bool) -> list[dict]:
    work, layers, channels, heads, vocab, batch, T, past, _ = row
    device, cuda = args.device, args.device == "cuda"
    torch.manual_seed(2)
    model = GPT2(layers, channels, heads, vocab, batch, device, torch.bfloat16)
    for k, v in model.cache:
        k.normal_(), v.normal_()
    ids = torch.randint(vocab, (batch, T), device=device)
    pos = torch.tensor([past], device=device)
    out = torch.zeros(batch, 1, dtype=torch.long, device=device)

    def run(forward):
        if T == 1:
            return lambda: out.copy_(forward(ids, pos)[:, :vocab].argmax(-1, keepdim=True))
        return lambda: forward(ids)

    plain = run((lambda i, p: model.decode_known(i, p, past + 1)) if T == 1 else model.prefill)
    results = []

    def add(way: str, make) -> None:
        try:
            with limit(args.row_seconds):
                f = make()
            r = {"work": work, "way": way, **times(f, cuda, 0.3 if args.quick else 1.0)}
            print(f"{work:40} {way:8} {r['median_ms']:10.4f}  {r['p10_ms']:.4f} - {r['p90_ms']:.4f}", flush=True)
        except Exception as e:  # a way that does not run here is reported, the others are measured
            r = {"work": work, "way": way, "error": str(e).strip().splitlines()[0][:200] if str(e).strip() else repr(e)}
            print(f"{work:40} {way:8} failed: {r['error']}", flush=True)
        results.append(r)

    if compiled:
        torch._dynamo.reset()
        # The length of the cache is a constant of the compiled step, as it is of the recorded one.
        forward = torch.compile((lambda i, p: model.decode_known(i, p, past + 1)) if T == 1 else model.prefill,
                                mode="max-autotune-no-cudagraphs", dynamic=False)
        add("compile", lambda: record(run(forward)))
        del forward
    else:
        add("eager", lambda: plain)
        if cuda:
            add("graph", lambda: record(plain))
    del model, plain
    if cuda:
        torch.cuda.empty_cache()
    return results


def record(f):
    """Records f in a CUDA graph, after warm-up runs on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            f()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = f()  # noqa: F841 - its memory belongs to the graph
    replay = lambda: graph.replay()  # noqa: E731
    replay.kept = (graph, kept)
    return replay


def times(f, cuda: bool, seconds: float) -> dict:
    """Times f back to back: after a warm-up, in bursts long enough for the events' resolution."""
    if not cuda:
        f()
        start = time.perf_counter()
        f()
        t = (time.perf_counter() - start) * 1e3
        return {"median_ms": t, "p10_ms": t, "p90_ms": t, "passes": 1}
    for _ in range(3):
        f()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(5):
        f()
    torch.cuda.synchronize()
    one = (time.perf_counter() - start) / 5
    burst = max(1, min(64, round(2e-3 / one)))  # steps between two events: about 2 ms
    count = max(20, min(200, round(seconds / (burst * one))))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    for _ in range(burst * 3):
        f()
    events[0].record()
    for e in events[1:]:
        for _ in range(burst):
            f()
        e.record()
    torch.cuda.synchronize()
    values = sorted(a.elapsed_time(b) / burst for a, b in zip(events, events[1:]))
    at = lambda q: values[round(q * (len(values) - 1))]  # noqa: E731
    return {"median_ms": at(0.5), "p10_ms": at(0.1), "p90_ms": at(0.9), "passes": count * burst}


START = """
import sys, torch, transformers
m = transformers.GPT2LMHeadModel.from_pretrained(sys.argv[1], dtype=torch.bfloat16).eval().to(sys.argv[2])
ids = torch.tensor([[82, 79, 77, 69, 79, 58]], device=sys.argv[2])
with torch.inference_mode():
    print(int(m(ids).logits[0, -1].argmax()), flush=True)
"""


def measure_start(args: argparse.Namespace, repeat: int) -> list[dict]:
    """Times a Python process from before its start until it has printed its first token."""
    import transformers

    work = "process start to first token, 6 x 384"
    values = []
    with tempfile.TemporaryDirectory() as folder:
        config = transformers.GPT2Config(n_layer=6, n_embd=384, n_head=6, vocab_size=257, n_positions=CONTEXT, bos_token_id=256, eos_token_id=256)
        transformers.GPT2LMHeadModel(config).to(torch.bfloat16).save_pretrained(folder)
        for _ in range(repeat):
            start = time.perf_counter()
            with subprocess.Popen([sys.executable, "-c", START, folder, args.device], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
                first = p.stdout.readline()
                values.append((time.perf_counter() - start) * 1e3)
                _, error = p.communicate()
            if not first or p.returncode:
                return [{"work": work, "way": "transformers", "error": error.strip()[-200:]}]
    values.sort()
    r = {"work": work, "way": "transformers", "median_ms": values[len(values) // 2], "p10_ms": values[0], "p90_ms": values[-1], "passes": repeat}
    print(f"{work:40} {'transf.':8} {r['median_ms']:10.1f}  {r['p10_ms']:.1f} - {r['p90_ms']:.1f}")
    return [r]


if __name__ == "__main__":
    main()
