# SPDX-License-Identifier: Apache-2.0
"""Files that are torn inside: their ends, writes that were refused, what is empty and cannot be."""

import errno
import io
import json
import os
import pickle
import shutil
import sys
import zipfile
import zlib

import pytest

from conftest import BIN, run, wait_until
from test_contract_sealing import FORMATS, write_zip
from test_contract_writing import Writer
from test_doubts import doubts, latest, put, record, verify

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")


def test_a_torn_file_that_an_epoch_has_under_a_temporary_name_is_torn_when_it_is_renamed(mnt):
    put(mnt.path / "notes.txt", "1")
    mnt.seal()
    header = json.dumps({"a": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
    (mnt.path / "model.safetensors.tmp").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2000))
    under = mnt.seal()
    assert record(mnt, under)["complete"] and doubts(mnt, under) == {"model.safetensors.tmp": ("torn", False)}
    (mnt.path / "model.safetensors.tmp").rename(mnt.path / "model.safetensors")
    final = mnt.seal()
    assert not record(mnt, final)["complete"] and doubts(mnt, final) == {"model.safetensors": ("torn", True)}
    why = {d["path"]: d["why"] for number in (under, final) for d in record(mnt, number)["doubts"]}
    assert why["model.safetensors"] == why["model.safetensors.tmp"]
    assert latest(mnt) == under and verify(mnt, "latest") == 0


@pytest.mark.parametrize("name, content", [("model.pt", b""), ("model.safetensors", (5000).to_bytes(8, "little") + b'{"a":{"dty'),
                                           ("model.safetensors", b"cut"), ("model.safetensors", bytes(100))])
def test_what_an_epoch_has_under_a_name_that_says_nothing_is_torn_when_it_is_renamed(mnt, name, content):
    put(mnt.path / name, ""), put(mnt.path / "whole.bin", "")
    run(BIN, "commit", "--whole", mnt.path)
    assert doubts(mnt, 1) == {}
    (mnt.path / "part").write_bytes(content)
    put(mnt.path / "notes", "2")
    mnt.seal()
    # By the word of somebody who knows it may be empty.
    assert "empty" not in str(record(mnt, 2).get("reason", "")) and name not in doubts(mnt, 2)
    (mnt.path / "part").rename(mnt.path / ("new-" + name))
    assert mnt.seal() == 3
    assert doubts(mnt, 3) == {"new-" + name: ("torn", True)} and latest(mnt) < 3
    put(mnt.path / "notes", "4")
    assert mnt.seal() == 4 and doubts(mnt, 4) == {"new-" + name: ("torn", True)}
    mnt.rollback(1)
    assert latest(mnt) == 5


def test_a_name_that_decides_is_asked_of_the_content_that_has_it(mnt):
    """A good file of the same size had that name before; and what somebody called whole may get another one."""
    header = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    whole = len(header).to_bytes(8, "little") + header + bytes(4)
    (mnt.path / "model.safetensors").write_bytes(whole), (mnt.path / "placeholder.safetensors").write_bytes(b"version https://git-lfs")
    run(BIN, "commit", "--whole", mnt.path)
    (mnt.path / "part").write_bytes(bytes(len(whole)))
    assert mnt.seal() == 2 and latest(mnt) == 2
    mnt.wait_durable()
    (mnt.path / "placeholder.safetensors").rename(mnt.path / "base.safetensors")
    assert mnt.seal() == 3 and latest(mnt) == 3 and not doubts(mnt, 3)
    (mnt.path / "part").rename(mnt.path / "model.safetensors")
    assert mnt.seal() == 4 and latest(mnt) == 3 and doubts(mnt, 4) == {"model.safetensors": ("torn", True)}


@pytest.mark.parametrize("name", FORMATS)
def test_a_torn_copy_is_in_doubt_for_itself(mnt, tmp_path, name):
    FORMATS[name](mnt.path / name)
    shutil.copy(mnt.path / name, mnt.path / ("best-" + name))
    mnt.seal()
    (mnt.path / name).write_bytes((mnt.path / name).read_bytes()[:-3000])
    shutil.copy(mnt.path / name, mnt.path / ("best-" + name))
    number = mnt.seal()
    assert sorted(doubts(mnt, number)) == ["best-" + name, name] and latest(mnt) == 1


