#!/usr/bin/env python3
"""Makes the golden files of gpt2/testdata from Hugging Face transformers.

The Go tests compare the engine with these files and so need no Python. gpt2/testdata/README.md
says what each file holds; the commands that make them:

    parity/golden.py tiny                                      # gpt2/testdata/models/*
    parity/golden.py forms                                     # gpt2/testdata/models/form-*
    parity/golden.py shipped --weights weights/shakespeare     # gpt2/testdata/shakespeare.safetensors
    parity/golden.py random --infer bin/infer                  # gpt2/testdata/gpt2.L1 and .L12.safetensors
    parity/golden.py sampling                                  # gpt2/testdata/sampling.safetensors

Seeds are fixed and arithmetic is float32 on the CPU. Made again, weights and ids are the same bytes;
logits may differ in their last bits, far below what the tests tolerate.
"""

import argparse
import collections
import hashlib
import json
import pathlib
import pickle
import shutil
import subprocess
import tempfile

import safetensors.torch
import torch
import transformers

import reference

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTDATA = ROOT / "gpt2" / "testdata"

# The geometry of the tiny models. Nothing is a multiple of a vector register's width, so that the
# tails of kernels run: V is prime, and HS is 4 (6 in "plain").
TINY = dict(n_layer=2, n_embd=16, n_head=4, vocab_size=97, n_positions=16)

