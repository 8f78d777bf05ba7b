# SPDX-License-Identifier: Apache-2.0
"""Several mounts of one volume that write together, as the nodes of a run: each seals its part, and the epoch is there once all have.

A node on another machine is one whose object says another boot of another host, as in test_lease.py.
"""

import json
import os
import socket
import subprocess
import sys

import pytest

from conftest import BIN, LIMIT, MountError, run, wait_until
from test_contract_writing import Writer

NAMES = ["a", "b", "c"]


def make_node(make_volume, first=None, **options):
    v = make_volume(**{"settle": "1h", "lease": "3s", "refresh": "200ms", "nodes": 3, "run": "job-7", **options})
    if first:
        v.remote, v.url = first.remote, first.url
    return v


def make_nodes(make_volume, names, **options):
    made = []
    for name in names:
        made.append(make_node(make_volume, made[0] if made else None, node=name, nodes=len(names), **options))
    return made


@pytest.fixture
def passthrough():
    """What the kernel passes through is no matter between nodes."""
    return "auto"


@pytest.fixture
def nodes(make_volume):
    return make_nodes(make_volume, NAMES)


def save(v, step, **files):
    """One node's part of a checkpoint, sealed and durable."""
    folder = v.path / ("step-%d" % step)
    folder.mkdir(exist_ok=True)
    for name, text in {"shard_" + v.options["node"]: "%s %d" % (v.options["node"], step), **files}.items():
        (folder / name).write_text(text)
    v.request("commit")
    v.wait_durable()


def latest(v):
    try:
        return int(os.readlink(v.epochs_dir / "latest"))
    except FileNotFoundError:
        return 0


def sees(v, number):
    wait_until(lambda: latest(v) == number, "%s to see epoch %d" % (v.options["node"], number))


def record(v, number):
    return {e["epoch"]: e for e in v.request("log")["epochs"]}[number]


def tree(folder):
    return {os.path.relpath(os.path.join(top, name), folder): open(os.path.join(top, name)).read()
            for top, _, names in os.walk(folder) for name in names}


def waiting(v):
    return v.status()["nodes"].get("waiting_for", [])


def shards(step, names=NAMES):
    return {"step-%d/shard_%s" % (step, n): "%s %d" % (n, step) for n in names}


def objects(v, folder):
    return sorted(p.relative_to(v.remote).as_posix() for p in (v.remote / folder).rglob("*") if p.is_file())


def fsck(v):
    done = run(BIN, "fsck", "--read-data", v.url)
    assert "no damage" in done.stdout


# ---- the epoch of all ----


def test_latest_moves_on_all_nodes_once_all_have_sealed_the_step(nodes, tmp_path):
    a, b, c = [v.mount() for v in nodes]
    save(a, 10)
    save(b, 10)
    assert [latest(v) for v in nodes] == [0, 0, 0] and a.epochs() == []
    wait_until(lambda: waiting(a) and waiting(a)[0]["have"] == ["a", "b"], "a to know of b's part")
    (w,) = waiting(a)
    assert w["missing"] == ["c"] and w["step"] == 10 and w["since_ns"] > 0
    assert "waiting for c" in run(BIN, "log", a.path).stdout
    assert "waiting for c" in run(BIN, "log", a.url).stdout
    save(c, 10)
    # Who puts the last part completes the epoch before its wait ends.
    assert latest(c) == 1
    for v in nodes:
        sees(v, 1)
        assert tree(v.epoch(1)) == shards(10)
        assert tree(v.path) == shards(10, [v.options["node"]])
        assert int(os.readlink(v.epochs_dir / "current")) == 1
    r = record(a, 1)
    assert r["complete"] is True and r["step"] == 10 and r["node_names"] == NAMES and r["run_id"] == "job-7"
    wait_until(lambda: not waiting(a), "nothing to wait for")
    for v in nodes:
        v.unmount()
    # Another machine reads it, and a single writer goes on from it.
    run(BIN, "export", a.url, tmp_path / "out")
    assert tree(tmp_path / "out") == shards(10)
    fsck(a)