def test_what_is_changed_in_place_by_a_killed_writer_is_torn_until_it_is_saved_again(mnt):
    path = mnt.path / "weights"
    path.write_bytes(b"old" * 10000)
    assert mnt.seal() == 1
    Writer(path, mode="r+b").end("kill")
    put(mnt.path / "notes", "x")
    assert mnt.seal() == 2
    put(mnt.path / "notes", "y")
    assert mnt.seal() == 3 and doubts(mnt, 3) == {"weights": ("torn", True)} and latest(mnt) == 1
    path.write_bytes(b"new" * 10000)
    assert mnt.seal() == 4 and latest(mnt) == 4


RAW_WRITER = """
import errno, os, sys
refused = 0
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
try:
    for i in range(int(sys.argv[2])):
        os.write(fd, b"new!" * (1 << 18))
except OSError as e:
    refused = e.errno
    if "again" in sys.argv:
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"small and whole", 0)
os.close(fd)
sys.exit(0 if refused == errno.ENOSPC else 1)
"""


@pytest.fixture
def small(volume):
    """The cache is on a disk of 48 MiB."""
    run("mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs", volume.cache)
    yield volume.mount(full="error")
    volume.clean_up()
    run("umount", "-l", volume.cache)


def test_a_replacement_after_a_refused_write_is_undone_at_its_close(small, passthrough):
    """Where the kernel writes by itself it alone sees that: a disk without room at the close stands for it."""
    path = small.path / "model.bin"
    path.write_bytes(b"good" * 1000)
    assert small.seal() == 1
    put(small.path / "config.json", "of the new save")
    done = run(sys.executable, "-c", RAW_WRITER, path, "64", check=False)
    if passthrough == "on":
        assert done.returncode == 1 and "OSError: [Errno 28]" in done.stderr.splitlines()[-1]
    else:
        assert done.returncode == 0
    assert path.read_bytes() == b"good" * 1000
    wait_until(small.torn, "the torn bytes")
    assert small.seal() == 2
    assert doubts(small, 2) == {"model.bin": ("undone", True)} and latest(small) == 1
    why = record(small, 2)["doubts"][0]["why"]
    assert why == ("the cache's disk was full as it was written" if passthrough == "on" else "a write to it was refused")


@pytest.mark.parametrize("where", ["", "checkpoint-2/"])
@pytest.mark.parametrize("name", ["opt.bin", "opt.bin.tmp", "ema.bin"])
def test_an_open_that_is_refused(small, where, name):
    """The file is as it was, but what was saved before it is half."""
    (small.path / "checkpoint-2").mkdir()
    for file in ("opt.bin", "model.bin"):
        put(small.path / where / file, "1" * 5000)
    good = small.seal()
    put(small.path / where / "model.bin", "2" * 5000)
    wait_until(lambda: not small.status().get("closing"), "the close")
    stat = os.statvfs(small.cache)
    (small.cache / "ballast").write_bytes(bytes(stat.f_bavail * stat.f_frsize - (700 << 10)))
    for _ in range(3):
        with pytest.raises(OSError) as refused:
            open(small.path / where / name, "wb")
        assert refused.value.errno == errno.ENOSPC
    number = small.seal()
    assert doubts(small, number) == {where + name: ("undone", True)} and latest(small) == good
    (small.cache / "ballast").unlink()
    put(small.path / where / name, "2" * 5000)
    if name.endswith(".tmp"):
        (small.path / where / name).rename(small.path / where / "opt.bin")
    number = small.seal()
    assert doubts(small, number) == {} and latest(small) == number


def test_an_open_that_is_refused_where_nothing_else_was_saved(small):
    put(small.path / "model.bin", "1" * 5000)
    small.seal()
    stat = os.statvfs(small.cache)
    (small.cache / "ballast").write_bytes(bytes(stat.f_bavail * stat.f_frsize - (700 << 10)))
    for name, mode in (("model.bin", "wb"), ("train.log", "wb"), ("train.jsonl", "ab")):
        with pytest.raises(OSError):
            open(small.path / name, mode)
    (small.cache / "ballast").unlink()
    run("sh", "-c", "sleep 0.1; echo 1 > note.txt", cwd=small.path)
    number = small.seal()
    assert doubts(small, number) == {} and latest(small) == number


def test_a_refused_write_that_a_later_one_covers_is_none(small):
    path = small.path / "model.bin"
    path.write_bytes(b"good" * 1000)
    assert small.seal() == 1
    run(sys.executable, "-c", RAW_WRITER, path, "64", "again")
    assert path.read_bytes() == b"small and whole"
    assert small.seal() == 2 and doubts(small, 2) == {} and latest(small) == 2


