# SPDX-License-Identifier: Apache-2.0
"""One rank of torch's sharded checkpoints over gloo: saves to, or loads from, a folder, and prints its shard.

    dcp_rank.py RANK WORLD PORT save|load FOLDER
"""

import dataclasses
import importlib.metadata
import os
import sys

_dataclass = dataclasses.dataclass


def dataclass(cls=None, **options):
    """Debian's torch 1.13 gives instances of a dataclass as defaults, which Python 3.11 wants to have a hash."""
    if cls is None:
        return lambda c: dataclass(c, **options)
    return _dataclass(cls, **({} if "__hash__" in cls.__dict__ else {"unsafe_hash": True}), **options)


if importlib.metadata.version("torch").startswith("1."):
    dataclasses.dataclass = dataclass
# Debian's torch 2.6 is built without it, and wants it all the same.
os.environ["USE_LIBUV"] = "0"

# pylint: disable=wrong-import-position
import torch
import torch.distributed
from torch.distributed._shard import checkpoint, sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec


def main():
    rank, world, port, mode, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
    torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=world)
    spec = ChunkShardingSpec(dim=0, placements=["rank:%d/cpu" % r for r in range(world)])
    torch.manual_seed(rank)
    make = sharded_tensor.rand if mode == "save" else sharded_tensor.zeros
    weights = make(spec, 64 * world, 512)
    if mode == "save":
        os.makedirs(folder, exist_ok=True)
        checkpoint.save_state_dict({"weights": weights}, checkpoint.FileSystemWriter(folder))
    else:
        checkpoint.load_state_dict({"weights": weights}, checkpoint.FileSystemReader(folder))
    shard = weights.local_shards()[0].tensor
    print(rank, shard.shape, float(shard.sum()), float((shard * torch.arange(512)).sum()), flush=True)
    # What gloo's threads do while the interpreter ends may abort it.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
