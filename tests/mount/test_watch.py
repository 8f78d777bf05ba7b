# SPDX-License-Identifier: Apache-2.0
"""epochfs watch: each checkpoint that appears in an ordinary directory becomes an epoch, never a torn one."""

import configparser
import contextlib
import json
import os
import pathlib
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import BIN, LIMIT, python, run, wait_until
from test_import import Importer, below
from test_last_files import BY_TEMPORARY, FRAMEWORKS, distributed, files, save


class Watch:
    def __init__(self, base):
        self.top = self.path = base / "top"
        self.top.mkdir()
        self.base = base
        self.importer = Importer(base)
        self.process = None

    def start(self, options="", *words, url=None, env=None):
        command = [BIN, "watch", "--json", "-o", self.importer.options + options, *words, os.fspath(self.top),
                   url or self.importer.url]
        with open(self.base / "stdout", "w", encoding="utf-8") as out, open(self.base / "stderr", "a", encoding="utf-8") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(env or {})})
        return self

    def lines(self):
        return [json.loads(line) for line in (self.base / "stdout").read_text().splitlines()]

    def said(self):
        return (self.base / "stderr").read_text()

    def is_ready(self):
        """It watches: its inotify descriptor has a directory."""
        assert self.process.poll() is None, self.said()
        folder = "/proc/%d/fdinfo" % self.process.pid
        for fd in os.listdir(folder):
            try:
                with open(os.path.join(folder, fd), encoding="ascii") as f:
                    if "inotify wd" in f.read():
                        return True
            except FileNotFoundError:
                pass
        return False

    def ready(self):
        wait_until(self.is_ready, "the watch")
        return self

    def wait_epoch(self, count):
        def there():
            assert self.process.poll() is None, self.said()
            return len(self.lines()) >= count
        wait_until(there, "epoch %d; it says: %s" % (count, self.said()))
        return self.lines()[count - 1]

    def end(self, code=0, number=signal.SIGTERM):
        self.process.send_signal(number)
        assert self.process.wait(timeout=LIMIT) == code, self.said()

    def epochs(self):
        return sorted(self.importer.epochs(), key=lambda e: e["epoch"])

    def content(self, epoch):
        out = self.base / ("e%d" % epoch)
        if not out.exists():
            run(BIN, "export", "%s@%d" % (self.importer.url, epoch), out)
        return out


def threads(process):
    return len(os.listdir("/proc/%d/task" % process.pid))


@pytest.fixture
def once(passthrough):
    if passthrough == "off":
        pytest.skip("the command does not mount")


@pytest.fixture
def watch(tmp_path):
    w = Watch(tmp_path)
    yield w
    if w.process and w.process.poll() is None:
        w.process.kill()
        w.process.wait()


def test_a_marker_and_a_final_name_seal_at_once_and_the_end_takes_the_rest(watch, volume, once):
    watch.start(",settle=1h,marker=DONE").ready()
    step = watch.top / "checkpoint-500"
    step.mkdir()
    (step / "model").write_text("500")
    (step / "sub").mkdir()
    (step / "sub" / "optimizer").write_text("o500")
    (step / "DONE").write_text("")
    first = watch.wait_epoch(1)
    assert (first["trigger"], first["step"], first["files"], first["complete"]) == ("marker", 500, 3, True)
    temporary = watch.top / "tmp-600"
    temporary.mkdir()
    (temporary / "model").write_text("600")
    temporary.rename(watch.top / "checkpoint-600")
    second = watch.wait_epoch(2)
    assert (second["trigger"], second["step"], second["parent"]) == ("rename", 600, 1)
    # What is below a directory that was renamed is still seen.
    (watch.top / "checkpoint-600" / "DONE").write_text("")
    assert watch.wait_epoch(3)["trigger"] == "marker"
    (watch.top / "last").write_text("rest")
    (watch.top / "checkpoint-500").rename(watch.base / "elsewhere")
    watch.end()
    assert watch.lines()[3]["trigger"] == "import" and watch.lines()[3]["complete"]
    watch.importer.check(watch.top)
    volume.url = watch.importer.url
    assert below(volume.mount(settle="1h").path) == below(watch.top)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda f: f.__name__)
