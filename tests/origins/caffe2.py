#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as caffe2's JobRunner does with its CheckpointManager, or MultiNodeCheckpointManager (caffe2/python/checkpoint.py).

    caffe2.py --db-prefix DIR --db-type minidb|leveldb|lmdb --nodes NAME[,NAME...] [--resume EPOCH [--path-prefix P]] EPOCHS
    caffe2.py ... --places DIR[,DIR...] --catalog DATABASE --commit MOUNT --run RUN [--path-type T --publish PREFIX] EPOCHS
    caffe2.py --db-prefix DIR --db-type ... --nodes ... --load-blobs NAME[,NAME...] EPOCH

Each node is a process and saves its blobs to a database DIR/<node>.<epoch> of its own, epoch 0 before the training. Once all have, the metadata handler
is given the epoch; before, it was given db_type, db_prefix, path_type, path_prefix and node_names. It notes them in DIR/checkpoints.json, by a rename. With
--commit it says them to `epochfs commit`, and asks the catalog where to go on.

With --places each node has a machine of its own, where its place lies at DIR. check_db_exists opens a database to read it, as DBExists does.
"""

import argparse
import contextlib
import ctypes
import json
import os
import sqlite3
import subprocess
import sys
import traceback

from databases import TYPES
from training import Training, moment

CHUNK = 50000  # of a tensor: a blob is several values


def db_name(a, node, epoch, path_prefix=None):
    """As caffe2 puts it together: a path_prefix is put before the name as it is."""
    name = "%s.%d" % (node, epoch)
    return path_prefix + name if path_prefix else os.path.join(a.db_prefix, name)


class Workspace:
    """The blobs of a node."""

    BLOBS = ("fc1_w", "fc1_b", "fc2_w", "optimizer_iteration")

    def __init__(self, a, node):
        self.a, self.node = a, node
        self.training = Training()

    def blob(self, name):
        return self.training.progress() if name == "optimizer_iteration" else self.training.blob(self.node + name)

    def save(self, epoch):
        db = TYPES[self.a.db_type](db_name(self.a, self.node, epoch), True)
        try:
            db.put(b"blob_names", json.dumps(self.BLOBS).encode())
            for i, name in enumerate(self.BLOBS):
                if i == len(self.BLOBS) // 2:
                    moment("%s saves %d" % (self.node, epoch))
                data = self.blob(name)
                for number, at in enumerate(range(0, len(data), CHUNK)):
                    db.put(b"%s#%%%d" % (name.encode(), number), data[at:at + CHUNK])
        finally:
            db.close()

    def read(self, epoch, wanted, path_prefix=None):
        """Blobs of a checkpoint, in the order of the database, as LoadOp goes."""
        found = {}
        db = TYPES[self.a.db_type](db_name(self.a, self.node, epoch, path_prefix), False)
        try:
            for key, value in db.items():
                name, _, _ = bytes(key).decode().partition("#%")
                if name in wanted:
                    found[name] = found.get(name, b"") + bytes(value)
        finally:
            db.close()
        if set(found) != set(wanted):
            sys.exit("%s has only %s" % (db_name(self.a, self.node, epoch, path_prefix), sorted(found)))
        return found

    def load(self, epoch, path_prefix):
        names = json.loads(self.read(epoch, ["blob_names"], path_prefix)["blob_names"])
        loaded = self.read(epoch, names, path_prefix)
        self.training.set_progress(loaded.pop("optimizer_iteration"))
        for name, data in loaded.items():
            self.training.check(self.node + name, data)
        if self.training.steps != epoch:
            sys.exit("epoch %d holds step %d" % (epoch, self.training.steps))

    def train(self):
        self.training.step()

    def check_db_exists(self, epoch):
        try:
            TYPES[self.a.db_type](db_name(self.a, self.node, epoch), False).close()
        except Exception:  # pylint: disable=broad-exception-caught
            return False
        return True


CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 4096, 16384, 1 << 18, 2


def move_to(place, prefix):
    """This process goes to a machine where `place` lies at `prefix`, and which has no other FUSE mounts."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name, *arguments):
        if getattr(libc, name)(*arguments) != 0:
            raise OSError(ctypes.get_errno(), name)

    call("unshare", CLONE_NEWNS)
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", os.fsencode(place), os.fsencode(prefix), None, MS_BIND, None)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        points = [line.split()[4] for line in f if " - fuse" in line]
    for point in points:
        if point != prefix:
            libc.umount2(os.fsencode(point), MNT_DETACH)


class Session:
    """A process for each node, which runs what the others run at the same time. An error of one is one of the session."""

    def __init__(self, workspaces, places):
        self.pipes = []
        for workspace, place in zip(workspaces, places or [None] * len(workspaces)):
            (theirs, ask), (answer, ours) = os.pipe(), os.pipe()
            if os.fork() == 0:
                for other in [ask, answer] + [fd for pipe in self.pipes for fd in pipe]:
                    os.close(other)
                if place:
                    move_to(place, workspace.a.db_prefix)
                self._serve(workspace, theirs, ours)
            os.close(theirs)
            os.close(ours)
            self.pipes.append((ask, answer))

    def _serve(self, workspace, theirs, ours):
        with open(theirs, encoding="utf-8") as tasks:
            for line in tasks:
                method, arguments = json.loads(line)
                try:
                    result = getattr(workspace, method)(*arguments) and None
                except Exception:  # pylint: disable=broad-exception-caught
                    result = traceback.format_exc()
                except SystemExit as end:
                    result = str(end)
                os.write(ours, json.dumps([result, workspace.training.digest]).encode() + b"\n")
        os._exit(0)

    def run(self, method, *arguments):
        for ask, _ in self.pipes:
            os.write(ask, json.dumps([method, arguments]).encode() + b"\n")
        answers = [json.loads(os.read(answer, 1 << 20)) for _, answer in self.pipes]
        errors = [error for error, _ in answers if error]
        if errors:
            raise RuntimeError("\n".join(errors))
        return answers[0][1]


