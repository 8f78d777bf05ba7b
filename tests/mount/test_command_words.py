# SPDX-License-Identifier: Apache-2.0
"""What a person types first, and is told."""

import json
import os
import re
import time

import pytest

from conftest import BIN, run

DONE, USAGE, UNREACHABLE, NOT_FOUND, CONFLICT = 0, 2, 3, 5, 8


@pytest.fixture
def passthrough():
    """It makes no difference here."""
    return "auto"


def epochfs(*words, code=DONE):
    done = run(BIN, *words, check=False)
    assert done.returncode == code, done
    return done.stdout if code == DONE else done.stderr


@pytest.fixture
def six(make_volume):
    mnt = make_volume(settle="1h").mount()
    for n in range(1, 7):
        (mnt.path / "model.pt").write_text(str(n))
        mnt.seal()
    mnt.wait_durable()
    return mnt


def numbers(target):
    return [e["epoch"] for e in json.loads(epochfs("log", "--json", target))]


def test_ranges_of_epochs(six):
    said = epochfs("rm", six.path, "1-2", "4").splitlines()
    assert said[:3] == ["epoch %06d is dropped" % n for n in (1, 2, 4)]
    assert re.search("[0-9]+ B in the remote go 24 h after the first `epochfs gc", said[3])
    assert "no epoch from 1-2" in epochfs("rm", six.path, "1-2", code=NOT_FOUND)
    # A tag of that name is what is meant.
    six.request("tag", epoch="3", name="5-9")
    assert "tagged" in epochfs("rm", six.path, "5-9", code=CONFLICT)
    assert "current" in epochfs("rm", six.path, "5-6", code=CONFLICT)
    six.unmount()
    assert numbers(six.url) == [6, 3]
    assert "tagged" in epochfs("rm", six.url, "1-4", code=CONFLICT)


def test_what_a_drop_frees_with_a_collecting_mount(make_volume):
    mnt = make_volume(settle="1h", keep="last:100").mount()
    for n in (1, 2):
        (mnt.path / "model.pt").write_bytes(os.urandom(1 << 20))
        mnt.seal()
    mnt.wait_durable()
    said = epochfs("rm", mnt.path, "1").splitlines()[1]
    assert re.fullmatch(r"nothing is freed yet: 1.0 MiB in the remote go by this mount's garbage collection, not before \S+ \S+; "
                        "until then `epochfs undrop` brings epochs back", said), said


def test_so_many_lines_of_the_log(six):
    for words in (["-2"], ["-n2"], ["--count=2"]):
        assert [e["epoch"] for e in json.loads(epochfs("log", "--json", *words, six.path))] == [6, 5]
    assert "unknown option -2" in epochfs("show", "-2", six.path, code=USAGE)


def test_a_rollback_in_the_graph(six):
    for epoch in ("4", "2"):
        epochfs("rollback", six.path, epoch)
        (six.path / "model.pt").write_text("again, from %s" % epoch)
        six.seal()

    def drawn(*words):
        return ["".join(re.match(r"([*|/: ]*)(0*\d+)?", line).groups("")).replace(" ", "").replace("00000", "").replace("0000", "")
                for line in epochfs("log", "--graph", *words, six.path).splitlines()[1:-1]]

    # 7 brought back 4, 9 brought back 2.
    assert drawn() == ["*10", "*9", "|*8", "|*7", "||*6", "||*5", "||/", "|*4", "|*3", "|/", "*2", "*1"]
    assert drawn("-2") == ["*10", "*9"]
    assert not any(line.endswith(" ") for line in epochfs("log", "--graph", six.path).splitlines())
    epochfs("rm", six.path, "3")
    assert drawn() == ["*10", "*9", "|*8", "|*7", "||*6", "||*5", "||/", "|*4", "|:", "*2", "*1"]
    # 11 brought back 5: 6 was made from that, and leads to it under the lines between.
    epochfs("rollback", six.path, "5")
    assert "\n|_|_|/\n" in epochfs("log", "--graph", six.path)
    assert "parent and restores" in epochfs("log", "--graph", "--json", six.path, code=USAGE)


def test_a_mistyped_place_is_not_made(six, tmp_path):
    six.unmount()
    place = tmp_path / "mistyped"
    for words in (["check", place], ["check", "file://%s" % place], ["fsck", "--repair", "--cache-dir", place, six.url]):
        line = epochfs(*words, code=NOT_FOUND)
        assert str(place) in line and line.count("\n") == 1, line
        assert not place.exists()


def test_a_remote_that_is_away_is_told_while_it_is_tried():
    start = time.monotonic()
    lines = epochfs("log", "http://user:secret@127.0.0.1:9/run7", code=UNREACHABLE).splitlines()
    assert time.monotonic() - start > 2
    assert "is not reached yet" in lines[0] and "secret" not in lines[0] and "cannot be reached" in lines[1]


def test_a_warning_of_a_passphrase_comes_once(make_volume, tmp_path):
    secret = tmp_path / "passphrase"
    secret.write_text("a passphrase\n")
    os.chmod(secret, 0o644)
    mnt = make_volume(passphrase_file=secret).mount()
    assert mnt.log.read_text().count("chmod 600") == 1


def test_times_have_units(make_volume):
    mnt = make_volume(settle="5").mount()
    assert mnt.status()["settle_ns"] == 5 * 10**9
    assert re.search("^settle +5 s$", epochfs("status", mnt.path), re.M)


def test_a_file_that_is_exported_leaves_the_directory_as_it_is(six, tmp_path):
    place = tmp_path / "restored"
    place.mkdir()
    os.chmod(place, 0o711)
    assert "1 file," in epochfs("export", "%s:model.pt" % six.path, place)
    assert place.stat().st_mode & 0o777 == 0o711