def test_the_last_file_of_a_framework_seals(watch, once, framework):
    watch.start(",settle=1h").ready()
    for number, step in ((1, 100), (2, 200)):
        save(watch, framework(step), "save %d" % number)
        epoch = watch.wait_epoch(number)
        # What is renamed in a new directory before that is watched is found by its name alone.
        either = {"rename", "marker"} if framework is distributed else {"rename" if framework in BY_TEMPORARY else "marker"}
        assert epoch["trigger"] in either and epoch["complete"]
        assert files(watch.content(number)) == files(watch.path)
    watch.end()
    assert len(watch.epochs()) == 2


PIECES = """
import os, sys, time
for n in range(6):
    with open(os.path.join(sys.argv[1], "model-%d" % n), "w") as f:
        for _ in range(4):
            f.write(str(n) * 10000)
            f.flush()
            time.sleep(0.15)
"""


def test_what_is_open_for_writing_is_in_no_epoch(watch):
    # Quiet comes between any two pieces.
    watch.start(",settle=50ms,patience=1h").ready()
    writer = python(PIECES, watch.top)
    try:
        assert writer.wait(timeout=LIMIT) == 0
    finally:
        writer.kill()
        writer.communicate()
    wait_until(lambda: watch.lines() and watch.lines()[-1]["files"] == 6, "the last file")
    watch.end()
    for epoch in watch.epochs():
        for path in watch.content(epoch["epoch"]).iterdir():
            assert path.read_text() == path.name[-1] * 40000
    watch.importer.check(watch.top)


TORCH = """
import os, sys, torch
top = sys.argv[1]
for step in range(1, 9):
    torch.save({"step": step, "w": torch.full((200000,), float(step))}, os.path.join(top, "model.pt"))
    torch.save({"step": step}, os.path.join(top, "checkpoint-%d.pt.tmp" % step))
    os.rename(os.path.join(top, "checkpoint-%d.pt.tmp" % step), os.path.join(top, "checkpoint-%d.pt" % step))
    if step > 2:
        os.remove(os.path.join(top, "checkpoint-%d.pt" % (step - 2)))
    print(step, flush=True)
    sys.stdin.readline()
"""

CHECK = """
import os, sys, torch
for folder in sys.argv[1:]:
    for name in os.listdir(folder):
        state = torch.load(os.path.join(folder, name))
        if name == "model.pt":
            assert (state["w"] == state["step"]).all()
        else:
            assert name == "checkpoint-%d.pt" % state["step"]
"""


def test_torch_saves_under_a_watch_are_whole_in_each_epoch(watch, volume, once):
    watch.start(",settle=50ms").ready()
    trainer = python(TORCH, watch.top)
    try:
        for step in range(1, 9):
            assert trainer.stdout.readline() == "%d\n" % step
            if step % 2 == 0:  # the others follow one another at once
                wait_until(lambda: any(e.get("step") == step for e in watch.lines()), "step %d" % step)
            trainer.stdin.write("\n")
            trainer.stdin.flush()
        assert trainer.wait(timeout=LIMIT) == 0
    finally:
        trainer.kill()
        trainer.communicate()
    watch.end()
    epochs = watch.epochs()
    assert len(epochs) >= 4
    whole = [os.fspath(watch.content(e["epoch"])) for e in epochs if e["complete"]]
    check = python(CHECK, *whole, stderr=subprocess.PIPE)
    assert check.wait(timeout=LIMIT) == 0, check.communicate()
    watch.importer.check(watch.top)
    volume.url = watch.importer.url
    mnt = volume.mount(settle="1h")
    assert below(mnt.path) == below(watch.top)


MANY = """
import os, sys
for n in range(7000):
    with open(os.path.join(sys.argv[1], "x%d" % n), "w") as f:
        f.write("x")
    if n % 10:
        os.remove(os.path.join(sys.argv[1], "x%d" % n))
os.makedirs(os.path.join(sys.argv[1], "new", "deep"))
with open(os.path.join(sys.argv[1], "new", "deep", "file"), "w") as f:
    f.write("deep")
"""


def test_events_that_the_kernel_dropped_lose_nothing(watch):
    watch.start(",settle=100ms").ready()
    watch.process.send_signal(signal.SIGSTOP)
    run(sys.executable, "-c", MANY, watch.top)
    watch.process.send_signal(signal.SIGCONT)
    wait_until(lambda: watch.lines() and watch.lines()[-1]["files"] == 701, "all files")
    # The directory that nobody told of is watched now.
    (watch.top / "new" / "deep" / "other").write_text("o")
    wait_until(lambda: watch.lines()[-1]["files"] == 702, "the file in it")
    watch.end()
    watch.importer.check(watch.top)


