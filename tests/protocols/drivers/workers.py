# SPDX-License-Identifier: Apache-2.0
"""An asynchronous save by torch.distributed.checkpoint while a DataLoader forks its workers: they inherit what is open."""

import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import marks

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(3000, 3000)
data = torch.utils.data.DataLoader(torch.zeros(8, 4), num_workers=2)


def opened():
    return any(os.readlink("/proc/self/fd/" + fd).endswith(".distcp") for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd))


for number in range(1, 4):
    name = "checkpoint-%d" % (number * 100)
    marks.mark("save-%d" % number)
    saving = dcp.async_save({"model": model.state_dict(), "step": number}, checkpoint_id=name)
    for _ in range(20000):
        if opened():
            break
        time.sleep(0.0001)
    epoch = iter(data)
    saving.result()
    marks.mark("over-%d" % number)
    list(epoch)
    del epoch
    marks.train()
os._exit(0)
