#!/usr/bin/env python3
"""How well a GPT-2 directory predicts a text at every depth, and what it writes, by plain `transformers` in float32.

    python weights/evaluate.py --model weights/shakespeare --text tinyshakespeare.txt
    python weights/evaluate.py --model weights/shakespeare --prompt "ROMEO:" --tokens 900

Depth n is the model cut after its first n layers: ln_f and lm_head read the residual stream there. The text's last
tenth is scored, which train.py keeps for validation; `--part all` scores the whole text. train.py uses bits_per_token
below, so both programs mean the same number; the model and the tokenizer here are those of `transformers` and have
nothing in common with train.py's, so that each checks the other.
"""

import argparse
import copy
import math

import torch
import torch.nn.functional as F

WINDOW = 512  # tokens the model reads at a time
STRIDE = 256  # from one window's start to the next
TRAIN_SHARE = 0.9  # of a text, from its start; the rest is for validation


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


def truncated(model, depth):
    """The same model, weights shared, with its first `depth` layers only."""
    shallow = copy.copy(model)
    shallow._modules = dict(model._modules, transformer=copy.copy(model.transformer))
    shallow.transformer._modules = dict(model.transformer._modules, h=model.transformer.h[:depth])
    return shallow


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Hugging Face GPT-2 directory")
    parser.add_argument("--text", help="a UTF-8 text to score")
    parser.add_argument("--part", choices=("validation", "all"), default="validation", help="part of the text to score: its last tenth (default), or all of it")
    parser.add_argument("--prompt", help="continue this text at every depth ('' starts from <|endoftext|>)")
    parser.add_argument("--tokens", type=int, default=300, help="tokens to write after the prompt (default 300)")
    parser.add_argument("--temperature", type=float, default=0.8, help="sampling temperature (default 0.8); 0 takes the most probable token")
    parser.add_argument("--depths", type=int, nargs="+", help="depths to evaluate (default all)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    from transformers import AutoTokenizer, GPT2LMHeadModel

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = GPT2LMHeadModel.from_pretrained(args.model, dtype=torch.float32).eval()
    depths = args.depths or range(1, model.config.n_layer + 1)
    models = {depth: truncated(model, depth) for depth in depths}
    end_of_text = tokenizer.eos_token_id

    if args.text:
        with open(args.text, encoding="utf-8", newline="") as file:
            text = file.read()
        if args.part == "validation":
            text = text[int(TRAIN_SHARE * len(text)) :]
        ids = torch.tensor(tokenizer(text, verbose=False)["input_ids"])  # it would warn of a text beyond the context
        print(f"{len(text)} characters, {len(ids)} tokens\nlayers  bits/token")
        for depth, shallow in models.items():
            (bits,) = bits_per_token(lambda ids: shallow(ids).logits[None], ids, end_of_text)
            print(f"{depth:6d}  {bits:.4f}", flush=True)

    if args.prompt is not None:
        ids = torch.tensor([tokenizer(args.prompt)["input_ids"] or [end_of_text]])
        options = {"do_sample": False}
        if args.temperature:
            options = {"do_sample": True, "temperature": args.temperature, "top_k": 40}
        for depth, shallow in models.items():
            torch.manual_seed(args.seed)
            out = shallow.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=args.tokens,
                pad_token_id=end_of_text,
                use_cache=False,  # a truncated model shares its configuration with the whole one
                **options,
            )
            print(f"\n=== {depth} layers ===\n{tokenizer.decode(out[0])}", flush=True)


if __name__ == "__main__":
    main()
