# SPDX-License-Identifier: Apache-2.0
"""A mount whose remote goes away, falters or lies: training goes on, nothing is lost, status says since
when and why, and once the remote is back all is uploaded in order by itself.

The remote is a real server; a proxy on the wire does the harm.
"""

import os
import re
import time

import pytest

from conftest import MountError, wait_until
from proxy import Proxy
from servers import SERVERS

KINDS = [kind for kind in ("rgw", "lighttpd") if kind in SERVERS]
pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("server", KINDS, indirect=True)]
SIZE = 300_000


@pytest.fixture
def passthrough():
    return "auto"


@pytest.fixture
def proxy(server):
    port = int(re.search(r"127\.0\.0\.1:(\d+)", server.url("x")).group(1))
    with Proxy(port) as running:
        yield running


@pytest.fixture
def run(server, proxy, volume, monkeypatch, request):
    """A volume on the server, through the proxy; not mounted yet."""
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)
    prefix = re.sub(r"\W", "-", request.node.name)
    volume.url = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:%d" % proxy.port, server.url(prefix))
    volume.options.update(settle="1h", timeout="1s")
    return volume


def content(step):
    return os.urandom(SIZE - 8) + b"%08d" % step


def save(volume, step):
    """One checkpoint, as a training run makes it: (epoch, bytes)."""
    data = content(step)
    folder = volume.path / ("checkpoint-%d" % step)
    folder.mkdir()
    (folder / "model.bin").write_bytes(data)
    return volume.seal(), data


def upload(volume):
    return volume.status()["upload"]


def assert_all_there(volume, proxy, saved):
    """Every epoch is in the remote, in order, and a machine that has nothing reads it."""
    records = [int(what[-25:-5]) for what in proxy.answered(r"^PUT .*/epochs/\d{20}\.json$")]
    assert sorted(set(records)) == [epoch for epoch, _, _ in saved]
    assert [n for i, n in enumerate(records) if n not in records[:i]] == sorted(set(records))
    volume.remount(empty_cache=True)
    for epoch, step, data in saved:
        assert (volume.epoch(epoch) / ("checkpoint-%d" % step) / "model.bin").read_bytes() == data


OUTAGES = {
    "refuse": lambda proxy: proxy.refuse(),
    "swallow": lambda proxy: proxy.swallow(),
    "500": lambda proxy: proxy.answer(500),
    "503": lambda proxy: proxy.answer(503, {"Retry-After": "1"}),
    "429": lambda proxy: proxy.answer(429, {"Retry-After": "1"}),
    "403": lambda proxy: proxy.answer(403, text=b"<Error><Code>AccessDenied</Code></Error>"),
}
REASONS = {
    "refuse": "connect", "swallow": "takes and gives nothing", "403": "allow|credentials|permission|denied",
}


@pytest.mark.parametrize("outage", OUTAGES)
def test_training_goes_on_through_an_outage(run, proxy, outage):
    run.mount()
    saved = [(*save(run, 1)[:1], 1, b"")]
    saved = [(e, s, (run.path / "checkpoint-1" / "model.bin").read_bytes()) for e, s, _ in saved]
    run.wait_durable()
    before = time.time_ns()
    OUTAGES[outage](proxy)
    for step in (2, 3, 4):
        epoch, data = save(run, step)
        saved.append((epoch, step, data))
        assert (run.path / ("checkpoint-%d" % step) / "model.bin").read_bytes() == data
    told = wait_until(lambda: upload(run) if "error" in upload(run) else None, "status to tell of the outage")
    assert told["pending_epochs"] == 3
    assert before <= told["failing_since_ns"] <= time.time_ns()
    assert re.search(REASONS.get(outage, "."), told["error"]), told
    assert "SECRET" not in str(told)
    proxy.heal()
    run.wait_durable()
    after = upload(run)
    assert after["pending_epochs"] == 0 and "error" not in after and "failing_since_ns" not in after
    assert_all_there(run, proxy, saved)


