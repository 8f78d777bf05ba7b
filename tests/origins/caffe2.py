#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as caffe2's JobRunner does with its CheckpointManager, or MultiNodeCheckpointManager (caffe2/python/checkpoint.py).

    caffe2.py --db-prefix DIR --db-type minidb|leveldb|lmdb --nodes NAME[,NAME...] [--resume EPOCH [--path-prefix P]] EPOCHS
    caffe2.py --db-prefix DIR --db-type ... --nodes ... --load-blobs NAME[,NAME...] EPOCH

Each node is a process and saves its blobs to a database DIR/<node>.<epoch> of its own, epoch 0 before the training. Once all have, the
metadata writer notes epoch, db_type, db_prefix, path_type, path_prefix and node_names in DIR/checkpoints.json, by a rename.
"""

import argparse
import json
import os
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


class Session:
    """A process for each node, which runs what the others run at the same time. An error of one is one of the session."""

    def __init__(self, workspaces):
        self.pipes = []
        for workspace in workspaces:
            (theirs, ask), (answer, ours) = os.pipe(), os.pipe()
            if os.fork() == 0:
                for other in [ask, answer] + [fd for pipe in self.pipes for fd in pipe]:
                    os.close(other)
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
    """A list of the checkpoints that all nodes have saved, in one file that is replaced."""

    def __init__(self, a):
        self.a = a
        self.path = os.path.join(a.db_prefix, "checkpoints.json")

    def rows(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as f:
            return json.load(f)

    def last_epoch(self):
        return max([row["epoch"] for row in self.rows()], default=None)

    def write(self, epoch):
        rows = self.rows() + [{"epoch": epoch, "db_type": self.a.db_type, "db_prefix": self.a.db_prefix, "path_type": None,
                               "path_prefix": None, "node_names": self.a.nodes}]
        with open(self.path + ".tmp", "w", encoding="utf-8") as f:
            json.dump(rows, f)
        os.rename(self.path + ".tmp", self.path)


def save_checkpoints(session, metadata, epoch):
    """What fails is a warning, and the training goes on: so does caffe2's."""
    try:
        session.run("save", epoch)
        metadata.write(epoch)
        print("saved", epoch, flush=True)
        moment("saved %d" % epoch)
    except (OSError, RuntimeError) as error:
        print("unable to write checkpoint", epoch, flush=True)
        print(error, file=sys.stderr)


def train(a, session, metadata):
    resume = metadata.last_epoch() if a.resume is None else a.resume
    if resume is None:
        save_checkpoints(session, metadata, 0)
        resume = 0
    else:
        session.run("load", resume, a.path_prefix)
        print("resumed", resume, flush=True)
    for epoch in range(resume + 1, a.epochs + 1):
        digest = session.run("train")
        save_checkpoints(session, metadata, epoch)
    print("done", a.epochs, digest, flush=True)


def load_some(a):
    """load_blobs_from_checkpoints: some blobs of all nodes, in one process."""
    for node in a.nodes:
        workspace = Workspace(a, node)
        loaded = workspace.read(a.epochs, a.load_blobs, a.path_prefix)
        for _ in range(a.epochs):
            workspace.train()
        for name, data in loaded.items():
            workspace.training.check(node + name, data)
            print("loaded", node, name, len(data), flush=True)


def main():
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser()
    parser.add_argument("--db-prefix", required=True)
    parser.add_argument("--db-type", choices=TYPES, required=True)
    parser.add_argument("--nodes", type=words, required=True)
    parser.add_argument("--resume", type=int)
    parser.add_argument("--path-prefix")
    parser.add_argument("--load-blobs", type=words)
    parser.add_argument("epochs", type=int)
    a = parser.parse_args()
    if a.load_blobs:
        load_some(a)
    else:
        train(a, Session([Workspace(a, node) for node in a.nodes]), MetadataHandler(a))


if __name__ == "__main__":
    main()
