#!/usr/bin/env python3
"""Trains the GPT-2 architecture on one text and writes an ordinary Hugging Face GPT-2 directory.

    python weights/train.py --text tinyshakespeare.txt --out weights/shakespeare

The defaults are the recipe of weights/shakespeare: less than 8 minutes on an NVIDIA H200. It needs PyTorch and
safetensors. On a CPU, try --layers 2 --channels 64 --heads 2 --batch-tokens 2048 --steps 200.

One file serves every depth. The residual stream may leave the network after any layer: ln_f and lm_head read it there,
which is called an exit. Every exit has a loss, so the first n layers are a working model for every n [1, 2].

A text of a megabyte is small: a model that reads it two hundred times overfits, the deep exits first. Against that:

  noise        Some of the tokens that the model reads are replaced by others of the text; those that it must predict
               never are [3].
  dropout      On what each layer adds to the residual stream and on attention, growing linearly with depth, as the
               probability of dropping whole layers does in [4].
  average      What is written is an exponential moving average of the weights [5].
  distillation Each exit learns half from the text and half from that average's own prediction, the mean over its
               exits, which reads the same window without noise and without dropout [6, 7].
  offsets      A window begins at a random position, so that short windows train late positions too [8].
  sinusoids    The learned position embeddings begin as the fixed ones of [9], which lets attention find "the byte
               before" at all positions at once instead of learning it 1024 times.

[1] Lee et al. 2015, Deeply-Supervised Nets, arXiv:1409.5185
[2] Elbayad et al. 2020, Depth-Adaptive Transformer, arXiv:1910.10073
[3] Xie et al. 2017, Data Noising as Smoothing in Neural Network Language Models, arXiv:1703.02573 ("unigram noising")
[4] Huang et al. 2016, Deep Networks with Stochastic Depth, arXiv:1603.09382
[5] Polyak and Juditsky 1992, Acceleration of Stochastic Approximation by Averaging
[6] Tarvainen and Valpola 2017, Mean teachers are better role models, arXiv:1703.01780
[7] Zhang et al. 2019, Be Your Own Teacher, arXiv:1905.08094
[8] Kiyono et al. 2021, SHAPE: Shifted Absolute Position Embedding for Transformers, arXiv:2109.05644
[9] Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762

Letters in shapes: B batch, T tokens, C channels, NH heads, HS head size, L layers (and so exits), V vocabulary.
"""

import argparse
import copy
import hashlib
import json
import math
import platform
import random
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

WINDOW = 512  # tokens that the model reads at a time where it is evaluated
STRIDE = 256  # from one window's start to the next
TRAIN_SHARE = 0.9  # of a text, from its start; the rest is for validation

# ---------------------------------------------------------------------------------------------------------------------
# Tokens: GPT-2's byte alphabet with no merges, so that a byte is a token.

SPECIAL = "<|endoftext|>"
END_OF_TEXT = 256  # its id; also what a text begins from
VOCAB = 257


def byte_alphabet() -> list[tuple[int, str]]:
    """GPT-2's 256 byte tokens in the order of their ids: the byte, and the character that stands for it in files.

    Bytes that print in Latin-1 stand for themselves and come first; the others borrow the characters from U+0100 on.
    """
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)) - set(printing))
    return [(byte, chr(byte)) for byte in printing] + [(byte, chr(256 + i)) for i, byte in enumerate(others)]


def encode(text: str) -> Tensor:
    """Token ids (N,) of a text, one for each byte of its UTF-8."""
    id_of_byte = torch.empty(256, dtype=torch.int64)
    for token, (byte, _) in enumerate(byte_alphabet()):
        id_of_byte[byte] = token
    return id_of_byte[torch.tensor(list(text.encode("utf-8")))]


# ---------------------------------------------------------------------------------------------------------------------
# The model. Parameters have the names that GPT-2 gives them.


@dataclass
class Config:
    n_layer: int
    n_embd: int
    n_head: int
    n_positions: int
    layer_norm_epsilon: float = 1e-5


class Attention(nn.Module):
    def __init__(self, config: Config, dropout: float):
        super().__init__()
        self.n_head, self.dropout = config.n_head, dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C)
        q, k, v = (y.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)  # (B, NH, T, HS)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C)
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))  # gelu_new


