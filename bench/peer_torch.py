"""GPT-2 in PyTorch, as fast as PyTorch makes it on a CPU, in one of three ways:

  (eager)   calls of torch functions alone; linear layers are MKL's in float32, on the checkpoint's own orientation of
            the weights (transposed, they are no faster), and in bfloat16 as in the next way, there the fastest
  onednn    the same with oneDNN's linear layers in float32 too, on weights packed for the number of rows
  compile   compiled by torch.compile with frozen weights, which are then packed

Compared with the transformers library this saves everything but arithmetic: modules, cache objects and masks.
Attention is scaled_dot_product_attention (a fused CPU kernel), the KV cache has fixed buffers. In bfloat16
the weights, the activations and the cache are bfloat16.
"""

import torch
import torch._inductor.config
import torch.nn.functional as F

from case import Case

VERSION = torch.__version__
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Peer:
    def __init__(self, case: Case, threads: int, dtype: str, way: str = "eager"):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.case, self.way, self.dtype = case, way, DTYPES[dtype]
        self.model = GPT2(case, self.dtype).eval()

    def prepare(self, work: str):
        """Returns a function that does the work once and returns logits, [T, V] or [V]."""
        case = self.case
        ids = torch.from_numpy(case.expected()["ids"]).long()
        past = case.past if work == "decode" else 0
        ids = ids[past:past + 1] if work == "decode" else ids
        if self.way == "onednn" or self.way == "eager" and self.dtype == torch.bfloat16:
            self.model.pack(len(ids))
        shape = (2, case.layers, 1, case.heads, case.tokens, case.head_size)
        cache = [list(kv) for kv in torch.zeros(shape, dtype=self.dtype)]
        if work == "decode":
            for i, kv in enumerate(case.past_keys_values()):
                for whole, x in zip(cache, kv):
                    whole[i][0, :, :past] = torch.from_numpy(x).to(self.dtype)

        def forward(ids, keys, values):
            return self.model(ids, keys, values, past, work == "prefill-last")

        if self.way == "compile":
            torch._inductor.config.freezing = True  # as an option of torch.compile it takes effect too late
            # The C++ wrapper spares a decode step some of the calls from Python. max_autotune is no faster.
            forward = torch.compile(forward, dynamic=False, options={"cpp_wrapper": work == "decode"})

        def run():
            with torch.no_grad() if self.way == "compile" else torch.inference_mode():
                logits = forward(ids, *cache)
            return logits if work == "prefill-all" else logits[0]

        run.logits = lambda: run().float().numpy()
        return run


class GPT2(torch.nn.Module):
    def __init__(self, case: Case, dtype: torch.dtype):
        super().__init__()
        self.case = case
        # Parameters are what torch.compile freezes.
        self.weights = {name: torch.nn.Parameter(torch.from_numpy(w).to(dtype), requires_grad=False)
                        for name, w in case.weights().items()}
        self.packed = {}

    def pack(self, rows: int) -> None:
        """Lets oneDNN lay out the weights of linear layers for inputs of so many rows."""
        for name, w in self.weights.items():
            if w.dim() == 2 and name != "wpe.weight":
                w = w if name == "wte.weight" else w.T.contiguous()  # [out, in]
                self.packed[name] = torch.ops.mkldnn._reorder_linear_weight(w, rows)

    def norm(self, x, name: str):
        return F.layer_norm(x, (self.case.channels,), self.weights[name + ".weight"], self.weights[name + ".bias"], self.case.epsilon)

    def linear(self, x, name: str):
        if self.packed:
            return self.onednn(x, name + ".weight", self.weights[name + ".bias"])
        return torch.addmm(self.weights[name + ".bias"], x, self.weights[name + ".weight"])

    def onednn(self, x, name: str, bias):
        return torch.ops.mkldnn._linear_pointwise(x, self.packed[name], bias, "none", [], "")

    def heads(self, x):  # [T, C] -> [1, NH, T, HS]
        return x.view(1, -1, self.case.heads, self.case.head_size).transpose(1, 2)

    def forward(self, ids, keys, values, past: int, last_only: bool):
        case, t = self.case, len(ids)
        x = F.embedding(ids, self.weights["wte.weight"]) + self.weights["wpe.weight"][past:past + t]  # [T, C]
        for i in range(case.layers):
            h = f"h.{i}"
            n = self.norm(x, h + ".ln_1")
            if last_only and i == case.layers - 1:
                k, v = self.linear(n, "last.kv").split(case.channels, 1)
                q, x = self.linear(n[-1:], "last.q"), x[-1:]
            else:
                q, k, v = self.linear(n, h + ".attn.c_attn").split(case.channels, 1)
            keys[i][:, :, past:past + t] = self.heads(k)
            values[i][:, :, past:past + t] = self.heads(v)
            a = F.scaled_dot_product_attention(self.heads(q), keys[i][:, :, :past + t], values[i][:, :, :past + t],
                                               is_causal=len(q) > 1)
            x = x + self.linear(a.transpose(1, 2).reshape(-1, case.channels), h + ".attn.c_proj")
            m = F.gelu(self.linear(self.norm(x, h + ".ln_2"), h + ".mlp.c_fc"), approximate="tanh")
            x = x + self.linear(m, h + ".mlp.c_proj")
        x = self.norm(x, "ln_f")
        return self.onednn(x, "wte.weight", None) if self.packed else F.linear(x, self.weights["wte.weight"])
