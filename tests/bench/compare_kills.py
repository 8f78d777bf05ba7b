#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Who keeps the good file? The same save, killed at the same moments, on epochfs and on what people use instead.

    tests/bench/compare_kills.py [PROGRAM] [--only TOOL,...] [--moment MOMENT,...] [--out FILE]

Each line of the table is one run of this, with --only and --moment. Needs root, for the disk that gets full. A trainer (kills_trainer.py) saves model.pt and optimizer.pt, and all is waited for; it begins the next
save, stands still at the moment, as one of a large model does for long, and gets SIGKILL. Then everything is left alone until nothing changes any more, and looked at: by torch.load of both files.

  in-write       half of model.pt is written, in place
  close-rename   model.pt.tmp is written and closed, and not yet renamed
  between-files  model.pt is saved, optimizer.pt is not
  in-upload      the save is over, or waits for the server; two thirds of its bytes are there when the machine is lost
  full-disk      in the middle of model.pt the disk fills, whoever's disk the bytes go to; the trainer goes on, and is killed where it does not end within half a minute

What is asked: the directory as it is then; the directory after the next mount (of the same machine, with all on its disk); the remote as another machine would restore it. After in-upload there is no directory before the next mount, and the
remote is looked at before it, as the machine may never come back.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.append(os.fspath(HERE.parent / "remotes"))

import kills_trainer  # noqa: E402
from competitors import LIMIT, Unusable, poll  # noqa: E402
from kills_link import Link  # noqa: E402
from kills_tools import TOOLS  # noqa: E402
from server import ServerMissing  # noqa: E402
from server_rgw import Rgw  # noqa: E402
from server_sshd import Sshd  # noqa: E402

TRAINER = [sys.executable, os.fspath(HERE / "kills_trainer.py")]
MOMENTS = ("in-write", "close-rename", "between-files", "in-upload", "full-disk")
SAVE_BYTES = 4 * (1448 * 1448 + 2048 * 2048)
STILL_S, STILL_LIMIT_S = 9, 180  # nothing changes for so long: it is over
DISK_MIB = 400


class LinkedRgw(Rgw):
    """RGW, which clients reach by the link; `direct` is for looking at it."""

    link = None

    @property
    def endpoint(self):
        return "http://127.0.0.1:%d" % (self.link.port if self.link else self.port)


class LinkedSshd(Sshd):
    link = None

    @property
    def alias(self):
        """Under which its key is known."""
        return "[127.0.0.1]:%d" % self.port

    def authority(self):
        return "root@127.0.0.1:%d" % self.link.port


class Direct:
    """A server without its link."""

    def __init__(self, server):
        self.server = server

    def __getattr__(self, name):
        link, self.server.link = self.server.link, None
        value = getattr(self.server, name)
        if not callable(value):
            self.server.link = link
            return value

        def call(*words):
            self.server.link = None
            try:
                return value(*words)
            finally:
                self.server.link = link
        self.server.link = link
        return call


class Place:
    """What all of them need: a disk of their own, the servers and their links."""

    def __init__(self, options, folder, disk, stack):
        self.options, self.folder, self.disk, self.program = options, disk / "machines", disk, options.program
        self.folder.mkdir()
        options.directory = None
        self.rgw = stack.enter_context(LinkedRgw(folder / "rgw"))
        # On the disk that gets full: what sshfs and rsync write goes to it.
        self.sshd = stack.enter_context(LinkedSshd(disk / "sshd"))
        self.server = Direct(self.rgw)
        for server in (self.rgw, self.sshd):
            server.link = Link(server.port)
            stack.callback(server.link.close)

    def links(self):
        return self.rgw.link, self.sshd.link