# PATH HOW: one MiB after the other, until one is refused.
REFUSED = """
import errno, mmap, os, sys
path, how = sys.argv[1:]
flags = {"direct": os.O_TRUNC | os.O_DIRECT, "direct in place": os.O_DIRECT, "cut": os.O_TRUNC, "append": os.O_APPEND}[how]
fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
block = mmap.mmap(-1, 1 << 20)
block.write(b"new!" * (1 << 18))
written = refused = 0
try:
    while written < 64 << 20:
        written += os.write(fd, block)
except OSError as e:
    refused = e.errno
    if how == "cut":
        os.ftruncate(fd, written)
try:
    os.close(fd)
except OSError:
    pass
sys.exit(0 if refused == errno.ENOSPC else 1)
"""


@pytest.mark.parametrize("how", ["direct", "direct in place", "cut", "append"])
def test_a_refused_write_counts_though_the_file_is_cut_to_what_was_written(small, how):
    """By the kernel, after a direct write, or by the program; or nothing is cut off what was appended."""
    def note(number):
        try:
            put(small.path / ("note-%d" % number), "of another program")
        except OSError:
            return False
        return True

    path = small.path / "model.bin"
    path.write_bytes(b"good" * (1 << 20))
    put(small.path / "optim.bin", "good")
    assert small.seal() == 1
    small.wait_durable()
    put(small.path / "optim.bin", "of the new save")
    run(sys.executable, "-c", REFUSED, path, how)
    for number in (2, 3):
        assert small.seal() == number and latest(small) == 1
        assert doubts(small, number)["model.bin"] == (("torn", True) if how in ("direct in place", "append") else ("undone", True))
        small.wait_durable()
        wait_until(lambda number=number: note(number), "room for a note")
    path.write_bytes(b"good" * 1000), put(small.path / "optim.bin", "good")
    number = small.seal()
    assert latest(small) == number and record(small, number)["complete"] is True and "doubts" not in record(small, number)


# PATH MODE: what is refused is saved anew on the same descriptor, and is smaller.
ANEW = """
import sys
with open(sys.argv[1], sys.argv[2], buffering=0) as f:
    try:
        for _ in range(64):
            f.write(b"new!" * (1 << 18))
    except OSError:
        f.seek(0)
        for _ in range(3):
            f.write(b"anew" * (1 << 18))
        f.truncate(3 << 20)
"""


@pytest.mark.parametrize("mode", ["wb", "r+b"])
def test_a_file_that_is_written_anew_after_a_refused_write_is_whole(small, mode, passthrough):
    path = small.path / "model.bin"
    path.write_bytes(b"good" * (1 << 20))
    assert small.seal() == 1
    small.wait_durable()
    done = run(sys.executable, "-c", ANEW, path, mode, check=False)
    if passthrough == "on" and done.returncode:  # the kernel wrote by itself: it is not known what of it, and the close says so
        assert "No space left on device" in done.stderr and path.read_bytes() == b"good" * (1 << 20)
        return
    assert path.read_bytes() == b"anew" * (3 << 18)
    assert small.seal() == 2 and latest(small) == 2 and doubts(small, 2) == {}


@pytest.mark.parametrize("name", ["model.pt", "last.ckpt", "pytorch_model.bin"])
def test_an_empty_model_is_torn(mnt, name):
    """Ctrl-C between open() and the first write."""
    path = mnt.path / name
    write_zip(path)
    assert mnt.seal() == 1
    with open(path, "wb"):
        pass
    assert mnt.seal() == 2 and record(mnt, 2)["complete"] is False and doubts(mnt, 2) == {name: ("torn", True)}
    assert name + ": it is empty" in record(mnt, 2)["reason"]
    put(mnt.path / "notes", "another file")
    assert mnt.seal() == 3 and doubts(mnt, 3) == {name: ("torn", True)} and name + ": it is empty" in record(mnt, 3)["reason"]
    assert latest(mnt) == 1
    mnt.wait_durable()
    assert [verify(mnt, n) for n in ("latest", "2", "3")] == [0, 6, 6]
    mnt.remount(empty_cache=True)
    put(mnt.path / "notes", "after a remount")
    assert mnt.seal() == 4 and latest(mnt) == 1
    write_zip(path)
    assert mnt.seal() == 5 and latest(mnt) == 5 and "doubts" not in record(mnt, 5)


