"""Kineto captures of torch.compile, with the modules of each node of the graph that it compiled and its Triton code."""
import glob, os, sys, tarfile, time
import torch
import models
from models import *

models.RANGES = False
f32, b16, f16 = torch.float32, torch.bfloat16, torch.float16
DEADLINE = float(sys.argv[1]) if len(sys.argv) > 1 else 90
GRAPHS = []


def noting(mode):
    """The backend inductor in `mode`, which notes the module of each node first."""
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor import list_mode_options

    def backend(gm, inputs):
        rows = []
        for n in gm.graph.nodes:
            stack = n.meta.get("nn_module_stack") or {}
            rows.append([n.name, n.op, str(n.target)[:80], [v[0] for v in stack.values()][-1:]])
        GRAPHS.append(rows)
        return compile_fx(gm, inputs, config_patches=list_mode_options(mode) if mode else None)
    return backend


def job(name, mode, m, run, n=2):
    if time.time() - models.T0 > DEADLINE:
        return say("no time for", name)
    GRAPHS.clear()
    torch._dynamo.reset()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = d = os.path.join(OUT, "inductor-" + name)
    f = torch.compile(m, backend=noting(mode), dynamic=False)
    try:
        with torch.no_grad():
            for _ in range(3):
                run(f)
            sync()
        say("compiled", name)
    except Exception as e:
        return say("FAILED", name, repr(e)[:600])
    kineto(name, lambda: [run(f) for _ in range(n)], warm=1)
    with open(os.path.join(OUT, name + ".graph.json"), "w") as g:
        json.dump(GRAPHS, g)
    with tarfile.open(os.path.join(OUT, name + ".code.tar.gz"), "w:gz") as t:
        for p in glob.glob(d + "/**/*.py", recursive=True):
            if "def call(" in open(p).read():
                t.add(p, os.path.basename(p))


L = int(sys.argv[2]) if len(sys.argv) > 2 else 12
m = hf(layers=L, dtype=b16, hooked=False)
x = ids(1, 64)
job("compile-hf-bf16-prefill", None, m, lambda f: f(x, use_cache=False))
job("compile-hf-bf16-reduce-overhead", "reduce-overhead", m, lambda f: f(x, use_cache=False))
p = plain(f32, layers=4)
job("compile-plain-f32-prefill", None, p, lambda f: f(x))
from transformers import StaticCache
m = hf(layers=L, dtype=f16, hooked=False)
cache = StaticCache(config=m.config, max_batch_size=1, max_cache_len=128, device=DEV, dtype=f16)
with torch.no_grad():
    m(ids(1, 40), past_key_values=cache, cache_position=torch.arange(40, device=DEV), use_cache=True)
y, at = ids(1, 1), torch.tensor([40], device=DEV)
job("compile-hf-f16-static-decode", "reduce-overhead", m,
    lambda f: f(y, past_key_values=cache, cache_position=at, position_ids=at.view(1, 1), use_cache=True))
q = plain(b16, layers=6, attn="manual", gelu="many")
job("compile-plain-manual-bf16-prefill", None, q, lambda f: f(x))
