"""GPT-2 in PyTorch, as fast as plain eager PyTorch makes it on a CPU.

Against the transformers library this saves what is not arithmetic: modules, cache objects and masks.
Attention is scaled_dot_product_attention (a fused CPU kernel), linear layers are MKL calls on the
checkpoint's own orientation of the weights (transposed, they are no faster), the KV cache and the logits
have fixed buffers. Compiled by torch.compile, a decode step is no faster either.
"""

import numpy as np
import torch
import torch.nn.functional as F

from case import Case

VERSION = torch.__version__


class Peer:
    def __init__(self, case: Case, threads: int):
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.case = case
        self.weights = {name: torch.from_numpy(w) for name, w in case.weights().items()}
        self.context = self.weights["wpe.weight"].shape[0]
        shape = (case.layers, 1, case.heads, self.context, case.head_size)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    def prepare(self, work: str):
        """Returns a function that does the work once and returns float32 logits, [T, V] or [V]."""
        case = self.case
        ids = torch.from_numpy(case.expected()["ids"]).long()
        if work == "decode":
            for i, (k, v) in enumerate(case.past_keys_values()):
                self.keys[i, 0, :, :case.past], self.values[i, 0, :, :case.past] = torch.from_numpy(k), torch.from_numpy(v)
            token, out = ids[case.past:case.past + 1], torch.empty(1, case.vocab)
            return lambda: self.forward(token, case.past, False, out)[0].numpy()
        if work == "prefill-all":
            out = torch.empty(case.tokens, case.vocab)
            return lambda: self.forward(ids, 0, False, out).numpy()
        out = torch.empty(1, case.vocab)
        return lambda: self.forward(ids, 0, True, out)[0].numpy()

    @torch.inference_mode()
    def forward(self, ids: torch.Tensor, past: int, last_only: bool, out: torch.Tensor) -> torch.Tensor:
        case, w = self.case, self.weights
        c, t = case.channels, len(ids)

        def norm(x, name):
            return F.layer_norm(x, (c,), w[name + ".weight"], w[name + ".bias"], case.epsilon)

        def linear(x, name):
            return torch.addmm(w[name + ".bias"], x, w[name + ".weight"])

        def heads(x):  # [T, C] -> [1, NH, T, HS]
            return x.view(1, -1, case.heads, case.head_size).transpose(1, 2)

        x = w["wte.weight"][ids] + w["wpe.weight"][past:past + t]  # [T, C]
        for i in range(case.layers):
            h = f"h.{i}"
            n = norm(x, h + ".ln_1")
            if last_only and i == case.layers - 1:
                k, v = linear(n, "last.kv").split(c, 1)
                q, x = linear(n[-1:], "last.q"), x[-1:]
            else:
                q, k, v = linear(n, h + ".attn.c_attn").split(c, 1)
            self.keys[i, :, :, past:past + t] = heads(k)
            self.values[i, :, :, past:past + t] = heads(v)
            a = F.scaled_dot_product_attention(heads(q), self.keys[i, :, :, :past + t], self.values[i, :, :, :past + t],
                                               is_causal=len(q) > 1)
            x = x + linear(a.transpose(1, 2).reshape(-1, c), h + ".attn.c_proj")
            m = F.gelu(linear(norm(x, h + ".ln_2"), h + ".mlp.c_fc"), approximate="tanh")
            x = x + linear(m, h + ".mlp.c_proj")
        return torch.mm(norm(x, "ln_f"), w["wte.weight"].T, out=out)
