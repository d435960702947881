"""Kineto captures of eager programs and CUDA graphs, in the order of their value."""
import sys, time
import torch
import models
from models import *
from torch.nn.attention import SDPBackend, sdpa_kernel

DEADLINE = float(sys.argv[1]) if len(sys.argv) > 1 else 90
f32, b16, f16 = torch.float32, torch.bfloat16, torch.float16
JOBS = []


def job(f):
    JOBS.append(f)
    return f


def passes(m, b, t, n=2, **more):
    x = ids(b, t)
    return lambda: [m(x, **more) for _ in range(n)]


def gen(m, b, t, n, **more):
    x = ids(b, t)
    mask = torch.ones_like(x)
    return lambda: m.generate(x, attention_mask=mask, max_new_tokens=n, do_sample=False, **more)


@job
def a01(): kineto("hf-eager-f32-L12-prefill", passes(hf(attn="eager"), 1, 128, use_cache=False))
@job
def a02(): kineto("hf-sdpa-bf16-L12-generate", gen(hf(dtype=b16), 1, 32, 5))
@job
def a03(): kineto("hf-sdpa-f16-L12-b4-prefill", passes(hf(dtype=f16), 4, 128))
@job
def a04(): kineto("hf-eager-f32-L12-generate", gen(hf(attn="eager"), 1, 16, 4))


def graph(name, m, run, n=3):
    """A capture of run() eager with ranges, and one of its replays as a CUDA graph."""
    kineto(name + "-ranges", run, shapes=False)
    if DEV != "cuda":
        return
    models.MODE = "off"
    try:
        with torch.no_grad():
            s = torch.cuda.Stream()
            with torch.cuda.stream(s):
                for _ in range(2):
                    run()
            s.synchronize()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                run()
        kineto(name, lambda: [g.replay() for _ in range(n)])
    finally:
        models.MODE = "record"


def static(m, b, t):
    """One decode step of m with a static cache that holds t tokens."""
    from transformers import StaticCache
    cache = StaticCache(config=m.config, max_batch_size=b, max_cache_len=128, device=DEV, dtype=m.dtype)
    with torch.no_grad():
        m(ids(b, t), past_key_values=cache, cache_position=torch.arange(t, device=DEV), use_cache=True)
    x, at = ids(b, 1), torch.tensor([t], device=DEV)
    pos = at.view(1, 1).expand(b, 1)
    return lambda: m(x, past_key_values=cache, cache_position=at, position_ids=pos, use_cache=True)


@job
def a05():
    m = hf(dtype=b16)
    x = ids(1, 64)
    graph("hf-sdpa-bf16-L12-graph-prefill", m, lambda: m(x, use_cache=False))
@job
def a06():
    m = plain(f32, attn="manual", gelu="many")
    kineto("plain-manual-f32-L12-prefill", passes(m, 1, 128))


def step(m, t, n):
    """A prefill of t tokens and n decode steps with a growing cache, then argmax."""
    def run():
        cache = [None] * len(m.h)
        y = m(ids(1, t), 0, cache)
        for k in range(n):
            y = m(y[:, -1:].argmax(-1), t + k, cache)
    return run


@job
def a07(): kineto("plain-sdpa-bf16-L12-generate", step(plain(b16, last=True), 48, 4))
@job
def a08():
    m = plain(b16, layers=6)
    x = ids(1, 1)
    cache = [None] * 6
    with torch.no_grad():
        m(ids(1, 40), 0, cache)
    graph("plain-sdpa-bf16-L6-graph-decode", m, lambda: m(x, 40, list(cache)))
@job
def a09(): kineto("hf-sdpa-f32-L1-prefill", passes(hf(layers=1), 1, 64, n=4))
@job
def a10(): kineto("hf-eager-bf16-L2-b4-generate", gen(hf(layers=2, attn="eager", dtype=b16), 4, 24, 6))
@job
def a11(): kineto("hf-sdpa-f16-L48-xl-prefill", passes(hf(layers=48, width=1600, heads=25, dtype=f16), 1, 96, n=1))
@job
def a12(): kineto("hf-sdpa-bf16-L48-generate", gen(hf(layers=48, width=256, heads=4, dtype=b16), 1, 8, 2))
@job
def a13():
    m = hf(layers=6, dtype=f16)
    x = ids(2, 128)
    def run():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            m(x); m(x)
    kineto("hf-flash-f16-L6-b2-prefill", run)
