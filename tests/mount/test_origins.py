# SPDX-License-Identifier: Apache-2.0
"""The systems that epochfs grew from, as programs that do their operations on files (tests/origins): AdaptDL and caffe2 (KIT's checkpointer:
test_origins_kit.py, Ray's DurableTrainable: test_origins_durable.py). Each runs, is killed in the middle, restarts from the newest complete epoch, and goes on on another machine.

Each story is told on an ordinary directory too: there it tests the program, and shows what the mount is for.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3

import pytest

from conftest import BIN, run, wait_until
from origins_run import Job, content, place_of
from test_contract_epochs import log_of
from test_nodes import make_node, make_nodes


@pytest.fixture(params=["on", "off", "ordinary directory"])
def passthrough(request):
    return request.param


@pytest.fixture(autouse=True)
def jobs():
    yield
    Job.end_all()


@pytest.fixture
def place(request, passthrough, tmp_path):
    return place_of(request, passthrough, tmp_path)


# ---- AdaptDL


def test_adaptdl_restarts_with_other_replicas(place, tmp_path):
    def start(restarts, replicas, *stop):
        return Job("adaptdl.py", 8, stop=stop, ADAPTDL_CHECKPOINT_PATH=place.path, ADAPTDL_NUM_RESTARTS=restarts, ADAPTDL_NUM_REPLICAS=replicas)

    start(0, 2, "trained 2").stopped("trained 2").asked_to_end(code=143)
    assert os.listdir(place.path) == ["checkpoint-0"]
    place.sealed(1, step=0, trigger="rename")

    # Killed while it saves: the next restart starts where the last whole checkpoint is, with a half one beside it, or without.
    job = start(1, 3, "trained 4", "saving adaptdl-dataparallel").stopped("trained 4")
    job.process.send_signal(signal.SIGTERM)
    job.go_on().stopped("saving adaptdl-dataparallel").killed()
    torn = place.path / "_checkpoint" / "adaptdl-dataparallel"
    assert torn.exists() == (place.mnt is None)
    place.interrupted(latest=1)
    said = start(2, 1, "trained 5").stopped("trained 5").asked_to_end(code=143)
    assert "starts 2" in said and "loaded adaptdl-epoch 0" in said
    assert os.listdir(place.path) == ["checkpoint-2"]
    place.sealed(4, step=2, trigger="rename")

    # Killed between the rename and the removal of the others: the newer one counts.
    job = start(3, 4, "trained 6", "renamed").stopped("trained 6")
    job.process.send_signal(signal.SIGTERM)
    job.go_on().stopped("renamed").killed()
    place.sealed(5, step=3, trigger="rename")
    assert sorted(os.listdir(place.path)) == ["checkpoint-2", "checkpoint-3"]
    place.another_machine()
    said = start(4, 2).ends()
    assert "starts 6" in said and "loaded adaptdl-epoch 3" in said
    assert said[-1] == Job("adaptdl.py", 8, ADAPTDL_CHECKPOINT_PATH=tmp_path, ADAPTDL_NUM_RESTARTS=0, ADAPTDL_NUM_REPLICAS=1).ends()[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root binds a directory to /tmp")
def test_adaptdl_under_ray_saves_to_tmp(place, tmp_path):
    """AdaptDL's from_ray(): its directory is /tmp/checkpoint, which it makes again and removes. The mount lies at /tmp there."""
    def start(restarts, replicas, *stop, restored=None):
        ray = {"RAY_CHECKPOINT": restored} if restored else {}
        return Job("adaptdl.py", 8, stop=stop, at=(place.path, "/tmp"), ADAPTDL_FROM_RAY=1, ADAPTDL_NUM_RESTARTS=restarts,
                   ADAPTDL_NUM_REPLICAS=replicas, **ray)

    def saved(number, restarts):
        wait_until(lambda: place.mnt.epochs() == list(range(1, number + 1)), "epoch %d" % number)
        record = log_of(place.mnt)[number]
        assert (record["complete"], record["step"], record["trigger"]) == (True, restarts, "rename")
        assert os.readlink(place.mnt.epochs_dir / "latest") == "%06d" % number
        names = {"adaptdl-epoch", "adaptdl-dataparallel", "adaptdl-dataloader-epoch0"}
        assert set(content(place.mnt.epoch(number))) == {"checkpoint/.is_checkpoint"} | {"checkpoint/checkpoint-%d/%s" % (restarts, n) for n in names}

    said = start(0, 2, "trained 2").stopped("trained 2").asked_to_end(code=143)
    assert "starts 0" in said and "in memory 5" in said
    assert os.listdir(place.path) == []  # in Ray's memory alone, and in the epoch
    if place.mnt is None:
        return  # with the machine it is gone
    saved(1, 0)

    # The node is lost as soon as that is durable. Another one starts from the newest whole checkpoint, as it lies in its epoch, and is killed in the middle of a save.
    wait_until(lambda: os.getxattr(place.mnt.epoch(1), "user.epochfs.state") == b"durable", "the upload")
    place.mnt.kill()
    place.mnt.empty_cache()
    place.mnt.mount()
    assert sorted(os.listdir(place.path)) == ["checkpoint"]  # nobody has sealed its removal
    job = start(1, 3, "trained 4", "saving adaptdl-dataparallel", restored="/tmp/.epochs/latest/checkpoint").stopped("trained 4")
    assert "starts 2" in job.said and "loaded adaptdl-epoch 0" in job.said
    job.process.send_signal(signal.SIGTERM)
    job.go_on().stopped("saving adaptdl-dataparallel").killed()
    assert os.readlink(place.mnt.epochs_dir / "latest") == "000001"

    # The next one finds what is left of that in its way, and is killed before it has removed its own.
    job = start(2, 1, "trained 5", "in memory", restored="/tmp/.epochs/latest/checkpoint").stopped("trained 5")
    job.process.send_signal(signal.SIGTERM)
    job.go_on().stopped("in memory").killed()
    newest = place.mnt.epochs()[-1]
    wait_until(lambda: os.readlink(place.mnt.epochs_dir / "latest") == "%06d" % newest, "the whole save")
    saved(newest, 2)
    said = start(3, 2, restored="/tmp/.epochs/latest/checkpoint").ends()
    assert "starts 5" in said and "loaded adaptdl-epoch 2" in said
    alone = Job("adaptdl.py", 8, ADAPTDL_CHECKPOINT_PATH=tmp_path, ADAPTDL_NUM_RESTARTS=0, ADAPTDL_NUM_REPLICAS=1).ends()
    assert said[-1] == alone[-1]