def test_what_is_sparse_takes_few_blocks_on_every_node(nodes):
    a, b, c = [v.mount() for v in nodes]
    with open(a.path / "sparse", "wb") as out:
        out.truncate(1 << 40)
        out.seek(1 << 30)
        out.write(b"x" * (1 << 20))
    for v in (a, b, c):
        save(v, 1)
    sees(b, 1)
    assert 1 << 20 <= (b.epoch(1) / "sparse").stat().st_blocks * 512 < 2 << 20


def test_steps_part_where_the_nodes_count_differently(nodes):
    a, b, c = [v.mount() for v in nodes]
    (a.path / "config.json").write_text("only the first node writes it")
    a.request("commit")
    for v in nodes:
        save(v, 10)
    sees(a, latest(a) or 2)
    # What a sealed before the first step never had a counterpart.
    first, second = a.request("log")["epochs"]
    assert first["complete"] is False and first["missing"] == ["b", "c"] and "no part of b, c" in first["reason"]
    assert second["complete"] is True and second["step"] == 10 and latest(a) == second["epoch"]
    assert tree(a.epoch(second["epoch"])) == {"config.json": "only the first node writes it", **shards(10)}
    # Without a step it is the count since then.
    for v in nodes:
        (v.path / ("last_" + v.options["node"])).write_text("x")
        v.request("commit")
        v.wait_durable()
    sees(b, 3)
    assert set(tree(b.epoch(3))) == set(shards(10)) | {"config.json", "last_a", "last_b", "last_c"}
    done = run(BIN, "log", a.url).stdout
    assert "incomplete, missing b c" in done, done
    assert "no part of b, c" in run(BIN, "show", a.url, "1").stdout


def test_a_part_that_is_continued_makes_the_epoch_anew(nodes):
    a, b, c = [v.mount() for v in nodes]
    for v in nodes:
        save(v, 10)
    sees(b, 1)
    save(b, 10, late="after it was sealed")
    sees(a, 2)
    sees(b, 2)
    assert tree(a.epoch(2)) == {**shards(10), "step-10/late": "after it was sealed"}
    assert record(a, 2)["continues"] == 1 and record(a, 1)["complete"] is False
    assert a.status()["epochs"]["complete"] == 1


def test_a_node_without_news_takes_part_with_its_step(nodes):
    a, b, c = [v.mount() for v in nodes]
    save(a, 5)
    for v in (b, c):
        answer = v.request("commit", step=5)
        assert answer == {"part": answer["part"], "node": v.options["node"], "step": 5}
        assert v.request("commit", step=5) == answer
        v.wait_durable()
    sees(a, 1)
    assert tree(c.epoch(1)) == shards(5, ["a"])


def test_the_same_path_of_several_nodes_is_kept_and_told(nodes):
    a, b, c = [v.mount() for v in nodes]
    for v in nodes:
        save(v, 1, config="of " + v.options["node"], same="equal")
    sees(a, 1)
    assert tree(a.epoch(1)) == {**shards(1), "step-1/same": "equal", "step-1/config": "of a",
                                "step-1/config.b": "of b", "step-1/config.c": "of c"}
    sees(b, 1)
    conflicts = record(b, 1)["conflicts"]
    assert conflicts == ["step-1/config: of several nodes; that of b is config.b",
                         "step-1/config: of several nodes; that of c is config.c"]
    assert record(b, 1)["complete"] is True
    assert "conflicts" in run(BIN, "log", a.path).stdout and "that of c is config.c" in run(BIN, "show", a.path, "1").stdout


# ---- resuming ----