# Tiny models: name -> what makes each different from the plain one.
#   config       fields of config.json
#   dtype        type of the tensors on disk (float32)
#   prefix       what stands before every name but lm_head.weight ("transformer.")
#   shards       number of safetensors files (1)
#   buffers      whether the file also holds attn.bias and attn.masked_bias, as old checkpoints do
#   lm_head      None (absent), "tied" (a copy of wte) or "own"
#   activations  whether expected.safetensors holds every stage's output besides the logits
MODELS = {
    "plain": dict(config=dict(n_embd=24), activations=True),
    "inner": dict(config=dict(n_inner=40)),
    "gelu_pytorch_tanh": dict(config=dict(activation_function="gelu_pytorch_tanh")),
    "gelu": dict(config=dict(activation_function="gelu")),
    "relu": dict(config=dict(activation_function="relu")),
    "scale-by-layer": dict(config=dict(scale_attn_by_inverse_layer_idx=True)),
    "no-scale": dict(config=dict(scale_attn_weights=False)),
    "epsilon": dict(config=dict(layer_norm_epsilon=0.05)),
    "float16": dict(dtype=torch.float16),
    "bfloat16": dict(dtype=torch.bfloat16),
    "bare-names": dict(prefix="", buffers=True),
    "untied": dict(config=dict(tie_word_embeddings=False), lm_head="own"),
    "tied-explicit": dict(lm_head="tied"),
    "sharded": dict(shards=3),
    "everything": dict(
        config=dict(n_embd=20, n_head=5, n_layer=3, n_inner=52, activation_function="relu", layer_norm_epsilon=1e-3,
                    scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False, tie_word_embeddings=False),
        dtype=torch.bfloat16, prefix="", shards=2, buffers=True, lm_head="own", activations=True),
    "silu": dict(config=dict(activation_function="silu")),
    "quick_gelu": dict(config=dict(activation_function="quick_gelu")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=TESTDATA, help="folder to write to (default gpt2/testdata)")
    parser.add_argument("--threads", type=int, default=2)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tiny", help="tiny random models, one per feature of the checkpoint format")
    commands.add_parser("forms", help="a tiny random model in the forms of other programs")
    shipped = commands.add_parser("shipped", help="the shipped weights at every depth")
    shipped.add_argument("--weights", type=pathlib.Path, default=ROOT / "weights" / "shakespeare")
    random = commands.add_parser("random", help="random weights in GPT-2's geometry, 1 and 12 layers")
    random.add_argument("--infer", type=pathlib.Path, default=ROOT / "bin" / "infer", help="this project's program")
    commands.add_parser("sampling", help="probabilities after penalty, temperature and cuts")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    if args.command == "tiny":
        for index, (name, variant) in enumerate(MODELS.items()):
            make_tiny(args.out / "models" / name, index, **variant)
    elif args.command == "forms":
        make_forms(args.out / "models")
        make_adapter(args.out / "lora")
    elif args.command == "shipped":
        make_shipped(args.out / "shakespeare.safetensors", args.weights)
    elif args.command == "sampling":
        make_sampling(args.out / "sampling.safetensors")
    else:
        for layers in (1, 12):
            make_random(args.out / f"gpt2.L{layers}.safetensors", args.infer, layers)


def make_sampling(path: pathlib.Path) -> None:
    """Writes, for some ways to sample, logits and the probabilities that generate draws the next token with."""
    ways = [dict(temperature=float(t), top_k=k, top_p=float(p), min_p=float(m), repetition_penalty=float(r))
            for t, k, p, m, r in [(1, 0, 1, 0, 1), (0.7, 0, 1, 0, 1), (1.5, 10, 1, 0, 1), (1, 0, 0.8, 0, 1), (1, 0, 1, 0.1, 1), (2, 0, 1, 0.3, 1),
                                  (1, 0, 1, 0, 1.3), (1, 0, 1, 0, 0.6), (1.3, 20, 0.9, 0.05, 1.2), (0.9, 50, 0.95, 0.2, 1.1), (3, 30, 0.7, 0.4, 2)]]
    torch.manual_seed(7)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**TINY, "bos_token_id": 0, "eos_token_id": 0}))
    with torch.no_grad():
        for value in model.parameters():
            value.normal_()
    tensors = {}
    for i, way in enumerate(ways):
        ids = torch.randint(1, TINY["vocab_size"], (1, 12))
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=1, output_scores=True, output_logits=True,
                             return_dict_in_generate=True, pad_token_id=0, **way)
        tensors |= {f"{i}.ids": ids[0].int(), f"{i}.logits": out.logits[0][0].float(), f"{i}.probabilities": out.scores[0][0].float().softmax(-1),
                    f"{i}.way": torch.tensor([float(way[name]) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")])}
    save(path, tensors)


def make_tiny(folder: pathlib.Path, seed: int, config: dict = {}, dtype: torch.dtype = torch.float32,
              prefix: str = "transformer.", shards: int = 1, buffers: bool = False, lm_head: str | None = None,
              activations: bool = False) -> None:
    """Writes one tiny checkpoint, reads it back with transformers and adds the logits it must give."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cfg = transformers.GPT2Config(**{**TINY, "bos_token_id": 0, "eos_token_id": 0, **config})
    rng = torch.Generator().manual_seed(1000 + seed)

    tensors = {}
    for name, value in transformers.GPT2LMHeadModel(cfg).state_dict().items():
        if name != "lm_head.weight":
            tensors[prefix + name.removeprefix("transformer.")] = random_weights(name, value.shape, rng).to(dtype)
    if lm_head == "own":
        tensors["lm_head.weight"] = torch.randn(cfg.vocab_size, cfg.n_embd, generator=rng).mul(0.5).to(dtype)
    if lm_head == "tied":
        tensors["lm_head.weight"] = tensors[prefix + "wte.weight"].clone()
    if buffers:
        t = cfg.n_positions
        for i in range(cfg.n_layer):
            tensors[f"{prefix}h.{i}.attn.bias"] = torch.ones(t, t, dtype=dtype).tril().view(1, 1, t, t)
            tensors[f"{prefix}h.{i}.attn.masked_bias"] = torch.tensor(-1e4, dtype=dtype)

    write_checkpoint(folder, tensors, shards)
    fields = cfg.to_diff_dict() | {"architectures": ["GPT2LMHeadModel"], "dtype": str(dtype).removeprefix("torch.")}
    if prefix == "":  # as the first GPT-2 checkpoints had it
        fields |= {"n_ctx": cfg.n_positions, "attn_pdrop": 0.1, "embd_pdrop": 0.1, "resid_pdrop": 0.1}
        fields.pop("dtype"), fields.pop("transformers_version")
    (folder / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")

    model = reference.load(folder)
    check_loaded(model, tensors, prefix)
    ids = torch.randint(cfg.vocab_size, (cfg.n_positions,), generator=rng).tolist()
    stages = reference.activations(model, ids)
    expected = {"ids": torch.tensor(ids, dtype=torch.int32), "lm_head": stages["lm_head"]}
    save(folder / "expected.safetensors", stages | expected if activations else expected)


def make_forms(models: pathlib.Path) -> None:
    """Writes a model as PyTorch, nanoGPT, minGPT, llm.c and others save it, with the logits of transformers."""
    geometry = dict(n_layer=2, n_embd=8, n_head=2, vocab_size=40, n_positions=8)
    rng = torch.Generator().manual_seed(38)
    cfg = transformers.GPT2Config(**geometry, bos_token_id=None, eos_token_id=None)
    state = {name: random_weights(name, value.shape, rng) for name, value in transformers.GPT2LMHeadModel(cfg).state_dict().items()
             if name != "lm_head.weight"}
    ids = torch.randint(cfg.vocab_size, (cfg.n_positions,), generator=rng)

    def folder(name: str, weights: dict[str, torch.Tensor] = state, config: bool = False, **changes) -> pathlib.Path:
        """Makes a folder with the logits of these weights."""
        path = models / ("form-" + name)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        fields = cfg.to_dict() | changes
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**fields)).eval()
        model.load_state_dict({n: t.float() for n, t in weights.items()}, strict=False)
        with torch.no_grad():
            logits = model.double()(ids[None]).logits[0]
        save(path / "expected.safetensors", {"ids": ids.int(), "lm_head": logits.float()})
        if config:
            fields = {k: fields[k] for k in (*geometry, "model_type", "activation_function")}
            (path / "config.json").write_text(json.dumps(fields) + "\n")
        return path

    def module(weights: dict[str, torch.Tensor], prefix: str = "") -> collections.OrderedDict:
        """The state_dict of a model whose lm_head and wte are one."""
        weights = weights | {"lm_head.weight": weights["transformer.wte.weight"]}
        result = collections.OrderedDict((prefix + n, t) for n, t in weights.items())
        result._metadata = collections.OrderedDict({"": {"version": 1}})
        return result

    def linear(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Matrices as torch.nn.Linear has them."""
        return {n: t.t().contiguous() if ".h." in n and t.ndim == 2 else t for n, t in weights.items()}

    torch.save(module(state), folder("pytorch", config=True) / "pytorch_model.bin")

    names, weight_map = list(state), {}
    mixed = {n: t.half() if i >= len(names) // 2 else t for i, (n, t) in enumerate(state.items())}
    path = folder("pytorch-sharded", mixed, config=True)
    for i in range(2):
        file = f"pytorch_model-{i + 1:05d}-of-00002.bin"
        part = names[i * len(names) // 2:(i + 1) * len(names) // 2]
        torch.save({n: mixed[n] for n in part}, path / file)
        weight_map |= {n: file for n in part}
    (path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}) + "\n")

    plain = {n: torch.zeros_like(t) if n.endswith("bias") else t for n, t in state.items()}
    bare = linear({n: t for n, t in plain.items() if not n.endswith("bias")})
    parameters = [torch.nn.Parameter(t.clone()) for t in bare.values()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95))
    sum(p.sum() for p in parameters).backward()
    optimizer.step()
    args = dict(n_layer=2, n_head=2, n_embd=8, block_size=8, bias=False, vocab_size=40, dropout=0.0)
    torch.save({"model": module(bare, "_orig_mod."), "optimizer": optimizer.state_dict(), "model_args": args, "iter_num": 2000,
                "best_val_loss": torch.tensor(1.5), "config": {"dataset": "shakespeare_char", "init_from": "scratch", "beta2": 0.99}},
               folder("nanogpt", plain, activation_function="gelu") / "ckpt.pt")
    chars = sorted(set("\n !',.:;?ABCDEFGHIJKLMNOabcdefghijklmnop"))
    meta = {"vocab_size": len(chars), "itos": dict(enumerate(chars)), "stoi": {c: i for i, c in enumerate(chars)}}
    (models / "form-nanogpt" / "meta.pkl").write_bytes(pickle.dumps(meta))

    path = folder("mingpt")
    masks = {f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 8, 8).tril() for i in range(2)}
    torch.save(module(linear(state) | masks), path / "model.pt")
    (path / "config.json").write_text(json.dumps({"system": {"seed": 1}, "model": {"model_type": None, "n_head": 2}}) + "\n")

    for name, version, dtype in ("llmc", 3, torch.float32), ("llmc-bf16", 5, torch.bfloat16):
        write_llmc(folder(name, {n: t.to(dtype) for n, t in state.items()}) / "model.bin", linear(state), cfg, version, dtype)

    # float64 with peft's prefix, a value head, and of the two names of wte the one that safetensors.torch.save_model keeps.
    odd = {"base_model.model." + n: t.double() for n, t in state.items() if "wte" not in n}
    odd |= {"base_model.model.lm_head.weight": state["transformer.wte.weight"].double(), "v_head.summary.weight": torch.ones(1, 8)}
    safetensors.torch.save_file(odd, folder("odd", config=True) / "model.safetensors", {"format": "pt"})
    path = folder("linear", config=True)
    safetensors.torch.save_file({"_orig_mod.module." + n: t for n, t in linear(state).items()}, path / "model.safetensors", {"format": "pt"})


def make_adapter(folder: pathlib.Path) -> None:
    """Writes a LoRA adapter of every matrix by peft, with the logits of the model in models/plain after merging."""
    import peft
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = reference.load(TESTDATA / "models" / "plain")
    config = peft.LoraConfig(r=3, lora_alpha=7, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True, use_rslora=True,
                             rank_pattern={"c_fc": 5}, alpha_pattern={"c_fc": 2, r"h\.1\..*c_proj": 4})
    adapted = peft.get_peft_model(model, config)
    rng = torch.Generator().manual_seed(39)
    with torch.no_grad():
        for name, value in adapted.named_parameters():
            if "lora_" in name:
                value.copy_(torch.randn(value.shape, generator=rng) * 0.3)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    ids = torch.randint(model.config.vocab_size, (model.config.n_positions,), generator=rng).tolist()
    stages = reference.activations(adapted.merge_and_unload(), ids)
    save(folder / "expected.safetensors", {"ids": torch.tensor(ids, dtype=torch.int32), "lm_head": stages["lm_head"]})


def write_llmc(path: pathlib.Path, weights: dict[str, torch.Tensor], cfg: transformers.GPT2Config, version: int, dtype: torch.dtype) -> None:
    """Writes what llm.c's train_gpt2.py does: a header of 256 numbers, then each parameter of all layers."""
    padded = 48
    header = torch.zeros(256, dtype=torch.int32)
    header[:8] = torch.tensor([20240326, version, cfg.n_positions, cfg.vocab_size, cfg.n_layer, cfg.n_head, cfg.n_embd, padded])
    rows = torch.zeros(padded - cfg.vocab_size, cfg.n_embd)
    data = [torch.cat([weights["transformer.wte.weight"], rows]), weights["transformer.wpe.weight"]]
    for part in "ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj":
        for kind in "weight", "bias":
            data += [weights[f"transformer.h.{i}.{part}.{kind}"] for i in range(cfg.n_layer)]
    data += [weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"]]
    raw = b"".join(t.to(dtype).contiguous().view(torch.uint8).numpy().tobytes() for t in data)
    path.write_bytes(header.numpy().tobytes() + raw)


def random_weights(name: str, shape: torch.Size, rng: torch.Generator) -> torch.Tensor:
    """Draws a tensor large enough to matter: attention that is not uniform, biases that are not 0."""
    noise = torch.randn(shape, generator=rng)
    if "ln_" in name:
        return 1 + 0.3 * noise if name.endswith("weight") else 0.2 * noise
    if name.endswith("bias"):
        return 0.2 * noise
    if "wte" in name or "wpe" in name:
        return 0.5 * noise
    return noise * (1.5 / shape[0] ** 0.5)


def write_checkpoint(folder: pathlib.Path, tensors: dict[str, torch.Tensor], shards: int) -> None:
    """Writes model.safetensors, or that many shards with their index."""
    metadata = {"format": "pt"}
    if shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata)
        return
    names = list(tensors)
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        safetensors.torch.save_file({n: tensors[n] for n in part}, folder / file, metadata)
        weight_map |= {n: file for n in part}
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def check_loaded(model: transformers.GPT2LMHeadModel, tensors: dict[str, torch.Tensor], prefix: str) -> None:
    """Makes sure that transformers took every tensor from the files rather than initialising it."""
    state = model.state_dict()
    for name, value in tensors.items():
        if name.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        full = name if name == "lm_head.weight" else "transformer." + name.removeprefix(prefix)
        if not torch.equal(state[full], value.float()):
            raise SystemExit(f"transformers did not load {name} as written")


def make_shipped(path: pathlib.Path, weights: pathlib.Path) -> None:
    """Logits and greedy continuations of the shipped weights, whose first N layers are a model for every N."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    text = (pathlib.Path(__file__).parent / "prompt.txt").read_text()
    model = reference.load(weights)
    prompts = {"short": tokenizer.encode(text)[:64], "long": tokenizer.encode(text)[:model.config.n_positions]}
    positions = {"short": spread(64, 16), "long": spread(model.config.n_positions, 24)}
    if len(prompts["long"]) < model.config.n_positions:
        raise SystemExit("parity/prompt.txt does not fill the context")

    out = {}
    for name in prompts:
        out[f"{name}.ids"] = int32(prompts[name])
        out[f"{name}.positions"] = int32(positions[name])
    for layers in range(model.config.n_layer, 0, -1):  # downwards: truncate cuts the model in place
        reference.truncate(model, layers)
        for name in prompts:
            rows = reference.logits(model, prompts[name])
            out[f"L{layers}.{name}.logits"] = rows[positions[name]]
            out[f"L{layers}.{name}.peak"] = rows.abs().max().view(1)
        out |= greedy(model, prompts["short"], f"L{layers}.greedy.")
    save(path, out, {"weights": digest(weights / "model.safetensors")})


def make_random(path: pathlib.Path, infer: pathlib.Path, layers: int) -> None:
    """Logits of random weights in GPT-2's geometry, which this project's program makes from a seed."""
    spec = f"random:L={layers},C=768,NH=12,V=50257,T=1024"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([infer, "export", "--model", spec, "--out", f"{folder}/model"], check=True)
        model = reference.load(pathlib.Path(folder, "model"))
    rng = torch.Generator().manual_seed(2000)
    ids = torch.randint(model.config.vocab_size, (model.config.n_positions,), generator=rng).tolist()
    columns = torch.randperm(model.config.vocab_size, generator=rng)[:1024].sort().values
    positions = spread(len(ids), 16)
    rows = reference.logits(model, ids)[positions]
    best = rows.topk(2).values
    out = {
        "ids": int32(ids),
        "positions": int32(positions),
        "columns": columns.int(),
        "logits": rows[:, columns],
        "argmax": rows.argmax(-1).int(),
        "gaps": best[:, 0] - best[:, 1],
        "peaks": rows.abs().amax(-1),
        "wte.first": model.transformer.wte.weight.detach().flatten()[:16],
        "c_proj.last": model.transformer.h[-1].mlp.c_proj.weight.detach().flatten()[:16],
    } | greedy(model, ids[:64], "greedy.")
    save(path, out, {"model": spec})


def greedy(model: transformers.GPT2LMHeadModel, ids: list[int], prefix: str) -> dict[str, torch.Tensor]:
    """The greedy continuation by 200 tokens, as tensors."""
    new, gaps, peaks = reference.greedy(model, ids, 200)
    print(f"{prefix}: {reference.certain_steps(gaps, peaks)} of {len(new)} greedy steps are certain")
    return {prefix + "ids": int32(new), prefix + "gaps": torch.tensor(gaps), prefix + "peaks": torch.tensor(peaks)}


def spread(n: int, count: int) -> list[int]:
    """At most `count` positions of 0..n-1: the ends, those around multiples of 64 and others at random."""
    rng = torch.Generator().manual_seed(3000 + n)
    chosen = {0, 1, n // 2 - 1, n // 2, n - 2, n - 1, min(63, n - 1), min(64, n - 1)}
    for p in torch.randperm(n, generator=rng).tolist():
        if len(chosen) >= count:
            break
        chosen.add(p)
    return sorted(chosen)


def int32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def digest(path: pathlib.Path) -> str:
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def save(path: pathlib.Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] = {}) -> None:
    metadata = {"torch": torch.__version__, "transformers": transformers.__version__, **metadata}
    path.parent.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file({n: t.contiguous() for n, t in tensors.items()}, path, metadata)
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB, {len(tensors)} tensors")


if __name__ == "__main__":
    main()
