#!/usr/bin/env python3
"""Makes a sample of a capture: its kernels with their launches, without ranges and operators, each kernel with its stage.

    label.py ranges  CAPTURE OUT           the stages are those of the capture's own ranges by module
    label.py graph   CAPTURE OUT RANGES    replays of a CUDA graph: the stages are those of the same kernels, run one by one
    label.py compile CAPTURE OUT LAYERS    torch.compile, which has no modules: the stages follow from Triton's code, read by hand

The stage is the argument "stage" of a kernel, which no reader of traces takes notice of.
"""
import collections, difflib, gzip, json, re, sys

MODULES = {"ln_1": "ln_1", "ln_2": "ln_2", "attn": "attn.sdpa", "attn.c_attn": "attn.c_attn", "attn.c_proj": "attn.c_proj",
           "attn.resid_dropout": "attn.c_proj", "attn.attn_dropout": "attn.sdpa", "mlp.c_fc": "mlp.c_fc", "mlp.act": "mlp.gelu",
           "mlp.c_proj": "mlp.c_proj", "mlp.dropout": "mlp.c_proj"}


def read(path):
    """The kernels of a capture in order of time, with the call, the ranges and the operators around their launch."""
    events = json.load(gzip.open(path))["traceEvents"]
    calls, around = {}, collections.defaultdict(list)
    for e in events:
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {}):
            calls.setdefault(e["args"]["correlation"], e)
        elif e.get("cat") in ("user_annotation", "cpu_op"):
            around[e["tid"]].append(e)
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    for k in kernels:
        k["call"] = c = calls.get(k["args"]["correlation"])
        inside = [e for e in around[c["tid"]] if e["ts"] <= c["ts"] <= e["ts"] + e["dur"]] if c else []
        inside.sort(key=lambda e: (e["ts"], -e["dur"]))
        k["ranges"] = [e["name"] for e in inside if e["cat"] == "user_annotation" and not e["name"].startswith("PyTorch Profiler")]
        k["ops"] = [e["name"] for e in inside if e["cat"] == "cpu_op"]
    return kernels


def by_ranges(kernels):
    half = {}  # of each layer: whether its attention or its MLP ran last
    for k in kernels:
        k["stage"] = None
        if not k["ranges"] or "other" in k["ranges"] or k["ranges"][-1] == "forward":
            continue
        inner = k["ranges"][-1]
        name = inner.removeprefix("transformer.")
        layer = re.match(r"h\.(\d+)(?:\.(.*))?$", name)
        if name in ("wte", "wpe", "drop"):
            k["stage"] = "wte+wpe"
        elif inner == "transformer":  # the sum of the embeddings is beside the modules, as are masks
            if k["ops"][:1] in (["aten::add"], ["aten::add_"]) and "<long>" not in k["name"]:
                k["stage"] = "wte+wpe"
        elif not inner.startswith("transformer.") or not layer:
            k["stage"] = name
        elif layer[2] is None:  # what is launched by a block itself adds a residual
            k["stage"] = f"h.{layer[1]}.residual_{half[layer[1]]}"
        else:
            k["stage"] = f"h.{layer[1]}.{MODULES[layer[2]]}"
        if layer and layer[2]:
            half[layer[1]] = 2 if layer[2].startswith("mlp") else 1
    return kernels


def by_order(kernels, ranges):
    """Replays have the kernels of the eager run in its order; those that differ between the two are left out."""
    eager = by_ranges(read(ranges))
    names = [k["name"] for k in eager]
    launches = collections.OrderedDict()
    for k in kernels:
        launches.setdefault(k["args"]["correlation"], []).append(k)
    out = []
    for replay in launches.values():
        match = difflib.SequenceMatcher(None, names, [k["name"] for k in replay], autojunk=False)
        for a, b, n in match.get_matching_blocks():
            for i in range(n):
                replay[b + i]["stage"] = eager[a + i]["stage"]
        for i, k in enumerate(replay):
            if "stage" not in k and i > 0 and any(later.get("stage", "") == replay[i - 1].get("stage") for later in replay[i + 1:i + 6]):
                k["stage"] = replay[i - 1]["stage"]
        out += [k for k in replay if "stage" in k]
    return out


def compiled(kernels, layers):
    """The order of the kernels that inductor makes of a GPT-2: bias and residual lie in the LayerNorm after them."""
    at, layer, in_parts = "", 0, any("softmax" in k["name"] for k in kernels)
    softmax = False
    for k in kernels:
        n, s = k["name"].lower(), None
        tail = "split_k_kernel" in n or "splitkreduce" in n
        if "embedding_native_layer_norm" in n and at == "":
            at, layer, s = "ln_1", 0, "wte+wpe+h.0.ln_1"
        elif tail:
            s = f"h.{layer}.{at}"
        elif re.search("fmha|sdpa|flash|fused__softmax", n):
            at = "attn.sdpa"
            s = f"h.{layer}.{at}"
        elif re.search("nvjet|gemm|gemv", n):
            if at == "ln_f":
                at, s = "", "lm_head"
            else:
                if not (at == "attn.sdpa" and softmax):
                    at = {"ln_1": "attn.c_attn", "attn.c_attn": "attn.sdpa", "attn.sdpa": "attn.c_proj", "ln_2": "mlp.c_fc", "mlp.gelu": "mlp.c_proj"}[at]
                s = f"h.{layer}.{at}"
        elif "native_layer_norm" in n and at == "attn.c_proj":
            at, s = "ln_2", f"h.{layer}.residual_1+h.{layer}.ln_2"
        elif "native_layer_norm" in n and layer == layers - 1:
            at, s = "ln_f", f"h.{layer}.residual_2+ln_f"
        elif "native_layer_norm" in n:
            at, s = "ln_1", f"h.{layer}.residual_2+h.{layer + 1}.ln_1"
            layer += 1
        elif re.search("gelu|tanh", n):
            at = "mlp.gelu"
            s = f"h.{layer}.{at}"
        elif re.search("scaled_dot_product|index_copy|clone_transpose", n):
            s = f"h.{layer}.attn.sdpa"
        softmax = in_parts and "softmax" in n
        k["stage"] = s
    return kernels


def write(kernels, path):
    base, events, seen = kernels[0]["ts"] - 20, [], set()
    for k in kernels:
        args = {a: k["args"][a] for a in ("device", "context", "stream", "correlation", "grid", "block", "registers per thread", "graph node id") if a in k["args"]}
        events.append({"ph": "X", "cat": "kernel", "name": k["name"], "pid": 0, "tid": k["args"]["stream"], "ts": round(k["ts"] - base, 3), "dur": round(k["dur"], 3),
                       "args": args | {"stage": k["stage"]}})
        c = k["call"]
        if c and args["correlation"] not in seen:
            seen.add(args["correlation"])
            events.append({"ph": "X", "cat": c["cat"], "name": c["name"], "pid": 1, "tid": 1, "ts": round(c["ts"] - base, 3), "dur": round(c["dur"], 3), "args": {"correlation": args["correlation"]}})
    events.sort(key=lambda e: e["ts"])
    device = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048, "numSms": 132,
              "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 233472}
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in events)
    text = '{"schemaVersion":1,"deviceProperties":[%s],"traceEvents":[\n%s\n]}\n' % (json.dumps(device), lines)
    with open(path, "wb") as f:
        f.write(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    how, capture, out = sys.argv[1:4]
    kernels = read(capture)
    if how == "ranges":
        kernels = by_ranges(kernels)
    elif how == "graph":
        kernels = by_order(kernels, sys.argv[4])
    else:
        kernels = compiled(kernels, int(sys.argv[4]))
    write(kernels, out)
