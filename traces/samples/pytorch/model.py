"""A GPT-2-like decoder in plain PyTorch, to be recorded. Random weights, no network."""
import argparse, math, os, sys, time
import torch, torch.nn as nn, torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--layers", type=int, default=2)
p.add_argument("--warm", type=int, default=3)
p.add_argument("--passes", type=int, default=3)
p.add_argument("--dtype", default="bfloat16")
p.add_argument("--vocab", type=int, default=50304)
p.add_argument("--bad", action="store_true", help="many elementwise kernels, copies and synchronisation inside the pass")
p.add_argument("--range", action="store_true", help="cudaProfilerStart after the warm-up")
p.add_argument("--nvtx", action="store_true")
p.add_argument("--kineto", default="")
p.add_argument("--keys", default="")
p.add_argument("--ranks", type=int, default=0, help="so many processes on the one device")
a = p.parse_args()
C, NH, TOKENS = 768, 12, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.c_fc, self.m_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def gelu(self, x):
        if a.bad:
            return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        return F.gelu(x, approximate="tanh")

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (y.view(b, t, NH, C // NH).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, C))
        return x + self.m_proj(self.gelu(self.c_fc(self.ln_2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocab, C), nn.Embedding(1024, C)
        self.h = nn.ModuleList(Block() for _ in range(a.layers))
        self.ln_f, self.lm_head = nn.LayerNorm(C), nn.Linear(C, a.vocab, bias=False)

    def forward(self, ids):
        dev = ids.device
        push, pop = (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) if a.nvtx and dev.type == "cuda" else (lambda s: None, lambda: None)
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=dev))
        for i, block in enumerate(self.h):
            push(f"layer {i}")
            x = block(x)
            pop()
            if a.bad:
                if float(x.abs().max()) > 1e30:      # a check that waits for the device
                    raise SystemExit("overflow")
        push("head")
        y = self.lm_head(self.ln_f(x))
        pop()
        return y


def run(rank):
    cuda = torch.cuda.is_available()  # else it runs on the CPU
    dev = torch.device("cuda:0" if cuda else "cpu")
    torch.manual_seed(rank)
    if a.ranks:
        import torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
        dist.init_process_group("gloo", rank=rank, world_size=a.ranks)
    model = Model().to(dev, getattr(torch, a.dtype)).eval()
    ids = torch.randint(0, a.vocab, (1, TOKENS))
    if cuda and not a.bad:
        ids = ids.to(dev)
    big = torch.randn(4 << 20)                        # 16 MiB of pageable memory
    sync = torch.cuda.synchronize if cuda else (lambda: None)

    def once():
        if cuda and a.nvtx:
            torch.cuda.nvtx.range_push("forward")
        x = ids
        if a.bad:
            x = torch.stack([ids[:, i].to(dev) for i in range(16)], 1)   # sixteen copies of a few bytes
            x = torch.cat([x, ids[:, 16:].to(dev)], 1)
            big.to(dev)                                                    # pageable
        y = model(x)
        nxt = y[:, -1].argmax(-1)
        if a.bad:
            nxt.cpu()
        if cuda and a.nvtx:
            torch.cuda.nvtx.range_pop()

    with torch.no_grad():
        for _ in range(a.warm):
            once()
        sync()
        if a.ranks:
            dist.barrier()
        if a.range:
            torch.cuda.cudart().cudaProfilerStart()
        if a.kineto:
            from torch.profiler import profile, ProfilerActivity
            acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
            with profile(activities=acts, record_shapes=True) as prof:
                for _ in range(a.passes):
                    with torch.profiler.record_function("forward"):
                        once()
                sync()
            prof.export_chrome_trace(a.kineto.replace("RANK", str(rank)))
            if a.keys and rank == 0:
                by = "self_device_time_total" if cuda else "self_cpu_time_total"
                with open(a.keys, "w") as f:
                    for group in (False, True):
                        print(prof.key_averages(group_by_input_shape=group).table(sort_by=by, row_limit=100, max_name_column_width=200, max_shapes_column_width=200), file=f)
        else:
            for _ in range(a.passes):
                once()
            sync()
        if a.range:
            torch.cuda.cudart().cudaProfilerStop()
    if a.ranks:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    if a.ranks:
        import torch.multiprocessing as mp
        mp.spawn(run, nprocs=a.ranks)
    else:
        run(0)
