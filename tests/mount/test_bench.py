# SPDX-License-Identifier: Apache-2.0
"""The benchmark's own rules (tests/bench): what voids a turn, that orders follow from the seed, that the tables are those of their results, and that a
limit that is missed fails."""

import copy
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import BIN, run, wait_until

TESTS = pathlib.Path(__file__).resolve().parents[1]
BENCH, README = TESTS / "bench", TESTS.parent / "README.md"
sys.path.append(os.fspath(BENCH))

import report  # noqa: E402
import turns  # noqa: E402


@pytest.fixture(autouse=True)
def once(request):
    """Nothing here depends on passthrough."""


# ---- turns


def sample(who, seconds, turn=1, number=0, foreign=0.0, dirty=0, measure="small", rival="epochfs", **values):
    return {"measure": measure, "group": "%s, %s, %d" % (measure, rival, turn), "turn": turn, "who": who, "number": number,
            "values": {"small": seconds, **values}, "foreign": foreign, "dirty": dirty}


def results(*samples, commit="c" * 40, **more):
    return {"commit": commit, "seed": 7, "labels": {"disk": "the disk below", "passthrough_hp": "libfuse's passthrough_hp", "s3fs": "s3fs",
                                                    "rclone-full": "rclone mount, full cache", "epochfs": "epochfs", "epochfs-user": "epochfs, ordinary user"},
            "facts": {"date": "2026-01-01", "cpu": "a processor", "cores": 2, "memory": 8, "kernel": "6", "disk": "ext4", "mib": 1024, "turns": 2,
                      "files": 5000, "session_groups": False},
            "samples": list(samples), "stored": {}, "memory": {}, "left_out": {}, **more}


def pair(turn, hp, ours, **more):
    """A turn of small files in the drawn order and in the reverse one."""
    return [sample("passthrough_hp", hp[0], turn, **more), sample("epochfs", ours[0], turn), sample("epochfs", ours[1], turn),
            sample("passthrough_hp", hp[1], turn)]


def small_row(r):
    (row,) = [line for line in report.Goals(r).table().splitlines() if "small files ÷ libfuse's" in line]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_turn_of_like_references_counts():
    r = report.Judged(results(*pair(1, (1.0, 1.2), (1.2, 1.22)), *pair(2, (1.0, 1.0), (1.0, 1.0))))
    assert r.void_turns() == []
    assert r.ratios("small", "epochfs", "small", "passthrough_hp").values == [pytest.approx(1.1), 1.0]
    assert small_row(r)[1:3] == ["1.05 (1.00–1.10)", "reached"]
    over = report.Judged(results(*pair(1, (1.0, 1.0), (1.3, 1.3))))
    assert small_row(over)[1:3] == ["1.30", "**missed**"]


def test_a_reference_that_spreads_voids_the_turn():
    # 0.06 s once and 3 s another time: either makes epochfs look like anything.
    r = report.Judged(results(*pair(1, (0.06, 3.0), (1.2, 1.2)), *pair(2, (1.0, 1.1), (1.2, 1.2))))
    assert r.void("small, epochfs, 1") == "libfuse's passthrough_hp took 0.06 to 3"
    assert r.void("small, epochfs, 2") is None
    assert r.ratios("small", "epochfs", "small", "passthrough_hp").values == [pytest.approx(1.2 / 1.05)]
    assert small_row(r)[1:3] == ["1.14, 1 of 2 turns void", "void"]  # as many void as good: no verdict
    assert "passthrough_hp took 0.06 to 3" in report.text_of(r) and "1 of 2 turns were void" in report.machine(r)


def test_a_reference_that_is_another_in_one_turn_voids_that_one():
    """Also where it is measured once a turn."""
    made = [s for turn, hp in ((1, 1.0), (2, 1.1), (3, 3.0)) for s in (sample("passthrough_hp", hp, turn), sample("epochfs", 1.2, turn))]
    r = report.Judged(results(*made))
    assert [group for group, _ in r.void_turns()] == ["small, epochfs, 3"]


