# SPDX-License-Identifier: Apache-2.0
"""safetensors beside torch.save: HOW is place, or folder (checkpoint-N as a Trainer makes it, the state last)."""

import json
import os
import sys

import torch
from safetensors.torch import save_file

import marks

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
for number in range(1, 5):
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    marks.train()
    with marks.save(number):
        folder = "." if sys.argv[1] == "place" else "checkpoint-%d" % (number * 500)
        os.makedirs(folder, exist_ok=True)
        save_file(model.state_dict(), folder + "/model.safetensors", metadata={"format": "pt"})
        torch.save(optimizer.state_dict(), folder + "/optimizer.pt")
        if sys.argv[1] == "folder":
            with open(folder + "/trainer_state.json", "w", encoding="utf-8") as file:
                json.dump({"global_step": number * 500}, file)