@job
def a14():
    m = hf(layers=6, dtype=f32)
    x = ids(2, 128)
    def run():
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            m(x); m(x)
    kineto("hf-efficient-f32-L6-b2-prefill", run)
@job
def a15():
    m = hf(layers=6, dtype=b16)
    x = ids(2, 96)
    def run():
        with sdpa_kernel(SDPBackend.MATH):
            m(x); m(x)
    kineto("hf-math-bf16-L6-b2-prefill", run)
@job
def a16():
    m = plain(f32, layers=6)
    x = ids(2, 96)
    def run():
        with torch.autocast(DEV, dtype=b16):
            m(x); m(x)
    kineto("plain-autocast-L6-prefill", run)
@job
def a17():
    """Other work around the passes: products, softmax, sorting, random numbers, which no stage may have."""
    m = hf(layers=6, dtype=b16)
    x = ids(1, 64)
    A, Bm = torch.randn(512, 512, device=DEV), torch.randn(512, 768, device=DEV)
    def run():
        for _ in range(3):
            with span("other"):
                y = F.softmax(A @ A, -1) @ Bm
                y = F.layer_norm(y, (768,)); y = F.gelu(y) + y; y.sort(-1)
            z = m(x).logits[:, -1].float()
            with span("other"):
                p = F.softmax(z / 0.8, -1); v, i = p.topk(50); torch.multinomial(v, 1); p.sort(-1); p.cumsum(-1)
    kineto("hf-sdpa-bf16-L6-other-work", run)
@job
def a18(): kineto("hf-sdpa-bf16-L12-sampled-generate", (lambda m, x: lambda: m.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=4, do_sample=True, top_k=50, temperature=0.8))(hf(dtype=b16), ids(1, 20)))
@job
def a19():
    m = hf(dtype=f16)
    run = static(m, 1, 40)
    graph("hf-sdpa-f16-L12-graph-static-decode", m, run)
@job
def a20(): kineto("hf-sdpa-f32-medium-L24-prefill", passes(hf(layers=24, width=1024, heads=16), 1, 256, n=1))
@job
def a21(): kineto("plain-sdpa-f16-L12-b4-prefill", passes(plain(f16, vocab=50304), 4, 200))
@job
def a22(): kineto("hf-eager-f16-L12-b4-prefill", passes(hf(attn="eager", dtype=f16), 4, 64))
@job
def a23(): kineto("plain-manual-f16-L2-generate", step(plain(f16, layers=2, attn="manual", gelu="many"), 30, 6))
@job
def a24(): kineto("plain-sdpa-f32-L1-generate", step(plain(f32, layers=1), 30, 6))
@job
def a25(): kineto("hf-sdpa-f32-shapes-L4-generate", passes(hf(layers=4, width=512, heads=8, vocab=50257), 1, 32), shapes=True)
@job
def a26():
    m = plain(f32, layers=6, attn="manual", gelu="many")
    x = ids(1, 64)
    graph("plain-manual-f32-L6-graph-prefill", m, lambda: m(x))
@job
def a27(): kineto("hf-cold-bf16-L12-prefill", passes(hf(dtype=b16), 1, 64, n=3), warm=0)
@job
def a28():
    m = hf(layers=6, dtype=b16, attn="sdpa", tie_word_embeddings=False)
    kineto("hf-sdpa-bf16-L6-padded-mask", (lambda x, k: lambda: [m(x, attention_mask=k) for _ in range(2)])(ids(2, 50), torch.cat((torch.zeros(2, 10), torch.ones(2, 40)), 1).long().to(DEV)))


if len(sys.argv) > 2:
    JOBS = [j for j in JOBS if j.__name__ in sys.argv[2:]]
for j in JOBS:
    if time.time() - models.T0 > DEADLINE:
        say("no time for", j.__name__, "and what follows")
        break
    try:
        j()
    except Exception as e:
        STACK.clear()
        models.MODE = "record"
        say("FAILED", j.__name__, repr(e)[:400])
    if DEV == "cuda":
        torch.cuda.empty_cache()