def fill_in_place(path):
    whole = io.BytesIO()
    write_zip(whole)
    with open(path, "r+b") as f:
        f.write(whole.getvalue())


FILL = {
    "in place": fill_in_place,
    "truncated": write_zip,
    "by a rename": lambda path: (write_zip(path.with_name("new")), os.rename(path.with_name("new"), path)),
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("how", FILL)
def test_a_file_that_is_made_empty_first(mnt, how, sealed):
    """touch, or a temporary file that is filled by its name."""
    put(mnt.path / "x", "1")
    mnt.seal()
    (mnt.path / "model.pt").touch()
    if sealed:
        assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == 1
    FILL[how](mnt.path / "model.pt")
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number) and "doubts" not in mnt.status()
    mnt.wait_durable()
    assert verify(mnt, "latest") == 0


@pytest.mark.parametrize("name", ["done", "model.onnx", "__1_0.distcp", "model.pt.tmp", "train.log"])
def test_other_files_may_be_empty(mnt, name):
    (mnt.path / name).touch()
    assert mnt.seal() == 1 and record(mnt, 1)["complete"] is True and latest(mnt) == 1


@pytest.mark.parametrize("new", [False, True])
def test_an_empty_file_by_word(mnt, new):
    (mnt.path / "model.pt").touch()
    if not new:
        mnt.seal()
    run(BIN, "commit", "--whole", mnt.path)
    put(mnt.path / "notes", "another file")
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number)
    mnt.wait_durable()
    assert verify(mnt, "latest") == 0


def test_an_empty_file_gets_such_a_name_later(mnt):
    """An epoch has its content already."""
    (mnt.path / "placeholder").touch()
    mnt.seal()
    os.rename(mnt.path / "placeholder", mnt.path / "model.pt")
    assert mnt.seal() == 2 and latest(mnt) == 1 and doubts(mnt, 2) == {"model.pt": ("torn", True)}
    mnt.wait_durable()
    assert [verify(mnt, n) for n in ("latest", "2")] == [0, 6]
    write_zip(mnt.path / "model.pt")
    assert mnt.seal() == 3 and latest(mnt) == 3


def test_an_empty_file_that_is_removed(mnt):
    put(mnt.path / "x", "1"), (mnt.path / "model.pt").touch()
    assert record(mnt, mnt.seal())["complete"] is False
    (mnt.path / "model.pt").unlink()
    assert mnt.seal() == 2 and latest(mnt) == 2


INTERRUPTED = """
import sys, pickle
import numpy
class Out:
    def __init__(self, f): self.f, self.left = f, 500_000
    def write(self, data):
        data = memoryview(data).cast("B")
        self.f.write(data[:self.left])
        self.left -= len(data)
        if self.left <= 0: raise KeyboardInterrupt
try:
    with open(sys.argv[1], "wb") as f:
        array = numpy.arange(200_000, dtype="f8")
        if sys.argv[1].endswith("npy"): numpy.lib.format.write_array(Out(f), array)
        else: pickle.dump({"weights": array.tobytes()}, Out(f), protocol=int(sys.argv[2]))
except KeyboardInterrupt:
    pass
"""


@pytest.mark.parametrize("name, protocol", [("a.npy", 0), ("a.pkl", 2), ("a.pkl", 3), ("a.pickle", 4), ("a.pkl", 5)])
def test_an_array_or_a_pickle_whose_writer_was_interrupted(mnt, name, protocol):
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(1000.0)
    save = numpy.save if name.endswith("npy") else lambda path, a: path.write_bytes(pickle.dumps(a, protocol))
    save(mnt.path / name, array)
    assert mnt.seal() == 1
    run(sys.executable, "-c", INTERRUPTED, mnt.path / name, str(protocol))
    assert (mnt.path / name).stat().st_size > 100_000
    assert mnt.seal() == 2 and doubts(mnt, 2) == {name: ("torn", True)} and latest(mnt) == 1
    save(mnt.path / name, array)
    assert mnt.seal() == 3 and latest(mnt) == 3
    mnt.wait_durable()
    assert [verify(mnt, n) for n in ("latest", "2")] == [0, 6]


