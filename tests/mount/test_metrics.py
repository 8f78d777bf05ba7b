# SPDX-License-Identifier: Apache-2.0
"""The option metrics: what a mount tells who watches it, by HTTP and as a file."""

import http.client
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time

import pytest

import remote_weather
from conftest import BIN, SLOWNESS, MountError, run, wait_until
from papers import page
from server import free_port
from supervised import kill

weather = remote_weather.weather
pytestmark = pytest.mark.options(settle="1h")

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")

KILLED = """
import os, signal, sys
with open(sys.argv[1], "w") as f:
    f.write("other")
    f.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.fspath(self.path))


class Watched:
    """A volume that serves metrics on loopback."""

    def __init__(self, volume, host="127.0.0.1"):
        self.volume, self.host, self.port = volume, host, free_port()
        volume.options["metrics"] = "%s:%d" % ("[%s]" % host if ":" in host else host, self.port)

    def ask(self, method="GET", path="/metrics", body=None, **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def text(self):
        return self.ask()[1]

    def get(self, name, **labels):
        return value(self.text(), name, **labels)

    def wait_for(self, number, name, **labels):
        wait_until(lambda: self.get(name, **labels) == number, "%s %s" % (name, number))


def value(text, name, **labels):
    """Of the sample with these labels; None: there is none."""
    for line in text.splitlines():
        sample = SAMPLE.fullmatch(line)
        if sample and sample[1] == name and all('%s="%s"' % item in (sample[2] or "") for item in labels.items()):
            return float(sample[3])
    return None


def check_metrics(text):
    """promtool reads the older format."""
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def watched(volume):
    w = Watched(volume)
    volume.mount()
    return w


def test_get_of_metrics_is_answered_and_nothing_else(watched):
    answer, text = watched.ask()
    assert answer.status == 200 and answer.getheader("Content-Type") == OPENMETRICS and text.endswith("\n# EOF\n")
    for method, path, status in (("GET", "/", 404), ("GET", "/metrics/", 404), ("POST", "/", 404), ("POST", "/metrics", 405),
                                 ("HEAD", "/metrics", 405), ("DELETE", "/metrics", 405)):
        answer, text = watched.ask(method, path, b"x" * 100000 if method == "POST" else None)
        assert (answer.status, text) == (status, ""), (method, path)
        assert answer.getheader("Allow") == ("GET" if status == 405 else None)
    assert watched.ask(path="/metrics?x=1")[0].status == 200
    assert watched.ask(body=b"of a GET")[0].status == 200


def test_who_reads_text_alone_gets_text(watched):
    answer, text = watched.ask(Accept="text/plain;version=0.0.4")
    assert answer.getheader("Content-Type") == CLASSIC
    check_metrics(text)
    assert watched.ask(Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")[0].getheader("Content-Type") == OPENMETRICS


def test_each_family_says_what_it_is(watched):
    families = re.findall(r"^# (TYPE|HELP|UNIT) ([a-z_]+) (.+)$", watched.text(), re.M)
    types = {name: word for kind, name, word in families if kind == "TYPE"}
    assert {name for kind, name, _ in families if kind == "HELP"} == set(types)
    units = {name: word for kind, name, word in families if kind == "UNIT"}
    assert all(name.endswith("_" + unit) for name, unit in units.items())
    assert {name for name in types if name.endswith(("_bytes", "_seconds"))} == set(units)


def test_the_manual_has_all_that_is_told(watched):
    (watched.volume.path / "model").write_bytes(b"1")
    watched.volume.seal()
    watched.volume.wait_durable()
    section = page("epochfs-integrations.7").partition(".SH WATCHING\n")[2].partition(".SH ")[0]
    told = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"^(epochfs_[a-z_]+)[{ ]", watched.text(), re.M)}
    assert set(re.findall("^epochfs_[a-z_]+$", section, re.M)) == told


def test_an_epoch_shows_once_it_is_sealed_and_once_it_is_durable(volume, weather):
    w = Watched(volume)
    volume.mount()
    assert (w.get("epochfs_latest_epoch"), w.get("epochfs_durable_epoch"), w.get("epochfs_latest_epoch_age_seconds")) == (0, 0, None)
    weather.turn("put.down=1")
    (volume.path / "model").write_bytes(b"1" * 100000)
    wait_until(lambda: w.get("epochfs_at_risk_bytes") >= 100000, "the end of the close")
    assert w.get("epochfs_pending_epochs") == 0
    volume.seal()
    w.wait_for(1, "epochfs_latest_epoch")
    wait_until(lambda: w.get("epochfs_upload_failing_seconds") > 0 and w.get("epochfs_remote_retries_total") > 0, "a failure")
    assert w.get("epochfs_durable_epoch") == 0 and w.get("epochfs_pending_epochs") == 1
    assert 0 < w.get("epochfs_at_risk_age_seconds") < 600 and w.get("epochfs_remote_errors_total", kind="unreachable") > 0
    weather.clear()
    w.wait_for(1, "epochfs_durable_epoch")
    w.wait_for(0, "epochfs_at_risk_bytes")
    w.wait_for(0, "epochfs_upload_failing_seconds")
    text = w.text()
    assert value(text, "epochfs_at_risk_age_seconds") == 0 and value(text, "epochfs_pending_epochs") == 0
    assert abs(value(text, "epochfs_durable_epoch_timestamp_seconds") + value(text, "epochfs_durable_epoch_age_seconds") - time.time()) < 60
    assert value(text, "epochfs_store_input_bytes_total") == 100000
    assert 0 < value(text, "epochfs_store_output_bytes_total") < 100000 < value(text, "epochfs_remote_sent_bytes_total") + 100000


def test_saves_count_as_they_end(watched):
    mnt = watched.volume
    (mnt.path / "model").write_bytes(b"1" * 5000)
    watched.wait_for(1, "epochfs_save_duration_seconds_count")
    assert watched.get("epochfs_close_duration_seconds_count") >= 1
    process = subprocess.Popen([sys.executable, "-c", KILLED, mnt.path / "model"])
    assert process.wait(60) == -signal.SIGKILL
    watched.wait_for(1, "epochfs_failed_saves_total", reason="killed")
    # A log is no save, however its writer ends.
    process = subprocess.Popen([sys.executable, "-c", KILLED, mnt.path / "train.log"])
    assert process.wait(60) == -signal.SIGKILL
    (mnt.path / "model").write_bytes(b"2" * 5000)
    watched.wait_for(2, "epochfs_save_duration_seconds_count")
    assert watched.get("epochfs_failed_saves_total", reason="killed") == 1
    (mnt.path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (100,), }".ljust(117) + b"\n")
    mnt.seal()
    watched.wait_for(1, "epochfs_failed_saves_total", reason="torn")
    assert watched.get("epochfs_epochs", verdict="incomplete") == 1 and watched.get("epochfs_latest_lag_seconds") > 0
    os.remove(mnt.path / "cut.npy")
    mnt.seal()
    watched.wait_for(0, "epochfs_latest_lag_seconds")


def test_what_comes_from_the_remote_is_a_miss(watched):
    mnt = watched.volume
    (mnt.path / "model").write_bytes(os.urandom(100000))
    mnt.seal()
    mnt.remount(empty_cache=True)
    assert (watched.get("epochfs_cache_hits_total"), watched.get("epochfs_cache_misses_total")) == (0, 0)
    (mnt.path / "model").read_bytes()
    assert watched.get("epochfs_cache_misses_total") == 1 and watched.get("epochfs_remote_received_bytes_total") > 100000
    mnt.remount()
    (mnt.path / "model").read_bytes()
    assert watched.get("epochfs_cache_hits_total") == 1


def test_a_lost_lease_shows(make_volume):
    one, two = (make_volume(settle="1h", lease="1s") for _ in range(2))
    two.remote, two.url = one.remote, one.url
    w = Watched(one)
    one.mount()
    assert w.get("epochfs_lease_held") == 1
    two.mount(**{"take-over": True})
    w.wait_for(0, "epochfs_lease_held")


def test_a_reader_has_no_upload(watched):
    mnt = watched.volume
    (mnt.path / "model").write_bytes(b"1")
    mnt.seal()
    mnt.wait_durable()
    mnt.remount(ro=True)
    text = watched.text()
    assert value(text, "epochfs_latest_epoch") == 1 and value(text, "epochfs_mount_info", mode="ro") == 1
    assert "lease" not in text and "at_risk" not in text and "store" not in text


def test_no_name_and_no_path_is_told(watched):
    mnt = watched.volume
    (mnt.path / "secret-model").mkdir()
    (mnt.path / "secret-model" / "weights").write_bytes(b"1")
    mnt.seal("secret-tag")
    text = watched.text()
    assert "secret" not in text and "weights" not in text and os.fspath(mnt.base) not in text and os.fspath(mnt.remote) not in text


def test_of_ipv6_and_of_a_socket_with_a_name(make_volume):
    six, unix = make_volume(), make_volume()
    w = Watched(six, "::1")
    six.mount()
    assert w.get("epochfs_latest_epoch") == 0
    path = unix.base / "metrics"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(os.fspath(path))
    stale.close()
    unix.mount(metrics="unix:%s" % path)
    connection = Unix(path)
    connection.request("GET", "/metrics")
    assert value(connection.getresponse().read().decode(), "epochfs_latest_epoch") == 0
    connection.close()
    unix.unmount()
    assert not path.exists()


def test_a_file_is_replaced_and_gone_after_the_mount(volume):
    path = volume.base / "run7.prom"
    volume.mount(metrics="file:%s" % path)
    before = path.stat()
    check_metrics(path.read_text())
    assert before.st_mode & 0o444 == 0o444 and value(path.read_text(), "epochfs_latest_epoch") == 0
    (volume.path / "model").write_bytes(b"1")
    volume.seal()
    wait_until(lambda: path.stat().st_ino != before.st_ino, "another file")
    assert value(path.read_text(), "epochfs_latest_epoch") == 1
    assert sorted(p.name for p in volume.base.iterdir() if "prom" in p.name) == ["run7.prom"]
    volume.unmount()
    assert not path.exists()


def test_what_cannot_be_served_is_refused(volume):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MountError) as e:
            volume.mount(metrics="127.0.0.1:%d" % taken.getsockname()[1])
        assert e.value.code == 1 and "Address already in use" in e.value.output
    for wrong in ("localhost:9610", "9610", "file:relative"):
        with pytest.raises(MountError) as e:
            volume.mount(metrics=wrong)
        assert e.value.code == 2 and "expected 127.0.0.1:PORT" in e.value.output
    with pytest.raises(MountError) as e:
        volume.mount(metrics="file:%s" % (volume.path / "run7.prom"))
    assert "metrics" in e.value.output
    volume.mount()


def test_the_next_process_of_a_supervised_mount_serves_them_too(volume):
    w = Watched(volume)
    volume.mount(supervise=True)
    (volume.path / "model").write_bytes(b"1")
    volume.seal()
    kill(volume)
    wait_until(lambda: run(BIN, "log", volume.path), "the mount")
    w.wait_for(1, "epochfs_latest_epoch")
    assert "cannot" not in volume.log.read_text()


def test_a_scrape_takes_less_than_a_millisecond(watched):
    mnt = watched.volume
    for step in range(50):
        (mnt.path / "model").write_bytes(b"%d" % step)
        mnt.seal()
    connection = http.client.HTTPConnection(watched.host, watched.port)

    def one():
        began = time.perf_counter()
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        return time.perf_counter() - began

    # The least of several medians is what a machine gives that others do not keep busy.
    medians = [statistics.median(one() for _ in range(50)) for _ in range(10)]
    connection.close()
    print("a scrape: medians of %.3f to %.3f ms" % (min(medians) * 1e3, max(medians) * 1e3))
    assert min(medians) < 1e-3 * SLOWNESS
