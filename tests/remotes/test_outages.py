# SPDX-License-Identifier: Apache-2.0
"""A mount whose remote goes away, falters or lies: training goes on, nothing is lost, status says since
when and why, and once the remote is back all is uploaded in order by itself.

The remote is a real server; a proxy on the wire does the harm.
"""

import concurrent.futures
import os
import re
import time

import pytest

from conftest import MountError, wait_until
from proxy import Proxy

pytestmark = pytest.mark.timeout(300)
everywhere = pytest.mark.parametrize("server", ["rgw", "lighttpd"], indirect=True)
on_rgw = pytest.mark.parametrize("server", ["rgw"], indirect=True)
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
    volume.options.update(settle="1h", timeout="2s")
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
    "refuse": "connect", "swallow": "takes and gives nothing", "500": "500", "503": "503", "429": "429",
    "403": "allow|credentials|permission|denied",
}


@everywhere
@pytest.mark.parametrize("outage", OUTAGES)
def test_training_goes_on_through_an_outage(run, proxy, outage):
    run.mount()
    epoch, data = save(run, 1)
    saved = [(epoch, 1, data)]
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
    assert re.search(REASONS[outage], told["error"]), told
    assert "SECRET" not in str(told)
    proxy.heal()
    run.wait_durable()
    after = upload(run)
    assert after["pending_epochs"] == 0 and "error" not in after and "failing_since_ns" not in after
    assert_all_there(run, proxy, saved)


@everywhere
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


@everywhere
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


@everywhere
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


def read_or_none(path):
    try:
        return path.read_bytes()
    except OSError:
        return None


@everywhere
@pytest.mark.parametrize("fault", ["shorten", "lie", "damage"])
def test_broken_answers_never_become_data(run, proxy, fault):
    packs = r"GET .*packs/"
    run.mount()
    epoch, data = save(run, 1)
    run.remount(empty_cache=True)
    path = run.epoch(epoch) / "checkpoint-1" / "model.bin"
    path.stat()
    getattr(proxy, fault)(packs)
    before = len(proxy.answered(packs))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_or_none, path)
        wait_until(lambda: len(proxy.answered(packs)) > before + 1, "a broken answer to be asked for again")
        assert not reading.done() or reading.result() is None
        proxy.heal()
        assert reading.result() in (None, data)
    assert wait_until(lambda: read_or_none(path), "the data to be readable") == data


@everywhere
def test_mounting_where_nobody_answers_is_told_soon(run, proxy):
    for away in ("refuse", "swallow"):
        OUTAGES[away](proxy)
        with pytest.raises(MountError) as refused:
            run.mount()
        assert refused.value.code == 3, refused.value.output
        proxy.heal()
    run.mount()


@everywhere
def test_mounting_where_all_is_forbidden_is_told_at_once(run, proxy):
    OUTAGES["403"](proxy)
    with pytest.raises(MountError) as refused:
        run.mount()
    assert refused.value.code == 4, refused.value.output


@everywhere
def test_a_wrong_key_is_told_at_the_mount(run, server, monkeypatch):
    for name in server.env():
        if re.search("SECRET|PASSWORD", name):
            monkeypatch.setenv(name, "N0tTheSecret")
    with pytest.raises(MountError) as refused:
        run.mount(timeout="30s")
    assert refused.value.code == 4, refused.value.output
    assert "N0tTheSecret" not in refused.value.output


@on_rgw
def test_a_place_that_is_missing_is_told_at_the_mount(run, server):
    run.url = run.url.replace(server.bucket, "no-such-bucket")
    with pytest.raises(MountError) as refused:
        run.mount(timeout="30s")
    assert refused.value.code in (3, 4), refused.value.output
    assert "no-such-bucket" in refused.value.output


@on_rgw
def test_damaged_uploads_are_refused_and_repeated(run, proxy):
    run.mount()
    proxy.damage_uploads(r"PUT .*/packs/")
    epoch, data = save(run, 1)
    wait_until(lambda: len(proxy.answered(r"PUT .*/packs/")) > 1, "a pack to be repeated")
    assert not proxy.answered(r"PUT .*/packs/", 200)
    proxy.heal()
    run.wait_durable()
    assert_all_there(run, proxy, [(epoch, 1, data)])
