# SPDX-License-Identifier: Apache-2.0
"""Histories on the real mount, beside the model."""

import os
import random
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../mount")]

import worker
from conftest import BIN, LIMIT, Mount, run, wait_until
from measure import await_tick
from model import Model, outcomes

MODELS_MAX = 64  # that may be true at once, before the tree is looked at
BALLAST = 1 << 30
FACTS_MAX = 1 << 13  # then the oldest are gone
OUTSIDER = {"seal", "wait", "rollback", "tag", "untag", "drop", "check", "epochs", "epoch", "torn_bytes"}

SLOW = {"wait", "remount", "cold", "lost", "crash"}


class Failure(Exception):
    """The mount did what the contract does not allow."""


class Session:
    """One volume, one history after the other."""

    def __init__(self, base, options):
        options = dict(options)
        # How likely it is that the process which serves ends before a step: of a supervised mount nobody may notice.
        self.restarts = options.pop("restarts", 0)
        self.random = random.Random(self.restarts)
        self.killed = []
        # The model has the rules 1 of what an epoch is; tests/protocols and tests/unit have those of saves.
        self.mount = Mount(base, {"settle": "1h", "rules": "1", **({"supervise": True} if self.restarts else {}), **options})
        self.control = self.mount.base / "control"
        self.control.touch()
        self.mount.url = "fault+file://%s?control=%s" % (self.mount.remote, self.control)
        self.workers = {}
        self.outsider = None
        self.models = []
        self.count = 0
        self.first = 1

    # ---- processes

    def start(self):
        self.mount.mount()
        # Beside this, what histories write is too little to be a save that the next one seals: that would be a matter of time.
        with open(self.mount.path / "ballast", "wb") as f:
            f.truncate(BALLAST)
        self.mount.seal()
        self.begin_outsider()

    def begin_outsider(self):
        self.outsider = self.new_worker()

    def new_worker(self):
        others = list(self.workers.values()) + ([self.outsider] if self.outsider else [])
        return worker.start(str(self.mount.path), "h%d" % self.count, self.first, others)

    def worker_of(self, number):
        if number not in self.workers:
            self.workers[number] = self.new_worker()
        return self.workers[number]

    def ask(self, process, name, *arguments):
        process.ask(name, arguments)
        return self.answer(process)

    def answer(self, process):
        result = process.answer(LIMIT)
        if result is None:
            raise Failure("a worker died")
        return result

    def outside(self, name, *arguments):
        return self.ask(self.outsider, name, *arguments)

    def must(self, name, *arguments):
        result = self.outside(name, *arguments)
        if result[0] != "ok":
            raise Failure("%s: %s" % (name, result[1]))
        return result[1]

    def stop(self, number):
        process = self.workers.pop(number) if number is not None else self.outsider
        process.kill()
        process.wait(LIMIT)

    def stop_all(self):
        for number in list(self.workers):
            self.stop(number)
        if self.outsider:
            self.stop(None)
            self.outsider = None

    # ---- a history

    def begin(self):
        self.count += 1
        self.first = 1
        if self.outsider:
            self.stop(None)
        self.begin_outsider()
        begin = time.monotonic()
        self.first, torn = self.must("begin")
        self.slowest = time.monotonic() - begin
        known = self.models[0].renamed_to if self.models else set()
        self.models = [Model()]
        self.models[0].renamed_to = set(known)
        self.models[0].begin(self.first, torn)

    def run(self, ops, trace=None):
        """Failure where the mount is wrong; its text begins with the operation."""
        self.begin()
        for op in ops + [["check"], ["seal", "the-end"], ["epochs"], ["torn_bytes"]]:
            self.step(op, trace)
        for i in range(len(self.models[0].epochs)):
            self.step(["epoch", i], trace)

    def step(self, op, trace):
        model = self.models[0]
        op = model.concrete(op)
        if op[0] == "crash" and not all(m.applies(op) for m in self.models):
            op = ["crash", None, 0]
        if not all(m.applies(op) for m in self.models):
            return
        if self.random.random() < self.restarts:
            self.restart()
        begin = time.monotonic()
        try:
            result = self.execute(op)
        except worker.Hang as hang:
            raise Failure("%s: %s" % (op, hang)) from None
        if op[0] not in SLOW:
            self.slowest = max(self.slowest, time.monotonic() - begin)
        if trace:
            trace(op, result)
        self.judge(op, result)
        if len(self.models) > 8 and op[0] != "check":
            self.step(["check"], trace)

    def judge(self, op, result):
        left, reasons = [], []
        for model in self.models:
            allowed, why = outcomes(model, op, result)
            left += allowed
            reasons += why
        if not left:
            raise Failure("%s gave %s\n  %s" % (op, brief(result), "\n  ".join(sorted(set(reasons)))))
        self.models = left[:MODELS_MAX]

    def execute(self, op):
        name, *arguments = op
        if name in ("open", "direct"):
            await_tick()
        # Else it may last for ever, as it may to read what an edit or a small cache left in the remote alone.
        if name == "wait" or name in ("epoch", "check") and "down" in self.control.read_text():
            self.control.write_text("")
        if name in OUTSIDER:
            return self.outside(name, *arguments)
        if hasattr(self, "do_" + name):
            return getattr(self, "do_" + name)(*arguments)
        return self.ask(self.worker_of(arguments[0]), name, *arguments[1:])

    # ---- operations that are more than one request

    def do_both(self, *parts):
        processes = [self.outsider if p[0] == "seal" else self.worker_of(p[1]) for p in parts]
        for process, part in zip(processes, parts):
            process.ask(part[0], part[1:] if part[0] == "seal" else part[2:])
        return "ok", [self.answer(process) for process in processes]

    def do_fork(self, number, child):
        parent = self.worker_of(number)
        parent.ask("fork", (0,))
        self.workers[child] = parent.take_fork(LIMIT)
        return "ok", None

    def do_end(self, number, how):
        process = self.worker_of(number)
        del self.workers[number]
        process.ask("end", (how,))
        process.wait(LIMIT)
        return "ok", None

    def do_torn(self, number, slot, seed, chunks, path, delay):
        process = self.worker_of(number)
        process.ask("torn", (slot, seed, chunks, delay))
        time.sleep(delay / 1000)
        self.stop(number)
        result = self.outside("look", path)
        return "ok", result[1] if result[0] == "ok" else None

    def do_weather(self, words):
        self.control.write_text(words)
        return "ok", None

    def do_remount(self):
        self.end_in_order()
        self.mount.unmount()
        self.control.write_text("")
        self.mount.mount()
        self.begin_outsider()
        return self.outside("numbers")

    def do_cold(self):
        self.end_in_order()
        self.control.write_text("")
        run(BIN, "umount", self.mount.path)
        self.mount.wait_end()
        self.mount.empty_cache()
        self.mount.mount()
        self.begin_outsider()
        return self.outside("numbers")

    def end_in_order(self):
        for number in list(self.workers):
            self.do_end(number, "exit")
        self.stop(None)
        self.outsider = None

    def do_crash(self, under_way, delay):
        result = ("ok", None)
        if under_way:
            process = self.outsider if under_way[0] == "seal" else self.worker_of(under_way[1])
            process.ask(under_way[0], under_way[1:] if under_way[0] == "seal" else under_way[2:])
            time.sleep(delay / 1000)
        self.kill_daemon()
        if under_way:
            result = self.answer(process)
        self.stop_all()
        self.mount.kill()
        self.control.write_text("")
        self.mount.mount()
        self.begin_outsider()
        return "ok", (result, self.must("numbers"), self.must("epochs")[1], self.must("check"))

    def kill_daemon(self):
        self.mount.process.kill()
        self.mount.process.wait(LIMIT)

    def restart(self):
        """Kills what serves the supervised mount, or where it died twice in the last minute, has it restarted."""
        for model in self.models:
            model.note_restart()
        now = time.monotonic()
        self.killed = [t for t in self.killed if now - t < 70]
        if len(self.killed) > 1:
            run(BIN, "restart", self.mount.path)
            return
        self.killed.append(now)
        os.kill(self.mount.status()["pid"], signal.SIGKILL)

    def do_lost(self):
        self.kill_daemon()
        self.stop_all()
        self.mount.kill()
        self.control.write_text("")
        self.mount.empty_cache()
        self.mount.mount()
        self.begin_outsider()
        _, tags, _, _ = self.must("epochs")
        return "ok", (self.must("numbers"), tags)

    # ---- the end

    def clean(self):
        """What the history left goes; the mount stays for the next."""
        self.control.write_text("")
        for number in list(self.workers):
            self.stop(number)
        self.must("clean")
        self.check_facts()

    def check_facts(self):
        """What was opened to be written is closed, or undone, once, and now that nobody is left all of it is."""
        wait_until(lambda: not self.mount.status()["pending"]["open"], "the end of all writers")
        facts = self.mount.request("explain")["facts"]
        opened = set()
        for fact in facts if len(facts) < FACTS_MAX else []:
            handle = fact.get("handle")
            if fact["what"] == "opened":
                if handle in opened:
                    raise Failure("opened twice: %s" % fact)
                opened.add(handle)
            elif handle and handle not in opened:
                raise Failure("not open: %s" % fact)
            elif fact["what"] in ("closed", "undone"):
                opened.remove(handle)
        if opened:
            raise Failure("nobody says that it is closed: %s" % [fact for fact in facts if fact.get("handle") in opened])

    def close(self):
        """What is left to say against the daemon: what it takes to end it, its exit code."""
        self.control.write_text("")
        try:
            self.stop_all()
        except worker.Hang as hang:
            self.mount.process.kill()
            subprocess.run(["umount", "-l", str(self.mount.path)], check=False)
            return [str(hang)]
        return self.mount.clean_up() + self.reports()

    def reports(self):
        """What a sanitizer wrote; a daemon that was killed has no exit code to tell."""
        text = self.mount.log.read_text(errors="replace")
        found = [text.find(word) for word in ("ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "runtime error:",
                                              "ERROR: LeakSanitizer") if word in text]
        return [text[min(found):][:5000]] if found else []


def brief(value):
    text = repr(value)
    return text if len(text) < 600 else text[:300] + " ... " + text[-300:]
