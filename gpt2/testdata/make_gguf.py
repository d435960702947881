#!/usr/bin/env python3
"""Writes gpt2/testdata/gguf: a small random model as safetensors, and by the gguf package as a GGUF file of each type.

    pip install gguf==0.19.0 safetensors
    gpt2/testdata/make_gguf.py

Names and layouts are those of llama.cpp's convert_hf_to_gguf.py for GPT2LMHeadModel.
"""

import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

LINEAR = {"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
NORMS = {"ln_1": "attn_norm", "ln_2": "ffn_norm"}


GEOMETRY = {"n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 8, "vocab_size": 257}


def main() -> None:
    target = pathlib.Path(__file__).parent / "gguf"
    target.mkdir(exist_ok=True)
    weights = random_weights()
    config = GEOMETRY | {"model_type": "gpt2", "layer_norm_epsilon": 1e-5, "eos_token_id": 256, "bos_token_id": 256}
    (target / "config.json").write_text(json.dumps(config) + "\n")
    save_file(weights, target / "model.safetensors")
    for kind in ("F32", "F16", "BF16", "Q8_0"):
        write(weights, target / f"{kind.lower()}.gguf", gguf.GGMLQuantizationType[kind])


def random_weights() -> dict[str, np.ndarray]:
    """A checkpoint whose tensors all differ, biases and gains too."""
    random = np.random.default_rng(7)
    c = GEOMETRY["n_embd"]
    shapes = {"wte.weight": (GEOMETRY["vocab_size"], c), "wpe.weight": (GEOMETRY["n_positions"], c), "ln_f.weight": (c,), "ln_f.bias": (c,)}
    for i in range(GEOMETRY["n_layer"]):
        for name, n in {"attn.c_attn": (c, 3 * c), "attn.c_proj": (c, c), "mlp.c_fc": (c, 4 * c), "mlp.c_proj": (4 * c, c)}.items():
            shapes[f"h.{i}.{name}.weight"], shapes[f"h.{i}.{name}.bias"] = n, n[1:]
        for name in NORMS:
            shapes[f"h.{i}.{name}.weight"] = shapes[f"h.{i}.{name}.bias"] = (c,)
    return {name: random.normal(0, 0.2, shape).astype(np.float32) + (name.endswith("weight") and "ln_" in name) for name, shape in shapes.items()}


def tokens() -> list[str]:
    """The byte alphabet of GPT-2's vocabulary, in its order, and the end of text."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 255 and b != 173]
    return [chr(b) for b in printable] + [chr(256 + n) for n in range(256 - len(printable))] + ["<|endoftext|>"]


def write(weights: dict[str, np.ndarray], path: pathlib.Path, kind: gguf.GGMLQuantizationType) -> None:
    out = gguf.GGUFWriter(path, "gpt2")
    out.add_name("test")
    out.add_block_count(GEOMETRY["n_layer"])
    out.add_context_length(GEOMETRY["n_positions"])
    out.add_embedding_length(GEOMETRY["n_embd"])
    out.add_feed_forward_length(4 * GEOMETRY["n_embd"])
    out.add_head_count(GEOMETRY["n_head"])
    out.add_layer_norm_eps(1e-5)
    out.add_quantization_version(gguf.GGML_QUANT_VERSION)

    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens())
    out.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL])
    out.add_bos_token_id(256)
    out.add_eos_token_id(256)

    def matrix(name: str, w: np.ndarray) -> None:
        out.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(w), kind), raw_dtype=kind)

    def norm(name: str, of: str) -> None:
        for part in ("weight", "bias"):
            out.add_tensor(f"{name}.{part}", weights[f"{of}.{part}"])

    matrix("token_embd.weight", weights["wte.weight"])
    out.add_tensor("position_embd.weight", weights["wpe.weight"])
    norm("output_norm", "ln_f")
    for i in range(GEOMETRY["n_layer"]):
        for of, name in NORMS.items():
            norm(f"blk.{i}.{name}", f"h.{i}.{of}")
        for of, name in LINEAR.items():
            matrix(f"blk.{i}.{name}.weight", weights[f"h.{i}.{of}.weight"].T)
            out.add_tensor(f"blk.{i}.{name}.bias", weights[f"h.{i}.{of}.bias"])
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