@pytest.mark.parametrize("took, void", [((1.0, 1.0, 3.0, 3.0), [1, 2, 3, 4]), ((1.0, 3.0), [1, 2]), ((1.0, 1.9, 3.6), [3]), ((1.0, 1.9, 2.0), []),
                                        ((3.0, 1.0, 3.0, 3.1), [2]), ((1.0, 2.1, 4.3), [1, 2, 3])])
def test_turns_count_that_most_agree_with(took, void):
    """A reference that takes one time in half of the turns and another in the others is none."""
    made = [s for turn, hp in enumerate(took, 1) for s in (sample("passthrough_hp", hp, turn), sample("epochfs", 1.2, turn))]
    r = report.Judged(results(*made))
    assert [group for group, _ in r.void_turns()] == ["small, epochfs, %d" % turn for turn in void]


def test_our_own_spread_voids_nothing():
    r = report.Judged(results(*pair(1, (1.0, 1.0), (1.0, 9.0))))
    assert small_row(r)[1:3] == ["5.00", "**missed**"]


def test_foreign_load_and_foreign_writes_void_a_turn():
    r = report.Judged(results(*pair(1, (1.0, 1.0), (1.0, 1.0), foreign=0.5), *pair(2, (1.0, 1.0), (1.0, 1.0), dirty=300)))
    assert [why for _, why in r.void_turns()] == ["others took 0.50 processors while libfuse's passthrough_hp was measured",
                                                  "300 MiB of others were still dirty before libfuse's passthrough_hp"]
    assert small_row(r)[1:3] == ["void, 2 of 2 turns void", "void"]


def test_what_a_sample_is_set_against_itself_is_held_against_other_turns():
    """Training alone, of which a share is left beside an upload: where it was slow by itself nothing is lost."""
    made = [sample("epochfs", 0, turn, measure="training", training=share, **{"training alone": alone})
            for turn, (alone, share) in enumerate(((100.0, 0.9), (110.0, 0.9), (30.0, 3.0)), 1)]
    for s in made:
        del s["values"]["small"]
    r = report.Judged(results(*made))
    assert r.void_turns() == [("training, epochfs, 3", "epochfs took 30 to 100")]
    assert r.values("training", "epochfs").values == [0.9, 0.9]


def test_root_and_an_ordinary_user_stand_side_by_side():
    made = pair(1, (1.0, 1.0), (1.2, 1.2)) + [
        {**s, "group": "small, epochfs-user, 1", "who": "epochfs-user" if s["who"] == "epochfs" else s["who"]} for s in pair(1, (1.0, 1.0), (1.4, 1.4))]
    assert small_row(report.Judged(results(*made)))[1:] == ["1.20", "reached", "1.40", "**missed**", "≤ 1.25"]


def test_the_order_follows_from_the_seed():
    names = ["disk", "passthrough_hp", "epochfs"]
    orders = {tuple(turns.Draw(seed).group(names, True, "small", turn)) for seed in range(20) for turn in range(3)}
    assert len(orders) == 6 and all(order == order[::-1] and sorted(order[:3]) == sorted(names) for order in orders)
    assert turns.Draw(5).group(names, True, "small", 1) == turns.Draw(5).group(names, True, "small", 1)
    assert len(turns.Draw(5).group(names, False, "small", 1)) == 3


# ---- the load

MEASURE = """
import json, subprocess, sys, time
sys.path.append(sys.argv[1])
import turns
burn = "import time\\nend = time.thread_time() + 1\\nwhile time.thread_time() < end: pass"
with turns.Load() as load:
    print("measuring", flush=True)
    if sys.argv[2] == "own":  # by a child, and by one whose parent has gone
        subprocess.run(["sh", "-c", "%s -c '%s' & exec %s -c '%s'" % (sys.executable, burn, sys.executable, burn)])
    sys.stdin.readline()
print(json.dumps([load.taken()]), flush=True)
"""