def test_all_nodes_begin_from_the_same_epoch_and_removals_count(nodes):
    for v in nodes:
        v.mount()
    for v in nodes:
        save(v, 1, old="x")
    a, b, c = nodes
    save(a, 2)  # b and c never come to it
    for v in nodes:
        v.kill()
    b.empty_cache()
    for v in nodes:
        v.mount()
        assert tree(v.path) == {**shards(1), "step-1/old": "x"}
        assert v.status()["nodes"]["attempt"] == 2 and v.status()["nodes"]["began_from"] == 1
    # a rotates: what it removes goes, though the others still have it from the epoch before.
    (a.path / "step-1" / "old").unlink()
    (a.path / "step-1" / "shard_b").unlink()
    for v in nodes:
        save(v, 2)
    wait_until(lambda: latest(a) > 1, "the epoch of step 2")
    number = latest(a)
    assert tree(a.epoch(number)) == {**shards(2), **shards(1, ["a", "c"])}
    # What a had sealed alone before is kept, as an epoch that is not complete.
    wait_until(lambda: not waiting(a), "the old attempt's part")
    broken = [e for e in a.request("log")["epochs"] if e["complete"] is False]
    assert [e["node_names"] for e in broken] == [["a"]] and broken[0]["missing"] == ["b", "c"]
    sees(b, number)
    assert latest(a) == number


def test_what_was_written_and_not_sealed_is_kept_as_a_part_of_its_attempt(nodes):
    a, b, c = [v.mount() for v in nodes]
    for v in nodes:
        save(v, 1)
    sees(a, 1)
    (a.path / "unsealed").write_text("closed, and then the daemon died")
    for v in nodes:
        v.kill()
    for v in nodes:
        v.mount()
    assert tree(a.path) == shards(1)
    a.wait_durable()
    for v in nodes:
        save(v, 2)
    wait_until(lambda: len(a.request("log")["epochs"]) == 3, "the old attempt's part")
    kept = [e for e in a.request("log")["epochs"] if e["complete"] is False]
    assert "unsealed" in tree(a.epoch(kept[0]["epoch"]))


def test_other_nodes_are_another_set(nodes, make_volume):
    for v in nodes:
        v.mount()
    for v in nodes:
        save(v, 1)
    a, b, c = nodes
    c.kill()
    # One is still there: a set of two waits for it, or is told.
    with pytest.raises(MountError) as refused:
        make_node(make_volume, a, node="a", nodes=2).mount()
    assert refused.value.code == 8 and "held for writing by run job-7 of 3 nodes" in refused.value.output
    for v in (a, b):
        v.unmount()
    two = [make_node(make_volume, a, node=n, nodes=2) for n in ("a", "b")]
    for v in two:
        v.mount()
        assert tree(v.path) == shards(1)
    for v in two:
        save(v, 2)
    sees(two[0], 2)
    assert tree(two[1].epoch(2)) == {**shards(1), **shards(2, ["a", "b"])}


def test_a_close_that_waits_for_the_remote(make_volume):
    """What it seals is a part, and no epoch yet."""
    a, b = make_nodes(make_volume, ["a", "b"])
    for v in (a, b):
        v.mount(durability="remote")
    for v in (a, b):
        (v.path / "step-1").mkdir()
        (v.path / "step-1" / ("shard_" + v.options["node"])).write_text("%s 1" % v.options["node"])
    wait_until(lambda: latest(a) and tree(a.epoch(latest(a))) == shards(1, ["a", "b"]), "the epoch of both")


@pytest.mark.parametrize("cache", ["empty", "of a node"])
def test_one_mount_alone_passes_over_what_lacks_a_part(make_volume, cache):
    """Nothing in that tree is in doubt: its next epoch would be called complete, and `keep` would drop the only whole one."""
    a, b = make_nodes(make_volume, ["a", "b"])
    for v in (a, b):
        v.mount()
    for v in (a, b):
        save(v, 1)
    save(a, 2)
    for v in (a, b):
        v.unmount()
    alone = make_node(make_volume, a, nodes=None, run=None, keep="last:1")
    if cache == "of a node":
        alone.cache = a.cache
    alone.mount()
    assert record(alone, 2)["complete"] is False and tree(alone.path) == shards(1, ["a", "b"])
    (alone.path / "note").write_text("x")
    assert alone.seal() == 3
    assert record(alone, 3)["complete"] is True and tree(alone.epoch(3)) == {**shards(1, ["a", "b"]), "note": "x"}
    alone.remount(empty_cache=True)
    assert tree(alone.path) == {**shards(1, ["a", "b"]), "note": "x"}


