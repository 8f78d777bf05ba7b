# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint of one process: HOW is sync, async (checkpoint-N each), or same (into one directory each time)."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import marks

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
for number in range(1, 5):
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": number}
    name = "checkpoint" if sys.argv[1] == "same" else "checkpoint-%d" % (number * 100)
    with marks.save(number):
        if sys.argv[1] == "async":
            dcp.async_save(state, checkpoint_id=name).result()
        else:
            dcp.save(state, checkpoint_id=name)
    marks.train()
sys.stdout.flush()
os._exit(0)
