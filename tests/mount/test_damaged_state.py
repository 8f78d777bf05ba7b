# SPDX-License-Identifier: Apache-2.0
"""state.db is damaged while nobody has it mounted: the next mount notices, makes it again from the remote, and keeps the work
that only this machine has."""

import os
import re
import shutil
import sqlite3

import pytest

from conftest import BIN, MountError, run
from kill_session import content
from remote_weather import Weather


def folder(volume):
    """cache-dir/<uuid>"""
    return next(p for p in volume.cache.iterdir() if (p / "lock").exists())


def work(mnt, sealed=True):
    """Durable, sealed and not uploaded, closed and not sealed: what is there then."""
    files = {"durable": content("durable", 1), "replaced": content("replaced", 1), "dir/below": content("below", 1)}
    (mnt.path / "dir").mkdir()
    for path, data in files.items():
        (mnt.path / path).write_bytes(data)
    mnt.wait_durable()
    mnt.weather.turn("put.down=1")
    files.update({"replaced": content("replaced", 2), "dir/new/sealed": content("sealed", 2)})
    (mnt.path / "dir" / "new").mkdir(mode=0o750)
    for path in ("replaced", "dir/new/sealed"):
        (mnt.path / path).write_bytes(files[path])
    os.setxattr(mnt.path / "replaced", "user.step", b"2")
    if sealed:
        mnt.seal()
    files["closed"] = content("closed", 3)
    (mnt.path / "closed").write_bytes(files["closed"])
    os.chmod(mnt.path / "closed", 0o640)
    os.utime(mnt.path / "closed", ns=(10**18, 10**18))
    return files


@pytest.fixture
def mnt(volume):
    volume.weather = Weather(volume)
    return volume.mount(settle="1h")


def kill(mnt):
    mnt.kill()
    mnt.weather.clear()


def unmount(mnt):
    """In order; what is not uploaded waits for the next mount."""
    mnt.unmount()
    mnt.weather.clear()


def flip(path, offsets):
    with open(path, "r+b") as f:
        for offset in offsets:
            f.seek(offset)
            byte = f.read(1)[0]
            f.seek(offset)
            f.write(bytes([byte ^ 0x40]))


