# SPDX-License-Identifier: Apache-2.0
"""The series of checkpoints that compare.py measures what is stored of (series.py makes them), and the goals."""

# Name: what it is, and the goal for stored over raw bytes.
SERIES = {
    "fp32+adamw": ("weights and AdamW's state, fp32", .84),
    "fp32+adamw 16k": ("the same with a vocabulary of 16,384", .735),
    "bf16": ("weights in bf16", .72),
    "fp16": ("weights in fp16", .905),
    "frozen": ("one layer trained, the rest frozen", .42),
    "copies, by path": ("epoch=N, last and best of each save", .31),
    "copies, by file": ("the same by open files, each with another text in it", .31),
    "hdf5": ("weights in HDF5", .87),
    "safetensors fp32": ("weights in safetensors", .865),
    "safetensors bf16": ("weights in bf16 in safetensors", .72),
}