class Block(nn.Module):
    def __init__(self, config: Config, dropout: float):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.attn = Attention(config, dropout)
        self.ln_2 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.mlp = MLP(config)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, C)
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT2(nn.Module):
    """GPT-2 with an exit after every layer.

    dropouts: each layer's probability, L of them; the embedding has the first layer's.
    sine: root mean square of the sinusoids that the position embeddings begin as.
    """

    def __init__(self, config: Config, dropouts: list[float], sine: float):
        super().__init__()
        self.wte = nn.Embedding(VOCAB, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.drop = nn.Dropout(dropouts[0])
        self.h = nn.ModuleList(Block(config, dropout) for dropout in dropouts)
        self.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)

        # GPT-2's own initialization: smaller where a matrix adds to the residual stream, which 2 L of them do.
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                residual = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.n_layer) if residual else 0.02)
        self.wpe.weight.data = sinusoids(config.n_positions, config.n_embd, sine)

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """Logits (L, B, T, V) of every exit, for ids (B, T) at positions (B, T), which are 0..T-1 where not given."""
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.drop(self.wte(ids) + self.wpe(positions))
        exits = []
        for block in self.h:
            x = block(x)
            exits.append(x)
        lm_head = F.pad(self.wte.weight, (0, 0, 0, -VOCAB % 8))  # GPUs multiply aligned matrices faster
        return F.linear(self.ln_f(torch.stack(exits)), lm_head)[..., :VOCAB]


def sinusoids(positions: int, channels: int, rms: float) -> Tensor:
    """(positions, channels): sines, then cosines, of wavelengths from 4 to 10000 tokens in a geometric series."""
    wavelength = torch.logspace(math.log10(4), math.log10(10000), channels // 2)
    angle = 2 * math.pi * torch.arange(positions)[:, None] / wavelength
    return rms * math.sqrt(2) * torch.cat([angle.sin(), angle.cos()], dim=1)


# ---------------------------------------------------------------------------------------------------------------------
# Training.


class Windows:
    """Draws training batches from a text: random windows, all of one length in a batch.

    A share of the rows begins where a paragraph does, at position 0, with <|endoftext|> before it, so that the model
    learns how to begin from nothing. The others begin anywhere in the text, at any position that leaves them room.
    """

    def __init__(self, text: Tensor, args: argparse.Namespace, device: torch.device):
        self.text, self.args, self.device = text.to(device), args, device
        newline = encode("\n")
        after_blank_line = 2 + ((text[:-2] == newline) & (text[1:-1] == newline)).nonzero().flatten()
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), after_blank_line])
        self.starts = starts[starts + max(args.lengths) <= len(text)].to(device)
        self.random = random.Random(args.seed)
        self.generator = torch.Generator(device).manual_seed(args.seed)

    def below(self, n: int, count: int) -> Tensor:
        return torch.randint(n, (count,), device=self.device, generator=self.generator)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """The next batch: ids, positions and targets, each (B, T), where B * T is --batch-tokens."""
        length = self.random.choice(self.args.lengths)
        rows = self.args.batch_tokens // length
        opening = round(self.args.openings * rows)  # so many rows begin from <|endoftext|>
        first = 1 + self.below(len(self.text) - length, rows)  # (B,) where in the text a row's first target is
        first[:opening] = self.starts[self.below(len(self.starts), opening)]
        index = first[:, None] + torch.arange(length, device=self.device)
        ids, targets = self.text[index - 1], self.text[index]
        ids[:opening, 0] = END_OF_TEXT
        positions = torch.arange(length, device=self.device).repeat(rows, 1)
        positions[opening:] += self.below(self.args.context - length + 1, rows - opening)[:, None]
        return ids, positions, targets

    def noisy(self, ids: Tensor) -> Tensor:
        """ids with tokens replaced by random ones of the text: in each row from none to twice --noise of them."""
        dice = torch.rand(ids.shape, device=self.device)
        replaced = dice < 2 * self.args.noise * torch.rand(len(ids), 1, device=self.device)
        return torch.where(replaced, self.text[torch.randint_like(ids, len(self.text))], ids)