def test_whole_arrays_and_pickles(mnt):
    numpy = pytest.importorskip("numpy")
    arrays = {"plain": numpy.zeros((3, 4)), "nothing": numpy.zeros((0, 4)), "one": numpy.array(1), "texts": numpy.array(["a", "bcd"]), "times": numpy.array(["2026-01-01"], "M8[D]"),
              "objects": numpy.array([{}, None]), "parts": numpy.zeros(3, [("a", "f4"), ("b", "U3")]), "order": numpy.asfortranarray(numpy.zeros((3, 4), ">i2"))}
    for name, array in arrays.items():
        numpy.save(mnt.path / (name + ".npy"), array)
    with open(mnt.path / "several.npy", "wb") as f:
        numpy.save(f, arrays["plain"]), numpy.save(f, arrays["texts"])
    numpy.lib.format.open_memmap(mnt.path / "mapped.npy", "w+", "f4", (1000,)).flush()
    for protocol in range(6):
        (mnt.path / ("%d.pkl" % protocol)).write_bytes(pickle.dumps(arrays, protocol))
        (mnt.path / ("list-%d.pickle" % protocol)).write_bytes(pickle.dumps([1, "a"], protocol) + pickle.dumps({"b": 2.5}, protocol))
    (mnt.path / "packed.pkl").write_bytes(zlib.compress(pickle.dumps(arrays)))
    assert mnt.seal() == 1 and "doubts" not in record(mnt, 1) and latest(mnt) == 1


# PATH: Ctrl-C while the last of two arrays is written. ZipFile closes the archive in good order.
INTERRUPTED_NPZ = """
import sys
import numpy
write = numpy.lib.format.write_array
def write_half(fp, array, *args, **keywords):
    if array.size < 100_000: return write(fp, array, *args, **keywords)
    class Out:
        left = 500_000
        def write(self, data):
            data = memoryview(data).cast("B")
            fp.write(data[:self.left])
            self.left -= len(data)
            if self.left <= 0: raise KeyboardInterrupt
    write(Out(), array, *args, **keywords)
numpy.lib.format.write_array = write_half
try:
    numpy.savez(sys.argv[1], numpy.zeros(1000), numpy.zeros(200_000))
except KeyboardInterrupt:
    sys.exit(130)
"""


def whole_npz(mnt):
    numpy = pytest.importorskip("numpy")
    numpy.savez(mnt.path / "model.npz", numpy.ones(1000), numpy.ones(200_000))
    return numpy, mnt.path / "model.npz"