def test_a_node_that_comes_back_begins_a_new_attempt_for_all(nodes):
    a, b, c = [v.mount() for v in nodes]
    for v in nodes:
        save(v, 1)
    save(a, 2)
    save(b, 2)
    c.kill()
    c.mount()
    for v in nodes:
        wait_until(lambda: v.status()["nodes"]["attempt"] == 2, "the next attempt")
    # c's step 2 is of another course of training than that of a and b.
    save(c, 2)
    assert latest(c) == 1
    for v in (a, b):
        (v.path / "step-2" / ("shard_" + v.options["node"])).write_text("%s 2" % v.options["node"])
        v.request("commit", step=2)
        v.wait_durable()
    wait_until(lambda: latest(c) > 1, "the epoch of step 2")
    sees(a, latest(c))
    assert {k: v for k, v in tree(a.epoch(latest(a))).items() if "step-2" in k} == shards(2)


def test_rolling_back_in_place_and_tagging_what_is_not_there_are_refused(nodes):
    a, b, c = [v.mount() for v in nodes]
    for v in nodes:
        save(v, 1)
    sees(a, 1)
    done = run(BIN, "rollback", a.path, "1", check=False)
    assert done.returncode == 1 and "unmount it on all of them" in done.stderr
    (a.path / "x").write_text("x")
    done = run(BIN, "commit", a.path, "--tag", "best", check=False)
    assert done.returncode == 1 and "tag it then" in done.stderr
    with pytest.raises(OSError):
        os.mkdir(a.epochs_dir / "best")
    run(BIN, "tag", a.path, "step=1", "best")
    wait_until(lambda: b.tags() == {"best": 1}, "b to see the tag")


def test_since_when_a_node_has_something_in_doubt(make_volume):
    """A part's local number says nothing to anybody, and the second epoch that has it is not the first."""
    a, b = [v.mount() for v in make_nodes(make_volume, ["a", "b"])]
    for v in (a, b):
        save(v, 1)
    (b.path / "x").write_text("2")
    Writer(b.path / "y").end("kill")
    for number in (2, 3):
        for v in (a, b):
            (v.path / ("note-" + v.options["node"])).write_text(str(number))
            v.request("commit", step=number)
            v.wait_durable()
        wait_until(lambda: number in [int(n) for n in a.epochs()], "the epoch of both")
        assert [(d["path"], d["since"]) for d in record(a, number)["doubts"]] == [("y", 2)]
    (doubt,) = b.status()["doubts"]
    assert doubt["since_part"] > 0 and "since" not in doubt
    assert "in doubt since part %d (" % doubt["since_part"] in run(BIN, "status", b.path).stdout


def save_in_place(v, text):
    (v.path / ("shard_" + v.options["node"])).write_text(text)


def commit_all(number, *volumes):
    """Whether the epoch of all is complete."""
    for v in volumes:
        v.request("commit", step=number)
        v.wait_durable()
    wait_until(lambda: number in [int(n) for n in volumes[0].epochs()], "the epoch of all")
    return record(volumes[0], number)["complete"]


@pytest.fixture
def half_saved(make_volume):
    """Of the second save shard_a is new, and shard_b the old one, whose writer was killed: no other file of that node was saved."""
    a, b = [v.mount() for v in make_nodes(make_volume, ["a", "b"], keep="last:1", grace="0")]
    for v in (a, b):
        save_in_place(v, "1")
    assert commit_all(1, a, b) is True
    save_in_place(a, "2")
    Writer(b.path / "shard_b").end("kill")
    assert commit_all(2, a, b) is False
    return a, b


def note(number, *volumes):
    for v in volumes:
        (v.path / ("note-" + v.options.get("node", "x"))).write_text(str(number))


def test_a_killed_save_of_one_node_is_in_doubt_until_it_is_done_again(half_saved):
    a, b = half_saved
    for number in (3, 4):
        note(number, a, b)
        assert commit_all(number, a, b) is False
        assert [d["path"] for d in record(a, number)["doubts"]] == ["shard_b"]
    assert latest(a) == 1
    assert "shard_b" in run(BIN, "status", b.path).stdout and "settled by saving it again whole or removing it" in run(BIN, "status", b.path).stdout
    save_in_place(b, "2")
    assert commit_all(5, a, b) is True
    assert "doubts" not in record(a, 5) and latest(a) == 5


