#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop on one processor, for compare.py: trainer.py COUNTER CPU. Counts its steps in the first
eight bytes of the file COUNTER, until it is ended."""

import mmap
import os
import struct
import sys

import torch
from torch import nn


def main():
    os.sched_setaffinity(0, {int(sys.argv[2])})
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with open(sys.argv[1], "r+b") as f:
        counter = mmap.mmap(f.fileno(), 8)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, labels = torch.randn(64, 256), torch.randint(0, 16, (64,))
    steps = 0
    while True:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        counter[:8] = struct.pack("<Q", steps)


if __name__ == "__main__":
    main()
