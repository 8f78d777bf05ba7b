# SPDX-License-Identifier: Apache-2.0
"""`epochfs check` over each real server."""

import json
import os
import signal
import subprocess
import time

import pytest

from conftest import BIN, LIMIT, run, wait_until


def server_env(server):
    return {**os.environ, **server.env()}


@pytest.mark.timeout(300)
def test_a_server_is_tried_and_left_as_it_was(server):
    url = server.url("check")
    done = run(BIN, "check", "--json", "--size", "1M", url, env=server_env(server), timeout=240)
    report = json.loads(done.stdout)
    assert report["usable"], report
    assert [o["name"] for o in report["operations"] if not o["ok"] and o["name"] != "create in a race"] == []
    assert set(report["latency_ms"]) == {"put", "get", "size", "list", "delete"}
    assert report["throughput"]["download_many"] > 0
    if not server.optional:
        assert report["create_if_absent"] == "atomic"
    # Nothing is left: a volume is only made in an empty place.
    again = json.loads(run(BIN, "check", "--json", "--size", "64K", url, env=server_env(server), timeout=240).stdout)
    listed = [o["detail"] for o in again["operations"] if o["name"] == "list"]
    assert listed == ["5 objects in packs/"]


@pytest.fixture
def passthrough():
    return "auto"


def test_a_volume_in_use_is_not_disturbed(make_volume):
    volume = make_volume(settle="1h").mount()
    (volume.path / "a").write_bytes(b"x" * 100000)
    volume.wait_durable()
    done = run(BIN, "check", "--size", "100K", volume.url)
    assert "create if absent         yes: by the remote itself" in done.stdout
    assert "one mount writes at a time" in done.stdout
    (volume.path / "b").write_bytes(b"y" * 100000)
    volume.wait_durable()
    volume.unmount()
    assert "no damage" in run(BIN, "fsck", "--read-data", volume.url).stdout
    assert not [p for p in volume.remote.rglob("*probe*")]


def test_exit_codes_say_what_is_wrong(tmp_path):
    for url, code, word in (("/no/such/dir/x", 5, "directory above"),
                            ("fault+file://%s/r?put.denied=1" % tmp_path, 4, "allow"),
                            ("fault+file://%s/r?down=1" % tmp_path, 3, "reached"),
                            ("fault+file://%s/r?get.damage=1" % tmp_path, 6, ""),
                            ("fault+file://%s/r?size.error=1" % tmp_path, 1, "")):
        done = run(BIN, "check", "--size", "64K", url, check=False)
        assert (done.returncode, word in done.stderr) == (code, True), (url, done.stdout, done.stderr)
        assert code < 6 or "NO: other bytes came back" in done.stdout
    for words in ([], ["--size", "0", "/x"], ["--size", "x", "/x"], ["/a", "/b"]):
        assert run(BIN, "check", *words, check=False).returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("slow", ["put.delay=200ms", "get.delay=1h"])
def test_an_interrupted_check_leaves_nothing(tmp_path, number, slow):
    process = subprocess.Popen([BIN, "check", "fault+file://%s/r?%s" % (tmp_path, slow)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(tmp_path.rglob("*probe*")), "an object")
    for _ in range(2):  # to the process, and to its group, as timeout(1) does
        process.send_signal(number)
        time.sleep(0.01)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and "interrupted" in err, out + err
    assert not list(tmp_path.rglob("*probe*"))
