"""GPT-2 in CTranslate2, float32 or (as the peer of q8) with int8 weights and activations.

CTranslate2's interface generates text, so the works are these calls:

  decode        generate_batch, whose callback sees each token: the times between tokens, with about `past` tokens in
                the cache; they include the choice of the best token and the callback
  prefill-all   forward_batch, which gives the logits of all rows but keeps no KV cache
  prefill-last  generate_batch of one token; it reads the prompt's last token in a decode step of its own

It has no bfloat16 on a CPU.
"""

import pathlib
import time

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec
from ctranslate2.specs.common_spec import Activation

from case import Case

VERSION = ctranslate2.__version__
TYPES = {"f32": "float32", "q8": "int8"}


class Peer:
    def __init__(self, case: Case, threads: int, dtype: str):
        self.case = case
        folder = case.folder / "ctranslate2"
        if not folder.exists():
            folder.mkdir()
            convert(case, folder)
        self.generator = ctranslate2.Generator(str(folder), compute_type=TYPES[dtype], intra_threads=threads)

    def prepare(self, work: str):
        """Returns a function that does the work once and returns float32 logits, [T, V] or [V]."""
        case, expected = self.case, self.case.expected()
        ids = expected["ids"].tolist()
        if work == "prefill-all":
            return lambda: np.asarray(self.generator.forward_batch([ids]))[0]
        prompt = [str(i) for i in ids[:case.past + 1 if work == "decode" else case.tokens]]
        end = str(expected["decode"].argmin())  # what would end the text: a token that is never the best

        def generate(prompt: list[str], n: int, **options):
            return self.generator.generate_batch([prompt], max_length=n, end_token=end, include_prompt_in_result=False, **options)[0]

        def run():
            generate(prompt, 1)

        def logits() -> np.ndarray:
            return np.asarray(generate(prompt, 1, return_logits_vocab=True).logits[0][0]).reshape(-1)

        def steps(n: int) -> list[float]:
            """Milliseconds of n decode steps that follow one another, on both sides of `past`."""
            stamps = []
            generate(prompt[:case.past + 1 - n // 2], n + 1, callback=lambda _: stamps.append(time.perf_counter_ns()))
            return [(b - a) / 1e6 for a, b in zip(stamps, stamps[1:])]

        run.logits = logits
        if work == "decode":
            run.steps = steps
        return run


def convert(case: Case, folder: pathlib.Path) -> None:
    weights = case.weights()
    spec = TransformerDecoderModelSpec.from_config(case.layers, case.heads, pre_norm=True, activation=Activation.GELUTanh)
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = weights["wte.weight"]
    decoder.position_encodings.encodings = weights["wpe.weight"]

    def norm(layer, name: str) -> None:
        layer.gamma, layer.beta = weights[name + ".weight"], weights[name + ".bias"]

    def linear(layer, name: str) -> None:
        layer.weight, layer.bias = np.ascontiguousarray(weights[name + ".weight"].T), weights[name + ".bias"]

    norm(decoder.layer_norm, "ln_f")
    for i, layer in enumerate(decoder.layer):
        norm(layer.self_attention.layer_norm, f"h.{i}.ln_1")
        linear(layer.self_attention.linear[0], f"h.{i}.attn.c_attn")
        linear(layer.self_attention.linear[1], f"h.{i}.attn.c_proj")
        norm(layer.ffn.layer_norm, f"h.{i}.ln_2")
        linear(layer.ffn.linear_0, f"h.{i}.mlp.c_fc")
        linear(layer.ffn.linear_1, f"h.{i}.mlp.c_proj")
    spec.register_vocabulary([str(i) for i in range(case.vocab)])
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = "0"
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