def train(args: argparse.Namespace, text: Tensor, validation: Tensor, device: torch.device) -> tuple[GPT2, int, float]:
    """Trains on text (N,). Returns the averaged model, the number of steps done, and seconds."""
    windows = Windows(text, args, device)
    config = Config(args.layers, args.channels, args.heads, args.context)
    model = GPT2(config, torch.linspace(*args.dropout, args.layers).tolist(), args.sine).to(device)
    average = copy.deepcopy(model).eval().requires_grad_(False)
    matrices = [p for p in model.parameters() if p.dim() == 2]  # embeddings too
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": args.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.99),
        fused=device.type == "cuda",
    )

    def exit_losses(ids: Tensor, noisy: Tensor, positions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The exits' cross-entropies with the text (L,), in nats, and the losses to minimize (L,)."""
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(noisy, positions)
            with torch.no_grad():
                opinion = average(ids, positions).float().softmax(-1).mean(0).flatten(0, 1)  # (B * T, V)
        logits = logits.float().flatten(1, 2)  # (L, B * T, V)
        hard = torch.stack([F.cross_entropy(x, targets.flatten()) for x in logits])
        soft = -(opinion * logits.log_softmax(-1)).sum(-1).mean(1)
        return hard, (1 - args.distill) * hard + args.distill * soft

    if device.type == "cuda" and args.compile:  # once for each window length; CUDA graphs, since kernels are short
        exit_losses = torch.compile(exit_losses, dynamic=False, mode="reduce-overhead")

    began = time.time()
    total, reported = torch.zeros(args.layers, device=device), 0  # sum of cross-entropies since the last report
    for step in range(1, args.steps + 1):
        for group in optimizer.param_groups:  # linear warmup, and a cosine to zero
            group["lr"] = args.lr * min(1, step / args.warmup) * 0.5 * (1 + math.cos(math.pi * (step - 1) / args.steps))
        ids, positions, targets = windows.draw()
        hard, losses = exit_losses(ids, windows.noisy(ids), positions, targets)
        losses.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():  # early on the average looks back a tenth of the way, so that it forgets the beginning
            newest = 1 - min(args.average, step / (step + 10))
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), newest)
        total += hard.detach()

        done = step == args.steps or time.time() - began > args.time_limit
        if done or step % args.eval_every == 0:
            trained = (total / (step - reported) / math.log(2)).tolist()
            scored = bits_per_token(average, validation, END_OF_TEXT)
            print(f"step {step}, {time.time() - began:.0f} s: bits per token by depth, training", end="")
            print("", *(f"{x:.3f}" for x in trained), "validation", *(f"{x:.4f}" for x in scored), flush=True)
            total.zero_()
            reported = step
        if done:
            break
    return average, step, time.time() - began


@torch.no_grad()
def bits_per_token(exit_logits, text, end_of_text, batch=32):
    """Mean bits per token of text (N,), one number for each exit. A token is a byte where the vocabulary has no merges.

    exit_logits: a function from ids (B, T) to logits (exits, B, T, V).

    The text follows one <|endoftext|>. A window reads WINDOW tokens and predicts the token after each; windows start
    STRIDE apart, and each scores the predictions that the one before it did not make. So every token of the text is
    scored once, with at least STRIDE tokens of context, or near the start with all there are.
    """
    stream = F.pad(text, (1, 0), value=end_of_text)  # (N + 1,)
    inputs, targets = [], []  # of the windows, each (WINDOW,); a target of -100 is not scored
    for start in range(0, max(len(text) - STRIDE, 1), STRIDE):
        window = stream[start : start + WINDOW + 1]
        target = window[1:].clone()
        if start > 0:
            target[: WINDOW - STRIDE] = -100
        padding = (0, WINDOW - len(target))
        inputs.append(F.pad(window[:-1], padding, value=end_of_text))
        targets.append(F.pad(target, padding, value=-100))

    nats, scored = 0, 0
    for ids, target in zip(torch.stack(inputs).split(batch), torch.stack(targets).split(batch)):
        logits = exit_logits(ids).double().flatten(1, 2)  # (exits, B * T, V)
        nats += torch.stack([F.cross_entropy(x, target.flatten(), reduction="sum") for x in logits])
        scored += (target >= 0).sum().item()
    assert scored == len(text)
    return (nats / scored / math.log(2)).tolist()


# ---------------------------------------------------------------------------------------------------------------------
# The directory.


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_weights(out: Path, state: dict[str, Tensor]) -> None:
    """model.safetensors as GPT2LMHeadModel saves it: bfloat16, linear weights (in, out), no lm_head, which is wte."""
    tensors = {}
    for name, value in state.items():
        if name.startswith("h.") and value.dim() == 2:
            value = value.T
        tensors["transformer." + name] = value.to("cpu", torch.bfloat16).contiguous()
    safetensors.torch.save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)