def truncated(cache):
    with open(cache / "state.db", "r+b") as f:
        f.truncate(os.path.getsize(f.name) // 2 // 4096 * 4096)


def empty(cache):
    os.truncate(cache / "state.db", 0)


def no_database(cache):
    (cache / "state.db").write_bytes(b"not a database\n" * 1000)


def missing(cache):
    (cache / "state.db").unlink()


def other_program(cache):
    (cache / "state.db").unlink()
    with sqlite3.connect(cache / "state.db") as db:
        db.execute("CREATE TABLE t (a)")


def flipped_header(cache):
    flip(cache / "state.db", [3])


def flipped_pages(cache):
    """A bit in the head of each page but the first."""
    flip(cache / "state.db", range(4096, os.path.getsize(cache / "state.db"), 4096))


def no_journal(cache):
    (cache / "state.db-wal").unlink()


def flipped_journal(cache):
    """In the middle of it: SQLite alone would believe the part before."""
    flip(cache / "state.db-wal", [os.path.getsize(cache / "state.db-wal") // 2])


def into_the_database(cache):
    """What a journal holds is moved, as an end in order does."""
    with sqlite3.connect(cache / "state.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def check_recovered(mnt, files, all_in_tree, begun=1):
    """What is in the tree is right; what is not lies where the log says."""
    log = mnt.log.read_text()
    told = re.search(r"the damaged state is kept in (\S+): remove it", log)
    assert told and log.count("state.db is damaged: ") == begun, log
    kept = told.group(1)
    assert os.path.exists(kept)
    objects = [os.path.join(kept, "objects", n) for n in os.listdir(os.path.join(kept, "objects"))]
    contents = [open(path, "rb").read() for path in objects]
    for path, data in files.items():
        found = (mnt.path / path).read_bytes() if (mnt.path / path).exists() else None
        if all_in_tree or path in ("durable", "dir/below"):
            assert found == data, path
        else:
            assert found == data or data in contents, path
    if contents:
        assert "%d more lie in %s/objects" % (len(contents), kept) in log
    mnt.wait_durable()
    (mnt.path / "more").write_bytes(b"goes on")
    mnt.wait_durable()
    tree = {p: (mnt.path / p).read_bytes() for p in files if (mnt.path / p).exists()}
    mnt.unmount()
    run(BIN, "fsck", "--read-data", mnt.url)
    mnt.empty_cache()
    mnt.mount()
    assert {p: (mnt.path / p).read_bytes() for p in tree} == tree
    mnt.unmount()


@pytest.mark.parametrize("damage", [truncated, empty, no_database, missing, other_program, flipped_header, flipped_pages,
                                    no_journal, flipped_journal], ids=lambda f: f.__name__)
def test_damage_after_a_kill(mnt, damage):
    files = work(mnt)
    kill(mnt)
    if "journal" not in damage.__name__:
        into_the_database(folder(mnt))
    damage(folder(mnt))
    mnt.mount()
    check_recovered(mnt, files, False)


@pytest.mark.parametrize("damage", [truncated, empty, missing, flipped_header, flipped_pages], ids=lambda f: f.__name__)
def test_damage_after_an_end_in_order(mnt, damage):
    files = work(mnt)
    unmount(mnt)
    damage(folder(mnt))
    mnt.mount()
    check_recovered(mnt, files, False)


def test_where_the_rows_can_be_read_all_is_in_the_tree(mnt):
    """The pages of the chunks' index are damaged, and no other."""
    files = work(mnt)
    unmount(mnt)
    with sqlite3.connect(folder(mnt) / "state.db") as db:
        root, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'packs'").fetchone()
    db.close()
    flip(folder(mnt) / "state.db", [(root - 1) * 4096])
    mnt.mount()
    assert os.getxattr(mnt.path / "replaced", "user.step") == b"2"
    st = os.stat(mnt.path / "closed")
    assert (st.st_mode & 0o777, st.st_mtime_ns) == (0o640, 10**18)
    assert os.stat(mnt.path / "dir" / "new").st_mode & 0o777 == 0o750
    assert [e for e in mnt.epochs() if e != os.readlink(mnt.epochs_dir / "latest")]
    check_recovered(mnt, files, True)


def test_damage_that_is_met_while_it_is_mounted(mnt):
    """The disk rots: no time of the file tells, so the mount believes it, until it reads the page."""
    files = work(mnt, sealed=False)
    unmount(mnt)
    path = folder(mnt) / "state.db"
    times = os.stat(path)
    with sqlite3.connect(path) as db:
        root, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'symlinks'").fetchone()
    db.close()
    flip(path, [(root - 1) * 4096])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    mnt.mount()
    with pytest.raises(OSError):
        os.symlink("target", mnt.path / "link")
    assert "malformed: unmount and mount again" in mnt.log.read_text()
    run("umount", mnt.path)
    mnt.process.wait(timeout=60)
    mnt.process = None
    mnt.mount()
    check_recovered(mnt, files, True)


def test_a_mount_in_order_is_not_looked_through(mnt):
    """What it would cost is not measured; that it is not done is seen by a page that would be found."""
    work(mnt)
    unmount(mnt)
    path = folder(mnt) / "state.db"
    times = os.stat(path)
    with sqlite3.connect(path) as db:
        root, = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'imported'").fetchone()
    db.close()
    flip(path, [(root - 1) * 4096])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    mnt.mount()
    mnt.unmount()
    assert "rebuilt" not in mnt.log.read_text()
    os.utime(path)
    mnt.mount()
    assert "rebuilt" in mnt.log.read_text()


def test_a_schema_of_a_newer_epochfs_is_refused(mnt):
    files = work(mnt)
    unmount(mnt)
    path = folder(mnt) / "state.db"
    with sqlite3.connect(path) as db:
        version, = db.execute("PRAGMA user_version").fetchone()
        db.execute("PRAGMA user_version = %d" % (version + 1))
    db.close()
    with pytest.raises(MountError) as error:
        mnt.mount()
    assert "was created by a newer version of epochfs: upgrade this one" in error.value.output
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = %d" % version)
    db.close()
    mnt.mount()
    assert all((mnt.path / p).read_bytes() == data for p, data in files.items())


def test_the_state_of_another_volume_is_refused(mnt, make_volume):
    files = work(mnt)
    unmount(mnt)
    other = make_volume(settle="1h").mount()
    (other.path / "f").write_text("other")
    other.unmount()
    shutil.copy(folder(mnt) / "state.db", mnt.base / "own.db")
    shutil.copy(folder(other) / "state.db", folder(mnt) / "state.db")
    with pytest.raises(MountError) as error:
        mnt.mount()
    assert "is the cache of another volume (%s)" % folder(other).name in error.value.output
    shutil.copy(mnt.base / "own.db", folder(mnt) / "state.db")
    mnt.mount()
    assert all((mnt.path / p).read_bytes() == data for p, data in files.items())


def test_two_volumes_in_one_cache_directory(mnt, make_volume):
    other = make_volume(settle="1h")
    other.cache.rmdir()
    other.cache = mnt.cache
    other.mount()
    for volume, word in ((mnt, "mine"), (other, "other")):
        (volume.path / "f").write_text(word)
    for volume in (mnt, other):
        volume.unmount()
    for volume, word in ((mnt, "mine"), (other, "other")):
        volume.mount()
        assert (volume.path / "f").read_text() == word


def test_killed_while_it_is_made_anew(mnt):
    files = work(mnt)
    unmount(mnt)
    flipped_pages(folder(mnt))
    cache = folder(mnt)
    (cache / "damaged.moving").mkdir()
    (cache / "objects").rename(cache / "damaged.moving" / "objects")
    mnt.mount()
    check_recovered(mnt, files, False, begun=0)
