# SPDX-License-Identifier: Apache-2.0
"""A remote in which an object of any kind is damaged in any way: never wrong bytes, errors on just what it hits, fsck lists it,
and fsck --repair restores what the cache has.

`make check-damage` takes every kind, damage and object; `make test` some of them, by a fresh seed that is printed
(--damages 3 --seed N repeats them).
"""

import errno
import json
import os
import random
import re
import shutil

import pytest

from conftest import BIN, LIMIT, Mount, MountError, run
from damage import DAMAGES, KINDS, Template, apply, can_be, noise

DONE, UNREACHABLE, DENIED, NOT_FOUND, DAMAGED = 0, 3, 4, 5, 6
FLIPS = 3  # of each object


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the remote."""
    return "auto"


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def template(request, tmp_path_factory):
    base = tmp_path_factory.mktemp("template")
    if request.param == "encrypted":
        key = base / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)
        os.environ["EPOCHFS_KEY_FILE"] = os.fspath(key)
    volume = Mount(base, {"settle": "1h"})
    try:
        yield Template(volume)
    finally:
        left = volume.clean_up()
        os.environ.pop("EPOCHFS_KEY_FILE", None)
    assert not left


def fsck(url, *words, codes=(DONE, DAMAGED)):
    """The exit code, and the report. An encrypted volume whose epochfs.json is gone cannot be looked at."""
    done = run(BIN, "fsck", "--json", *words, url, check=False)
    if not done.stdout and done.returncode in (DENIED, NOT_FOUND, DAMAGED) and "epochfs.json" in done.stderr:
        return DAMAGED, {"problems": [{"object": "epochfs.json", "where": "", "problem": done.stderr}]}
    assert done.returncode in codes, done
    return done.returncode, json.loads(done.stdout)


class Hits:
    """What fsck says is hit."""

    def __init__(self, problems):
        self.problems = problems
        self.lines = [(p["object"], p["where"]) for p in problems]

    def excuses(self, number, path):
        """Whether fsck has said that this path of an epoch ("": the epoch itself) cannot be read."""
        for key, where in self.lines:
            if key == "epochfs.json" or key.startswith("keys/"):
                return True
            m = re.match(r"(?:epoch (\d+)|\d+ epochs from (\d+) to (\d+))(?:: (.*))?$", where)
            if not m:
                continue
            first, last = int(m[1] or m[2]), int(m[1] or m[3])
            if first <= number <= last and m[4] in (None, "all of its tree", path):
                return True
        return False


def read_tree(root):
    """Every file below: its bytes, or the number of the error."""
    found = {}

    def failed(e):
        found[os.path.relpath(e.filename, root)] = e.errno

    for folder, _, names in os.walk(root, onerror=failed):
        for name in names:
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as f:
                    found[os.path.relpath(path, root)] = f.read()
            except OSError as e:
                found[os.path.relpath(path, root)] = e.errno
    return found


def check_tree(root, number, expected, hits, what):
    found = read_tree(root)
    for path, data in expected.items():
        got = found.get(path)
        if got == data:
            continue
        assert not isinstance(got, bytes), "%s: epoch %d: %s has wrong bytes" % (what, number, path)
        assert got in (None, errno.EIO), "%s: epoch %d: %s: %s" % (what, number, path, got and os.strerror(got))
        assert hits.excuses(number, path), "%s: epoch %d: %s cannot be read, and fsck does not say so: %s; %s" % (
            what, number, path, hits.problems, {k: v for k, v in found.items() if not isinstance(v, bytes)})
    wrong = [p for p in found if p not in expected and isinstance(found[p], bytes)]
    assert not wrong, "%s: epoch %d has %s" % (what, number, wrong)


def check_mount(volume, template, hits, what, **options):
    """Mounted from an empty cache: everything is right, or fails where fsck says so, or nothing is mounted and a line says why."""
    volume.empty_cache()
    try:
        volume.mount(**options)
    except MountError as e:
        assert e.code in (DAMAGED, UNREACHABLE, DENIED), e
        assert hits.problems, "%s: it cannot be mounted, and fsck knows nothing: %s" % (what, e)
        return False
    for number, expected in template.epochs.items():
        if os.path.isdir(volume.epoch(number)):
            check_tree(volume.epoch(number), number, expected, hits, what)
        else:
            assert hits.excuses(number, ""), "%s: epoch %d is not there: %s" % (what, number, hits.problems)
    return True


def check_reading(volume, template, hits, what):
    if not check_mount(volume, template, hits, what, ro=True):
        return
    assert volume.process.poll() is None
    volume.unmount()


def check_writing(volume, template, hits, what):
    """A new epoch is made beside the damage, and read from elsewhere."""
    if not check_mount(volume, template, hits, what, **{"take-over": True}):
        return
    if what.startswith("gc/"):
        run(BIN, "gc", volume.url)  # with a list that is damaged nothing is uploaded until then, as the log says
    data = noise(200_000, 77)
    try:
        (volume.path / "new").write_bytes(data)
        number = volume.seal("fresh")
        volume.wait_durable()
    finally:
        assert volume.process.poll() is None, volume.log.read_text()
    volume.unmount()
    out = volume.base / "out"
    run(BIN, "export", "%s@%d:new" % (volume.url, number), out)
    assert (out / "new").read_bytes() == data, what
    shutil.rmtree(out)


def check_whole(volume, template, what):
    """All that was there is there, by other means than a mount."""
    for number, expected in template.epochs.items():
        out = volume.base / ("out%d" % number)
        run(BIN, "export", "%s@%d" % (volume.url, number), out)
        assert read_tree(out) == expected, what
        shutil.rmtree(out)


def run_repair(volume, cache):
    """One that holds no lease that can be read is waited for: a minute."""
    return run(BIN, "fsck", "--repair", "--json", "--cache-dir", cache, volume.url, check=False, timeout=4 * LIMIT)


def repair(volume, cache, code=None):
    done = run_repair(volume, cache)
    assert done.returncode in ((DONE, DAMAGED) if code is None else (code,)), done
    return done.returncode, json.loads(done.stdout)


def check_repaired(volume, template, what):
    """With the cache, all is whole again."""
    code, report = repair(volume, volume.cache)
    gone = [g for g in report["gone"] if not g["object"].startswith("tags/")]
    assert not gone, "%s: %s" % (what, report)
    code, after = fsck(volume.url, "--read-data")
    assert code == DONE, "%s: %s; repair: %s" % (what, after, report)
    check_whole(volume, template, what)
    code, again = repair(volume, volume.cache, DONE)
    assert not again["restored"] and not again["condemned"], "%s: %s" % (what, again)


def check_what_is_left(volume, template, what):
    """Without any cache: what the repair does not call gone can be read."""
    nothing = volume.base / "nothing"
    nothing.mkdir()
    done = run_repair(volume, nothing)
    shutil.rmtree(nothing, ignore_errors=True)
    if done.returncode not in (DONE, DAMAGED) or not done.stdout:
        assert done.returncode == DAMAGED and "epochfs.json" in done.stderr, done
        return
    hits = Hits(json.loads(done.stdout)["gone"])
    assert (done.returncode == DAMAGED) == bool(hits.problems)
    for number, expected in template.epochs.items():
        out = volume.base / "left"
        run(BIN, "export", "%s@%d" % (volume.url, number), out, check=False)
        out.mkdir(exist_ok=True)
        check_tree(out, number, expected, hits, what)
        shutil.rmtree(out)


def cases(template):
    for kind in KINDS:
        for key in template.objects(kind):
            for how in (how for how in DAMAGES if can_be(template.remote, key, how)):
                for seed in range(FLIPS if how == "flipped" else 1):
                    yield kind, key, how, seed


def check_case(template, make_volume, case):
    kind, key, how, seed = case
    what = "%s %s, seed %d" % (key, how, seed)

    def damaged(cache=False):
        volume = make_volume(settle="1h")
        made.append(volume)
        template.copy(volume, cache)
        apply(volume.remote, key, how, random.Random("%s %s %d" % (kind, how, seed)))
        return volume

    made = []
    volume = damaged()
    code, report = fsck(volume.url, "--read-data")
    hits = Hits(report["problems"])
    assert (code == DAMAGED) == bool(hits.problems)
    check_reading(volume, template, hits, what)
    check_writing(volume, template, hits, what)
    for check, cache in ((check_repaired, True), (check_what_is_left, False)):
        volume = damaged(cache)
        check(volume, template, what)
    for volume in made:
        shutil.rmtree(volume.base)


def test_damaged_objects(template, make_volume, pytestconfig):
    every = list(cases(template))
    # An encrypted summary cannot be made by hand.
    assert {kind for kind, *_ in every} == set(KINDS) - ({"summary"} if "EPOCHFS_KEY_FILE" in os.environ else set())
    count, seed = pytestconfig.getoption("damages"), pytestconfig.getoption("seed")
    chosen = every
    if count:
        print("--damages %d --seed %d" % (count, seed))
        # Of a lease that cannot be read each writer waits for a minute.
        quick = [case for case in every if case[0] != "lease"]
        chosen = random.Random(seed).sample(quick, min(count, len(quick)))
    only = pytestconfig.getoption("damage_only")
    chosen = [case for case in chosen if only in " ".join(map(str, case))]
    assert chosen, "there is no such object or damage: %s" % only
    failed = []
    for case in chosen:
        try:
            check_case(template, make_volume, case)
        except (AssertionError, pytest.fail.Exception) as e:
            if count:
                raise
            failed.append("%s: %s" % (case, str(e)[:1500]))
            print("FAILED", failed[-1], flush=True)
        else:
            if not count:
                print("ok", *case, flush=True)
    assert not failed, "%d of %d: %s" % (len(failed), len(chosen), "\n".join(failed))
