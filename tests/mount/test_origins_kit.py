# SPDX-License-Identifier: Apache-2.0
"""KIT's checkpointer (tests/origins/kit.py) in its five transfer modes: called by a loop, by Keras's and Lightning's callbacks, and alone, watching a
file. Each job is ended by a signal, killed in the middle of a save, and goes on on another machine."""

import os
import shutil
import signal

import pytest

from conftest import MountError, wait_until
from origins_run import Job, Mounted, content, place_of
from server import ServerMissing
from server_xrootd import Xrootd

KEPT = "ckpt.pt"
QUIET = {"settle": "300ms"}  # where only quiet seals


class Kit:
    """One job in one transfer mode: where its local file is, and where its checkpoint is safe."""

    def __init__(self, kept, tmp_path, mode, framework=None, server=None):
        self.mode, self.framework, self.server, self.scratch, self.turn = mode, framework, server, tmp_path, 0
        self.kept = kept
        self.keeps_local = mode in ("None", "htcondor")
        self.name = "checkpoint.zip" if framework == "keras" else KEPT
        self.job_ad = tmp_path / "job.ad"
        self.job_ad.write_text('MyType = "Job"\nCheckpointExitCode = 77\nTransferCheckpoint = "%s"\n' % self.name)

    def words(self):
        words = ["--mode", self.mode]
        if self.mode == "xrootd":
            words += ["--target", "/run7/" + KEPT, "--server", self.server]
        elif self.mode not in ("None", "htcondor"):
            words += ["--target", self.kept]
        return words

    def start(self, *stop, steps=9, every=3):
        """On a worker node of its own, whose scratch is empty, but for what HTCondor, or the user's script in manual mode, brings there."""
        self.turn += 1
        node = self.scratch / ("node%d" % self.turn)
        node.mkdir()
        local = self.kept.parent / ("backup" if self.framework == "keras" else KEPT) if self.mode == "None" else node / (
            "backup" if self.framework == "keras" else KEPT)
        self.local = local / self.name if self.framework == "keras" else local
        self.local.parent.mkdir(exist_ok=True)
        if self.mode in ("htcondor", "manual") and self.kept.exists():
            shutil.copy2(self.kept, self.local)
        more = ["--with", self.framework] if self.framework else []
        return Job("kit.py", *self.words(), "--local", local, "--every", every, *more, steps, stop=stop, _CONDOR_JOB_AD=self.job_ad, TMPDIR=node)

    def watch(self, local):
        """The checkpointer alone, beside who writes this file."""
        return Job("kit.py", "--watch", *self.words(), "--local", local, _CONDOR_JOB_AD=self.job_ad).until("watches")

    def code(self):
        return 77 if self.mode == "htcondor" else 85

    def ended(self, job, number):
        """It is asked to end: it saves, and exits with the code that says so. HTCondor then takes the file to its spool, by way of a temporary directory there."""
        said = job.asked_to_end(number, code=self.code())
        assert self.local.exists() == self.keeps_local
        self.spool(self.local)
        return said

    def spool(self, local):
        if self.mode != "htcondor":
            return
        spool = self.kept.parent / "job.tmp"
        spool.mkdir()
        shutil.copyfile(local, spool / self.kept.name)
        os.rename(spool / self.kept.name, self.kept)
        spool.rmdir()


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


# ---- called by a loop