def test_a_restart_in_an_outage_loses_nothing(run, proxy):
    run.mount()
    epoch, data = save(run, 1)
    saved = [(epoch, 1, data)]
    run.wait_durable()
    proxy.refuse()
    for step in (2, 3):
        epoch, data = save(run, step)
        saved.append((epoch, step, data))
    run.kill()
    with pytest.raises(MountError) as refused:
        run.mount()
    assert refused.value.code == 3
    proxy.heal()
    run.mount()
    run.wait_durable()
    assert_all_there(run, proxy, saved)


def test_a_slow_line_holds_no_writer_up(run, proxy):
    run.mount(timeout="4s")
    proxy.slow(100_000)
    saved = []
    for step in (1, 2, 3):
        epoch, data = save(run, step)
        saved.append((epoch, step, data))
    assert upload(run)["pending_epochs"] > 0, "all was there before it could be"
    run.wait_durable()
    proxy.heal()
    assert_all_there(run, proxy, saved)


def test_an_epoch_whose_answer_is_lost_is_ours(run, proxy):
    run.mount()
    proxy.lose(r"PUT .*/epochs/\d{20}\.json")
    epoch, data = save(run, 1)
    wait_until(lambda: proxy.answered(r"^PUT .*/epochs/\d{20}\.json$"), "the record to be put")
    wait_until(lambda: "error" in upload(run), "status to tell of it")
    proxy.heal()
    run.wait_durable()
    assert "conflict" not in upload(run)
    assert_all_there(run, proxy, [(epoch, 1, data)])


@pytest.mark.parametrize("fault", ["shorten", "lie", "damage"])
def test_broken_answers_never_become_data(run, proxy, fault):
    run.mount(patience="2s")
    epoch, data = save(run, 1)
    run.remount(empty_cache=True, patience="2s")
    path = run.epoch(epoch) / "checkpoint-1" / "model.bin"
    path.stat()
    getattr(proxy, fault)(r"GET .*packs/")
    try:
        got = path.read_bytes()
    except OSError:
        got = b""
    assert got in (b"", data)
    assert got == b"", "the proxy broke nothing"
    proxy.heal()
    assert wait_until(lambda: read_or_none(path), "the data to be readable") == data


def read_or_none(path):
    try:
        return path.read_bytes()
    except OSError:
        return None


def test_mounting_where_nobody_answers_is_told_soon(run, proxy):
    for away in ("refuse", "swallow"):
        OUTAGES[away](proxy)
        with pytest.raises(MountError) as refused:
            run.mount()
        assert refused.value.code == 3, refused.value.output
        proxy.heal()
    run.mount()


def test_mounting_where_all_is_forbidden_is_told_at_once(run, proxy):
    OUTAGES["403"](proxy)
    with pytest.raises(MountError) as refused:
        run.mount()
    assert refused.value.code == 4, refused.value.output


def test_a_wrong_key_is_told_at_the_mount(run, server, monkeypatch):
    for name in server.env():
        if re.search("SECRET|PASSWORD", name):
            monkeypatch.setenv(name, "N0tTheSecret")
    if server.name != "rgw":
        pytest.skip("the credentials of this server's remote lie in no variable")
    with pytest.raises(MountError) as refused:
        run.mount()
    assert refused.value.code == 4, refused.value.output
    assert "N0tTheSecret" not in refused.value.output


def test_a_place_that_is_missing_is_told_at_the_mount(run, server):
    if server.name != "rgw":
        pytest.skip("any folder can be made there")
    run.url = run.url.replace(server.bucket, "no-such-bucket")
    with pytest.raises(MountError) as refused:
        run.mount()
    assert refused.value.code in (3, 4), refused.value.output
    assert "no-such-bucket" in refused.value.output


def test_damaged_uploads_are_refused_and_repeated(run, proxy, server):
    if server.name != "rgw":
        pytest.skip("this server does not compare a body with its checksum")
    run.mount()
    proxy.damage_uploads(r"PUT .*/packs/")
    epoch, data = save(run, 1)
    wait_until(lambda: len(proxy.answered(r"PUT .*/packs/")) > 1, "a pack to be repeated")
    assert not proxy.answered(r"PUT .*/packs/", 200)
    proxy.heal()
    run.wait_durable()
    assert_all_there(run, proxy, [(epoch, 1, data)])
