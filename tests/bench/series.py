# SPDX-License-Identifier: Apache-2.0
"""Series of checkpoints of models that are really trained here, for compare.py.

make(folder, mib, quick) trains a small language model with AdamW and saves what people save; what is in
the folder already is used again. SERIES says what each series is and what may be stored of it.
"""

import json
import pathlib

import torch
from torch import nn

from make_checkpoints import BATCH, CONTEXT, Model, corpus, pairs, save_safetensors

SAVE_MIB = 60  # of one save of fp32+adamw
PICKED = 4  # saves that a series has
FROZEN = 5


class Training:
    """A model, its optimizer and its data."""

    def __init__(self, words, state=None):
        torch.manual_seed(words)
        self.tokens = pairs(corpus(), words)
        self.model = Model(words)
        if state:
            self.model.load_state_dict(state)
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad = name.startswith("body.layers.3.")
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=1e-3)
        self.step = 0

    def train(self, steps):
        for _ in range(steps):
            at = torch.randint(0, len(self.tokens) - CONTEXT - 1, (BATCH,))
            batch = torch.stack([self.tokens[i : i + CONTEXT + 1] for i in at])
            loss = nn.functional.cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}


def saves(folder, prefix, training, first, count, apart):
    """Trains and saves full checkpoints: their paths."""
    paths = []
    for number in range(count):
        training.train(apart if number else first)
        paths.append(folder / ("%s_%03d.pt" % (prefix, number)))
        torch.save(training.state(), paths[-1])
    return paths


def save_hdf5(path, weights):
    import h5py  # where it is missing, only this series is left out

    with h5py.File(path, "w") as file:
        for name, tensor in weights.items():
            file[name] = tensor.numpy()


def weights_of(folder, picked):
    """The series of weights alone, from full saves."""
    made = {name: [] for name in ("bf16", "fp16", "hdf5", "safetensors fp32", "safetensors bf16")}
    for number, path in enumerate(picked):
        fp32 = torch.load(path)["model"]
        bf16 = {name: tensor.to(torch.bfloat16) for name, tensor in fp32.items()}
        for name, ending, save, tensors in (
                ("bf16", "pt", lambda t, p: torch.save(t, p), bf16),
                ("fp16", "pt", lambda t, p: torch.save(t, p), {k: v.to(torch.float16) for k, v in fp32.items()}),
                ("hdf5", "h5", lambda t, p: save_hdf5(p, t), fp32),
                ("safetensors fp32", "safetensors", lambda t, p: save_safetensors(p, t), fp32),
                ("safetensors bf16", "safetensors", lambda t, p: save_safetensors(p, t), bf16)):
            target = folder / ("%s_%d.%s" % (name.replace(" ", "_"), number, ending))
            try:
                save(tensors, target)
            except ImportError:
                continue
            made[name].append((target.name, target))
    return {name: files for name, files in made.items() if files}


def copies_of(folder, picked):
    """What a framework saves that keeps epoch=N, last and best, each by a save of its own."""
    made = {"copies, by path": [], "copies, by file": []}
    for number, path in enumerate(picked):
        state = torch.load(path)
        for kind in ["epoch=%d" % number, "last"] + ["best"] * (number != 1):
            by_path = folder / ("path_%d" % number) / ("%s.ckpt" % kind)
            by_path.parent.mkdir(exist_ok=True)
            torch.save(state, by_path)
            made["copies, by path"].append((by_path.name, by_path))
            by_file = folder / ("file_%d" % number) / ("%s.ckpt" % kind)
            by_file.parent.mkdir(exist_ok=True)
            with open(by_file, "wb") as file:
                torch.save({"callbacks": {"dirpath": "/runs/7/" + kind * 10}, **state}, file)
            made["copies, by file"].append((by_file.name, by_file))
    return made


def train_all(folder, mib, quick):
    count = max(PICKED, int(1.4 * mib / SAVE_MIB) + 2)
    first, apart = (6, 2) if quick else (60, 8)
    training = Training(4096)
    full = saves(folder, "full", training, first, count, apart)
    picked = [full[number * (len(full) - 1) // (PICKED - 1)] for number in range(PICKED)]
    made = {"full": [(path.name, path) for path in full], "fp32+adamw": [(path.name, path) for path in picked]}
    for name, training, how_many in (("fp32+adamw 16k", Training(16384), PICKED),
                                     ("frozen", Training(4096, training.model.state_dict()), FROZEN)):
        paths = saves(folder, name.replace(" ", "_"), training, 4 * apart, how_many, 2 * apart)
        made[name] = [(path.name, path) for path in paths]
    made.update(weights_of(folder, picked))
    made.update(copies_of(folder, picked))
    return made


def make(folder, mib, quick):
    """{series: [(name saved under, path), ...]}, and under "full" saves for 1.4 times so many MiB."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "series.json"
    wanted = {"mib": mib, "quick": quick}
    if manifest.exists():
        there = json.loads(manifest.read_text())
        if there["wanted"]["mib"] >= mib and there["wanted"]["quick"] == quick:
            return {name: [(n, pathlib.Path(p)) for n, p in files] for name, files in there["series"].items()}
    made = train_all(folder, mib, quick)
    text = {name: [(n, str(p)) for n, p in files] for name, files in made.items()}
    manifest.write_text(json.dumps({"wanted": wanted, "series": text}))
    return made


def tensors(state, prefix=""):
    """All tensors of a state with their names, in order."""
    if isinstance(state, torch.Tensor):
        if state.dim():
            yield prefix, state
    elif isinstance(state, dict):
        for name, value in state.items():
            yield from tensors(value, "%s.%s" % (prefix, name))


def take(flat, limit):
    """The next tensors of the iterator, so many bytes of them; the last one is cut."""
    taken = {}
    for name, tensor in flat:
        tensor = tensor.reshape(-1)[: limit // tensor.element_size()].clone()
        taken[name] = tensor
        limit -= tensor.numel() * tensor.element_size()
        if limit < 4:
            break
    return taken


def states(full, mib):
    """Two states of so many MiB of real tensors: the first 60 % of the second are those of the first."""
    size = mib << 20
    flat = ((path.stem + name, tensor) for _, path in full for name, tensor in tensors(torch.load(path)))
    common, first, second = take(flat, size * 6 // 10), take(flat, size * 4 // 10), take(flat, size * 4 // 10)
    return {**common, **first}, {**common, **second}


def noise(mib):
    """A state of incompressible tensors."""
    generator = torch.Generator().manual_seed(7)
    return {"noise %d" % n: torch.randint(-2**63, 2**63 - 1, (min(64, mib - 64 * n) << 17,), generator=generator)
            for n in range((mib + 63) // 64)}