# ---- caffe2


def catalog_row(database, run_id):
    """Where a workflow goes on, as a scheduler asks."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as db:
        return db.execute("SELECT step, db_type, path_prefix FROM checkpoints WHERE run_id = ? AND complete AND durable AND NOT dropped"
                          " ORDER BY epoch DESC LIMIT 1", (run_id,)).fetchone()


@pytest.mark.parametrize("db_type, nodes, number", [("minidb", "master", signal.SIGKILL), ("minidb", "trainer:0,trainer:1,reader", signal.SIGTERM),
                                                    ("leveldb", "trainer:0,trainer:1", signal.SIGKILL), ("lmdb", "trainer:0,trainer:1", signal.SIGKILL)])
def test_caffe2_resumes_a_workflow_that_failed(place, tmp_path, db_type, nodes, number):
    for module in {"leveldb": ["plyvel"], "lmdb": ["lmdb"]}.get(db_type, []):
        pytest.importorskip(module)
    words = ["--db-prefix", place.path, "--db-type", db_type, "--nodes", nodes]
    first = nodes.split(",", maxsplit=1)[0]
    if place.mnt:
        place.mnt.options.update(catalog=tmp_path / "catalog.db", run_id="workflow7", db_type=db_type)
        place.mnt.remount()

    # Epoch 0 comes before the training. The metadata writer's rename seals each, once all nodes have saved.
    job = Job("caffe2.py", *words, 4, stop=["saved 0", "saved 1", first + " saves 2"])
    for epoch in (0, 1):
        job.stopped("saved %d" % epoch)
        place.sealed(epoch + 1, step=epoch, trigger="rename")
        job.go_on()
    job.stopped(first + " saves 2").killed(number)

    # The scheduler knows with one query where to go on, and what is there; what the killed nodes left of epoch 2 is no longer in the way.
    again = []
    if place.mnt:
        place.interrupted(latest=2)
        place.another_machine()
        wait_until(lambda: place.mnt.status()["announce"]["catalog"] == {"waiting": 0}, "the catalog")
        step, row_type, path_prefix = catalog_row(tmp_path / "catalog.db", "workflow7")
        assert (step, row_type) == (1, db_type)
        again = ["--resume", str(step)]
        # LevelDB writes to what it opens, so it opens the live tree; the others read the epoch itself.
        if db_type != "leveldb":
            again += ["--path-prefix", path_prefix + "/"]
    else:
        for name in os.listdir(place.path):
            if name.endswith(".2"):
                (shutil.rmtree if os.path.isdir(place.path / name) else os.remove)(place.path / name)

    # Only some blobs, for an evaluation, then all, for the training. check_db_exists comes before: of an epoch that never was, it says so.
    assert Job("caffe2.py", *words, "--load-blobs", "fc1_b", 3).ends(3) == ["there is no %s" % (place.path / (first + ".3"))]
    loaded = Job("caffe2.py", *words, *again[2:], "--load-blobs", "fc1_b,fc2_w", 1).ends()
    assert loaded == ["loaded %s %s 120000" % (node, blob) for node in nodes.split(",") for blob in ("fc1_b", "fc2_w")]
    said = Job("caffe2.py", *words, *again, 4).ends()
    assert said[0] == "resumed 1" and "unable to write checkpoint" not in "\n".join(said)
    (tmp_path / "at once").mkdir()
    words[1] = tmp_path / "at once"
    assert said[-1] == Job("caffe2.py", *words, 4).ends()[-1]
    rows = json.loads((place.path / "checkpoints.json").read_text())
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3, 4] and rows[4]["node_names"] == nodes.split(",")


# ---- caffe2 on several machines

TRAINERS = ["trainer:0", "trainer:1", "trainer:2"]


def metadata_rows(database):
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as db:
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'checkpoints'").fetchone():
            return {}
        return {row[0]: row[1:] for row in db.execute("SELECT step, db_type, db_prefix, path_type, path_prefix, node_names, epoch FROM checkpoints"
                                                      " WHERE complete AND durable ORDER BY step")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a mount namespace")
@pytest.mark.parametrize("passthrough", ["on"])
@pytest.mark.parametrize("db_type, published", [("minidb", ("blobstore", "store://run7/")), ("lmdb", (None, None))])
def test_caffe2_on_several_mounts_with_its_own_metadata(make_volume, tmp_path, db_type, published):
    """MultiNodeCheckpointManager with a machine and a mount for each node, all at one db_prefix. What its metadata handler is given reaches the catalog."""
    if db_type == "lmdb":
        pytest.importorskip("lmdb")
    catalog, prefix = tmp_path / "catalog.db", tmp_path / "ckpt"
    prefix.mkdir()
    # The metadata is said to the first one's mount, which nothing else seals; the others seal by quiet.
    nodes = make_nodes(make_volume, ["a", "b", "c"], run="workflow7")
    nodes[0].options["catalog"] = catalog
    for v in nodes[1:]:
        v.options["settle"] = "300ms"
    for v in nodes:
        v.mount()
    words = ["--db-prefix", prefix, "--db-type", db_type, "--nodes", ",".join(TRAINERS), "--places", ",".join(str(v.path) for v in nodes), "--catalog", catalog,
             "--commit", nodes[0].path, "--run", "workflow7"]
    if published[0]:
        words += ["--path-type", published[0], "--publish", published[1]]
    env = {"PATH": "%s:%s" % (os.path.dirname(os.path.realpath(BIN)), os.environ["PATH"])}
    reader = make_node(make_volume, nodes[0], ro=True, nodes=None, node=None, run=None, settle=None, lease=None)

    def evaluate(folder, epoch, code=0):
        return Job("caffe2.py", "--db-prefix", folder, "--db-type", db_type, "--nodes", ",".join(TRAINERS), "--load-blobs", "fc1_b", epoch).ends(code)

    def durable(step):
        wait_until(lambda: step in metadata_rows(catalog), "step %d in the catalog" % step)
        epoch = metadata_rows(catalog)[step][-1]
        for v in nodes:
            wait_until(lambda v=v: os.path.lexists(v.epochs_dir / "latest") and os.readlink(v.epochs_dir / "latest") == "%06d" % epoch,
                       "%s to see it" % v.options["node"])
        names = ["%s.%d" % (node, step) for node in TRAINERS]
        assert set(names) <= set(os.listdir(nodes[2].epoch(epoch)))
        said = (db_type, str(prefix), published[0] or "epochfs", published[1] or "%s/.epochs/%06d" % (nodes[0].path, epoch))
        assert metadata_rows(catalog)[step] == (*said, json.dumps(TRAINERS, separators=(",", ":")), epoch)
        (shown,) = [e for e in json.loads(run(BIN, "log", "--json", nodes[0].url).stdout) if e["epoch"] == epoch]
        assert shown["node_names"] == TRAINERS and shown["db_prefix"] == str(prefix) and shown.get("path_type") == published[0]
        return epoch

    job = Job("caffe2.py", *words, 3, stop=["saved 0", "saved 1", "trainer:1 saves 2"], **env)
    job.stopped("saved 0")
    epoch = durable(0)
    # A node's own mount has its own databases; all of them are in the epoch, and on a mount that follows.
    assert evaluate(nodes[0].path, 0, 3) == ["loaded trainer:0 fc1_b 120000", "there is no %s" % (nodes[0].path / "trainer:1.0")]
    reader.mount()
    for folder in (nodes[0].epoch(epoch), reader.path):
        assert evaluate(folder, 0) == ["loaded %s fc1_b 120000" % node for node in TRAINERS]
    assert evaluate(reader.path, 1, 3) == ["there is no %s" % (reader.path / "trainer:0.1")]
    job.go_on().stopped("saved 1")
    durable(1)
    wait_until(lambda: (reader.path / "trainer:2.1").exists(), "the reader to follow")
    assert evaluate(reader.path, 1) == ["loaded %s fc1_b 120000" % node for node in TRAINERS]
    reader.unmount()

    # A node is killed in the middle of the next save, and then all machines are gone.
    job.go_on().stopped("trainer:1 saves 2").killed()
    for v in nodes:
        v.kill()
        v.empty_cache()
    for v in nodes:
        v.mount()
    said = Job("caffe2.py", *words, 3, **env).ends()
    assert said[:3] == ["resumed 1", "saved 2", "saved 3"]
    (tmp_path / "at once").mkdir()
    alone = Job("caffe2.py", "--db-prefix", tmp_path / "at once", "--db-type", db_type, "--nodes", ",".join(TRAINERS), 3).ends()
    assert said[-1] == alone[-1]
    wait_until(lambda: 3 in metadata_rows(catalog), "the last step in the catalog")