@pytest.mark.parametrize("words", [(), ("--poll", "50ms")])
def test_killed_it_goes_on_and_an_outage_is_waited_for(watch, words):
    control = watch.base / "control"
    url = "fault+%s?control=%s" % (watch.importer.url, control)
    watch.start(",settle=50ms", *words, url=url, env={"EPOCHFS_FAULT": "import.index"})
    (watch.top / "model").write_bytes(os.urandom(1 << 20))
    assert watch.process.wait(timeout=LIMIT) == -signal.SIGKILL
    assert watch.epochs() == []
    watch.start(",settle=50ms,patience=1s", *words, url=url)
    assert watch.wait_epoch(1)["files"] == 1
    control.write_text("down=1")
    (watch.top / "other").write_bytes(os.urandom(1 << 20))
    wait_until(lambda: "trying again" in watch.said(), "the outage")
    control.unlink()
    assert watch.wait_epoch(2)["files"] == 2
    wait_until(lambda: "recovered" in watch.said(), "its end")
    assert watch.said().count("trying again") == 1
    watch.importer.check(watch.top)
    # What cannot be put in time is told by the exit code.
    control.write_text("put.delay=1h&only=packs/")
    (watch.top / "third").write_bytes(os.urandom(1 << 20))
    watch.process.send_signal(signal.SIGTERM)
    watch.process.send_signal(signal.SIGINT)
    assert watch.process.wait(timeout=LIMIT) == 7, watch.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_that_comes_twice_leaves_the_grace(watch, once, number):
    """As Slurm ends a step, and timeout(1) a command: the upload is held up meanwhile, and the last checkpoint is durable."""
    watch.start(",settle=1h", "--grace", "120s", url="fault+%s?put.delay=2s&only=packs/" % watch.importer.url).ready()
    (watch.top / "model").write_bytes(os.urandom(1 << 20))
    watch.process.send_signal(number)
    time.sleep(0.014)
    watch.process.send_signal(signal.SIGCONT)
    watch.process.send_signal(number)
    assert watch.process.wait(timeout=LIMIT) == 0, watch.said()
    assert [line["epoch"] for line in watch.lines()] == [1]
    watch.importer.check(watch.top)


