# SPDX-License-Identifier: Apache-2.0
"""torch.save: HOW is place, replace, folder or keep2."""

import json
import os
import shutil
import sys

import torch

import marks

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters())


def train():
    marks.train()
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()


def state(step):
    return {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}


def place(step):
    torch.save(state(step), "checkpoint.pt")


def replace(step):
    torch.save(state(step), "checkpoint.pt.tmp")
    os.replace("checkpoint.pt.tmp", "checkpoint.pt")


def folder(step):
    name = "checkpoint-%d" % step
    os.makedirs(name)
    torch.save(model.state_dict(), name + "/pytorch_model.bin")
    torch.save(optimizer.state_dict(), name + "/optimizer.pt")
    with open(name + "/trainer_state.json", "w", encoding="utf-8") as file:
        json.dump({"global_step": step, "log_history": [{"loss": 0.5, "step": s} for s in range(step // 10)]}, file)


for number in range(1, 5):
    train()
    with marks.save(number):
        if sys.argv[1] == "keep2":
            torch.save(state(number * 100), "model_%d.pt" % (number * 100))
        else:
            globals()[sys.argv[1]](number * 100)
    if sys.argv[1] == "keep2" and number > 2:
        os.remove("model_%d.pt" % ((number - 2) * 100))
    if sys.argv[1] == "folder" and number > 2:
        shutil.rmtree("checkpoint-%d" % ((number - 2) * 100))