def test_a_killed_save_of_one_node_is_in_doubt_after_the_set(half_saved, make_volume):
    """One mount goes on where the nodes ended, on another machine."""
    a, b = half_saved
    for v in half_saved:
        v.unmount()
    single = make_volume(settle="1h")
    single.remote, single.url = a.remote, a.url
    single.mount()
    for number in (3, 4):
        note(number, single)
        single.seal()
        single.wait_durable()
        assert record(single, number)["complete"] is False
    single.unmount()
    single.mount()
    (single.path / "shard_b").write_text("2")
    single.seal()
    single.wait_durable()
    assert record(single, 5)["complete"] is True


# ---- who may write ----


def test_the_lease_is_that_of_the_run(nodes, make_volume):
    a, b, c = [v.mount() for v in nodes]
    for other, said in ((make_node(make_volume, a, node="x", run="job-8"), "held for writing by run job-7 of 3 nodes"),
                        (make_node(make_volume, a, nodes=None, run=None), "held for writing by run job-7 of 3 nodes"),
                        (make_node(make_volume, a, node="b"), "this run has this node already"),
                        (make_node(make_volume, a, node="d"), "this run has all its nodes already")):
        with pytest.raises(MountError) as refused:
            other.mount()
        assert refused.value.code == 8 and said in refused.value.output, refused.value.output
    assert "job-7" in run(BIN, "status", a.url).stdout
    for v in nodes:
        v.unmount()
    alone = make_node(make_volume, a, nodes=None, run=None)
    alone.mount()
    assert "free" not in run(BIN, "status", a.url).stdout
    with pytest.raises(MountError) as refused:
        a.mount()
    assert refused.value.code == 8


def test_a_foreign_run_takes_it_over_by_force(nodes, make_volume):
    a, b, c = [v.mount() for v in nodes]
    for v in nodes:
        save(v, 1)
    other = make_node(make_volume, a, node="x", run="job-8", **{"take-over": True})
    other.mount()
    assert tree(other.path) == shards(1)
    wait_until(lambda: all(v.status()["lease"]["state"] == "lost" for v in nodes), "the nodes to know that it is lost")


@pytest.mark.parametrize("options, said", [
    ({"run": None}, "run=ID"), ({"nodes": "0"}, "1 to 1024"), ({"node": "x/y"}, "cannot be the name of a node"),
    ({"nodes": "auto"}, "no scheduler is recognized")])
def test_what_several_nodes_need(make_volume, passthrough, monkeypatch, options, said):
    for name in ("EPOCHFS_RUN_ID", "SLURM_JOB_ID", "PET_NNODES", "GROUP_RANK", "KUBERNETES_SERVICE_HOST", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MountError) as refused:
        make_node(make_volume, node="a", **{k: v for k, v in options.items() if k != "node"}).mount(**options)
    assert refused.value.code in (1, 2) and said in refused.value.output