@pytest.mark.options(marker=KEPT)
@pytest.mark.parametrize("mode", ["None", "shared", "manual", "htcondor"])
def test_kit_transfers_at_intervals_and_at_signals(place, tmp_path, mode):
    if mode == "htcondor" and place.mnt:
        place.mnt.options.update(QUIET, marker=None)  # there it would count in the temporary directory too
        place.mnt.remount()
    kit = Kit(place.path / KEPT, tmp_path, mode)
    epochs = 0
    job = kit.start("trained 1", "trained 4", "trained 5")
    for step in (1, 4):
        job.stopped("trained %d" % step)
        if mode != "htcondor":
            epochs += 1
            place.sealed(epochs, trigger="marker")
        job.go_on()
    said = kit.ended(job.stopped("trained 5"), signal.SIGTERM)
    assert [line for line in said if line.startswith("saved")] == ["saved 1", "saved 4", "saved 5"]
    if mode == "htcondor":
        place.whole(trigger="quiet")
    else:
        place.sealed(epochs + 1)

    # Killed in the middle of the next save, or of its transfer: what is kept stays whole.
    before = content(place.path)
    moment = "transferring" if mode == "shared" else "saving"
    job = kit.start(moment).stopped(moment)
    assert place.mnt is None or content(place.path) == before  # nobody sees half of it
    job.killed()
    if place.mnt is None and mode in ("None", "shared"):
        assert content(place.path) != before
        return  # there the checkpoint is lost
    wait_until(lambda: content(place.path) == before, "the old checkpoint")
    place.another_machine()
    said = kit.ended(kit.start("trained 7").stopped("trained 7"), signal.SIGINT)
    assert said[0] == "starts 5" and said[-1] == "saved 7"
    if mode == "htcondor":
        place.whole(trigger="quiet")
    said = kit.start().ends()
    assert said[0] == "starts 7"
    kit.kept = tmp_path / KEPT
    assert said[-1] == kit.start().ends()[-1]


@pytest.mark.options(**QUIET)
@pytest.mark.parametrize("passthrough", ["on", "off"])
@pytest.mark.parametrize("mode", ["None", "shared", "manual"])
def test_kit_s_checkpoints_are_sealed_by_quiet(mnt, tmp_path, mode):
    """Nothing says that a save has ended, and no command is given."""
    where = Mounted(mnt)
    kit = Kit(mnt.path / KEPT, tmp_path, mode)
    job = kit.start("trained 1", "trained 4")
    for step in (1, 4):
        job.stopped("trained %d" % step)
        where.whole(trigger="quiet")
        job.go_on()
    job.ends()
    assert where.whole(trigger="quiet") >= 3


# ---- called by Keras and by Lightning, and alone


@pytest.fixture
def xrootd_on(volume, tmp_path):
    """An XRootD server whose storage is the mount, which other users than root may use."""
    pytest.importorskip("XRootD")
    try:
        with Xrootd(tmp_path / "xrootd") as server:
            volume.path = server.home / "root"
            owner = os.stat(volume.path)
            volume.options.update(QUIET, allow_other=True)
            try:
                volume.mount()
            except MountError as error:
                if volume.options["passthrough"] == "on" and "passthrough=on" in error.output:
                    pytest.skip("this kernel has no passthrough for us")
                raise
            os.chown(volume.path, owner.st_uid, owner.st_gid)
            (volume.path / "run7").mkdir()
            shutil.chown(volume.path / "run7", owner.st_uid, owner.st_gid)
            yield server
            assert volume.clean_up() == []
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def kept_in(request, mode, volume):
    """(a place in the mount, the directory of it that is the job's, an XRootD server over it or None)."""
    if mode == "xrootd":
        server = request.getfixturevalue("xrootd_on")
        return Mounted(volume), volume.path / "run7", "root://127.0.0.1:%d/" % server.xrd_port
    return Mounted(request.getfixturevalue("mnt")), volume.path, None


