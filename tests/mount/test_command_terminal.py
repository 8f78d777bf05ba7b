# SPDX-License-Identifier: Apache-2.0
"""What the command shows while it works: a bar on a terminal, plain lines elsewhere."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from conftest import BIN, LIMIT, wait_until


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


@pytest.fixture
def two(mnt):
    """Two durable epochs."""
    for text in "12":
        (mnt.path / "f").write_text(text)
        (mnt.path / ("only-" + text)).write_bytes(os.urandom(100000))
        mnt.seal()
    mnt.wait_durable()
    return mnt


class Terminal:
    """A command whose output is a terminal of 80 columns."""

    def __init__(self, *arguments):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen([BIN, *map(os.fspath, arguments)], stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.text = ""

    def read(self):
        """What came; False at the end."""
        if not select.select([self.master], [], [], 0.1)[0]:
            return True
        try:
            part = os.read(self.master, 65536)
        except OSError:  # EIO: nobody has the other side open
            part = b""
        self.text += part.decode(errors="replace")
        return bool(part)

    def until(self, pattern):
        wait_until(lambda: re.search(pattern, self.text) or not self.read(), "%s in %r" % (pattern, self.text[-500:]))
        assert re.search(pattern, self.text), self.text

    def end(self):
        wait_until(lambda: not self.read(), "the end")
        os.close(self.master)
        return self.process.wait(timeout=LIMIT)


@pytest.fixture
def slow(volume):
    """A mount whose uploads wait until `slow.go()`."""
    control = volume.base / "weather"
    volume.url = "fault+%s?control=%s" % (volume.url, control)
    volume.go = control.unlink
    volume.mount(settle="1h")
    control.write_text("put.down=1")
    (volume.path / "f").write_bytes(os.urandom(3 << 20))
    yield volume
    if control.exists():
        control.unlink()


def test_a_bar_on_a_terminal(slow):
    terminal = Terminal("wait", slow.path)
    terminal.until(r"\ruploading \[[#.]{28}\] .* of 3\.0 MiB, .*1 epoch left.*\x1b\[K")
    assert "\n" not in terminal.text  # one line, again and again
    slow.go()
    assert terminal.end() == 0
    assert terminal.text.endswith("\r\nepoch 000001 is durable\r\n"), terminal.text


def test_plain_lines_elsewhere(slow):
    waiting = subprocess.Popen([BIN, "wait", slow.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = waiting.stderr.readline()
    assert re.fullmatch(r"uploading: .* of 3\.0 MiB, 1 epoch left.*\n", line), line
    slow.go()
    out, more = waiting.communicate(timeout=LIMIT)
    assert out == "epoch 000001 is durable\n" and "\r" not in line + more and "\x1b" not in line + more


def test_umount_shows_the_bar_too_and_is_gone_after_it(slow):
    terminal = Terminal("umount", slow.path)
    terminal.until(r"\ruploading \[")
    slow.go()
    assert terminal.end() == 0
    slow.wait_end()
    assert (slow.remote / "epochs" / ("%020d.json" % 1)).exists()


def test_what_takes_less_than_a_second_shows_no_bar(two, tmp_path):
    def quick(name):
        start = time.monotonic()
        terminal = Terminal("export", two.remote, tmp_path / name)
        assert terminal.end() == 0
        return time.monotonic() - start < 1 and terminal.text

    text = wait_until(lambda: quick(str(time.monotonic_ns())), "a run of less than a second")
    assert "restored" in text and "\x1b" not in text and "[" not in text


def test_export_shows_a_bar(two, tmp_path):
    control = tmp_path / "weather"
    control.write_text("get.delay=700ms")
    terminal = Terminal("export", "fault+%s?control=%s@2" % (two.url, control), tmp_path / "out")
    terminal.until(r"\rrestoring \[[#.]{28}\] .*\d of 3 files")
    control.unlink()
    assert terminal.end() == 0


def test_status_refreshes(two):
    terminal = Terminal("status", "--watch", two.path)
    terminal.until(r"\x1b\[H\x1b\[J")
    terminal.until(r"count +2\r")
    (two.path / "f").touch()
    two.seal()
    terminal.until(r"count +3\r")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() in (0, -signal.SIGINT)
    # In a pipe there is nothing to refresh: one after the other.
    watching = subprocess.Popen([BIN, "status", "--watch", "--json", two.path], stdout=subprocess.PIPE, text=True)
    lines = [watching.stdout.readline()]
    while lines.count("}\n") < 2:
        lines.append(watching.stdout.readline())
        assert lines[-1]
    watching.terminate()
    watching.communicate()
    assert json.loads("".join(lines[:lines.index("}\n") + 1]))["epochs"]["count"] == 3 and "\x1b" not in "".join(lines)
