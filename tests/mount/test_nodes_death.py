# SPDX-License-Identifier: Apache-2.0
"""Nodes of a run that die: what they left, and who goes on."""

import json
import uuid

import pytest

from conftest import LIMIT, run, wait_until
from test_nodes import fsck, latest, make_node, make_nodes, NAMES, objects, record, save, sees, shards, tree, waiting


@pytest.fixture
def passthrough():
    """What the kernel passes through is no matter between nodes."""
    return "auto"


@pytest.fixture
def nodes(make_volume):
    return make_nodes(make_volume, NAMES)


@pytest.mark.parametrize("point", ["seal.rows", "upload.index", "nodes.part", "nodes.put", "upload.versions"])
def test_a_node_dies_between_seal_and_part(nodes, monkeypatch, point):
    a, b, c = nodes
    for v in (a, b):
        v.mount()
    monkeypatch.setenv("EPOCHFS_FAULT", point)
    c.mount()
    monkeypatch.delenv("EPOCHFS_FAULT")
    for v in (a, b):
        save(v, 10)
    with pytest.raises(Exception):
        save(c, 10)
    c.process.wait(timeout=LIMIT)
    c.process = None
    run("umount", "-l", c.path, check=False)
    there = point in ("nodes.put", "upload.versions")
    if there:
        # Its part is in the remote: the others complete the epoch.
        sees(a, 1)
    else:
        wait_until(lambda: waiting(b) and waiting(b)[0]["missing"] == ["c"], "b to wait for c")
        assert latest(a) == 0
    # When it comes back, it puts what it had sealed.
    c.mount()
    for v in nodes:
        sees(v, 1)
    assert tree(c.epoch(1)) == shards(10)
    assert record(b, 1)["complete"] is True


@pytest.mark.parametrize("point", ["nodes.tree", "nodes.record"])
def test_the_node_that_completes_dies(nodes, monkeypatch, point):
    a, b, c = nodes
    for v in (a, b):
        v.mount()
    monkeypatch.setenv("EPOCHFS_FAULT", point)
    c.mount()
    monkeypatch.delenv("EPOCHFS_FAULT")
    for v in (a, b):
        save(v, 10)
    with pytest.raises(Exception):
        save(c, 10)
    c.process.wait(timeout=LIMIT)
    c.process = None
    run("umount", "-l", c.path, check=False)
    for v in (a, b):
        sees(v, 1)
        assert tree(v.epoch(1)) == shards(10)
    c.mount()
    assert tree(c.path) == shards(10)
    for v in (a, b, c):
        wait_until(lambda: v.status()["nodes"]["attempt"] == 2, "the next attempt")
    for v in (a, b, c):
        save(v, 20)
    sees(a, 2)
    assert [e["complete"] for e in a.request("log")["epochs"]] == [True, True]
    fsck(a)


def test_all_die_before_anybody_completes(nodes, monkeypatch, make_volume):
    a, b, c = nodes
    monkeypatch.setenv("EPOCHFS_FAULT", "nodes.tree")
    for v in nodes:
        v.mount()
    monkeypatch.delenv("EPOCHFS_FAULT")
    for v in nodes:
        try:
            save(v, 10)
        except Exception:  # the one that completes dies in it
            pass
    for v in nodes:
        v.process.wait(timeout=LIMIT)
        v.process = None
        run("umount", "-l", v.path, check=False)
    assert objects(a, "epochs") == [] and len(objects(a, "parts")) == 3
    # Whoever writes to the volume next does it: here one that is no node at all.
    alone = make_volume(settle="1h")
    alone.remote, alone.url = a.remote, a.url
    alone.mount()
    assert alone.epochs() == [1] and tree(alone.path) == shards(10)
    fsck(a)


def test_parts_do_not_pile_up(nodes):
    for v in nodes:
        v.mount()
    for step in range(1, 8):
        for v in nodes:
            save(v, step)
    sees(nodes[0], 7)
    wait_until(lambda: len(objects(nodes[0], "parts")) == 3, "the old parts to go")
    for v in nodes:
        wait_until(lambda: len(list((v.cache.glob("*/trees/0461*")))) <= 2, "the old trees of parts to go")
        wait_until(lambda v=v: v.epochs() == list(range(1, 8)), "every node to see all epochs")
    fsck(nodes[0])


def move_elsewhere(v):
    """Makes the objects of the set those of processes of another machine."""
    for path in (v.remote / "lease").glob("*.json"):
        lease = json.loads(path.read_text())
        lease.update(boot_id=str(uuid.uuid4()), host="elsewhere", since="2031-01-01T00:00:00Z")
        new = path.with_name(".tmp-test")
        new.write_text(json.dumps(lease))
        new.rename(path)


def test_a_set_elsewhere_that_does_not_renew_lapses(nodes, make_volume):
    for v in nodes:
        v.mount()
    for v in nodes:
        save(v, 1)
    for v in nodes:
        v.kill()
    move_elsewhere(nodes[0])
    other = make_node(make_volume, nodes[0], node="x", run="job-8")
    other.mount()
    assert tree(other.path) == shards(1)
    assert "waiting for up to" in other.log.read_text()
