"""A case: one model, its weights as every engine reads them, and the results they must all give.

peers.py writes a case once, from a checkpoint directory and with Hugging Face transformers as the
judge; the engines' processes read it. Shape letters: T tokens, C channels, NH heads, HS head size,
L layers, V vocabulary.
"""

import dataclasses
import json
import pathlib

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

# What is timed. A decode step has one new token and `past` tokens in the KV cache; a prefill has T
# tokens and an empty cache, which it fills, and wants the logits of all rows or of the last.
WORKS = ("decode", "prefill-all", "prefill-last")


@dataclasses.dataclass
class Case:
    folder: pathlib.Path
    layers: int
    channels: int
    heads: int
    vocab: int
    epsilon: float
    tokens: int  # T of a prefill
    past: int  # tokens in the cache before a decode step

    @property
    def head_size(self) -> int:
        return self.channels // self.heads

    @property
    def scale(self) -> float:
        return self.head_size**-0.5

    @property
    def weights_file(self) -> pathlib.Path:
        return self.folder / "weights.safetensors"

    def write(self) -> None:
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k != "folder"}
        (self.folder / "case.json").write_text(json.dumps(fields))

    @staticmethod
    def read(folder: pathlib.Path) -> "Case":
        return Case(folder, **json.loads((folder / "case.json").read_text()))

    def weights(self) -> dict[str, np.ndarray]:
        """float32 by name: the checkpoint's names and layouts (linear weights are [in, out]).

        The last layer's c_attn is also given in two parts, last.q [C, C] and last.kv [C, 2C], for prefill-last:
        there the last layer needs keys and values of every token, and everything else only of the last.
        """
        return load_file(self.weights_file)

    def weight_spans(self) -> dict[str, tuple[tuple[int, ...], int, int]]:
        """By name: shape, and offset and length of the bytes in weights_file."""
        with open(self.weights_file, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(size))
        return {name: (tuple(t["shape"]), 8 + size + t["data_offsets"][0], t["data_offsets"][1] - t["data_offsets"][0])
                for name, t in header.items() if name != "__metadata__"}

    def expected(self) -> dict[str, np.ndarray]:
        """ids [T], positions [P], logits [P, V] at those positions, last [V] at T-1, decode [V] at `past`."""
        with safe_open(self.folder / "expected.safetensors", "np") as f:
            return {name: f.get_tensor(name) for name in f.keys() if not name.startswith("past.")}

    def past_keys_values(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each layer's keys and values of the first `past` tokens, [NH, past, HS] each."""
        with safe_open(self.folder / "expected.safetensors", "np") as f:
            return [(f.get_tensor(f"past.{i}.k"), f.get_tensor(f"past.{i}.v")) for i in range(self.layers)]