class MetadataHandler:
    """A list of the checkpoints that all nodes have saved, in one file that is replaced. The interface is that of the manager's metadata_handler."""

    def __init__(self, a):
        self.path = os.path.join(a.db_prefix, "checkpoints.json")
        self.params = {}

    def rows(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as f:
            return json.load(f)

    def set_params(self, db_prefix, db_type, node_names, path_prefix, path_type):
        self.params = {"db_type": db_type, "db_prefix": db_prefix, "path_type": path_type, "path_prefix": path_prefix, "node_names": node_names}

    def last_epoch(self, user_epoch=None):
        return user_epoch if user_epoch is not None else max([row["epoch"] for row in self.rows()], default=None)

    def cp_accessible(self, epoch=None):
        return epoch is None or epoch in [row["epoch"] for row in self.rows()]

    def write(self, epoch):
        rows = self.rows() + [{"epoch": epoch, **self.params}]
        with open(self.path + ".tmp", "w", encoding="utf-8") as f:
            json.dump(rows, f)
        os.rename(self.path + ".tmp", self.path)

    def report(self, action_name, all_stats):
        """How long each database took: of no interest here."""


class CatalogHandler(MetadataHandler):
    """epochfs keeps what it is given with the epoch, and in the catalog."""

    def __init__(self, a):
        super().__init__(a)
        self.catalog, self.mount, self.run = a.catalog, a.commit, a.run

    def last_epoch(self, user_epoch=None):
        if user_epoch is not None or not os.path.exists(self.catalog):
            return user_epoch
        with contextlib.closing(sqlite3.connect(self.catalog, timeout=60)) as db:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'checkpoints'").fetchone():
                return None
            return db.execute("SELECT max(step) FROM checkpoints WHERE run_id = ? AND complete AND durable AND NOT dropped", (self.run,)).fetchone()[0]

    def write(self, epoch):
        said = {**self.params, "node_names": ",".join(self.params["node_names"])}
        words = [word for name, value in said.items() if value for word in ("--" + name.replace("_", "-"), value)]
        subprocess.run(["epochfs", "commit", "--step", str(epoch), *words, self.mount], check=True, stdout=subprocess.DEVNULL)


class MultiNodeCheckpointManager:
    """Its calls, in the order in which JobRunner makes them."""

    def __init__(self, a, session, metadata_handler):
        self.a, self.session, self.handler = a, session, metadata_handler

    def set_params(self, nodes):
        self.handler.set_params(db_prefix=self.a.db_prefix, db_type=self.a.db_type, node_names=nodes, path_prefix=self.a.publish, path_type=self.a.path_type)

    def load(self, epoch):
        self.session.run("load", epoch, self.a.path_prefix)
        self.handler.report("checkpoint_load", self.a.nodes)

    def save(self, epoch):
        """What fails is a warning, and the training goes on: so does caffe2's."""
        try:
            if not self.handler.cp_accessible(epoch=None):
                print("checkpoint files cannot be accessed", flush=True)
                return
            self.session.run("save", epoch)
            self.handler.write(epoch=epoch)
            self.handler.report("checkpoint_save", self.a.nodes)
            print("saved", epoch, flush=True)
            moment("saved %d" % epoch)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print("unable to write checkpoint", epoch, flush=True)
            print(error, file=sys.stderr)

    def load_blobs_locally(self, blob_names, epoch):
        """Some blobs of all nodes, in one process; False where a database is not there."""
        for node in self.a.nodes:
            workspace = Workspace(self.a, node)
            if not self.a.path_prefix and not workspace.check_db_exists(epoch):
                print("there is no", db_name(self.a, node, epoch), flush=True)
                return False
            loaded = workspace.read(epoch, blob_names, self.a.path_prefix)
            for _ in range(epoch):
                workspace.train()
            for name, data in loaded.items():
                workspace.training.check(node + name, data)
                print("loaded", node, name, len(data), flush=True)
        return True


def train(a, session):
    manager = MultiNodeCheckpointManager(a, session, (CatalogHandler if a.commit else MetadataHandler)(a))
    manager.set_params(a.nodes)
    resume = manager.handler.last_epoch(user_epoch=a.resume)
    if resume is None:
        manager.save(0)
        resume = 0
    else:
        manager.load(resume)
        print("resumed", resume, flush=True)
    for epoch in range(resume + 1, a.epochs + 1):
        digest = session.run("train")
        manager.save(epoch)
    print("done", a.epochs, digest, flush=True)


def main():
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser()
    parser.add_argument("--db-prefix", required=True)
    parser.add_argument("--db-type", choices=TYPES, required=True)
    parser.add_argument("--nodes", type=words, required=True)
    parser.add_argument("--resume", type=int)
    parser.add_argument("--path-prefix")
    parser.add_argument("--load-blobs", type=words)
    parser.add_argument("--places", type=words)
    for name in ("--catalog", "--commit", "--run", "--path-type", "--publish"):
        parser.add_argument(name)
    parser.add_argument("epochs", type=int)
    a = parser.parse_args()
    if a.load_blobs:
        if not MultiNodeCheckpointManager(a, None, None).load_blobs_locally(a.load_blobs, a.epochs):
            sys.exit(3)
    else:
        train(a, Session([Workspace(a, node) for node in a.nodes], a.places))


if __name__ == "__main__":
    main()