# zipfile counts what it writes before it takes its sum, for which it needs longer than for all else.
INTERRUPTED_SUM = """
import sys, zipfile
import numpy
take = zipfile.crc32
def crc32(data, *value):
    if len(data) > 1_000_000: raise KeyboardInterrupt
    return take(data, *value)
zipfile.crc32 = crc32
try:
    numpy.savez(sys.argv[1], numpy.zeros(1000), numpy.zeros(200_000))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.options(keep="last:1")
def test_an_npz_whose_writer_was_interrupted_as_it_took_a_sum(mnt):
    _, path = whole_npz(mnt)
    assert mnt.seal() == 1
    assert run(sys.executable, "-c", INTERRUPTED_SUM, path, check=False).returncode == 130
    with zipfile.ZipFile(path) as z:
        assert z.namelist() == ["arr_0.npy", "arr_1.npy"] and z.infolist()[1].file_size > path.stat().st_size > 8000
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"model.npz": ("torn", True)} and latest(mnt) == 1


@pytest.mark.options(keep="last:1")
def test_an_npz_whose_writer_was_interrupted(mnt):
    numpy, path = whole_npz(mnt)
    assert mnt.seal() == 1
    mnt.wait_durable()
    assert run(sys.executable, "-c", INTERRUPTED_NPZ, path, check=False).returncode == 130
    assert 500_000 < path.stat().st_size < 600_000
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None and z.namelist() == ["arr_0.npy", "arr_1.npy"]
    for number in (2, 3):
        assert mnt.seal() == number and record(mnt, number)["complete"] is False and latest(mnt) == 1
        assert doubts(mnt, number) == {"model.npz": ("torn", True)}
        mnt.wait_durable()
        if number == 2:
            put(mnt.path / "notes", "another file")
    assert "before its last array was written" in record(mnt, 2)["reason"]
    assert [verify(mnt, n) for n in ("1", "2")] == [0, 6]
    assert numpy.load(mnt.epoch(1) / "model.npz")["arr_1"].sum() == 200_000
    numpy.savez(path, numpy.ones(1000), numpy.ones(200_000))
    assert mnt.seal() == 4 and latest(mnt) == 4 and "doubts" not in record(mnt, 4)


def test_whole_npz_files(mnt):
    numpy = pytest.importorskip("numpy")
    arrays = {"plain": numpy.zeros((3, 4)), "nothing": numpy.zeros((0, 4)), "one": numpy.array(1), "bits": numpy.array([True]), "complex": numpy.zeros(3, "c16"),
              "texts": numpy.array(["a", "bcd"]), "times": numpy.array(["2026-01-01"], "M8[D]"), "objects": numpy.array([{}, None]),
              "parts": numpy.zeros(3, [("a", "f4"), ("b", "U3")]), "order": numpy.asfortranarray(numpy.zeros((3, 4), ">i2"))}
    for name, array in arrays.items():
        numpy.savez(mnt.path / (name + ".npz"), numpy.zeros(3), array)
        numpy.savez_compressed(mnt.path / (name + "-compressed.npz"), numpy.zeros(3), array)
    numpy.savez(mnt.path / "empty.npz")
    assert mnt.seal() == 1 and "doubts" not in record(mnt, 1) and latest(mnt) == 1


def write_keras(path, members=3):
    """In the order of Keras, so many members."""
    with zipfile.ZipFile(path, "w") as z:
        for name, content in (("metadata.json", '{"keras_version": "3.5.0"}'), ("config.json", "{}"), ("model.weights.h5", b"weights"))[:members]:
            z.writestr(name, content)


@pytest.mark.options(keep="last:1")
@pytest.mark.parametrize("members", [1, 2])
def test_a_model_of_keras_whose_writer_was_interrupted(mnt, members):
    path = mnt.path / "model.keras"
    write_keras(path)
    assert mnt.seal() == 1
    write_keras(path, members)
    assert mnt.seal() == 2 and record(mnt, 2)["complete"] is False and doubts(mnt, 2) == {"model.keras": ("torn", True)}
    assert latest(mnt) == 1
    mnt.wait_durable()
    assert [verify(mnt, n) for n in ("1", "2")] == [0, 6]
    write_keras(path)
    assert mnt.seal() == 3 and latest(mnt) == 3 and "doubts" not in record(mnt, 3)


def test_a_model_of_keras_whose_hdf5_was_cut(mnt):
    h5py = pytest.importorskip("h5py")
    with h5py.File(mnt.path / "whole.h5", "w") as f:
        f["layers/dense/vars/0"] = [[float(i) for i in range(50)] for _ in range(50)]
    weights = (mnt.path / "whole.h5").read_bytes()
    for number, content in ((1, weights), (2, weights[:-1000])):
        write_keras(mnt.path / "model.keras", 2)
        with zipfile.ZipFile(mnt.path / "model.keras", "a") as z:
            z.writestr("model.weights.h5", content)
        assert mnt.seal() == number and latest(mnt) == 1
    assert doubts(mnt, 2) == {"model.keras": ("torn", True)}


def test_a_pickle_gets_its_name_later(mnt):
    put(mnt.path / "notes", "1")
    assert mnt.seal() == 1
    (mnt.path / "part").write_bytes(pickle.dumps(list(range(1000)))[:-1])
    assert mnt.seal() == 2 and latest(mnt) == 2
    os.rename(mnt.path / "part", mnt.path / "a.pkl")
    assert mnt.seal() == 3 and latest(mnt) == 2 and doubts(mnt, 3) == {"a.pkl": ("torn", True)}


def whole_array():
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (100,), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(400)


@pytest.mark.options(settle="1h")
def test_an_epoch_that_begins_while_the_one_before_is_put_together(mnt):
    """The one before finds the torn file, which is none of what changed since."""
    for i in range(3000):
        put(mnt.path / ("shard-%d.json" % i), "{}")
    good = mnt.seal()
    (mnt.path / "model.npy.tmp").write_bytes(whole_array()[:-100])
    (mnt.path / "model.npy.tmp").rename(mnt.path / "model.npy")  # which seals
    put(mnt.path / "note.txt", "1")
    fd = os.open(mnt.path / ".epochs", os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    torn = {"model.npy": ("torn", True)}
    assert [doubts(mnt, n) for n in (good + 1, good + 2)] == [torn, torn]
    assert latest(mnt) == good
