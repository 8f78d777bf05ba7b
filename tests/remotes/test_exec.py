# SPDX-License-Identifier: Apache-2.0
"""Volumes behind programs: the examples, and programs that fail."""

import os
import shutil

import pytest

from conftest import BIN, MountError, run, wait_until
from server_exec import EXAMPLES
from story import run_recipe, save, whole_story


@pytest.fixture
def passthrough():
    return "auto"


@pytest.fixture
def volume(make_volume):
    v = make_volume()
    v.url = "exec:%s %s" % (EXAMPLES / "exec-directory", v.remote)
    return v


def test_a_volume_is_saved_killed_and_restored(volume, tmp_path):
    whole_story(volume, tmp_path)


@pytest.mark.timeout(400)  # several hundred starts of a large program: a minute, and more beside others
def test_a_volume_is_kept_by_rclone(volume, tmp_path, monkeypatch):
    if not shutil.which("rclone"):
        pytest.skip("rclone is not installed")
    monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "rclone.conf"))
    (tmp_path / "rclone.conf").write_text("[store]\ntype = alias\nremote = %s\n" % volume.remote)
    volume.url = "exec:%s store:run7" % (EXAMPLES / "exec-rclone")
    whole_story(volume, tmp_path, large=12 << 20)
    assert (volume.remote / "run7" / "epochfs.json").exists()


@pytest.mark.parametrize("server", ["xrootd"], indirect=True)
def test_a_volume_is_kept_by_xrdcp(server, volume, tmp_path):
    if not shutil.which("xrdcp"):
        pytest.skip("xrdcp is not installed")
    volume.url = "exec:%s root://127.0.0.1:%d//store/run7" % (EXAMPLES / "exec-xrdcp", server.xrd_port)
    whole_story(volume, tmp_path)


def test_the_recipe_of_the_readme(tmp_path):
    run_recipe("program=/usr/local/share/epochfs/examples/exec-directory", tmp_path, {
        "/usr/local/share/epochfs/examples": str(EXAMPLES), "/backup": str(tmp_path)})


def refuse(volume, url):
    volume.url = url
    with pytest.raises(MountError) as error:
        volume.mount()
    return error.value.code, error.value.output


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_a_program_that_is_missing_or_refuses_is_told_at_once(volume, tmp_path):
    code, line = refuse(volume, "exec:/no/such/program x")
    assert code == 5
    assert "no such program" in line
    code, line = refuse(volume, "exec:%s" % script(tmp_path / "denies", "echo 'token expired' >&2; exit 4\n"))
    assert code == 4
    assert "token expired" in line
    code, line = refuse(volume, "exec:%s" % script(tmp_path / "away", "echo 'no route' >&2; exit 3\n"))
    assert code == 3
    assert "no route" in line


def test_a_program_that_fails_for_a_while_loses_nothing(volume, tmp_path):
    flag = tmp_path / "down"
    program = script(tmp_path / "flaky", 'if [ -e %s ] && [ "$1" != get ]; then echo "disk asleep" >&2; exit 1; fi\n'
                     'exec %s %s "$@"\n' % (flag, EXAMPLES / "exec-directory", volume.remote))
    volume.url = "exec:%s" % program
    volume.mount(settle="1h")
    flag.touch()
    data = save(volume, "a", 3 << 20)
    volume.seal()
    wait_until(lambda: "disk asleep" in str(volume.status()), "status to give the program's words")
    flag.unlink()
    volume.wait_durable()
    volume.remount(empty_cache=True)
    assert (volume.path / "a").read_bytes() == data


def test_a_volume_that_another_makes_meanwhile_is_taken(volume, make_volume, tmp_path):
    """Several nodes begin at once: it was not there, and is when one looks whether the place is empty."""
    other = make_volume()
    other.mount(settle="1h")
    data = save(other, "a", 4096)
    other.seal()
    other.wait_durable()
    other.unmount()
    looked = tmp_path / "looked"
    program = script(tmp_path / "races", 'if [ "$1,$2" = get,epochfs.json ] && [ ! -e %s ]; then touch %s; exit 5; fi\n'
                     'exec %s %s "$@"\n' % (looked, looked, EXAMPLES / "exec-directory", other.remote))
    volume.url = "exec:%s" % program
    volume.mount(settle="1h")
    assert looked.exists()
    assert (volume.path / "a").read_bytes() == data


def test_what_is_no_volume_becomes_none(volume, tmp_path):
    volume.remote.mkdir(exist_ok=True)
    (volume.remote / "thesis.tex").write_text("mine")
    code, line = refuse(volume, "exec:%s %s" % (EXAMPLES / "exec-directory", volume.remote))
    assert code == 6 and "thesis.tex" in line and os.listdir(volume.remote) == ["thesis.tex"]


def test_no_program_outlives_the_mount(volume, tmp_path):
    """One that hangs is ended when the mount ends."""
    hang = tmp_path / "hang"
    program = script(tmp_path / "hangs", 'case $1,$2 in put,packs/*) hangs=yes;; esac\n'
                     'if [ -e %s ] && [ "${hangs-}" ]; then echo $$ >%s/pid; sleep 1000; fi\n'
                     'exec %s %s "$@"\n' % (hang, tmp_path, EXAMPLES / "exec-directory", volume.remote))
    volume.url = "exec:%s" % program
    volume.mount(settle="1h")
    hang.touch()
    save(volume, "a", 3 << 20)
    volume.seal()
    wait_until((tmp_path / "pid").exists, "an upload")
    volume.unmount()
    pid = (tmp_path / "pid").read_text().strip()
    assert not os.path.exists("/proc/%s" % pid)
    hang.unlink()
    volume.mount()
    volume.wait_durable()
    volume.unmount()
    run(BIN, "fsck", volume.url)
