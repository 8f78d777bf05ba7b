# SPDX-License-Identifier: Apache-2.0
"""Who is measured by compare.py: the disk below, plain FUSE file systems, what people mount or script
instead, and epochfs. Each is started in a folder of its own with an empty cache, and stopped by its
pid; nothing of it stays. What is not installed, or does not mount here, says so by Unusable."""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.append(os.fspath(pathlib.Path(__file__).resolve().parents[1] / "remotes"))

from remotes import cpu_of  # noqa: E402

LIMIT = 60  # seconds for what happens in a moment
TRANSFER_LIMIT = 900  # seconds for an upload
ORDINARY = 65534  # nobody
DEBIAN_FIRST = "/usr/bin:/usr/sbin:/bin:/sbin:" + os.environ.get("PATH", "")


class Unusable(Exception):
    """It cannot be measured here, and why."""


def program(name):
    """The path of a program, Debian's before others."""
    path = shutil.which(name, path=DEBIAN_FIRST)
    if not path:
        raise Unusable("%s is not installed" % name)
    return path


def poll(condition, what, limit=LIMIT, pause=0.01):
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise Unusable("waited %d s in vain: %s" % (limit, what))
        time.sleep(pause)


def is_mounted(path):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        return any(line.split(" ")[4] == os.fspath(path) for line in f)


def family(pid):
    """A process and all below it."""
    pids = [pid]
    for member in pids:
        listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(member)], capture_output=True, text=True, check=False)
        pids += [int(word) for word in listing.stdout.split()]
    return pids


