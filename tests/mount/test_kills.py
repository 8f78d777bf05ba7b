# SPDX-License-Identifier: Apache-2.0
"""The rules of tests/bench/compare_kills.py: what it calls whole, the link that stops in an upload, and that the table which is checked in has all its lines."""

import os
import pathlib
import socket
import sys
import threading

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"
sys.path.append(os.fspath(BENCH))


@pytest.fixture(autouse=True)
def once(request):
    """Nothing here depends on passthrough."""


@pytest.fixture(scope="module")
def kills():
    import compare_kills
    return compare_kills


def test_what_is_left_is_named(kills):
    assert kills.verdict([2, 2]) == "whole, new" and kills.verdict([1, 1]) == "whole, old"
    assert kills.verdict([2, 1]) == "**mix** (new, old)" and kills.verdict([2, "missing"]) == "**mix** (new, missing)"
    assert kills.verdict([2, "torn"]) == "**torn** (new, torn)" and kills.verdict(["missing", "missing"]) == "**nothing**"


def test_a_file_is_what_was_saved_or_torn(kills, tmp_path):
    trainer = kills.kills_trainer
    trainer.save_file(os.fspath(tmp_path / "model.pt"), 2, trainer.FILES["model.pt"], "in-place", "never")
    assert trainer.load(tmp_path) == [2, "missing"]
    data = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(data[:len(data) // 2])
    (tmp_path / "optimizer.pt").write_bytes(b"")
    assert trainer.load(tmp_path) == ["torn", "torn"]


def test_the_link_stops_after_so_many_bytes():
    from kills_link import Link
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = Link(server.getsockname()[1])
        client = socket.create_connection(("127.0.0.1", link.port))
        there, _ = server.accept()
        client.sendall(b"a" * 1000)
        assert there.recv(1000, socket.MSG_WAITALL) == b"a" * 1000
        link.stop_after(150000)
        sender = threading.Thread(target=client.sendall, args=(b"b" * 400000,))
        sender.start()
        assert there.recv(150000, socket.MSG_WAITALL) == b"b" * 150000
        assert link.reached.wait(60)
        there.setblocking(False)
        with pytest.raises(BlockingIOError):
            there.recv(1)
        there.setblocking(True)
        link.heal()
        assert there.recv(250000, socket.MSG_WAITALL) == b"b" * 250000
        sender.join()
        for end in (client, there):
            end.close()
        link.close()


def test_a_part_of_a_run_leaves_the_other_lines(kills, tmp_path):
    table = tmp_path / "kills.md"
    table.write_text(kills.table([("in-write", "s3fs", ["a", "b", "c"]), ("in-upload", "sshfs", ["", "d", "e"])], "0" * 12, table))
    table.write_text(kills.table([("in-write", "s3fs", ["x", "y", "z"])], "1" * 12, table))
    lines = [line for line in table.read_text().splitlines() if "--only" in line and line.startswith("| in-")]
    assert lines == ["| in-write | s3fs | x | y | z | `--only s3fs --moment in-write` |", "| in-upload | sshfs |  | d | e | `--only sshfs --moment in-upload` |"]


def test_the_table_has_a_line_for_each_command(kills):
    lines = (BENCH / "kills.md").read_text().splitlines()
    for moment in kills.MOMENTS:
        for name in kills.TOOLS:
            (line,) = [line for line in lines if line.endswith("`--only %s --moment %s` |" % (name, moment))]
            assert "not run" not in line, line
