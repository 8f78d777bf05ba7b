# SPDX-License-Identifier: Apache-2.0
"""What judges a build and a test run: which versions make refuses, and which skips CI does."""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = pathlib.Path(__file__).resolve().parents[1] / "tools"
LISTED = ("tests.mount.test_watch::x[on]", "skipped", "the command does not mount")
UNLISTED = ("tests.remotes.test_exec::x", "skipped", "xrdcp is not installed")
PASSED = ("tests.mount.test_x::y", "passed", "")


def total(tmp_path, ci, *tests):
    rows = [{"name": n, "outcome": o, "detail": d} for n, o, d in tests]
    (tmp_path / "x.json").write_text(json.dumps({"tests": rows}))
    return subprocess.run([TOOLS / "totals.py", tmp_path], env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("ci, tests, line, status", [
    ("true", (PASSED, LISTED), "1 passed, 0 failed, 1 skipped", 0),
    ("true", (PASSED, UNLISTED), "1 passed, 1 failed, 0 skipped", 1),
    ("true", (PASSED, LISTED[:2] + ("fuse3 is missing",)), "1 passed, 1 failed, 0 skipped", 1),
    ("", (PASSED, UNLISTED), "1 passed, 0 failed, 1 skipped", 0),
], ids=["listed", "unlisted", "another-reason", "not-ci"])
def test_a_skip_that_is_not_listed_fails_in_ci(tmp_path, ci, tests, line, status):
    done = total(tmp_path, ci, *tests)
    assert done.stdout.splitlines()[-1] == line
    assert done.returncode == status


IN_A_THREAD = """
import threading
def test_it():
    def work():
        assert False
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""
SKIPPED = """
import pytest
def test_it():
    pytest.skip("not today")
"""
GOOD = """
def test_it():
    pass
"""


@pytest.mark.parametrize("text, status, said", [
    (GOOD, 0, "1 passed"), (SKIPPED, 1, "every test was skipped"), ("", 5, "no test was chosen"), (IN_A_THREAD, 1, "1 failed"),
], ids=["good", "all-skipped", "none-chosen", "in-a-thread"])
def test_a_run_that_shows_nothing_fails(tmp_path, text, status, said):
    """And one of which a thread has failed."""
    (tmp_path / "test_of_this_alone.py").write_text(text)
    build = os.path.dirname(os.environ["EPOCHFS_INSTALLED"])
    done = subprocess.run([TOOLS / "run_mount.sh", build, tmp_path / "results", "", tmp_path / "test_of_this_alone.py", "-k", "test_of_this_alone", "-n", "0"],
                          env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == status and said in done.stdout + done.stderr, done


A_UNIT_TEST = """#!/bin/sh
echo 'Running suite(s): x'
echo 'skipped: one_fn: only root may do that'
echo 'skipped: looped_fn: this processor does not run it'
echo 'skipped: bad_fn: not today'
for line in 'ok 1 - a/test_util_buf.c:case:one: Passed' 'ok 2 - a.c:case:looped: Passed' 'ok 3 - a.c:case:looped: Passed' "$LAST"; do
	echo "$line" >>"$CK_TAP_LOG_FILE_NAME"
done
"""


@pytest.mark.parametrize("last, passed, failed", [("ok 4 - a.c:case:other: Passed", 2, 0), ("not ok 4 - a.c:9:case:bad: it failed", 1, 1)])
def test_a_unit_test_that_was_skipped_is_told_and_counted(tmp_path, last, passed, failed):
    (tmp_path / "test_util_buf").write_text(A_UNIT_TEST)
    (tmp_path / "test_util_buf").chmod(0o755)
    done = subprocess.run([TOOLS / "run_units.py", "--bin", tmp_path, "--results", tmp_path / "results", "test_util_buf"],
                          env={**os.environ, "LAST": last}, capture_output=True, text=True, check=False)
    assert done.returncode == failed, done
    assert done.stdout.splitlines()[-1].strip() == "unit tests: %d passed, %d failed, 2 skipped" % (passed, failed)
    assert "skipped: test_util_buf:case:one: only root may do that" in done.stdout
    rows = json.loads((tmp_path / "results" / "unit.json").read_text())["tests"]
    assert sorted((r["name"].rpartition(":")[2], r["detail"]) for r in rows if r["outcome"] == "skipped") == [
        ("looped", "this processor does not run it"), ("one", "only root may do that")]


@pytest.mark.parametrize("dies", [False, True])
def test_a_program_that_dies_before_its_first_test_is_no_good_one(tmp_path, dies):
    """Its allocations were not let fail at all."""
    runs = "#!/bin/sh\necho 'it 1 1 0' >>\"$EPOCHFS_ALLOC_REPORT\"\n"
    for name, text in (("test_a", runs), ("test_b", "#!/bin/sh\nkill -9 $$\n" if dies else runs)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([TOOLS / "run_alloc.py", "--bin", tmp_path, "--results", tmp_path / "results", "test_a", "test_b"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == dies, done


def test_a_library_that_is_too_old_is_refused_in_one_line():
    done = subprocess.run([TOOLS / "versions.sh", "cc", "sqlite3:999.0", "libcrypto:0.1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "sqlite3 999.0 or newer" in done.stderr


def verbs():
    """Each verb of the Makefile that `make help` lists, with what it needs first and what it runs."""
    text = (ROOT / "Makefile").read_text()
    return {name: needs + recipe for name, needs, recipe in re.findall(r"^([a-z-]+):(.*?## .*\n)((?:\t.*\n)*)", text, re.MULTILINE)}


def test_each_verb_installs_what_it_needs(tmp_path):
    """By a set of packages before anything is compiled, or by its own first line. Who builds or installs is only told what is missing."""
    stop = tmp_path / "stop.mk"
    stop.write_text("$(error sets: $(wanted))\n")
    found = verbs()
    assert {"test", "check-unit", "check-user", "bench", "lint", "coverage"} <= set(found)
    for verb in sorted(set(found) - {"all", "install", "install-strip", "uninstall", "clean", "help"}):
        done = subprocess.run(["make", "-f", "Makefile", "-f", stop, verb], cwd=ROOT, capture_output=True, text=True, check=False)
        sets = done.stderr.partition("sets: ")[2].partition(".  Stop")[0].split()
        assert sets or "packages.sh" in found[verb] or "packages.sh" in found[found[verb].split()[0]], verb


def test_lint_looks_at_each_source():
    script, style = (TOOLS / "lint.sh").read_text(), (TOOLS / "style.py").read_text()
    patterns = {word for words in re.findall(r"^(?:sources|headers|shells|pythons)=\((.*)\)$", script, re.M) for word in words.split()}
    formal = set(re.findall(r'"([^"]+)"', re.search(r"PATTERNS = \((.*?)\)", style, re.S)[1]))
    for folder in ("lib", "fs", "tools", "tests"):
        there = {path for path in (ROOT / folder).rglob("*") if path.suffix in (".c", ".h", ".py", ".sh")}
        for looked_at in (patterns, formal):
            assert there <= {path for pattern in looked_at for path in ROOT.glob(pattern)}


FOLDERS = ("", "mount", "remotes", "protocols", "bench", "tools")  # where scripts find each other's modules


def modules_of(path, seen):
    """Adds what a script imports when it begins, and what those of ours do: the names of the others."""
    for node in ast.parse(path.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in {name.split(".")[0] for name in names} - seen:
            seen.add(name)
            for ours in [folder / (name + ".py") for folder in (path.parent, *(ROOT / "tests" / f for f in FOLDERS))]:
                if ours.exists():
                    modules_of(ours, seen)
                    break
    return seen


@pytest.mark.parametrize("wanted, folder, programs", [("bench", "bench", ("git", "curl", "lighttpd", "radosgw")), ("power", "power", ("e2fsprogs", "xfsprogs", "btrfs-progs")),
                                                      ("scale", "scale", ("haproxy",)), ("bare", "bare", ("mmdebstrap", "git")), ("test", "model", ())])
def test_a_set_of_packages_has_what_its_scripts_need(wanted, folder, programs):
    packages = subprocess.run([TOOLS / "packages.sh", wanted, "--list"], capture_output=True, text=True, check=True).stdout.split()
    modules = set()
    for script in (ROOT / "tests" / folder).glob("*.py"):
        modules_of(script, modules)
    foreign = {m for m in modules - set(sys.stdlib_module_names) if not any((ROOT / "tests" / f / (m + ".py")).exists() for f in (*FOLDERS, folder))}
    assert {"python3-" + module for module in foreign} | set(programs) <= set(packages)


@pytest.mark.parametrize("release, said", [
    ('ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\n',
     ["epochfs needs Debian 12 or newer, and this is Debian GNU/Linux 11 (bullseye), of which the libraries are too old"]),
    ('ID=debian\nVERSION_ID="13"\nPRETTY_NAME=x\n', 2), ("ID=debian\nPRETTY_NAME=sid\n", 2), ("ID=ubuntu\nVERSION_ID=10.04\n", 2), (None, 2),
], ids=["debian-11", "debian-13", "debian-sid", "ubuntu", "no-file"])
def test_a_debian_that_is_too_old_is_refused_in_one_line(tmp_path, release, said):
    """As are the libraries elsewhere, each in its own."""
    if release:
        (tmp_path / "os-release").write_text(release)
    done = subprocess.run([TOOLS / "versions.sh", "cc", "sqlite3:999.0", "libcrypto:999.0"], capture_output=True, text=True, check=False,
                          env={**os.environ, "OS_RELEASE": str(tmp_path / "os-release")})
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and (lines == said or len(lines) == said), done