def others_seconds(whose, meanwhile):
    process = subprocess.Popen([sys.executable, "-c", MEASURE, BENCH, whose], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "measuring\n"
    meanwhile()
    out, _ = process.communicate("\n")
    assert process.returncode == 0
    return json.loads(out)[0]


def burn_here():
    begin = os.times()
    while os.times().user - begin.user < 1:
        pass


def test_the_load_of_others_is_told_from_our_own():
    """One second is burnt by another process in one case, two by the measuring one's in the other; on a busy machine more is seen, never less."""
    assert others_seconds("other", burn_here) >= 0.9
    # What the machine has besides is measured in the same way, at the same time, by a process that burns nothing.
    idle = subprocess.Popen([sys.executable, "-c", MEASURE, BENCH, "other"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert idle.stdout.readline() == "measuring\n"
    own = others_seconds("own", lambda: None)
    seen = json.loads(idle.communicate("\n")[0])[0]
    assert own <= seen - 1.8 + 0.2


def test_the_load_of_the_part_that_is_timed_counts_by_itself(monkeypatch):
    """A sample of a minute, of which a second is timed: whoever takes that second takes nothing of the minute."""
    import compare
    loads = []

    class Load:
        def __init__(self, root=None):
            self.foreign, self.root = 0.9, root

        def __enter__(self):
            loads.append(self)
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(compare.turns, "Load", Load)
    run = compare.Run.__new__(compare.Run)
    run.pid, run.foreign = 7, 0.0
    assert run.timed(lambda: None) >= 0
    assert run.foreign == 0.9 and [load.root for load in loads] == [7]


def test_who_ends_unseen_hides_nobody():
    """100 ends, and 99 s of the sum go with it, while 101 burns a second."""
    before = {1: (0, 5.0, 50.0), 10: (1, 1.0, 1.0), 100: (1, 99.0, 99.0), 101: (1, 7.0, 7.0)}
    after = {1: (0, 5.0, 50.0), 10: (1, 3.0, 3.0), 101: (1, 8.0, 8.0)}
    assert turns.taken_by_others(before, after, 10) == 1.0
    # It was waited for, and so was 102, which burnt two.
    after[1] = (0, 5.0, 50.0 + 99.0 + 2.0)
    assert turns.taken_by_others(before, after, 10) == 3.0


def test_waiting_until_nothing_is_dirty(tmp_path):
    with open(tmp_path / "f", "wb") as f:
        f.write(os.urandom(64 << 20))
    left = turns.sync()
    if left:
        pytest.skip("somebody else keeps the disk dirty")
    assert turns.dirty_mib() < 64


# ---- tables


def test_the_published_tables_are_those_of_their_results():
    done = run(sys.executable, BENCH / "report.py", BENCH / "results.json", "--readme", README, "--check", check=False)
    assert done.returncode == 0, done.stderr
    there = json.loads((BENCH / "results.json").read_text())
    assert there["samples"] and all(s["values"] for s in there["samples"])
    # What was not committed ("+") nobody can measure again.
    assert re.fullmatch("[0-9a-f]{40}", there["commit"]) and isinstance(there["seed"], int)
    # Each turn has the order that its seed gives, and all of its samples.
    import compare
    draw, groups = turns.Draw(there["seed"]), {}
    for sample in sorted(there["samples"], key=lambda s: s["number"]):
        groups.setdefault(sample["group"], []).append(sample["who"])
    for group, order in groups.items():
        measure, rival, _ = group.split(", ")
        names = [rival, *(name for name in compare.references(measure, rival) if name != rival)]
        again = measure in compare.AGAIN or rival == "epochfs" and len(names) > 1
        assert order == draw.group(names, again, group), group


def test_the_check_finds_what_was_changed_by_hand(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n%s\n%s\nafter\n" % (report.BEGIN, report.END))
    data = json.loads((BENCH / "results.json").read_text())
    made = tmp_path / "bench"
    made.mkdir()
    (made / "results.json").write_text(json.dumps(data))
    command = [sys.executable, BENCH / "report.py", made / "results.json", "--readme", readme]
    if importlib.util.find_spec("matplotlib") is None:
        (made / "results.svg").write_text(report.mark_of(report.Judged(data)))
    run(*command)
    assert run(*command, "--check").stdout == ""
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    for path in (readme, made / "results.md"):
        old = path.read_text()
        better = re.sub(r"^(\| cold restore [^|]*\| )", r"\g<1>0.1; ", old, flags=re.M)
        assert better != old
        path.write_text(better)
        done = run(*command, "--check", check=False)
        assert done.returncode == 1 and os.fspath(path) in done.stderr
        path.write_text(old)
    # A sample that was changed or left out changes the table, and the plot's mark.
    worse, judged = copy.deepcopy(data), report.Judged(data)
    counts = next(i for i, s in enumerate(data["samples"]) if s["who"] == "epochfs" and not judged.void(s["group"]))
    worse["samples"].pop(counts)
    (made / "results.json").write_text(json.dumps(worse))
    done = run(*command, "--check", check=False)
    assert done.returncode == 1 and "results.md" in done.stderr and "results.svg" in done.stderr


# ---- a run


@pytest.mark.parametrize("changed, dirty", [("lib/util/io.c", True), ("Makefile", True), ("tests/bench/measures.py", True), ("tests/bench/new.py", True),
                                            ("tests/remotes/server.py", True), ("tests/bench/results.json", False), ("README.md", False)])
def test_a_commit_stands_for_what_is_measured_and_what_measures(tmp_path, monkeypatch, changed, dirty):
    import compare
    bench = tmp_path / "tests" / "bench"
    for path in ("lib/util/io.c", "Makefile", "README.md", "tests/remotes/server.py", "tests/bench/measures.py", "tests/bench/results.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("as committed\n")
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "all"]):
        run("git", "-C", tmp_path, *words)
    monkeypatch.setattr(compare, "HERE", bench)
    clean = compare.commit()
    assert re.fullmatch("[0-9a-f]{40}", clean)
    (tmp_path / changed).write_text("changed\n")
    assert compare.commit() == clean + "+" * dirty


@pytest.mark.parametrize("before, now, kept", [("a" * 40, "a" * 40, True), ("b" * 40, "a" * 40, False), (None, "a" * 40, False),
                                               ("a" * 40 + "+", "a" * 40 + "+", False), ("", "", False)])
def test_what_is_measured_once_is_kept_from_the_same_commit_only(before, now, kept):
    there = {"commit": before, "stored": {"bf16": 0.7}, "memory": {"up": 100}}
    assert report.measured_once(there, now) == ((there["stored"], there["memory"]) if kept else ({}, {}))


@pytest.mark.timeout(600)
def test_a_small_run_holds_every_sample(tmp_path):
    """All of it, with a directory as the remote: the mount of root, and, where there may be one, of an ordinary user."""
    out = tmp_path / "out"
    only = "disk,epochfs,epochfs-user" if os.geteuid() == 0 else "disk,epochfs-user"
    done = run(sys.executable, BENCH / "compare.py", BIN, "--directory", "--only", only, "--measures", "blocks", "--files", "20", "--mib", "1", "--turns", "1",
               "--seed", "42", "--out", out, check=False, timeout=500)
    there = json.loads((out / "results.json").read_text())
    if "passthrough=on" in str(there["left_out"]):
        pytest.skip("this kernel has no passthrough for us")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 42" in done.stdout and there["seed"] == 42
    assert len(there["commit"]) in (0, 1, 40, 41)  # none in an export of the tree
    r = report.Judged(there)
    groups = {}
    for s in there["samples"]:
        groups.setdefault(s["group"], []).append(s["who"])
        assert s["values"].keys() == {"blocks write", "blocks read", "blocks mmap"} and min(s["values"].values()) > 0
        assert s["foreign"] >= 0 and s["dirty"] >= 0
    for group, order in groups.items():
        rival = group.split(", ")[1]
        assert order == turns.Draw(42).group([rival, "disk"], True, group)
    assert [s["number"] for s in there["samples"]] == list(range(1, len(there["samples"]) + 1))
    # A void turn is told, and tried again once.
    for group, why in r.void_turns():
        assert re.search(r"^  void(, turn \d)?: %s$" % re.escape(why), done.stdout, re.M), done.stdout
        assert group.endswith(", 2") or group[:-1] + "2" in groups
    assert run(sys.executable, BENCH / "report.py", out / "results.json", "--check", check=False).returncode == 0 or not (out / "results.svg").exists()


@pytest.mark.timeout(400)
@pytest.mark.skipif(os.geteuid() != 0, reason="epochfs itself is measured by root")
def test_a_run_that_is_ended_leaves_nothing(tmp_path):
    """Not its folder, no mount, and no process, of which one measures for it."""
    with open(tmp_path / "said", "w+", encoding="utf-8") as said:
        process = subprocess.Popen([sys.executable, BENCH / "compare.py", BIN, "--directory", "--only", "disk,epochfs", "--measures", "blocks", "--mib",
                                    "256", "--turns", "1", "--out", tmp_path / "out", "--folder", tmp_path], stdout=said, stderr=said)
        try:
            # Of the disk: the mount may lie in a namespace of the run's own.
            wait_until(lambda: list(tmp_path.glob("epochfs-bench-*/disk-*/data/blocks")), "a large file", limit=100)
        finally:
            process.terminate()
        assert process.wait(timeout=60) == 1
        text = (tmp_path / "said").read_text()
    # Before the first turn it says what this machine cannot measure.
    assert "Broken pipe" not in text and "left out" not in text.split("turn 1", 1)[1], text
    assert not list(tmp_path.glob("epochfs-bench-*"))
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        assert os.fspath(tmp_path) not in f.read()


# ---- limits


@pytest.fixture
def limits(monkeypatch):
    spec = importlib.util.spec_from_file_location("limits", BENCH / "limits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["limits.py", "--seed", "1"])
    return module


def figures(module, *seen):
    made = module.Figures()
    made.seen = list(seen)
    return made


@pytest.mark.parametrize("ours, below, foreign, code, word", [
    ((1.0, 1.1), (1.0, 1.1), 0, 0, "ok"), ((9.0, 9.1), (1.0, 1.1), 0, 1, "OVER"), ((1.0, 1.1), (1.0, 2.5), 0, 2, "void"),
    ((9.0, 9.1), (1.0, 2.5), 0, 2, "void"), ((1.0, 1.1), (1.0, 1.1), 0.5, 2, "void"), ((9.0, 9.1), (1.0, 1.1), 0.5, 2, "void")])
def test_limits_fail_where_one_is_over(limits, monkeypatch, capsys, ours, below, foreign, code, word):
    def measure(made, *_):
        mine, theirs = figures(limits, *ours), figures(limits, *below)
        mine.cpu, mine.seconds = foreign * 10, 10
        made.timed("it", mine, theirs, "3 times", mine.median <= 3 * theirs.median)
        made.row("bytes", "1 MiB", "", "2 MiB", True)

    monkeypatch.setattr(limits, "measure", measure)
    monkeypatch.setattr(limits, "MEASURES", {"it": None})
    assert limits.main() == code
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines() if line.startswith("  it ") or line.startswith("  bytes ")] == [word, "ok"]


def test_bytes_over_the_limit_fail_on_a_busy_machine_too(limits):
    made = limits.Report(1)
    made.row("bytes", "3 MiB", "", "2 MiB", False)
    made.row("times", "", "", "", True, void=True)
    assert made.code == 1


class Tree:
    """Directories in the place of a mount, for what a measure does beside it; `seal` is told."""

    def __init__(self, base, told):
        self.base, self.path, self.epochs_dir, self.told = base, base / "mnt", base / "mnt" / "epochs", told
        (self.epochs_dir / "1" / "d").mkdir(parents=True)

    def seal(self):
        self.told.append("seal")
        return 1

    def epoch(self, number):
        return self.epochs_dir / str(number)

    def wait_durable(self):
        self.told.append("durable")


# What is told while it is measured: all else is not to be.
MEASURED = {"close": [], "seal": ["seal"], "listing": [], "epochs": []}


@pytest.fixture(params=MEASURED)
def measured(request, limits, monkeypatch, tmp_path):
    """Runs a measure on a small tree, with so much dirty before each sample, and so many processors of others in what is measured and in what is not:
    its report, and what was done in which order."""
    told = []

    def run_it(dirty=0, foreign=0.0, beside=0.0):
        clock = {"cpu": 0.0, "seconds": 0.0, "rate": beside}

        def passes(call):
            def passing(*words):
                clock["cpu"] += 10 * clock["rate"]
                clock["seconds"] += 10
                return call(*words)

            return passing

        class Load:
            def __enter__(self):
                told.append("watched")
                self.begin = dict(clock)
                clock["rate"] = foreign
                return self

            def __exit__(self, *_):
                told.append("measured")
                clock["cpu"] += 10 * clock["rate"]
                clock["seconds"] += 10
                clock["rate"] = beside
                self.cpu, self.seconds = (clock[what] - self.begin[what] for what in ("cpu", "seconds"))
                self.foreign = self.cpu / self.seconds

        save_many, write = limits.save_many, limits.write
        monkeypatch.setattr(limits, "save_many", passes(lambda folder, count, *text: save_many(folder, 10, *text) or told.append("saved")))
        monkeypatch.setattr(limits, "write", passes(lambda *words: told.append("written") or write(*words)))
        monkeypatch.setattr(limits, "GIB", limits.MIB)
        monkeypatch.setattr(limits, "BIN", "true")
        monkeypatch.setattr(limits.fair, "sync", lambda: told.append("synced") or dirty)
        monkeypatch.setattr(limits.fair, "Load", Load)
        monkeypatch.setattr(limits, "wide", lambda *_: False)
        made = limits.Report(1)
        getattr(limits, request.param)(made, Tree(tmp_path, told), 2)
        return made, told

    return run_it, MEASURED[request.param]


def test_limits_measure_what_is_synced_and_nothing_else(measured):
    """Before each sample everything is written back, and what makes it ready is not watched."""
    run_it, within = measured
    made, told = run_it(beside=0.9)
    assert made.verdicts and "void" not in made.verdicts
    begins = [i for i, what in enumerate(told) if what == "watched"]
    assert begins
    for begin in begins:
        end = told.index("measured", begin)
        assert told[begin + 1:end] in ([], within), told[begin:end]
        assert told[begin - 1] == "synced" or told[begin - 2:begin] == ["synced", "written"], told[:begin + 1]


def test_what_is_dirty_before_a_limit_is_measured_voids_it(measured, capsys):
    made, _ = measured[0](dirty=300)
    assert made.verdicts and set(made.verdicts) == {"void"} and made.code == 2
    assert "300 MiB of others were still dirty" in capsys.readouterr().out


def test_the_load_of_what_is_measured_alone_voids_a_limit(measured, capsys):
    made, _ = measured[0](foreign=0.5)
    assert made.verdicts and set(made.verdicts) == {"void"} and made.code == 2
    assert "others took 0.50 processors" in capsys.readouterr().out
