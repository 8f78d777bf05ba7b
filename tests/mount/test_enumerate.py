# SPDX-License-Identifier: Apache-2.0
"""Short histories of two processes beside a model (tests/enumerate): all of the shortest, all of five steps with few kinds of
steps, and some of up to six by a fresh seed; about 2,700 each way. A hundred and more share a mount, which is then mounted again,
also with an empty cache.

`make check-enumerate` runs as many as one likes. --seed N and --enumerate-histories N choose here.
"""

import os
import pathlib
import sys
import time

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "enumerate"))

from conftest import run
from on_mount import EVICTS, enumerate_on

HISTORIES = pathlib.Path(__file__).resolve().parents[1] / "enumerate" / "histories.py"
PROGRAM = os.path.join(os.environ["EPOCHFS_UNITS"], "enumerate", "enumerate")
# A commit and a rollback cost more the more histories share the volume, a remount the fewer there are.
BATCH = ["--batch", "120"]
# Two handles that end in some order, and what is written while they do.
HANDLES = ["--all", "5", "--names", "1", "--only", "open-read,open-append,close,write"]
# A mapping of the file that the kernel has, as a reader was first. All of five steps run in process: here a request may wait
# half a second for the release of a file that is mapped.
MAPPINGS = [
    "p0 open-read a; p0 open-write a; map-keep h1; close h1; store",
    "p0 open-read a; p1 open-write a; map-keep h1; close h1; close h0; commit; store; commit",
    "p0 open-read a; p0 open-write a; map-keep h1; close h1; p1 open-trunc a; write h1; store; close h1; store",
    "p0 open-read a; p0 open-direct a; map-keep h1; close h1; store; kill p0; commit",
]
# Which of several files stays, and is still the one that somebody has open.
ROLLBACKS = [
    "rename a b; p0 open-read b; rollback; p0 open-append a; truncate h1",
    "rename b a; commit; p0 open-read a; rollback; p0 open-append a; truncate h1",
    "unlink b; link a b; p0 open-read b; rollback; p0 open-append a; truncate h1",
    "unlink a; link b a; p0 open-read b; rollback; p0 open-append b; truncate h1",
]


@pytest.fixture
def holds(mnt, pytestconfig):
    def holds(*arguments):
        code, said = enumerate_on(mnt, PROGRAM, *arguments, *BATCH, "--seconds", pytestconfig.getoption("enumerate_seconds"))
        assert code == 0, said

    return holds


def some_of_six(pytestconfig, share):
    seed = pytestconfig.getoption("seed")
    seed = time.time_ns() % 10**9 if seed == "fresh" else seed
    return ["--all", "2", "--length", "6", "--slow", "--seed", seed,
            "--draw", int(pytestconfig.getoption("enumerate_histories") * share)]


@pytest.mark.options(settle="24h", resume="off", **EVICTS)
def test_histories(holds, pytestconfig):
    holds(*some_of_six(pytestconfig, 1))


@pytest.mark.options(settle="24h", resume="off", **EVICTS)
def test_rarer_ways_to_write(holds, pytestconfig):
    """O_DIRECT, asynchronous I/O, preallocation, holes, copy_file_range, and mappings that outlive their descriptor."""
    holds("--extended", *some_of_six(pytestconfig, 0.5))


@pytest.mark.options(settle="24h", resume="off")
def test_handles_that_end_in_any_order(holds):
    holds(*HANDLES)


@pytest.mark.options(settle="24h", resume="off")
@pytest.mark.parametrize("script", MAPPINGS)
def test_a_mapping_outlives_its_descriptor(holds, script):
    holds("--replay", script, "--times", "3")


@pytest.mark.options(settle="24h", resume="off")
@pytest.mark.parametrize("script", ROLLBACKS)
def test_a_file_stays_what_is_open_across_a_rollback(holds, script):
    holds("--replay", script)


# ---- the command


@pytest.fixture
def histories(tmp_path):
    """tests/enumerate/histories.py on an ordinary directory."""
    def histories(*arguments):
        return run(sys.executable, HISTORIES, pathlib.Path(PROGRAM).parents[2], "--on", "directory", *arguments, check=False,
                   env={**os.environ, "TMPDIR": str(tmp_path)})

    return histories


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_that_the_time_cut_off_is_no_success(histories, jobs):
    done = histories("--all", "6", "--seconds", "0.2", "--jobs", str(jobs))
    assert done.returncode == 3 and " (some): " in done.stdout, done
    assert done.stdout.splitlines()[-1].startswith("cut off by --seconds: not all histories of up to 6 steps were run; "), done.stdout


@pytest.mark.parametrize("words", [["--seconds", "0.2"], ["--all", "1", "--length", "6", "--seconds", "3"], ["--all", "2"]])
def test_what_was_not_asked_for_as_a_whole_may_be_cut_off(histories, words):
    done = histories(*words)
    assert done.returncode == 0 and "cut off" not in done.stdout, done


def test_a_share_that_the_time_cut_off_is_not_done(histories, tmp_path):
    done = histories("--all", "6", "--shards", "2", "--first", "1", "--seconds", "0.2", "--done", str(tmp_path / "done"))
    assert done.returncode == 1 and "share 0 was cut off by --seconds at length" in done.stdout, done
    assert not (tmp_path / "done").exists()


@pytest.mark.parametrize("ended", [0, 1])
def test_a_job_that_a_signal_ended_is_no_success(monkeypatch, ended):
    import histories as command
    monkeypatch.setattr(command, "one", lambda args, program, arguments, say: -9 if "%d/2" % ended in arguments else 0)
    monkeypatch.setattr(sys, "argv", ["histories.py", "build", "--jobs", "2"])
    assert command.main() == 9