@pytest.mark.options(**QUIET)
@pytest.mark.parametrize("passthrough", ["on"])
@pytest.mark.parametrize("framework", ["keras", "lightning"])
@pytest.mark.parametrize("mode", ["None", "shared", "manual", "htcondor", "xrootd"])
def test_kit_called_by_a_framework(kept_in, mode, framework, tmp_path):
    if framework == "keras":
        pytest.importorskip("h5py")
    where, folder, server = kept_in
    kit = Kit(folder / KEPT, tmp_path, mode, framework, server)
    job = kit.start("trained 2", steps=5, every=1).stopped("trained 2")
    if mode != "htcondor":
        where.whole()
    kit.ended(job, signal.SIGTERM)
    where.whole()

    # Killed in the middle of the next save, or of its transfer.
    before = content(where.path)
    moment = "transferring" if mode == "shared" else "saving"
    job = kit.start(moment, steps=5, every=1).stopped(moment)
    assert job.said[0] == "starts 2" and content(where.path) == before  # nobody sees half of it
    job.killed()
    wait_until(lambda: content(where.path) == before, "the old checkpoint")
    where.another_machine()
    said = kit.start(steps=5, every=1).ends()
    assert said[0] == "starts 2" and [line for line in said if line.startswith("saved")] == ["saved %s" % n for n in (
        ("all",) * 3 if framework == "keras" else (3, 4, 5))]
    if framework == "keras":
        assert not (kit.local.parent).exists()  # Keras removes its directory at the end, where it is the mount's, too
    (tmp_path / "alone").mkdir()
    alone = Kit(tmp_path / "alone" / KEPT, tmp_path / "alone", "None", framework)
    assert said[-1] == alone.start(steps=5, every=1).ends()[-1]


@pytest.mark.options(**QUIET)
@pytest.mark.parametrize("passthrough", ["on"])
@pytest.mark.parametrize("mode", ["None", "shared", "manual", "htcondor", "xrootd"])
def test_kit_alone_watches_for_a_new_checkpoint(kept_in, mode, tmp_path):
    """The training writes its file by itself; whenever it is another one it is transferred, also one that is half written, as the original cannot know."""
    where, folder, server = kept_in
    kit = Kit(folder / KEPT, tmp_path, mode, server=server)
    local = kit.kept if mode == "None" else tmp_path / KEPT
    watcher = kit.watch(local)
    training = Job("kit.py", "--mode", "None", "--local", local, "--every", 1, 3, stop=["trained 1", "saving 2", "trained 2"])
    transferred = lambda: watcher.until("transferred %d" % os.stat(local).st_size)  # noqa: E731

    training.stopped("trained 1")
    transferred()
    if mode != "htcondor":
        where.whole()
    training.go_on()
    first = content(where.path)
    if mode == "None":
        # What is being replaced is no new file to anybody else.
        training.stopped("saving 2")
        assert content(where.path) == first
        training.go_on()
    else:
        training.stopped("saving 2")
        transferred()
        if mode != "htcondor":
            torn, record = where.seals_by_itself()
            assert record["complete"] is False
            assert content(where.mnt.epochs_dir / "latest") == first and os.readlink(where.mnt.epochs_dir / "latest") < "%06d" % torn
        training.go_on()
    training.stopped("trained 2")
    transferred()
    if mode != "htcondor":
        where.whole()
    watcher.process.send_signal(signal.SIGTERM)
    assert watcher.ends(kit.code())[-1] == "saved all"
    kit.spool(local)
    if mode != "None":
        where.whole()  # it was transferred once more
    assert kit.kept.read_bytes() == local.read_bytes()

    # All is lost but the remote, and the training goes on from there.
    training.killed()
    where.another_machine()
    again = tmp_path / "again.pt"
    again.write_bytes(kit.kept.read_bytes())
    said = Job("kit.py", "--mode", "None", "--local", again, "--every", 1, 3).ends()
    assert said[0] == "starts 2" and said[-1].startswith("done 3")


@pytest.mark.parametrize("passthrough", ["on", "off"])
def test_kit_transfers_through_xrootd(volume, xrootd_on, tmp_path):
    where = Mounted(volume)
    kit = Kit(volume.path / "run7" / KEPT, tmp_path, "xrootd", server="root://127.0.0.1:%d/" % xrootd_on.xrd_port)
    job = kit.start("trained 1", "trained 2").stopped("trained 1")
    where.whole(trigger="quiet")
    assert kit.ended(job.go_on().stopped("trained 2"), signal.SIGTERM)[-1] == "saved 2"
    where.whole(trigger="quiet")
    kit.start("saving").stopped("saving").killed()
    where.another_machine()
    said = kit.start().ends()
    assert said[0] == "starts 2" and said[-1].startswith("done 9")
