# SPDX-License-Identifier: Apache-2.0
"""tensorboardX beside torch.save: an event file that is open for the whole run."""

import os

import tensorboardX
import torch

import marks

model = torch.nn.Linear(64, 64)
writer = tensorboardX.SummaryWriter(".", flush_secs=1)
for number in range(1, 5):
    for step in range(20):
        writer.add_scalar("loss", 1.0 / (number * 20 + step), number * 20 + step)
    writer.flush()
    marks.train()
    with marks.save(number):
        torch.save(model.state_dict(), "model.pt.tmp")
        os.replace("model.pt.tmp", "model.pt")
writer.close()
