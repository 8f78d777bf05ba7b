#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model on this machine's own text and saves checkpoints for benchmarks.

    make_checkpoints.py DIR [STEPS]

DIR gets adamw_<step>.pt (weights and AdamW's state in fp32), bf16_<step>.pt and fp16_<step>.pt (weights),
last.pt (the last one again under another name) and, in the same layout as the library's, bf16.safetensors.
"""
import glob
import json
import os
import struct
import sys

import torch
from torch import nn

WIDTH, LAYERS, CONTEXT, BATCH = 256, 4, 32, 4


def corpus():
    """Bytes of real text: the standard library's sources."""
    paths = sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), "*.py")))[:150]
    text = b"".join(open(path, "rb").read() for path in paths)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


class Model(nn.Module):
    """Predicts the next pair of bytes."""

    def __init__(self, words):
        super().__init__()
        self.embed = nn.Embedding(words, WIDTH)
        self.place = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, words)
        self.register_buffer("mask", torch.triu(torch.full((CONTEXT, CONTEXT), float("-inf")), 1),
                             persistent=False)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens) + self.place, mask=self.mask))


def pairs(text, words=4096):
    """The text as tokens: pairs of bytes, the most frequent ones by their rank, and 0 for the rest."""
    raw = text[0::2][: len(text) // 2] * 256 + text[1::2][: len(text) // 2]
    common = torch.bincount(raw, minlength=65536).topk(words - 1).indices
    table = torch.zeros(65536, dtype=torch.long)
    table[common] = torch.arange(1, words)
    return table[raw]


def save_safetensors(path, tensors):
    """In the library's layout; all tensors of bf16, or all of fp32."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": "BF16" if tensor.dtype == torch.bfloat16 else "F32", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            words = torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32
            file.write(tensor.contiguous().view(words).numpy().tobytes())


def save(directory, step, model, optimizer):
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(whole, f"{directory}/adamw_{step}.pt")
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        weights = {key: value.to(dtype) for key, value in model.state_dict().items()}
        torch.save(weights, f"{directory}/{name}_{step}.pt")
    return whole


def main():
    directory, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 24
    torch.manual_seed(1)
    tokens = pairs(corpus())
    model = Model(4096)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        at = torch.randint(0, len(tokens) - CONTEXT - 1, (BATCH,))
        batch = torch.stack([tokens[i : i + CONTEXT + 1] for i in at])
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1),
                                           batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (steps // 2, steps):
            whole = save(directory, step, model, optimizer)
    torch.save(whole, f"{directory}/last.pt")
    weights = {key: value.to(torch.bfloat16) for key, value in model.state_dict().items()}
    save_safetensors(f"{directory}/bf16.safetensors", weights)
    print(f"{steps} steps, loss {loss.item():.2f}, {sum(p.numel() for p in model.parameters())} weights")


if __name__ == "__main__":
    main()