@contextlib.contextmanager
def small_disk(folder):
    """An ext4 of its own, that can be filled."""
    image, disk = folder / "disk.img", folder / "disk"
    with open(image, "wb") as f:
        f.truncate(DISK_MIB << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", os.fspath(image)], check=True)
    disk.mkdir()
    subprocess.run(["mount", "-o", "loop", os.fspath(image), os.fspath(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", os.fspath(disk)], check=True)


class Trainer:
    def __init__(self, path, how, moment):
        self.process = subprocess.Popen([*TRAINER, os.fspath(path), how, moment], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"})

    def until(self, fact):
        line = self.process.stdout.readline()
        if line != fact + "\n":
            raise Unusable("the trainer said %r, not %r" % (line, fact))

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=LIMIT)


def snapshot(who):
    """What is in the remote: names, sizes and hashes."""
    if hasattr(who, "folder") and not hasattr(who, "size_of"):
        return sorted((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in who.folder().rglob("*") if p.is_file())
    server = who.place.server
    client, found = server.client(), []
    for key in client.keys(server.bucket, who.key + "/"):
        # A holder's lease changes for as long as it holds it.
        if "lease" not in key:
            _, _, headers = client.request("HEAD", "/%s/%s" % (server.bucket, key))
            found.append((key, headers.get("ETag"), headers.get("Content-Length")))
    return sorted(found)


def wait_still(who):
    """Until nothing has changed in the remote for a while."""
    last, since, end = snapshot(who), time.monotonic(), time.monotonic() + STILL_LIMIT_S
    while time.monotonic() - since < STILL_S and time.monotonic() < end:
        time.sleep(0.5)
        now = snapshot(who)
        if now != last:
            last, since = now, time.monotonic()


def restored(who, folder):
    folder.mkdir()
    who.restore(folder)
    return folder


def taken(who, folder):
    """A copy of the directory's files, as a program reads them."""
    folder.mkdir()
    for name in os.listdir(who.path):
        with contextlib.suppress(OSError):
            if os.path.isfile(who.path / name):
                shutil.copyfile(who.path / name, folder / name)
    return folder


def verdict(files):
    """Of the two files."""
    if files == [2, 2]:
        return "whole, new"
    if files == [1, 1]:
        return "whole, old"
    if files == ["missing", "missing"]:
        return "**nothing**"
    words = [{1: "old", 2: "new"}.get(f, f) for f in files]
    if "torn" in files:
        return "**torn** (%s, %s)" % tuple(words)
    return "**mix** (%s, %s)" % tuple(words)


def fill(disk):
    with contextlib.suppress(OSError), open(disk / "ballast", "wb") as f:
        while True:
            f.write(b"\0" * (1 << 20))
    with contextlib.suppress(OSError), open(disk / "ballast2", "wb", buffering=0) as f:
        while True:
            f.write(b"\0" * 512)
    os.sync()


def save_and_kill(who, moment):
    """Two saves, the second one killed."""
    stop = {"full-disk": "in-write", "in-upload": "never"}.get(moment, moment)
    trainer = Trainer(who.path, "rename" if moment == "close-rename" else "in-place", stop)
    try:
        trainer.until("saved 1")
        wait_still(who)
        if moment == "in-upload":
            for link in who.place.links():
                link.stop_after(SAVE_BYTES * 2 // 3)
            trainer.go_on()
            poll(lambda: any(link.reached.is_set() for link in who.place.links()), "two thirds of an upload", 120)
            who.kill()
            return
        trainer.go_on()
        trainer.until("at " + stop)
        # A large save takes a while: whoever copies what is there meanwhile does.
        time.sleep(STILL_S)
        if moment == "full-disk":
            fill(who.place.disk)
            trainer.go_on()
            with contextlib.suppress(subprocess.TimeoutExpired):
                trainer.process.wait(timeout=30)
    finally:
        trainer.kill()


def one(place, kind, moment, number):
    """(directory, directory after the next mount, remote), in words."""
    who = kind(place)
    who.check()
    looks = place.options.folder / ("looks-%d" % number)
    looks.mkdir()
    try:
        who.start("run%d" % number)
        save_and_kill(who, moment)
        for name in ("ballast", "ballast2"):
            (place.disk / name).unlink(missing_ok=True)
        for link in place.links():
            link.heal()
        folders = []
        if moment != "in-upload":
            wait_still(who)
            folders.append(taken(who, looks / "directory"))
        remote = restored(who, looks / "remote")
        who.again()
        folders += [taken(who, looks / "again"), remote]
        words = [verdict(kills_trainer.load(path)) for path in folders]
        return words if len(words) == 3 else ["", *words]
    finally:
        for link in place.links():
            link.heal()
        who.stop()
        shutil.rmtree(looks)


# ---- the table


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def versions():
    packages = ("rclone", "rsync", "s3fs", "sshfs", "python3-torch", "radosgw", "openssh-server")
    lines = output_of("dpkg-query", "-W", "-f", "${Package} ${Version}, ", *packages)
    return lines.rstrip(", ") + "; Linux " + os.uname().release


def line_of(moment, name, words):
    return "| %s | %s | %s | %s | %s | `--only %s --moment %s` |" % (moment, TOOLS[name].label, *words, name, moment)


def lines_of(rows, path):
    """A line for each moment and tool: of this run, or as the file has it."""
    made = {(moment, name): line_of(moment, name, words) for moment, name, words in rows}
    old = path.read_text().splitlines() if path.exists() else []
    for moment in MOMENTS:
        for name in TOOLS:
            command = "`--only %s --moment %s` |" % (name, moment)
            kept = [line for line in old if line.endswith(command)]
            yield from [made[moment, name]] if (moment, name) in made else kept


def table(rows, commit, path):
    lines = ["# Who keeps the good file?", "",
             "Generated by `make compare-kills`; do not edit. The same two files, `model.pt` and `optimizer.pt`, saved by `torch.save` (%d MiB), and the second save killed; what `torch.load` then finds of it. `tests/bench/compare_kills.py --help` says what each" % (SAVE_BYTES >> 20),
             "moment is and how it is looked at; each line is the run of one command, `tests/bench/compare_kills.py --only TOOL --moment MOMENT`.",
             "", "| killed | on | the directory, then | after the next mount | the remote | command |", "|---|---|---|---|---|---|"]
    lines += lines_of(rows, path)
    lines += ["", "*old*, *new*: the save before, the one that was killed. *whole*: both files load and are of one save. *mix*: they are of two. *torn*: one does not load. After in-upload the machine is gone: there is no directory before the next mount.", "",
              "Each with what its manual recommends for this use, and defaults beside that:", ""]
    lines += ["- **%s** (`%s`): %s." % (kind.label, kind.name, kind.why) for kind in TOOLS.values()]
    lines += ["", "%s; %s; epochfs of commit %s." % (datetime.date.today().isoformat(), versions(), commit), ""]
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda known: lambda text: [word if word in known else parser.error("no such name: %s; there are %s" % (word, ", ".join(known))) for word in text.split(",")]  # noqa: E731
    parser.add_argument("program", nargs="?", type=pathlib.Path, default=REPO / "build" / "epochfs")
    parser.add_argument("--only", type=words(TOOLS), default=list(TOOLS), metavar="TOOL,...", help=", ".join(TOOLS))
    parser.add_argument("--moment", type=words(MOMENTS), default=list(MOMENTS), metavar="MOMENT,...", help=", ".join(MOMENTS))
    parser.add_argument("--out", type=pathlib.Path, help="write the table here; lines that this run does not make stay as they are")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("this needs root: it mounts a disk that it can fill")
    return options


def compare(options, folder):
    """(moment, tool, words) of each run."""
    rows = []
    with small_disk(folder) as disk, contextlib.ExitStack() as stack:
        place = Place(options, folder, disk, stack)
        for moment in options.moment:
            for name in options.only:
                try:
                    words = one(place, TOOLS[name], moment, len(rows))
                except Unusable as error:
                    words = ["not run: %s" % error, "", ""]
                rows.append((moment, name, words))
                print("  %-14s %-14s %s" % (moment, name, " | ".join(words)), flush=True)
    return rows


def alone():
    """In a mount namespace of its own: one that somebody else makes meanwhile would keep a copy of each mount, and its server alive."""
    if "EPOCHFS_KILLS_ALONE" not in os.environ:
        os.environ["EPOCHFS_KILLS_ALONE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", os.fspath(HERE.parent / "tools" / "alone.sh"), sys.executable, *sys.argv])


def main():
    options = arguments()
    alone()
    for name in [name for name in os.environ if name.upper().startswith(("AWS_", "RCLONE_", "EPOCHFS_")) or name.lower().endswith("_proxy")]:
        del os.environ[name]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    # The last one that changed epochfs itself.
    commit = output_of("git", "-C", os.fspath(REPO), "log", "-1", "--format=%h", "--abbrev=12", "--", "lib", "fs", "tools")
    with tempfile.TemporaryDirectory(prefix="epochfs-kills-", ignore_cleanup_errors=True) as folder:
        options.folder = pathlib.Path(folder)
        try:
            rows = compare(options, options.folder)
        except ServerMissing as error:
            sys.exit("%s: tests/tools/packages.sh kills installs it" % error)
    if options.out:
        options.out.write_text(table(rows, commit, options.out))


if __name__ == "__main__":
    main()
