"""Kineto captures of eager programs and CUDA graphs."""
import torch
import models
from models import *
from torch.nn.attention import SDPBackend, sdpa_kernel

f32, b16, f16 = torch.float32, torch.bfloat16, torch.float16


def passes(m, b, t, n=2, **more):
    x = ids(b, t)
    return lambda: [m(x, **more) for _ in range(n)]


def gen(m, b, t, n):
    x = ids(b, t)
    mask = torch.ones_like(x)
    return lambda: m.generate(x, attention_mask=mask, max_new_tokens=n, do_sample=False)


def graph(name, run, n=3):
    """A capture of run() eager with ranges, and one of its replays as a CUDA graph."""
    kineto(name + "-ranges", run)
    models.RANGES = False
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
    models.RANGES = True


def static(m, b, t):
    """One decode step of m with a static cache that holds t tokens."""
    from transformers import StaticCache
    cache = StaticCache(config=m.config, max_batch_size=b, max_cache_len=128, device=DEV, dtype=m.dtype)
    with torch.no_grad():
        m(ids(b, t), past_key_values=cache, cache_position=torch.arange(t, device=DEV), use_cache=True)
    x, at = ids(b, 1), torch.tensor([t], device=DEV)
    pos = at.view(1, 1).expand(b, 1)
    return lambda: m(x, past_key_values=cache, cache_position=at, position_ids=pos, use_cache=True)


def step(m, t, n):
    """A prefill of t tokens and n decode steps with a growing cache, then argmax."""
    def run():
        cache = [None] * len(m.h)
        y = m(ids(1, t), 0, cache)
        for k in range(n):
            y = m(y[:, -1:].argmax(-1), t + k, cache)
    return run


def within(context, m, t):
    """Two passes of two sequences within a context."""
    x = ids(2, t)
    def run():
        with context():
            m(x); m(x)
    return run


def other(m):
    """Other work around the passes: products, softmax, sorting, random numbers, which no stage may have."""
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
    return run


kineto("hf-eager-f32-L12-prefill", passes(hf(attn="eager"), 1, 128, use_cache=False))
kineto("hf-sdpa-bf16-L12-generate", gen(hf(dtype=b16), 1, 32, 5))
kineto("hf-eager-f32-L12-generate", gen(hf(attn="eager"), 1, 16, 4))
kineto("hf-sdpa-f32-L1-prefill", passes(hf(layers=1), 1, 64, n=4))
kineto("hf-sdpa-bf16-L48-generate", gen(hf(layers=48, width=256, heads=4, dtype=b16), 1, 8, 2))
kineto("hf-flash-f16-L6-b2-prefill", within(lambda: sdpa_kernel(SDPBackend.FLASH_ATTENTION), hf(layers=6, dtype=f16), 128))
kineto("hf-math-bf16-L6-b2-prefill", within(lambda: sdpa_kernel(SDPBackend.MATH), hf(layers=6, dtype=b16), 96))
kineto("plain-autocast-L6-prefill", within(lambda: torch.autocast(DEV, dtype=b16), plain(f32, layers=6), 96))
kineto("plain-sdpa-f16-L12-b4-prefill", passes(plain(f16, vocab=50304), 4, 200))
kineto("plain-manual-f16-L2-generate", step(plain(f16, layers=2, attn="manual", gelu="many"), 30, 6))
kineto("plain-manual-f32-L12-prefill", passes(plain(f32, attn="manual", gelu="many"), 1, 128))
kineto("hf-sdpa-bf16-L6-other-work", other(hf(layers=6, dtype=b16)))
m, x = hf(dtype=b16), ids(1, 64)
graph("hf-sdpa-bf16-L12-graph-prefill", lambda: m(x, use_cache=False))
graph("hf-sdpa-f16-L12-graph-static-decode", static(hf(dtype=f16), 1, 40))