def write_config(out: Path, config: Config) -> None:
    write_json(
        out / "config.json",
        {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": VOCAB,
            "n_positions": config.n_positions,
            "n_embd": config.n_embd,
            "n_layer": config.n_layer,
            "n_head": config.n_head,
            "n_inner": None,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": config.layer_norm_epsilon,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "tie_word_embeddings": True,
            "attn_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "resid_pdrop": 0.0,
            "bos_token_id": END_OF_TEXT,
            "eos_token_id": END_OF_TEXT,
            "dtype": "bfloat16",
        },
    )


def write_tokenizer(out: Path, context: int) -> None:
    vocab = {character: token for token, (_, character) in enumerate(byte_alphabet())}
    vocab[SPECIAL] = END_OF_TEXT
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    literal = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    write_json(
        out / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": END_OF_TEXT, "content": SPECIAL, **literal}],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": {**byte_level, "trim_offsets": False},
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": "",
                "end_of_word_suffix": "",
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": vocab,
                "merges": [],
            },
        },
    )
    special = {"bos_token": SPECIAL, "eos_token": SPECIAL, "unk_token": SPECIAL}
    write_json(out / "special_tokens_map.json", special)
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "GPT2Tokenizer",
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": context,
            **special,
        },
    )
    write_json(out / "vocab.json", vocab)
    (out / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")


@dataclass
class Run:
    """What the model card says about a training run beside its arguments."""

    command: str
    steps: int  # done
    seconds: float
    hardware: str
    software: str
    bits: list[float]  # per token on the validation part, by depth


def card(args: argparse.Namespace, text: str, state: dict[str, Tensor], run: Run) -> str:
    """The model card, in Markdown."""
    data = text.encode("utf-8")
    split = int(TRAIN_SHARE * len(text))
    sizes = {name: value.numel() for name, value in state.items()}
    layer = sum(size for name, size in sizes.items() if name.startswith("h.0."))
    around = sum(size for name, size in sizes.items() if not name.startswith("h."))
    depths = "\n".join(f"| {n} | {around + n * layer:,} | {bits:.4f} |" for n, bits in enumerate(run.bits, start=1))
    options = ""
    for name, value in vars(args).items():
        if name not in ("text", "out", "device", "compile", "eval_every", "time_limit"):
            value = " ".join(map(str, value)) if isinstance(value, list) else value
            options += f"| `--{name.replace('_', '-')}` | {value} |\n"
    cut = "" if run.steps == args.steps else f" of {args.steps}, where the time limit stopped it"
    return f"""---
library_name: transformers
pipeline_tag: text-generation
license: mit
tags: [gpt2, early-exit]
---

# {args.out.resolve().name}

A language model of bytes with the GPT-2 architecture: {args.layers} layers, {args.channels} channels, {args.heads}
heads, context {args.context}, tied `lm_head`, bfloat16. Its vocabulary is GPT-2's byte alphabet with no merges:
256 bytes, and `<|endoftext|>` (256), which begins a text. `transformers.GPT2LMHeadModel.from_pretrained` loads it.

One file serves every depth. Training put a loss on an *exit* after every layer (`ln_f` and `lm_head` on the residual
stream there), so that the first n layers are a working model: `model.transformer.h = model.transformer.h[:n]`.

## Quality by depth

| layers | parameters | bits per token, validation |
|---:|---:|---:|
{depths}

Computed in float32 from the weights as the file holds them, rounded to bfloat16. A token is a byte. The text follows
one `<|endoftext|>`. Windows of {WINDOW} tokens start {STRIDE} tokens apart, and each window scores the bytes that the
window before it did not, so that every byte is scored once, with at least {STRIDE} tokens of context or all there are.
`infer eval -m {args.out} --text FILE --layers N`, of the last tenth of the text in FILE, gives the same.

## Data

`{Path(args.text).name}`: {len(data):,} bytes, sha256 `{hashlib.sha256(data).hexdigest()}`.
The first {split:,} characters are for training. The last {len(text) - split:,} are for validation: training never
used them.

## Training

    {run.command}

{run.steps} steps{cut}, {run.seconds:.0f} s on {run.hardware}; {run.software}.
AdamW with betas 0.9 and 0.99, gradients clipped at norm 1, a linear warmup and a cosine to zero, arithmetic in
bfloat16 over float32 weights. `weights/train.py` explains each part of the recipe and where it comes from.

| option | value |
|---|---|
{options}
The seed fixes the initial weights, the batches and the noise. The order of sums on a GPU is not fixed, so another run
ends near these weights, not exactly on them.
"""


def write_directory(args: argparse.Namespace, text: str, state: dict[str, Tensor], run: Run) -> None:
    """Writes args.out. state: the parameters by their names in GPT2 above."""
    args.out.mkdir(parents=True, exist_ok=True)
    write_weights(args.out, state)
    write_config(args.out, Config(args.layers, args.channels, args.heads, args.context))
    write_tokenizer(args.out, args.context)
    (args.out / "README.md").write_text(card(args, text, state, run), encoding="utf-8")


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    formatter = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=formatter)
    add = parser.add_argument
    add("--text", required=True, help="the text, UTF-8; its last tenth is kept for validation")
    add("--out", type=Path, required=True, help="the directory to write")
    add("--layers", type=int, default=6, help="layers, each with an exit")
    add("--channels", type=int, default=384, help="width of the residual stream")
    add("--heads", type=int, default=6, help="attention heads")
    add("--context", type=int, default=1024, help="positions")
    add("--steps", type=int, default=14000, help="optimizer steps")
    add("--batch-tokens", type=int, default=16384, help="tokens in a batch")
    lengths = [256, 256, 256, 1024]
    add("--lengths", type=int, nargs="+", default=lengths, help="window lengths; a batch has one of these")
    add("--openings", type=float, default=0.125, help="share of the windows that begin with <|endoftext|>")
    add("--noise", type=float, default=0.05, help="mean share of random tokens among those read")
    add("--dropout", type=float, nargs=2, default=[0.1, 0.5], help="of the first and of the last layer; linear between")
    add("--average", type=float, default=0.999, help="decay of the moving average of the weights")
    add("--distill", type=float, default=0.5, help="share of the loss that is against the average's prediction")
    add("--sine", type=float, default=0.2, help="root mean square of the sinusoids that positions begin as")
    add("--lr", type=float, default=1e-3, help="peak learning rate")
    add("--warmup", type=int, default=200, help="steps of warmup")
    add("--weight-decay", type=float, default=0.5, help="of matrices and embeddings")
    add("--seed", type=int, default=1, help="of everything that is random")
    add("--eval-every", type=int, default=1000, help="steps between lines of progress")
    add("--time-limit", type=float, default=math.inf, help="seconds after which it stops, and writes the model")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="PyTorch device")
    add("--compile", action=argparse.BooleanOptionalAction, default=True, help="compile the model; on a GPU only")
    args = parser.parse_args(argv)
    if args.channels % args.heads or args.channels % 2:
        parser.error(f"--channels {args.channels} must be even and a multiple of --heads {args.heads}")
    if max(args.lengths) > args.context or any(args.batch_tokens % length for length in args.lengths):
        parser.error(f"--lengths {args.lengths}: each must be at most --context and divide --batch-tokens")
    if args.context < WINDOW:
        parser.error(f"--context {args.context}: the evaluation reads windows of {WINDOW}, so it must be that at least")
    return args


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    text = Path(args.text).read_bytes().decode("utf-8")
    split = int(TRAIN_SHARE * len(text))
    if split <= max(args.lengths):
        sys.exit(f"{args.text}: {split} characters for training, too few for windows of {max(args.lengths)}")
    validation = encode(text[split:]).to(device)

    model, steps, seconds = train(args, encode(text[:split]), validation, device)

    model.bfloat16().float()  # in place: the weights that the file will hold
    run = Run(
        command=shlex.join(["python", *sys.argv]),
        steps=steps,
        seconds=seconds,
        hardware=torch.cuda.get_device_name(device) if device.type == "cuda" else f"a CPU ({platform.machine()})",
        software=f"Python {platform.python_version()}, PyTorch {torch.__version__}",
        bits=bits_per_token(model, validation, END_OF_TEXT),
    )
    write_directory(args, text, model.state_dict(), run)
    print(f"{args.out}: bits per token by depth", *(f"{x:.4f}" for x in run.bits))


if __name__ == "__main__":
    main()
