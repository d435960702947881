"""Models with random weights, ranges by module, and captures: what eager.py and compiled.py share.

Needs a GPU, PyTorch and transformers; OUT is the folder for the captures.
"""
import contextlib, gzip, os, shutil
import torch
import torch.nn as nn
import torch.nn.functional as F

DEV = "cuda" if torch.cuda.is_available() else "cpu"
OUT = os.environ.get("OUT", "captures")
os.makedirs(OUT, exist_ok=True)
RANGES = True  # they are recorded


def push(name):
    if RANGES:
        STACK.append(torch.autograd.profiler.record_function(name).__enter__())


def pop():
    if RANGES:
        STACK.pop().__exit__(None, None, None)


STACK = []


@contextlib.contextmanager
def span(name):
    push(name)
    try:
        yield
    finally:
        pop()


def hook(model, top="forward"):
    """Ranges around every module, named by its path; the outermost is `top`."""
    for name, m in model.named_modules():
        m.register_forward_pre_hook(lambda m, a, name=name or top: push(name))
        m.register_forward_hook(lambda m, a, o: pop(), always_call=False)
    return model


def hf(layers=12, width=768, heads=12, attn="sdpa", dtype=torch.float32, hooked=True):
    from transformers import GPT2Config, GPT2LMHeadModel
    c = GPT2Config(n_layer=layers, n_embd=width, n_head=heads, attn_implementation=attn)
    c._attn_implementation = attn
    torch.manual_seed(1)
    with torch.device(DEV):
        m = GPT2LMHeadModel(c)
    m = m.to(dtype).eval()
    m.generation_config.eos_token_id = None
    m.generation_config.pad_token_id = 0
    return hook(m) if hooked else m


class Block(nn.Module):
    def __init__(self, c, nh, attn, gelu):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.c_attn, self.c_proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.c_fc, self.m_proj = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.nh, self.attn, self.gelu = nh, attn, gelu

    def forward(self, x, i, cache):
        B, T, C = x.shape
        with span(f"h.{i}.ln_1"):
            a = self.ln_1(x)
        with span(f"h.{i}.attn.c_attn"):
            a = self.c_attn(a)
        with span(f"h.{i}.attn.sdpa"):
            q, k, v = (t.view(B, T, self.nh, C // self.nh).transpose(1, 2) for t in a.split(C, 2))
            if cache is not None:
                if cache[i] is not None:
                    k, v = torch.cat((cache[i][0], k), 2), torch.cat((cache[i][1], v), 2)
                cache[i] = (k, v)
            if self.attn == "sdpa":
                a = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
            else:
                s = (q @ k.transpose(-2, -1)) * (1.0 / (C // self.nh) ** 0.5)
                if T > 1:
                    s = s.masked_fill(torch.ones(T, T, device=x.device).tril() == 0, float("-inf"))
                a = F.softmax(s, -1) @ v
            a = a.transpose(1, 2).contiguous().view(B, T, C)
        with span(f"h.{i}.attn.c_proj"):
            a = self.c_proj(a)
        with span(f"h.{i}.residual_1"):
            x = x + a
        with span(f"h.{i}.ln_2"):
            a = self.ln_2(x)
        with span(f"h.{i}.mlp.c_fc"):
            a = self.c_fc(a)
        with span(f"h.{i}.mlp.gelu"):
            a = F.gelu(a, approximate="tanh") if self.gelu == "one" else \
                0.5 * a * (1 + torch.tanh(0.7978845608 * (a + 0.044715 * torch.pow(a, 3))))
        with span(f"h.{i}.mlp.c_proj"):
            a = self.m_proj(a)
        with span(f"h.{i}.residual_2"):
            x = x + a
        return x


class Plain(nn.Module):
    """A plain GPT-2: what one writes after reading the paper."""

    def __init__(self, layers=12, c=768, nh=12, vocab=50257, attn="sdpa", gelu="one"):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, c), nn.Embedding(1024, c)
        self.h = nn.ModuleList(Block(c, nh, attn, gelu) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(c), nn.Linear(c, vocab, bias=False)

    def forward(self, ids, past=0, cache=None):
        with span("forward"):
            with span("wte+wpe"):
                x = self.wte(ids) + self.wpe(torch.arange(past, past + ids.shape[1], device=ids.device))
            for i, b in enumerate(self.h):
                x = b(x, i, cache)
            with span("ln_f"):
                x = self.ln_f(x)
            with span("lm_head"):
                return self.lm_head(x)


def plain(dtype=torch.float32, **more):
    torch.manual_seed(1)
    with torch.device(DEV):
        m = Plain(**more)
    return m.to(dtype).eval()


def ids(b, t):
    return torch.randint(0, 50257, (b, t), device=DEV)


def sync():
    if DEV == "cuda":
        torch.cuda.synchronize()


def kineto(name, run, warm=2):
    """Writes OUT/name.json.gz: run() under torch.profiler after `warm` runs without."""
    from torch.profiler import ProfilerActivity, profile
    with torch.no_grad():
        for _ in range(warm):
            run()
        sync()
        with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (DEV == "cuda")) as p:
            run()
            sync()
    path = os.path.join(OUT, name + ".json")
    p.export_chrome_trace(path)
    with open(path, "rb") as f, gzip.open(path + ".gz", "wb", 6) as g:
        shutil.copyfileobj(f, g)
    os.remove(path)
    print(name, flush=True)