def peak_mib(pid):
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
        return next((int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:")), 0)


def drop_pages(path):
    """The file's pages leave the page cache; they must be on the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


class Competitor:
    """One of them. `path` is the folder to save into once it is started."""

    name = "?"  # for options and results
    label = "?"  # for people
    remote = False  # what is saved reaches a server
    waits = False  # ... before close returns
    blocks = False  # is measured with a large file beside the disk
    script = False  # saves to the disk and copies
    user = None  # who does the work and may look into it; None: who runs this
    kept = False  # what it made is removed with the run's folder

    def __init__(self, place):
        """`place`: folder, rgw, sshd, program, passthrough_hp of the run."""
        self.place = place
        self.base = self.path = None

    def check(self):
        """Raises Unusable where it cannot be had."""

    def start(self, key):
        """Starts it, empty, under a key that was never used."""
        self.key = key
        self.base = self.place.folder / key
        self.base.mkdir()
        self.path = self.base / "data"
        self.path.mkdir()

    def stop(self):
        if not self.kept:
            shutil.rmtree(self.base, ignore_errors=True)

    def make_durable(self, name, size):
        """Returns once the file is in the server. Where more than the upload is done for it: the upload's seconds."""

    def forget(self, name):
        """The next read finds nothing in this machine's caches."""
        drop_pages(self.path / name)

    def usage(self):
        """CPU seconds so far and the peak of memory in MiB of what serves it."""
        return 0.0, 0.0


class Disk(Competitor):
    name, label, blocks = "disk", "the disk below", True


class Mounted(Competitor):
    """A FUSE file system: in the foreground, but in a session of its own as daemons are, because the kernel
    shares processors among sessions, and a nice value counts within one."""

    process = None
    environment = {}

    def command(self):
        raise NotImplementedError

    def caches(self):
        """Folders that hold what it keeps of the server."""
        return []

    def start(self, key):
        super().start(key)
        self.path = self.base / "mnt"
        self.path.mkdir()
        self.mount()

    def mount(self):
        for cache in self.caches():
            cache.mkdir(exist_ok=True)
        log = self.base / "log"
        with open(log, "ab") as out:
            self.process = subprocess.Popen([os.fspath(word) for word in self.command()], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=out, env={**os.environ, **self.environment},
                                            start_new_session=True)
        poll(lambda: is_mounted(self.path) or self.process.poll() is not None, "the mount of %s" % self.name)
        if self.process.poll() is not None:
            self.process = None
            lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
            raise Unusable("does not mount: %s" % lines[-1][-200:])
        if not self.is_served():
            raise Unusable("its mount does not answer")

    def is_served(self):
        os.listdir(self.path)
        return True

    def unmount(self):
        if not self.process:
            return
        deadline = time.monotonic() + LIMIT
        while is_mounted(self.path):
            lazy = ["-l"] if time.monotonic() > deadline else []
            subprocess.run(["umount", *lazy, os.fspath(self.path)], capture_output=True, check=False)
            time.sleep(0.02)
        try:
            self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def stop(self):
        try:
            self.unmount()
        finally:
            super().stop()

    def forget(self, name):
        self.unmount()
        for cache in self.caches():
            shutil.rmtree(cache)
        self.mount()

    def usage(self):
        pids = [pid for pid in family(self.process.pid) if os.path.exists("/proc/%d" % pid)]
        return sum(map(cpu_of, pids)), sum(map(peak_mib, pids))


class Plain(Mounted):
    """Passes all through to a folder of the disk."""

    blocks = True

    def start(self, key):
        super().start(key)
        self.source = self.base / "data"

    def forget(self, name):
        self.unmount()
        drop_pages(self.base / "data" / name)
        self.mount()


class PassthroughHp(Plain):
    name, label = "passthrough_hp", "libfuse's passthrough_hp"

    def check(self):
        if isinstance(self.place.passthrough_hp, Unusable):
            raise self.place.passthrough_hp

    def command(self):
        return [self.place.passthrough_hp, "--foreground", self.base / "data", self.path]


class Bindfs(Plain):
    name, label = "bindfs", "bindfs"

    def check(self):
        program("bindfs")

    def command(self):
        return [program("bindfs"), "-f", self.base / "data", self.path]


class Sshfs(Mounted):
    name, label, remote, waits = "sshfs", "sshfs", True, True

    def check(self):
        program("sshfs")
        if isinstance(self.place.sshd, Unusable):
            raise self.place.sshd

    def folder(self):
        folder = self.place.sshd.folder / "data" / self.key
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def command(self):
        sshd = self.place.sshd
        user, _, rest = sshd.authority().partition("@")
        host, _, port = rest.partition(":")
        return [program("sshfs"), "-f", "-p", port, "-o", "IdentityFile=%s,UserKnownHostsFile=%s,BatchMode=yes" % (sshd.key, sshd.known_hosts),
                "%s@%s:%s" % (user, host, self.folder()), self.path]

    def make_durable(self, name, size):
        path = self.folder() / name
        poll(lambda: path.exists() and path.stat().st_size == size, "%s on the server" % name, TRANSFER_LIMIT, 0.02)

    def stop(self):
        super().stop()
        shutil.rmtree(self.place.sshd.folder / "data" / self.key, ignore_errors=True)


class InBucket:
    """What those over the S3 server share: objects below a prefix named like the key."""

    remote = True

    def check(self):
        if isinstance(self.place.rgw, Unusable):
            raise self.place.rgw

    def size_of(self, name):
        """The size of the object, None while there is none."""
        rgw = self.place.rgw
        status, _, headers = rgw.client().request("HEAD", "/%s/%s/%s" % (rgw.bucket, self.key, name))
        return int(headers["Content-Length"]) if status == 200 else None

    def make_durable(self, name, size):
        poll(lambda: self.size_of(name) == size, "%s in the server" % name, TRANSFER_LIMIT, 0.02)

    def stop(self):
        super().stop()
        client, bucket = self.place.rgw.client(), self.place.rgw.bucket
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            while keys := client.keys(bucket, self.key + "/"):
                list(pool.map(lambda key: client.delete(bucket, key), keys))


class S3fs(InBucket, Mounted):
    name, label, waits = "s3fs", "s3fs", True

    def check(self):
        super().check()
        program("s3fs")

    def command(self):
        rgw, temporary = self.place.rgw, self.base / "tmp"
        temporary.mkdir(exist_ok=True)
        passwords = self.base / "passwd"
        passwords.write_text("%s:%s\n" % (rgw.key, rgw.secret))
        passwords.chmod(0o600)
        # A prefix must be there before it is mounted.
        rgw.client().put(rgw.bucket, self.key + "/", b"")
        return [program("s3fs"), "%s:/%s" % (rgw.bucket, self.key), self.path, "-f", "-o",
                "url=%s,use_path_request_style,passwd_file=%s,tmpdir=%s" % (rgw.endpoint, passwords, temporary)]


def rclone_environment(rgw):
    return {"RCLONE_CONFIG": "/dev/null", "RCLONE_CONFIG_RGW_TYPE": "s3", "RCLONE_CONFIG_RGW_PROVIDER": "Ceph",
            "RCLONE_CONFIG_RGW_ENDPOINT": rgw.endpoint, "RCLONE_CONFIG_RGW_ACCESS_KEY_ID": rgw.key,
            "RCLONE_CONFIG_RGW_SECRET_ACCESS_KEY": rgw.secret, "RCLONE_S3_NO_CHECK_BUCKET": "true"}


class RcloneMount(InBucket, Mounted):
    """Without the delay of 5 s that it puts before an upload, as epochfs is told to seal at once."""

    mode = "?"

    def check(self):
        super().check()
        program("rclone")

    def caches(self):
        return [self.base / "cache"]

    def command(self):
        self.environment = rclone_environment(self.place.rgw)
        return [program("rclone"), "mount", "rgw:%s/%s" % (self.place.rgw.bucket, self.key), self.path, "--cache-dir",
                self.base / "cache", "--vfs-cache-mode", self.mode, "--vfs-write-back", "0s", "--dir-cache-time", "1h"]


class RcloneWrites(RcloneMount):
    name, label, mode = "rclone-writes", "rclone mount, writes", "writes"


class RcloneFull(RcloneMount):
    name, label, mode = "rclone-full", "rclone mount, full cache", "full"


class Script(InBucket, Competitor):
    """Saves to the disk, copies the file aside so that the next save cannot tear it, and uploads that copy."""

    script = True
    cpu = peak = 0.0

    def upload(self, path, name):
        raise NotImplementedError

    def download(self, name, folder):
        raise NotImplementedError

    def start(self, key):
        super().start(key)
        self.cpu = self.peak = 0.0
        (self.base / "aside").mkdir()

    def run(self, command, environment):
        """Runs one of its programs, and counts what it took."""
        with open(self.base / "log", "ab") as out:
            process = subprocess.Popen([os.fspath(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, env={**os.environ, **environment})
        done = 0
        while not done:
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
            if not done:
                # Not ru_maxrss: that counts what this process had when it forked.
                with contextlib.suppress(OSError):
                    self.peak = max(self.peak, peak_mib(process.pid))
                time.sleep(0.005)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu += usage.ru_utime + usage.ru_stime
        if process.returncode:
            raise Unusable("%s: %s" % (command[0], (self.base / "log").read_text(errors="replace")[-300:]))

    def make_durable(self, name, size):
        shutil.copyfile(self.path / name, self.base / "aside" / name)
        begin = time.monotonic()
        self.upload(self.base / "aside" / name, name)
        return time.monotonic() - begin

    def forget(self, name):
        self.cpu = self.peak = 0.0
        for folder in (self.path, self.base / "aside"):
            shutil.rmtree(folder)
            folder.mkdir()

    def usage(self):
        return self.cpu, self.peak


class RcloneCopy(Script):
    name, label = "rclone-copy", "cp + rclone copy"

    def check(self):
        super().check()
        program("rclone")

    def there(self):
        return "rgw:%s/%s" % (self.place.rgw.bucket, self.key)

    def upload(self, path, name):
        self.run([program("rclone"), "copy", path, self.there()], rclone_environment(self.place.rgw))

    def download(self, name, folder):
        self.run([program("rclone"), "copy", self.there() + "/" + name, folder], rclone_environment(self.place.rgw))


class AwsCopy(Script):
    name, label = "aws-cp", "cp + aws s3 cp"

    def check(self):
        super().check()
        program("aws")

    def copy(self, what, where):
        rgw = self.place.rgw
        self.run([program("aws"), "--endpoint-url", rgw.endpoint, "--region", rgw.region, "s3", "cp", "--only-show-errors", what, where],
                 {**rgw.env(), "PATH": DEBIAN_FIRST})

    def there(self, name):
        return "s3://%s/%s/%s" % (self.place.rgw.bucket, self.key, name)

    def upload(self, path, name):
        self.copy(path, self.there(name))

    def download(self, name, folder):
        self.copy(self.there(name), folder)


class Epochfs(InBucket, Mounted):
    name, label, blocks = "epochfs", "epochfs", True
    passthrough = "on"

    def check(self):
        if not self.place.options.directory:
            super().check()

    def url(self):
        return "file://%s" % (self.base / "remote") if self.place.options.directory else self.place.rgw.url(self.key)

    def caches(self):
        return [self.base / "cache"]

    def stop(self):
        (Mounted if self.place.options.directory else InBucket).stop(self)

    def command(self):
        self.environment = {} if self.place.options.directory else self.place.rgw.env()
        return [self.place.program, "mount", "-f", "-o", "cache-dir=%s,settle=1h,passthrough=%s" % (self.base / "cache", self.passthrough),
                self.url(), self.path]

    def tell(self, *words):
        done = subprocess.run([os.fspath(word) for word in (self.place.program, *words)], env={**os.environ, **self.environment},
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unusable("epochfs %s: %s" % (words[0], done.stderr.strip()))
        return done.stdout

    def make_durable(self, name, size):
        self.tell("wait", self.path)

    def unmount(self):
        if self.process and is_mounted(self.path):
            try:
                self.tell("umount", "--no-drain", self.path)
            except Unusable as error:
                print("  %s" % error, file=sys.stderr)
        super().unmount()


class EpochfsUser(Epochfs):
    """As an ordinary user has it, who also does the work: through fusermount3, so without passthrough."""

    name, label = "epochfs-user", "epochfs, ordinary user"
    passthrough = "auto"
    user = ORDINARY

    def check(self):
        super().check()
        program("fusermount3")
        if not os.stat("/dev/fuse").st_mode & 0o006 == 0o006:
            raise Unusable("an ordinary user may not open /dev/fuse here")

    def start(self, key):
        self.key, self.base = key, self.place.folder / key
        self.path = self.base / "mnt"
        for folder in (self.base, self.path, self.base / "cache", self.base / "remote"):
            folder.mkdir(exist_ok=True)
            if os.geteuid() == 0:
                os.chown(folder, self.user, self.user)
        self.mount()

    def as_user(self, words):
        if os.geteuid() != 0:
            return words
        return [program("setpriv"), "--reuid", str(self.user), "--regid", str(self.user), "--clear-groups", *words]

    def command(self):
        return self.as_user(super().command())

    def is_served(self):
        """Only the user may look into the mount."""
        return subprocess.run(self.as_user(["ls", os.fspath(self.path)]), capture_output=True, check=False).returncode == 0

    def unmount(self):
        if self.process and is_mounted(self.path):
            subprocess.run(self.as_user([os.fspath(self.place.program), "umount", "--no-drain", os.fspath(self.path)]),
                           env={**os.environ, **self.environment}, capture_output=True, check=False)
        Mounted.unmount(self)


class EpochfsFolder(Epochfs):
    """With a directory as its remote: for what is stored."""

    name, label = "epochfs-folder", "epochfs, a directory"

    def check(self):
        pass

    def url(self):
        return "file://%s" % (self.base / "remote")

    def command(self):
        (self.base / "remote").mkdir(exist_ok=True)
        self.environment = {}
        return [self.place.program, "mount", "-f", "-o", "cache-dir=%s,settle=1h" % (self.base / "cache"), self.url(), self.path]

    def stored(self):
        """Bytes of all that lies in the remote."""
        return sum(path.stat().st_size for path in (self.base / "remote").rglob("*") if path.is_file())

    def stop(self):
        Mounted.stop(self)


COMPETITORS = {kind.name: kind for kind in (
    Disk, PassthroughHp, Bindfs, Sshfs, S3fs, RcloneWrites, RcloneFull, RcloneCopy, AwsCopy, Epochfs, EpochfsUser)}
