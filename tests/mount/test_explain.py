# SPDX-License-Identifier: Apache-2.0
"""epochfs explain: what happened in a mount, in its order; and the rules, which the manual has in the same words."""

import json
import os
import re
import signal
import subprocess
import sys

import papers
import pytest

from conftest import BIN, run, wait_until
from test_command import NOT_FOUND, USAGE, epochfs, parsed

pytestmark = pytest.mark.options(settle="1h", resume="off")

SAVER = """
import os, signal, sys
os.chdir(sys.argv[1])
os.mkdir("tmp-step-5")
for name in ("model", "optim"):
    with open("tmp-step-5/" + name, "wb") as f:
        f.write(b"bytes" * 1000)
os.rename("tmp-step-5", "step-5")
os.link("step-5/model", "best")
with open("best", "r+b"):
    pass
with open("notes", "w") as f:
    f.write("one")
with open("notes", "w") as f:
    f.write("other")
    f.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""

# Of these lines each fact is one.
SAVED = [
    ("made", "tmp-step-5", set()),
    ("opened", "tmp-step-5/model", {"new"}), ("closed", "tmp-step-5/model", set()),
    ("opened", "tmp-step-5/optim", {"new"}), ("closed", "tmp-step-5/optim", set()),
    ("renamed", "tmp-step-5", {"directory"}),
    ("sealed", None, set()),
]
THEN = [
    ("linked", "best", set()),
    ("opened", None, {"edit"}), ("closed", None, {"same", "had"}),
    ("opened", "notes", {"new"}), ("closed", "notes", set()),
    ("opened", "notes", {"replace"}), ("undone", "notes", {"killed"}),
    ("ended", None, set()),
]


def brief(facts):
    """A file of two names goes by either."""
    return [(f["what"], None if f.get("path") in ("best", "step-5/model") and f["what"] != "linked" else f.get("path"), set(f.get("facts", []))) for f in facts]


@pytest.mark.rules("2")
def test_each_fact_is_told_once_and_in_order(mnt):
    process = subprocess.Popen([sys.executable, "-c", SAVER, mnt.path])
    assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: not mnt.status()["pending"]["open"], "the end of the writer")
    first, then = parsed("explain", "--json", mnt.path, "1"), parsed("explain", "--json", mnt.path)
    assert brief(first) == SAVED and brief(then) == THEN
    for facts in (first, then):
        assert [f["at_ns"] for f in facts] == sorted(f["at_ns"] for f in facts)
        # A close names no process: its handle tells who opened it.
        assert {f["process"] for f in facts if f["what"] in ("made", "opened", "renamed", "linked")} == {process.pid}
        assert {f["command"] for f in facts if "process" in f} == {os.path.basename(sys.executable)[:15]}
    assert first[2]["size"] == 5000 and first[5]["to"] == "step-5" and first[6]["epoch"] == 1 and first[6]["trigger"] == "rename"


@pytest.mark.rules("2")
def test_people_read_who_did_what(mnt):
    subprocess.run([sys.executable, "-c", SAVER, mnt.path], check=False, timeout=60)
    wait_until(lambda: not mnt.status()["pending"]["open"], "the end of the writer")
    lines = epochfs("explain", mnt.path, "1").splitlines()
    assert lines[0].split() == ["TIME", "PROCESS", "WHAT"] and len(lines) == len(SAVED) + 1
    assert "renamed" in lines[6] and lines[6].endswith("tmp-step-5/ to step-5") and lines[7].endswith("as epoch 000001: rename (S2, J7)")
    assert epochfs("explain", cwd=mnt.path / "step-5").splitlines()[-2].endswith("notes: its writer was killed")


def test_what_a_mount_does_not_know_it_says(mnt):
    (mnt.path / "model").write_bytes(b"1")
    mnt.seal()
    mnt.wait_durable()
    assert epochfs("explain", mnt.path) == ""
    mnt.remount()
    assert "is not known: a mount keeps what happened last" in epochfs("explain", mnt.path, "1", code=NOT_FOUND)
    assert "needs a mount" in epochfs("explain", mnt.remote, code=NOT_FOUND)


def test_facts_are_bounded(mnt):
    for i in range(2, 9000):
        os.mkdir(mnt.path / ("d%d" % i))
        os.rmdir(mnt.path / ("d%d" % i))
    facts = json.loads(subprocess.run([BIN, "explain", "--json", mnt.path], stdout=subprocess.PIPE, check=True).stdout)
    assert len(facts) == 8192 and facts[-1]["path"] == "d8999" and facts[-1]["facts"] == ["directory"]


# Whoever cannot hold the promise in the head cannot rely on it.
WORDS_MAX = 1500


def squeezed(text):
    return " ".join(text.split())


def test_the_manual_has_each_rule_word_for_word():
    page = run("mandoc", "-T", "utf8", papers.REPO / "packaging" / "man" / "epochfs-saves.7").stdout
    page, rules = squeezed(re.sub(".\b", "", page)), parsed("explain", "--rules", "--json")
    assert [rule["rule"] for rule in rules["seal"]] == ["S%d" % i for i in range(1, 6)]
    assert [rule["rule"] for rule in rules["judge"]] == ["J%d" % i for i in range(8)]
    for rule in rules["seal"]:
        assert "%s %s. %s" % (rule["rule"], rule["name"].capitalize(), rule["text"]) in page
    for rule in rules["judge"]:
        assert "%s %s: %s. %s" % (rule["rule"], rule["name"].capitalize(), rule["verdict"], rule["text"]) in page
    assert len(page.split()) <= WORDS_MAX


def test_rules_for_people():
    rules, text = parsed("explain", "--rules", "--json"), squeezed(epochfs("explain", "--rules"))
    for rule in rules["seal"] + rules["judge"]:
        words = (rule["rule"], rule["name"], rule.get("verdict", ""), rule["text"])
        assert squeezed(" ".join(words)) in text
    assert "--rules takes no operand" in epochfs("explain", "--rules", "/x", code=USAGE)
