#!/usr/bin/env python3
"""Writes gpt2/testdata/gguf: a small random model as safetensors, and by the gguf package as a GGUF file of each type.
And weights/testdata/blocks.gguf: random blocks of each packed type, with what the gguf package makes of them.

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
    write_blocks(pathlib.Path(__file__).parents[2] / "weights" / "testdata" / "blocks.gguf")


# The packed types, and where in a block their float16 numbers lie.
BLOCKS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0]}


def blocks(random: np.random.Generator, name: str, rows: int, columns: int) -> np.ndarray:
    """Rows of random blocks of a type. Their float16 numbers are finite, zero and subnormal ones among them."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    packed = random.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    for at in BLOCKS[name]:
        values = (random.normal(0, 1, packed.shape[:2]) * 10.0 ** random.integers(-7, 1, packed.shape[:2])).astype(np.float16)
        values.flat[0] = 0
        packed[:, :, at:at + 2] = values[..., None].view(np.uint8)
    return packed.reshape(rows, -1)


def write_blocks(path: pathlib.Path) -> None:
    random = np.random.default_rng(11)
    out = gguf.GGUFWriter(path, "test")
    for name in BLOCKS:
        kind = gguf.GGMLQuantizationType[name]
        rows = blocks(random, name, 4, 256)
        out.add_tensor(name, rows, raw_dtype=kind)
        out.add_tensor(name + ".expected", gguf.quants.dequantize(rows, kind))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


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


def write(weights: dict[str, np.ndarray], path: pathlib.Path, kind: gguf.GGMLQuantizationType, pack=None) -> None:
    """Writes the model, its matrices quantised or as pack makes them."""
    pack = pack or (lambda w: gguf.quants.quantize(np.ascontiguousarray(w), kind))
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
        out.add_tensor(name, pack(w), raw_dtype=kind)

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
