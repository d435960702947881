"""Kineto captures of torch.compile; the folder inductor-NAME has its Triton code."""
import os
import torch
import models
from models import *

models.RANGES = False
f32, b16, f16 = torch.float32, torch.bfloat16, torch.float16


def job(name, mode, m, run, n=2):
    torch._dynamo.reset()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(OUT, "inductor-" + name)
    f = torch.compile(m, mode=mode, dynamic=False)
    kineto(name, lambda: [run(f) for _ in range(n)])


m = hf(dtype=b16, hooked=False)
x = ids(1, 64)
job("compile-hf-bf16-prefill", None, m, lambda f: f(x, use_cache=False))
job("compile-hf-bf16-reduce-overhead", "reduce-overhead", m, lambda f: f(x, use_cache=False))
p = plain(f32, layers=4)
job("compile-plain-f32-prefill", None, p, lambda f: f(x))
from transformers import StaticCache
m = hf(dtype=f16, hooked=False)
cache = StaticCache(config=m.config, max_batch_size=1, max_cache_len=128, device=DEV, dtype=f16)
with torch.no_grad():
    m(ids(1, 40), past_key_values=cache, cache_position=torch.arange(40, device=DEV), use_cache=True)
y, at = ids(1, 1), torch.tensor([40], device=DEV)
job("compile-hf-f16-static-decode", "reduce-overhead", m,
    lambda f: f(y, past_key_values=cache, cache_position=at, position_ids=at.view(1, 1), use_cache=True))
q = plain(b16, layers=6, attn="manual", gelu="many")
job("compile-plain-manual-bf16-prefill", None, q, lambda f: f(x))
