"""The reference: GPT-2 as Hugging Face transformers computes it, by default in float32 on the CPU.

Every function here is independent of this project's engine: weights are read by transformers, and
arithmetic is PyTorch's with the plain ("eager") attention. Shapes use the project's letters:
T tokens, C channels, NH heads, HS head size, L layers, V vocabulary.
"""

import logging
import math
import pathlib

import torch
import transformers

# Logits of the engine and of transformers may differ by this share of the pass's largest |logit|.
TOLERANCE = 1e-4

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
logging.getLogger("transformers").setLevel(logging.ERROR)


def load(path: pathlib.Path, layers: int | None = None, device: str = "cpu",
         dtype: torch.dtype = torch.float32) -> transformers.GPT2LMHeadModel:
    """Reads a checkpoint directory, keeping its first `layers` layers (all by default).

    float32 is the reference, with the plain attention and, on a GPU, no TF32. bfloat16 is what users of
    transformers run, with its default attention: the measure of how far bfloat16 may be off.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    model, report = transformers.GPT2LMHeadModel.from_pretrained(
        path, dtype=dtype, attn_implementation="eager" if dtype == torch.float32 else "sdpa", output_loading_info=True)
    missing = set(report["missing_keys"]) - {"lm_head.weight"}
    if missing:
        raise SystemExit(f"{path}: tensors missing: {sorted(missing)}")
    return truncate(model.eval(), layers).to(device)


def truncate(model: transformers.GPT2LMHeadModel, layers: int | None) -> transformers.GPT2LMHeadModel:
    """Cuts the model down, in place, to its first `layers` layers, followed by ln_f and lm_head."""
    if layers is not None:
        if not 1 <= layers <= len(model.transformer.h):
            raise SystemExit(f"expected 1 to {len(model.transformer.h)} layers, found {layers}")
        model.transformer.h = model.transformer.h[:layers]
        model.config.n_layer = layers
    return model


@torch.inference_mode()
def logits(model: transformers.GPT2LMHeadModel, ids: list[int]) -> torch.Tensor:
    """One pass over all of `ids`, without a cache: [T, V] float32."""
    return model(torch.tensor([ids], device=model.device), use_cache=False).logits[0].float().cpu()


@torch.inference_mode()
def greedy(model: transformers.GPT2LMHeadModel, ids: list[int], n: int) -> tuple[list[int], list[float], list[float]]:
    """Continues `ids` by n tokens, always the best one.

    Returns the new ids and, for each, the gap between the two best logits and the largest |logit|
    of the step. A gap under TOLERANCE x the largest |logit| is a tie as far as float32 can tell:
    from that step on two correct engines may go different ways.
    """
    new, gaps, peaks = [], [], []
    cache, step = None, torch.tensor([ids], device=model.device)
    for _ in range(n):
        out = model(step, past_key_values=cache, use_cache=True)
        row, cache = out.logits[0, -1].float(), out.past_key_values
        best = row.topk(2)
        new.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        peaks.append(float(row.abs().max()))
        step = best.indices[:1][None]
    return new, gaps, peaks


def certain_steps(gaps: list[float], peaks: list[float]) -> int:
    """How many greedy steps come before the first one whose two best logits are tied."""
    for i, (gap, peak) in enumerate(zip(gaps, peaks)):
        if gap < TOLERANCE * peak:
            return i
    return len(gaps)


@torch.inference_mode()
def activations(model: transformers.GPT2LMHeadModel, ids: list[int]) -> dict[str, torch.Tensor]:
    """Every stage's output in one pass, by stage name, each [T, width] float32.

    The keys are the checkpoint's module paths. Stages that are no module of their own are read
    where the next module takes them in: attn.sdpa (the heads' outputs side by side) before
    attn.c_proj, residual_1 before ln_2, mlp.gelu before mlp.c_proj.
    """
    out: dict[str, torch.Tensor] = {}

    def before(name: str):
        return lambda module, args: out.__setitem__(name, args[0][0].detach().clone().cpu())

    def after(name: str):
        return lambda module, args, result: out.__setitem__(
            name, (result[0] if isinstance(result, tuple) else result)[0].detach().clone().cpu())

    body = model.transformer
    hooks = [body.drop.register_forward_hook(after("wte+wpe"))]
    for i, block in enumerate(body.h):
        hooks += [
            block.ln_1.register_forward_hook(after(f"h.{i}.ln_1")),
            block.attn.c_attn.register_forward_hook(after(f"h.{i}.attn.c_attn")),
            block.attn.c_proj.register_forward_pre_hook(before(f"h.{i}.attn.sdpa")),
            block.attn.c_proj.register_forward_hook(after(f"h.{i}.attn.c_proj")),
            block.ln_2.register_forward_pre_hook(before(f"h.{i}.residual_1")),
            block.ln_2.register_forward_hook(after(f"h.{i}.ln_2")),
            block.mlp.c_fc.register_forward_hook(after(f"h.{i}.mlp.c_fc")),
            block.mlp.c_proj.register_forward_pre_hook(before(f"h.{i}.mlp.gelu")),
            block.mlp.c_proj.register_forward_hook(after(f"h.{i}.mlp.c_proj")),
            block.register_forward_hook(after(f"h.{i}.residual_2")),
        ]
    hooks += [body.ln_f.register_forward_hook(after("ln_f"))]
    out["lm_head"] = logits(model, ids).clone()
    for hook in hooks:
        hook.remove()
    return out


@torch.inference_mode()
def bits_per_byte(model: transformers.GPT2LMHeadModel, ids: list[int], window: int = 512, stride: int = 256) -> float:
    """Mean -log2 p of each byte of `ids` (one token per byte), conditioned on what comes before it.

    <|endoftext|> (the model's bos token) stands before the text, so that its first byte is scored too. A
    pass reads `window` tokens and predicts the token after each; passes start `stride` apart, and each byte
    is scored once, by the first pass that predicts it. So a byte has at least window - stride bytes before
    it, or all there are.
    """
    stream = [model.config.bos_token_id] + ids
    total = 0.0
    scored = 0
    begin = 0
    while scored < len(ids):
        inputs = stream[begin:min(begin + window, len(ids))]
        end = begin + len(inputs)  # this pass predicts ids[begin:end], of which ids[:scored] are done
        rows = logits(model, inputs)[scored - begin:].double()
        picked = torch.log_softmax(rows, -1).gather(1, torch.tensor(ids[scored:end])[:, None])
        total -= float(picked.sum())
        scored, begin = end, begin + stride
    return total / math.log(2) / len(ids)
