# SPDX-License-Identifier: Apache-2.0
"""Eight nodes write one checkpoint through two gateways, and die between seal, upload and completion."""

import concurrent.futures
import json
import os
import signal
import subprocess

COUNT, SHARD_MIB = 8, 8


class Node:
    """One mount of the set, with a cache of its own."""

    def __init__(self, scale, name):
        self.scale, self.name = scale, name
        self.point = scale.folder / ("node-" + name)
        self.point.mkdir()

    def mount(self, fault=None):
        options = "cache-dir=%s,nodes=%d,node=%s,run=job-1,lease=20s,refresh=1s,min-free=0" % (
            self.scale.folder / ("cache-" + self.name), COUNT, self.name)
        env = {**self.scale.env, **({"EPOCHFS_FAULT": fault} if fault else {})}
        done = subprocess.run([self.scale.program, "mount", "-o", options, self.scale.cluster.url("nodes"), os.fspath(self.point)],
                              env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError("node %s: %s" % (self.name, done.stderr))

    def status(self):
        """None where the daemon is dead."""
        done = self.scale.epochfs("status", "--json", self.point, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def kill(self):
        os.kill(self.status()["pid"], signal.SIGKILL)

    def take_away(self):
        """Whatever became of it."""
        if self.status():
            self.kill()
        subprocess.run(["umount", "-l", os.fspath(self.point)], check=False, capture_output=True)

    def save(self, step, data):
        """Writes its shard and seals; whether the node lived through it."""
        try:
            folder = self.point / ("step-%d" % step)
            folder.mkdir(exist_ok=True)
            (folder / self.name).write_bytes(data)
        except OSError:
            return False
        return self.scale.epochfs("commit", "--step", str(step), self.point, check=False).returncode == 0


class Nodes:
    def __init__(self, scale):
        self.scale = scale
        self.all = [Node(scale, "n%d" % i) for i in range(COUNT)]
        self.shards = {}  # step -> name -> bytes
        self.pool = concurrent.futures.ThreadPoolExecutor(COUNT)

    def save(self, step):
        """A checkpoint by all."""
        self.shards[step] = {n.name: os.urandom(SHARD_MIB << 20) for n in self.all}
        list(self.pool.map(lambda n: n.save(step, self.shards[step][n.name]), self.all))

    def dead(self):
        return [n for n in self.all if not n.status()]

    def complete(self, step):
        """The epoch of this step, once it is the latest on every node that lives."""
        def there():
            states = [s for s in self.pool.map(Node.status, self.all) if s]
            numbers = {s["epochs"]["latest"] for s in states}
            return states and len(numbers) == 1 and numbers != {0} and self.step_of(numbers.copy().pop()) == step
        self.scale.cluster.wait(there, "step %d to be complete on all nodes" % step)

    def together(self):
        """All know of the newest attempt: what they save from here on is of one."""
        def there():
            states = list(self.pool.map(Node.status, self.all))
            return all(states) and len({s["nodes"]["attempt"] for s in states}) == 1
        self.scale.cluster.wait(there, "all nodes to be of one attempt")

    def step_of(self, number):
        return json.loads(self.scale.epochfs("show", "--json", self.scale.cluster.url("nodes"), str(number)).stdout)["epoch"].get("step")

    def check(self):
        """A machine that is no node reads every step whole."""
        url, out = self.scale.cluster.url("nodes"), self.scale.folder / "nodes-out"
        for step, shards in self.shards.items():
            target = out / str(step)
            self.scale.epochfs("export", "%s@step=%d" % (url, step), target)
            for name, data in shards.items():
                if (target / ("step-%d" % step) / name).read_bytes() != data:
                    raise RuntimeError("step %d: the shard of %s differs" % (step, name))
        print(self.scale.epochfs("fsck", "--read-data", url).stdout.strip())


def nodes_through_failures(scale):
    nodes = Nodes(scale)
    try:
        story(scale, nodes)
    finally:
        for node in nodes.all:
            node.take_away()


def story(scale, nodes):
    faults = {"n2": "seal.rows:2", "n5": "nodes.part:2", "n6": "nodes.put:2"}
    for node in nodes.all:
        node.mount(faults.get(node.name))
    nodes.save(1)
    nodes.complete(1)
    scale.say("%d nodes, one epoch: latest on all of them" % COUNT)
    nodes.save(2)
    scale.cluster.wait(lambda: {n.name for n in nodes.dead()} == set(faults), "three nodes to die")
    scale.say("three nodes died after their seal, before their part, and after it")
    missing = [n for n in nodes.all if n.name in ("n2", "n5")]
    alive = nodes.all[0]
    scale.cluster.wait(lambda: any(w["missing"] == ["n2", "n5"] for w in alive.status()["nodes"].get("waiting_for", [])),
                       "the others to wait for n2 and n5")
    for node in nodes.dead():
        node.mount("nodes.tree" if node in missing else None)
    nodes.complete(2)
    scale.say("they came back, and their epoch is complete")
    for node in nodes.dead():
        scale.say("%s died as it put the epoch together" % node.name)
        node.mount()
    nodes.together()
    nodes.save(3)
    scale.cluster.kill_gateway(0)
    nodes.all[7].kill()
    scale.say("killed a gateway and a node during the uploads")
    nodes.all[7].mount()
    nodes.complete(3)
    for node in nodes.all:
        scale.umount(node.point)
    nodes.check()
    scale.say("three epochs of %d nodes, byte for byte, from the other gateway" % COUNT)
