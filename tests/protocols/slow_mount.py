# SPDX-License-Identifier: Apache-2.0
"""A mount whose time passes when the test says so (tests/fault/slow_clock.h): settle and patience are those of place.py, a pause takes no time, and it
makes no difference how busy the machine is. Before a pause all that the daemon has to do is done; then its time jumps, from one time that it
waits for to the next.
"""

import mmap
import os
import pathlib
import struct
import time

from place import PATIENCE, SETTLE

NS = 10**9
LIMIT = 120 * float(os.environ.get("EPOCHFS_TEST_SLOWNESS", "1"))
# /proc tells when a process was started in hundredths of a second: what happens before a jump is not to look as if it came after it.
TICK = 0.02


class Clock:
    """The test's side of slow_clock.h."""

    SLOWNESS, WAITS, JUMPS = 10, 128, 16384
    HEAD = 16
    JUMP_AT = HEAD + WAITS * 16

    def __init__(self, path):
        self.path, self.begun, self.jumps, self.sum = path, time.time_ns(), 0, 0
        with open(path, "wb") as file:
            file.write(struct.pack("=q", self.begun))
            file.truncate(self.JUMP_AT + self.JUMPS * 16)
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    def close(self):
        self.map.close()

    def mono(self):
        """As clock_mono_ns of the daemon."""
        return NS + (time.time_ns() - self.begun) // self.SLOWNESS + self.sum

    def waits(self):
        """{thread: the time it waits for}"""
        words = struct.unpack_from("=%dq" % (2 * self.WAITS), self.map, self.HEAD)
        return {thread: deadline for thread, deadline in zip(words[::2], words[1::2]) if thread}

    def jump(self, by):
        struct.pack_into("=qq", self.map, self.JUMP_AT + 16 * self.jumps, time.time_ns(), by)
        self.jumps, self.sum = self.jumps + 1, self.sum + by
        struct.pack_into("=q", self.map, 8, self.jumps)


def until(condition, what):
    deadline = time.monotonic() + LIMIT
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError("waited %d s in vain: %s" % (LIMIT, what))
        time.sleep(0.001)


class SlowMount:
    """Moves the time of a mount. `mount`: conftest.Mount, which is mounted by `program` from now on: epochfs with the slow clock."""

    def __init__(self, program, mount, **options):
        self.mount = mount
        self.clock = Clock(pathlib.Path(mount.base) / "clock")
        mount.program, mount.environment = program, {"EPOCHFS_SLOW_CLOCK": os.fspath(self.clock.path)}
        mount.options.update(settle="%ds" % SETTLE, patience="%ds" % PATIENCE, **options)
        mount.mount()
        self.take_end, mount.wait_end = mount.wait_end, self.wait_end

    def end(self):
        """The daemon is killed: nothing is waited for."""
        self.idle()
        self.mount.kill()
        self.clock.close()

    def wait_end(self):
        """Its daemon ends: what it waits for meanwhile happens."""
        until(self.has_ended, "the end of the daemon")
        self.take_end()

    def has_ended(self):
        if self.mount.process.poll() is not None:
            return True
        try:
            if self.rests() and self.waits():
                self.clock.jump(max(0, min(self.waits().values()) - self.clock.mono()))
        except (FileNotFoundError, ProcessLookupError, ValueError):  # it ends in this moment
            pass
        return False

    def lose_machine(self):
        """All that is sealed is in the remote; the machine is gone, and another mounts. Who works on the mount is dead."""
        self.idle()
        until(lambda: not self.mount.status()["upload"]["pending_epochs"], "the upload")
        self.mount.kill()
        self.mount.empty_cache()
        self.mount.mount()

    # ---- time

    def threads(self):
        """{thread of the daemon: how often it was switched}, or None where one of them works."""
        found = {}
        for thread in os.listdir("/proc/%d/task" % self.mount.pid):
            try:
                with open("/proc/%d/task/%s/status" % (self.mount.pid, thread), encoding="utf-8") as file:
                    status = dict(line.split(":", 1) for line in file)
            except (FileNotFoundError, ProcessLookupError):
                return None
            if not status["State"].split()[0] == "S":
                return None
            found[int(thread)] = status["voluntary_ctxt_switches"]
        return found

    def rests(self):
        """Whether all threads wait, none of them for a moment only, and none has done anything between two looks; but those that wait for a time look
        at the clock now and then."""
        waits, now = self.waits(), self.clock.mono()
        if any(deadline <= now for deadline in waits.values()):
            return False
        first, second = self.threads(), self.threads()
        return first and second and self.waits() == waits and {**first, **waits} == {**second, **waits}

    def waits(self):
        """{thread: the time it waits for}. A daemon that was killed left its own there."""
        return {thread: deadline for thread, deadline in self.clock.waits().items() if os.path.exists("/proc/%d/task/%d" % (self.mount.pid, thread))}

    def idle(self):
        until(self.rests, "the daemon has nothing to do")

    def pause(self, seconds):
        """So much time passes, when all that is under way is done. What the daemon waits for meanwhile happens, one after the other."""
        self.idle()
        time.sleep(TICK)
        end = self.clock.mono() + round(seconds * NS)
        while True:
            now = self.clock.mono()
            if now >= end:
                break
            self.clock.jump(max(0, min([end, *self.waits().values()]) - now))
            self.idle()
        time.sleep(TICK)
