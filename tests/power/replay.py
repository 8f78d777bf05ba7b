#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Mounts what power losses at some points of a recording leave, and checks what was promised at each.

    unshare -m replay.py FOLDER --seed S --points POINT,... [--fs ext4] [--passthrough on]

A point is a number of records of FOLDER/log. Of each: the disk is built (disk.py), its file system recovers, the remote is
as it was at that moment, the kernel's boot id is another one, epochfs mounts, and expect.py compares. Prints what is wrong;
exit code 1 where something is. Meant to run in a mount namespace of its own: the boot id is mounted over.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import traceback
import uuid

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "mount")]

from conftest import BIN, Mount, MountError, run  # noqa: E402
import disk  # noqa: E402
from expect import Expect, final_name, is_unfinished  # noqa: E402
from record import SETTLE  # noqa: E402

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def named_in(epoch):
    """The files that an epoch says are in doubt."""
    return {d["path"] for d in epoch.get("doubts", [])}


class Replay:
    def __init__(self, folder, work, args):
        self.folder, self.work, self.args = folder, work, args
        self.log = disk.Log(folder / "log")
        work.mkdir(parents=True)
        self.disk = disk.Disk(self.log, folder / "base", work / "stable")
        self.mnt = Mount(work, {**SETTLE, "passthrough": args.passthrough})
        self.applied = 0
        self.expect, self.remote = Expect(), {}

    def learn(self, point):
        """The promises and the remote at this point."""
        if point < self.applied:
            self.applied, self.expect, self.remote = 0, Expect(), {}
        for i in range(self.applied, point):
            mark = self.log.mark(i)
            if mark is None:
                continue
            if "put" in mark:
                self.remote[mark["put"]] = mark["blob"]
            elif "delete" in mark:
                self.remote.pop(mark["delete"], None)
            else:
                self.expect.apply(mark)
        self.applied = point

    def place_remote(self):
        shutil.rmtree(self.mnt.remote)
        self.mnt.remote.mkdir()
        for key, blob in self.remote.items():
            (self.mnt.remote / key).parent.mkdir(parents=True, exist_ok=True)
            os.link(self.folder / "store" / "blobs" / blob, self.mnt.remote / key)

    def point(self, point):
        """What is wrong after a power loss here."""
        self.learn(point)
        self.place_remote()
        image = self.work / "image"
        self.disk.leave(image, point, self.args.seed)
        run("mount", "-o", disk.MOUNT[self.args.fs], image, self.mnt.cache)
        try:
            self.mnt.log.unlink(missing_ok=True)
            self.mnt.mount(**{"take-over": True})
            return list(self.wrong())
        except MountError as error:
            return ["it does not mount: %s" % error]
        except (Exception, pytest.fail.Exception):  # a request that failed is a finding, too
            return [traceback.format_exc()]
        finally:
            if self.mnt.process:
                self.mnt.kill()
            run("umount", self.mnt.cache)

    def epochs(self):
        return {e["epoch"]: e for e in self.mnt.request("log")["epochs"]}

    def wrong_of_torn(self, torn, number):
        """What this epoch does not say of files that are torn in it."""
        epoch = self.epochs()[number]
        unnamed = [p for p in torn if p not in named_in(epoch)]
        counting = [p for p in torn if not is_unfinished(p)]
        if unnamed:
            yield "%s are torn, and epoch %d says nothing of it" % (unnamed, number)
        if counting and epoch["complete"] is not False:
            yield "%s are torn, and epoch %d is complete" % (counting, number)

    def wrong_of_finished(self, torn):
        """A directory gets its final name though something is torn in it: then that counts."""
        for old in sorted({p.split("/")[0] for p in torn}):
            new = final_name(old)
            os.rename(self.mnt.path / old, self.mnt.path / new)
            yield from self.wrong_of_torn([new + p[len(old):] for p in torn if p.startswith(old + "/")], self.mnt.seal())

    def wrong(self):
        found, torn = self.expect.check(self.mnt.path)
        yield from found
        yield from self.wrong_of_torn(torn, self.mnt.seal())
        yield from self.wrong_of_finished([p for p in torn if is_unfinished(p)])
        epochs = self.epochs()
        for durable in self.expect.durable:
            if durable not in epochs:
                yield "epoch %d was durable and is gone" % durable
        for epoch in epochs.values():
            if epoch["complete"] is not False:
                yield from self.expect.check_epoch(self.mnt.epoch(epoch["epoch"]), epoch["epoch"], named_in(epoch))
        self.mnt.wait_durable()
        done = run(BIN, "fsck", "--read-data", self.mnt.url, check=False)
        if done.returncode:
            yield "fsck of the remote: exit code %d\n%s%s" % (done.returncode, done.stdout, done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--fs", choices=disk.MAKE, default="ext4")
    parser.add_argument("--passthrough", default="auto")
    parser.add_argument("--points", required=True)
    args = parser.parse_args()
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    work = args.folder / ("replay-%d" % os.getpid())
    replay = Replay(args.folder, work, args)
    (work / "boot_id").write_text("%s\n" % uuid.uuid4())
    run("mount", "--bind", work / "boot_id", BOOT_ID)
    failed = 0
    for point in map(int, args.points.split(",")):
        wrong = replay.point(point)
        print("point %d: %s" % (point, "\n  ".join(["WRONG", *wrong]) if wrong else "ok"), flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