def processor_s(process):
    """Of its main thread, so far."""
    with open("/proc/%d/task/%d/stat" % (process.pid, process.pid), encoding="utf-8", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_what_changes_as_the_last_import_is_awaited_wakes_nobody(watch, once):
    """Nobody reads it, so that a wait for it would be over at once, again and again."""
    watch.start(",settle=1h", "--grace", "120s", url="fault+%s?put.delay=4s&only=packs/" % watch.importer.url).ready()
    (watch.top / "model").write_bytes(os.urandom(1 << 20))
    before = threads(watch.process)
    watch.process.send_signal(signal.SIGTERM)
    wait_until(lambda: threads(watch.process) > before, "the last import")
    (watch.top / "later").mkdir()
    begun, spent = processor_s(watch.process), 0

    def has_ended():
        nonlocal spent
        if watch.process.poll() is None:
            with contextlib.suppress(OSError, IndexError):
                spent = processor_s(watch.process) - begun
        return watch.process.returncode is not None

    wait_until(has_ended, "the end")
    assert watch.process.returncode == 0 and spent < 0.5, watch.said()


def test_a_person_who_presses_twice_gets_out_at_once(watch, once):
    """Ctrl-C at a terminal."""
    url = "fault+%s?put.delay=1h&only=packs/" % watch.importer.url
    master, slave = pty.openpty()
    with open(watch.base / "stderr", "w", encoding="utf-8") as err:
        watch.process = subprocess.Popen(["setsid", "--ctty", BIN, "watch", "-o", watch.importer.options + ",settle=1h", "--grace", "1h",
                                          watch.top, url], stdin=slave, stdout=slave, stderr=err)
    os.close(slave)
    wait_until(watch.is_ready, "the watch")
    (watch.top / "model").write_bytes(os.urandom(1 << 20))
    before = threads(watch.process)
    os.write(master, b"\x03")
    wait_until(lambda: threads(watch.process) > before, "the last import")
    assert watch.process.poll() is None, watch.said()
    os.write(master, b"\x03")
    assert watch.process.wait(timeout=LIMIT) == 7, watch.said()
    os.close(master)


def test_who_writes_already_is_named(watch, volume, once):
    volume.mount(settle="1h")
    watch.start(url=volume.url)
    assert watch.process.wait(timeout=LIMIT) == 8
    assert "mounted at %s" % volume.path in watch.said()
    done = run(BIN, "watch", watch.top, volume.path, check=False)
    assert done.returncode == 2 and "is a mount" in done.stderr
    done = run(BIN, "watch", watch.base / "missing", watch.importer.url, check=False)
    assert done.returncode == 5 and done.stderr == "epochfs: %s: No such file or directory\n" % (watch.base / "missing"), done
    assert run(BIN, "watch", "--grace", "x", watch.top, watch.importer.url, check=False).returncode == 2


def test_a_catalog_in_the_directory_is_refused(watch, once):
    """Each epoch would change it, and so be the reason for the next one, for ever."""
    watch.start(",settle=50ms,catalog=%s" % (watch.top / "c.db"))
    assert watch.process.wait(timeout=LIMIT) == 2 and "the catalog %s lies in" % (watch.top / "c.db") in watch.said()


def test_a_notice_to_every_process_of_a_job_does_not_end_it(watch, once):
    watch.start(",settle=1h").ready()
    (watch.top / "model").write_text("1")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        watch.process.send_signal(number)
    watch.end()
    assert [line["epoch"] for line in watch.lines()] == [1]


@pytest.mark.parametrize("poll", [False, True])
@pytest.mark.parametrize("fate", ["removed", "replaced", "moved"])
def test_a_directory_that_goes_is_told(watch, once, poll, fate):
    """What is made in its place is another directory: nobody would watch that."""
    (watch.top / "model").write_text("1")
    watch.start(",settle=50ms", *(("--poll", "100ms") if poll else ()))
    watch.wait_epoch(1)
    if fate == "moved":
        watch.top.rename(watch.base / "elsewhere")
    else:
        shutil.rmtree(watch.top)
    if fate == "replaced":
        watch.top.mkdir()
    assert watch.process.wait(timeout=LIMIT) == 5
    assert "it is gone" in watch.said()


UNIT = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "examples" / "watch.service"


def test_the_service(watch):
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#", strict=False)
    unit.optionxform = str
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    words = [word.replace("${DIRECTORY}", os.fspath(watch.top)).replace("${REMOTE}", watch.importer.url)
             .replace("/var/cache/epochfs", os.fspath(watch.base / "cache")) for word in shlex.split(service["ExecStart"])]
    assert words[0] == "/usr/local/bin/epochfs"
    assert int(words[words.index("--grace") + 1].rstrip("s")) < int(service["TimeoutStopSec"])
    watch.process = subprocess.Popen([BIN, *words[1:]], stdout=subprocess.DEVNULL)
    wait_until(watch.is_ready, "the watch")
    (watch.top / "model-3.pt").write_bytes(b"model")
    watch.process.send_signal(signal.SIGTERM)
    assert watch.process.wait(timeout=LIMIT) == 0
    assert [e["step"] for e in watch.epochs()] == [3]
    watch.importer.check(watch.top)


# As epochfs-integrations(7) has it.
ENTRYPOINT = """
epochfs export --force "$REMOTE" "$CKPT" || [ $? -eq 5 ] || exit 1
epochfs watch "$CKPT" "$REMOTE" & watch=$!
n=$(cat "$CKPT/n" 2>/dev/null || echo 0); echo $((n + 1)) > "$CKPT/n"; code=$?
kill $watch; wait $watch; epochfs import "$CKPT" "$REMOTE" && exit $code
"""


def test_a_container_takes_up_what_the_last_one_left(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "epochfs").symlink_to(pathlib.Path(BIN).resolve())
    for turn in range(1, 4):
        box = tmp_path / ("box%d" % turn)
        (box / "ckpt").mkdir(parents=True)
        env = {**os.environ, "PATH": "%s:%s" % (tmp_path / "bin", os.environ["PATH"]), "CKPT": str(box / "ckpt"),
               "REMOTE": "file://%s" % (tmp_path / "remote"), "EPOCHFS_CACHE_DIR": str(box / "cache")}
        done = run("sh", "-c", ENTRYPOINT, env=env, check=False)
        assert done.returncode == 0, done
        assert (box / "ckpt" / "n").read_text() == "%d\n" % turn
    run(BIN, "export", "file://%s" % (tmp_path / "remote"), tmp_path / "out")
    assert (tmp_path / "out" / "n").read_text() == "3\n"