def test_names_come_from_slurm(make_volume, passthrough, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURM_NNODES", "2")
    made = []
    for name in ("gpu1", "gpu2"):
        monkeypatch.setenv("SLURMD_NODENAME", name)
        made.append(make_node(make_volume, made[0] if made else None, nodes="auto", run=None).mount())
    for v in made:
        v.options["node"] = v.status()["nodes"]["node"]
        assert v.status()["nodes"]["run"] == "4711" and v.status()["nodes"]["count"] == 2
        save(v, 3)
    sees(made[0], 1)
    assert record(made[0], 1)["node_names"] == ["gpu1", "gpu2"]
    # With SLURM_NNODES=1 it is a mount like any other.
    monkeypatch.setenv("SLURM_NNODES", "1")
    alone = make_volume(nodes="auto").mount()
    assert "nodes" not in alone.status()


def test_a_cache_of_one_kind_is_not_used_for_the_other_while_it_holds_work(make_volume, passthrough):
    alone = make_volume(settle="1h").mount()
    (alone.path / "x").write_text("x")
    alone.kill()
    with pytest.raises(MountError) as refused:
        alone.mount(nodes=2, run="r", node="a")
    assert refused.value.code == 8 and "mount it once without nodes=" in refused.value.output
    alone.mount()
    alone.seal()
    alone.wait_durable()
    alone.unmount()
    other = make_volume(settle="1h", nodes=2, run="r", node="b")
    other.remote, other.url = alone.remote, alone.url
    both = [alone.mount(nodes=2, run="r", node="a"), other.mount()]
    for v in both:
        assert (v.path / "x").read_text() == "x"
        (v.path / ("y" + v.cache.name + str(v.pid))).write_text("y")
        v.request("commit", step=1)
        v.wait_durable()
    for v in both:
        v.unmount()
    alone.mount()
    assert len(tree(alone.path)) == 3
    (alone.path / "z").write_text("z")
    assert alone.seal() == 3
    alone.wait_durable()


def test_each_node_announces_the_epoch_of_all(make_volume, passthrough, tmp_path):
    told = {n: tmp_path / n for n in ("a", "b")}
    a, b = make_nodes(make_volume, ["a", "b"])
    for v in (a, b):
        out = told[v.options["node"]]
        program = tmp_path / ("tell-" + v.options["node"])
        program.write_text("#!/bin/sh\ncat > %s.new && mv %s.new %s\n" % (out, out, out))
        program.chmod(0o755)
        v.mount(on_epoch=str(program))
    for v in (a, b):
        save(v, 4)
    for out in told.values():
        wait_until(out.exists, "the announcement")
        e = json.loads(out.read_text())
        assert e["event"] == "durable" and e["complete"] is True and e["node_names"] == ["a", "b"] and e["step"] == 4


# ---- a framework ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ranks(mode, folders):
    """Runs a rank for each folder, all at once: what they print."""
    port = str(free_port())
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp_rank.py")
    running = [subprocess.Popen([sys.executable, program, str(i), str(len(folders)), port, mode, os.fspath(folder)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for i, folder in enumerate(folders)]
    said = [p.communicate(timeout=3 * LIMIT) for p in running]  # importing torch takes its time
    assert all(p.returncode == 0 for p in running), said
    return [out for out, _ in said]


def test_torch_distributed_checkpoint(nodes, make_volume):
    """Unmodified: each rank writes its shards into the mount of its node; rank 0 renames .metadata into place."""
    pytest.importorskip("torch")
    for v in nodes:
        v.mount(settle="1s")
    saved = ranks("save", [v.path / "step-7" for v in nodes])
    assert len(set(saved)) == 3
    for v in nodes:
        wait_until(lambda: latest(v), "the epoch")
    r = record(nodes[0], latest(nodes[0]))
    assert r["complete"] is True and r["step"] == 7 and r["node_names"] == NAMES and "conflicts" not in r
    for v in nodes:
        v.unmount()
    # A machine that has nothing reads all shards.
    cold = make_volume(ro=True)
    cold.remote, cold.url = nodes[0].remote, nodes[0].url
    cold.mount()
    assert sorted(os.listdir(cold.path / "step-7")) == [".metadata", "__0_0.distcp", "__1_0.distcp", "__2_0.distcp"]
    assert ranks("load", [cold.epochs_dir / "latest" / "step-7"] * 3) == saved


def test_the_next_job_on_the_same_caches_says_nothing_of_damage(nodes):
    """All nodes of the job before ended in order: nothing was put back, and nobody was taken over."""
    for job in ("job-8", "job-9"):
        for v in nodes:
            v.mount(run=job)
        for v in nodes:
            save(v, int(job[4:]))
        sees(nodes[0], int(job[4:]) - 7)
        for v in nodes:
            run(BIN, "umount", v.path)
            v.wait_end()
    for v in nodes:
        said = v.log.read_text()
        assert "put back" not in said and " over from" not in said, said
