#!/usr/bin/env python3
"""Makes testdata/golden: checkpoints as Hugging Face's own library writes them, and
what PyTorch and NumPy read from them, for the tests to compare with.

    python -m venv venv && venv/bin/pip install torch numpy safetensors
    venv/bin/python weights/testdata/make_golden.py

Made with torch 2.11.0, numpy 2.4.6, safetensors 0.8.0. The output depends on the
seed only, and is a few kilobytes.
"""

import hashlib
import json
import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).parent / "golden"
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
rng = np.random.default_rng(20240607)


def hex_of(array):
    """The array's bits, big-endian hexadecimal, so that the text reads as numbers do."""
    return array.astype(array.dtype.newbyteorder(">")).tobytes().hex()


def special_bits(dtype):
    """Zeros, subnormals, the edges of the normal range, infinities, quiet and signalling NaNs."""
    fraction, exponent = {"F32": (23, 8), "F16": (10, 5), "BF16": (7, 8)}[dtype]
    top = (1 << exponent) - 1
    bits = []
    for e in (0, 1, top // 2, top - 1, top):
        for f in (0, 1, (1 << (fraction - 1)) - 1, 1 << (fraction - 1), (1 << fraction) - 1):
            bits.append(e << fraction | f)
    sign = 1 << (fraction + exponent)
    return bits + [sign | b for b in bits]


def from_bits(bits, dtype):
    if dtype == "F32":
        return torch.from_numpy(np.array(bits, np.uint32).view(np.int32)).view(torch.float32)
    return torch.from_numpy(np.array(bits, np.uint16).view(np.int16)).view(DTYPES[dtype])


def expected(tensor):
    """What a reader must return, computed by PyTorch."""
    f32 = tensor.to(torch.float32).contiguous().numpy().reshape(-1)
    return {
        "shape": list(tensor.shape),
        "float32": hex_of(f32.view(np.uint32)),
    }


def tensors(dtype):
    def normal(*shape):
        return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(DTYPES[dtype])

    return {
        "special": from_bits(special_bits(dtype), dtype),
        "matrix": normal(3, 5),
        "cube": normal(2, 3, 4),
        "scalar": normal(),
        "empty": normal(4, 0),
        "é \"quoted\"\n": normal(7),
    }


def main():
    OUT.mkdir(exist_ok=True)
    (OUT / "sharded").mkdir(exist_ok=True)
    golden = {"files": {}}

    for dtype in DTYPES:
        ts = tensors(dtype)
        name = dtype.lower() + ".safetensors"
        save_file(ts, OUT / name, metadata={"format": "pt", "note": "ünïcode"})
        golden["files"][name] = {n: expected(t) | {"dtype": dtype} for n, t in ts.items()}

    # Types that cannot be read as floats, beside one that can.
    save_file(
        {
            "wte": torch.arange(6, dtype=torch.float32).reshape(2, 3),
            "h.0.attn.bias": torch.ones(1, 1, 2, 2, dtype=torch.bool),
            "ids": torch.arange(3),
            "f64": torch.ones(2, dtype=torch.float64),
            "f8": torch.ones(3).to(torch.float8_e4m3fn),
        },
        OUT / "mixed.safetensors",
    )

    shards = {
        "model-00001-of-00002.safetensors": {"wte.weight": from_bits([0x3F800000] * 6, "F32").reshape(3, 2)},
        "model-00002-of-00002.safetensors": {"ln_f.weight": torch.arange(4).to(torch.bfloat16), "ln_f.bias": torch.zeros(4)},
    }
    for name, ts in shards.items():
        save_file(ts, OUT / "sharded" / name, metadata={"format": "pt", "shard": name})
    index = {
        "metadata": {"total_size": 48},
        "weight_map": {t: name for name, ts in shards.items() for t in ts},
    }
    (OUT / "sharded" / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")

    # Rounding: random numbers of every exponent, numbers halfway between two of the
    # narrower type and just beside halfway, and the special ones.
    bits = list(special_bits("F32"))
    for keep in (7, 10):  # bits of fraction that bfloat16 and float16 keep
        half = 1 << (23 - keep - 1)
        for _ in range(200):
            base = int(rng.integers(1 << 32)) & ~(2 * half - 1)
            bits += [base | half, base | half - 1, base | half + 1]
    for e in range(90, 145):  # float16's range, subnormals included
        bits += [e << 23 | int(f) for f in rng.integers(1 << 23, size=4)]
    for value in (65504, 65519.996, 65520, 65536, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0001, 2.0**-14, 2.0**-14 - 2.0**-26):
        bits.append(int(np.array(value, np.float32).view(np.uint32)))
    f32 = np.array(bits, np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        f16 = f32.astype(np.float16)
    golden["rounding"] = {
        "float32": hex_of(f32.view(np.uint32)),
        "bfloat16": hex_of(torch.from_numpy(f32).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)),
        "float16": hex_of(f16.view(np.uint16)),
    }

    # All 65536 float16 numbers, widened; NaNs, whose bits are free, as 7fc00000.
    wide = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    wide[np.isnan(wide)] = np.array(0x7FC00000, np.uint32).view(np.float32)
    golden["float16_sha256"] = hashlib.sha256(wide.astype("<f4").tobytes()).hexdigest()

    (OUT / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
