# SPDX-License-Identifier: Apache-2.0
"""The outcome of tests: written by the runners, read for the totals.

A folder of results holds JSON files, {"tests": [{"name", "outcome", "detail"}]} with outcome
"passed", "failed" or "skipped", and JUnit XML files of pytest.
"""

import json
import pathlib
import xml.etree.ElementTree as ElementTree


def write(folder, name, tests):
    """Writes `tests`, a list of (name, outcome, detail), as FOLDER/NAME.json."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"name": n, "outcome": o, "detail": d} for n, o, d in tests]
    (folder / (name + ".json")).write_text(json.dumps({"tests": rows}, indent=1) + "\n")


def _read_json(path):
    for row in json.loads(path.read_text())["tests"]:
        yield row["name"], row["outcome"], row["detail"]


def _read_junit(path):
    seen = {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = "%s::%s" % (case.get("classname"), case.get("name"))
        outcome, detail = "passed", ""
        for kind, means in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            found = case.find(kind)
            if found is not None:
                outcome, detail = means, found.get("message") or ""
                break
        # An error of the teardown comes as a second entry for the same test.
        if seen.get(name, ("passed", ""))[0] != "failed":
            seen[name] = (outcome, detail)
    for name, (outcome, detail) in seen.items():
        yield name, outcome, detail


def read(folder):
    """All results in FOLDER as (name, outcome, detail); a file that cannot be read is a failure."""
    tests = []
    for path in sorted(pathlib.Path(folder).glob("*")):
        read_one = {".json": _read_json, ".xml": _read_junit}.get(path.suffix)
        if not read_one:
            continue
        try:
            tests += read_one(path)
        except (ValueError, KeyError, OSError, ElementTree.ParseError) as error:
            tests.append((str(path), "failed", "cannot be read: %s" % error))
    return tests
