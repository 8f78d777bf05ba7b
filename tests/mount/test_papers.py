# SPDX-License-Identifier: Apache-2.0
"""Whatever the README and the manual print to be typed is run, block by block, as it is printed.

Each block is in one of two tables, by its first line: what is run here, in a copy of this machine's root that is thrown away,
with the real `make`, `sudo` and `epochfs`, or, of several nodes, in four of them; and what another test runs.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import socket
import threading

import pytest

from conftest import BIN, LIMIT, run
from fake_s3 import FakeS3
from papers import REPO, block_of, blocks

# Enters a root whose files are this machine's, and whose changes are lost; runs a script there as on a machine of its own.
ENTER = """
set -eu
base=$1 repo=$2 script=$3
mount --make-rprivate /
mount -t tmpfs -o mode=755 papers "$base"
mkdir "$base/upper" "$base/work" "$base/root" "$base/repo-upper" "$base/repo-work"
mount -t overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" overlay "$base/root"
root=$base/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=1777 tmp "$root/tmp"
# Where the repository lies on another file system than /, or in /tmp.
[ -e "$root$repo/Makefile" ] || {
	mkdir -p "$root$repo"
	mount -t overlay -o "lowerdir=$repo,upperdir=$base/repo-upper,workdir=$base/repo-work" overlay "$root$repo"
}
mkdir -p "$root/mnt/ckpt" "$root/backup" "$root/shared" "$root/ckpt" "$root/srv/work" "$root/etc/sudoers.d"
# sudo's make must find the build folder of this run, and not build it again with other flags.
echo 'Defaults env_keep += "CC BUILD WERROR"' >"$root/etc/sudoers.d/papers"
cp "$repo/tests/bare/train.py" "$root/srv/work/"
exec chroot "$root" sh -e -c "cd /srv/work; $script"
"""

# Saves steps 1, 2 and 500, each in an epoch, and drops the mount again.
SAVED = """
mkdir -p /tmp/first && cd /tmp/first
for step in 41 42 500; do head -c 100000 /dev/urandom >model.pt; epochfs import --step $step . s3://bucket/run7; done
cd /srv/work
"""

# Blocks that are run here: what is done before, and after, in the same shell; `cd`, `set -e` and the environment hold on.
HERE = {
    "make && sudo make install": (
        "cp train.py %(repo)s/; cd %(repo)s", "test $(stat -c %%s restored/model.bin) = 200000; command -v epochfs | grep -x /usr/local/bin/epochfs"),
    "umask 077; head -c 32 /dev/urandom > ~/run7.key": (
        "export HOME=/srv/work; echo 'correct horse' > ~/run7.passphrase; chmod 600 ~/run7.passphrase",
        "epochfs umount /mnt/ckpt; epochfs key list s3://bucket/run7 | grep passphrase; "
        "if env -u EPOCHFS_KEY_FILE epochfs log s3://bucket/run7; then exit 1; fi"),
    "epochfs mount -o keep=last:10,hourly:24,daily:7,every:1000,tagged s3://bucket/run7 /mnt/ckpt": (
        SAVED, "epochfs log s3://bucket/run7"),
    "epochfs mount -o catalog=/shared/checkpoints.db,run-id=run7 s3://bucket/run7 /mnt/ckpt": (
        "", "epochfs umount /mnt/ckpt"),
    "epochfs gc s3://bucket/run7": (SAVED, ""),
    "epochfs import ./checkpoints s3://bucket/run7 --step 500": (
        "mkdir checkpoints; head -c 100000 /dev/urandom > checkpoints/model.pt; cp checkpoints/model.pt before",
        "cmp before one/model.pt"),
    "epochfs watch -o settle=10s ./checkpoints s3://bucket/run7": (
        "mkdir checkpoints; echo 1 > checkpoints/model.pt", "epochfs log s3://bucket/run7 | grep 000001"),
    "epochfs export --force": (
        "export REMOTE=s3://bucket/run7", ""),
}
# What a block says of the machine that it is typed on: a line is changed where no machine of a test can be as printed.
CHANGED = {
    # Between the mount and the export somebody trains.
    "umask 077; head -c 32 /dev/urandom > ~/run7.key": [
        (r"^(epochfs export )", r"echo 1 > /mnt/ckpt/model.pt; epochfs wait /mnt/ckpt\n\1")],
    "epochfs mount -o keep=last:10,hourly:24,daily:7,every:1000,tagged s3://bucket/run7 /mnt/ckpt": [
        (r"^(epochfs prune --keep)", r"epochfs umount /mnt/ckpt\n\1"), (r"^(epochfs rm \S+) 41 ", r"\1 1 "), (r"^(epochfs undrop \S+) 41\b", r"\1 1"), (r" step=500", " step=42")],
    "epochfs mount -o catalog=/shared/checkpoints.db,run-id=run7 s3://bucket/run7 /mnt/ckpt": [
        (r"^(sqlite3 )", r"echo 1 > /mnt/ckpt/model.pt; epochfs wait /mnt/ckpt\n\1")],
    "epochfs import ./checkpoints s3://bucket/run7 --step 500": [
        (r"^(epochfs export s3://bucket/run7 ./checkpoints)", r"rm -r checkpoints\n\1")],
    # Until the next SIGINT.
    "epochfs watch -o settle=10s ./checkpoints s3://bucket/run7": [(r"^epochfs watch", "timeout -s INT --preserve-status 13 epochfs watch")],
}

ELSEWHERE = {
    "make demo": "make check-bare, test_demo.py; make test is this",
    "make && make install prefix=$HOME/.local": "make check-bare, as an ordinary user",
    "export AWS_ACCESS_KEY_ID=KEY": "remotes/test_s3.py, with Ceph's RGW",
    "export GS_ACCESS_KEY_ID=KEY": "remotes/test_s3_fake.py",
    "export EPOCHFS_DAV_USER=alice": "remotes/test_dav.py",
    "export X509_USER_PROXY=": "remotes/test_dav.py, with XRootD",
    "ssh-keyscan store.example.org": "remotes/test_sftp.py",
    "scrape_configs:": "test_metrics_prometheus.py",
    "sync_up    epochfs import {source} {target}": "test_origins_durable.py",
    "sync_up    rsync -a {source}/ {target}": "test_origins_durable.py",
    "program=/usr/local/share/epochfs/examples/exec-directory": "remotes/test_exec.py",
    '{"Rules": [{"ID": "epochfs"': "it is for the server's own tool: test_a_lifecycle_rule_is_json reads it",
}
EXAMPLES_OF_MANUAL = "epochfs mount /backup/run7 /mnt/ckpt"
SEVERAL = "# Slurm: one mount a node"
# Each is a line of that block, for four nodes: its first words, what is cut off, and what a node's environment has.
NODES = {
    # srun is of a cluster: what it starts on each node is run as it would.
    "slurm": ("srun --ntasks-per-node=1 epochfs run", "srun --ntasks-per-node=1 ",
              "mkdir -p /local; export SLURM_NNODES=4 SLURMD_NODENAME=node{n} SLURM_JOB_ID=17 SLURM_NODEID={n}"),
    "by hand": ("epochfs mount -o nodes=4", "", "hostname node{n}"),
    "kubernetes": ("epochfs run --mount", "", "hostname job7-{n}; export JOB_COMPLETION_INDEX={n} RUN=run7"),
}
# Debian 12's own torchrun does not run with its Python: this one takes its options, and tells the worker its rank.
TORCHRUN = """#!/bin/sh
while :; do
	case $1 in
	--node_rank=*) RANK=${1#*=} ;;
	--nnodes=4 | --max_restarts=0 | --nproc_per_node=1) ;;
	-*) echo "torchrun: $1" >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done
export RANK
# As the real one, no node begins before all are there.
python3 -c "import socket; socket.create_connection(('127.0.0.1', %d), 60).recv(1)" || exit 1
exec python3 "$@"
"""
SHARD = """
import os
os.makedirs("/mnt/ckpt/step-100", exist_ok=True)
with open("/mnt/ckpt/step-100/shard_" + os.environ["RANK"], "w") as f:
    f.write(os.environ["RANK"])
"""


# The examples of --help: what is done before, and after.
KEYS = """
umask 077; head -c 32 /dev/urandom >~/run7.key; echo 'correct horse' >~/run7.passphrase
echo 1 >model.pt; epochfs import -o key-file=$HOME/run7.key . s3://bucket/run7; export EPOCHFS_KEY_FILE=$HOME/run7.key
"""
EXAMPLES = {
    "mount": ("", "echo 1 >/mnt/ckpt/model.pt; epochfs umount /mnt/ckpt; epochfs log /backup/run7 | grep ^000001"),
    "latest": (SAVED + """
printf '#!/bin/sh\ntest "$1" = --resume-from && cmp "$2" /tmp/first/model.pt && echo resumed\n' >/usr/local/bin/train.py; chmod +x /usr/local/bin/train.py
epochfs mount s3://bucket/run7 /mnt/ckpt
""", "epochfs umount /mnt/ckpt"),
    "restart": ("epochfs mount -o supervise s3://bucket/run7 /mnt/ckpt", "echo 1 >/mnt/ckpt/f; epochfs umount /mnt/ckpt"),
    "undrop": (SAVED + "epochfs mount s3://bucket/run7 /mnt/ckpt; epochfs rm /mnt/ckpt 1", "test -e /mnt/ckpt/.epochs/000001/model.pt; epochfs umount /mnt/ckpt"),
    "prune": (SAVED, ""),
    "export": ("echo 1 >model.pt; epochfs import --step 500 . /backup/run7", "cmp model.pt restored/model.pt"),
    "import": ("mkdir checkpoints; echo 1 >checkpoints/model.pt", "diff -r checkpoints restored"),
    "watch": ("mkdir checkpoints; echo 1 >checkpoints/model.pt", "epochfs log s3://bucket/run7 | grep ^000001"),
    "run": ("""echo "open('/mnt/ckpt/model.pt', 'w').write('1')" >train.py""", "epochfs log s3://bucket/run7 | grep ^000001"),
    "verify": ("echo 1 >model.pt; epochfs import --tag best . s3://bucket/run7", ""),
    "cache": ("mkdir -p c/checkpoint-500; echo 1 >c/checkpoint-500/model.safetensors; epochfs import --step 500 c s3://bucket/run7\n"
              "epochfs mount s3://bucket/run7 /mnt/ckpt", "epochfs umount /mnt/ckpt"),
    "gc": (SAVED, ""),
    "doctor": (SAVED + "epochfs mount s3://bucket/run7 /mnt/ckpt", "epochfs umount /mnt/ckpt"),
    "config": ("", ""),
    "debug": (SAVED + "epochfs mount s3://bucket/run7 /mnt/ckpt", "tar -tf /tmp/report.tar | grep status.json; epochfs umount /mnt/ckpt"),
    "key": (KEYS, "epochfs key list s3://bucket/run7 | grep passphrase"),
}
EXAMPLES_CHANGED = {"undrop": (" 41", " 1"), "watch": ("epochfs watch", "timeout -s INT --preserve-status 13 epochfs watch")}
EXAMPLES_ELSEWHERE = {"check": "remotes/test_sftp.py: it needs a server of that name"}


@pytest.fixture
def passthrough():
    return "auto"


def test_every_block_is_known():
    tables = [*HERE, *ELSEWHERE, EXAMPLES_OF_MANUAL, SEVERAL]
    there = blocks()
    unknown = [b for b in there if sum(b.startswith(first) for first in tables) != 1]
    assert not unknown, "in no table of this file, or in two: %s" % unknown
    assert len(there) == len(tables)


def test_a_lifecycle_rule_is_json():
    (rule,) = [block for block in blocks() if block.startswith('{"Rules"')]
    assert json.loads(rule)["Rules"][0]["NoncurrentVersionExpiration"]["NoncurrentDays"] > 0


@pytest.fixture
def machine(tmp_path):
    """Runs a script in a root of its own, with a bucket that the usual variables lead to."""
    if os.geteuid():
        pytest.skip("only root may do that: make a root to run it in")
    if os.environ.get("EPOCHFS_TEST_SAN"):
        pytest.skip("it would build all again")
    (tmp_path / "root").mkdir()
    build = os.path.dirname(os.environ["EPOCHFS_INSTALLED"])
    with open(os.path.join(build, "flags"), encoding="utf-8") as flags:
        compiler, rest = flags.read().split(" -std=")
    install = "make -s -C %s -o all install" % REPO

    with FakeS3() as fake:
        fake.bucket = "bucket"
        environment = {"HOME": "/root", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER": "root", "LANG": "C.UTF-8",
                       "CC": compiler, "BUILD": build, "WERROR": "1" if "-Werror" in rest else "0", "AWS_ACCESS_KEY_ID": fake.key, "AWS_SECRET_ACCESS_KEY": fake.secret,
                       "AWS_ENDPOINT_URL": fake.endpoint, "EPOCHFS_MIN_FREE": "0"}

        def script(text, installed=True):
            return run("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", ENTER, "sh", tmp_path / "root",
                       REPO, (install + "\n" if installed else "") + text, check=False, env=environment, timeout=3 * LIMIT)

        probe = script("true", installed=False)
        if probe.returncode:
            pytest.skip("no root can be made here: %s" % probe.stderr.strip())
        yield script


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", HERE, ids=lambda first: re.sub(r"\W+", "-", first)[:40])
def test_a_block_of_the_readme(machine, first):
    before, after = (text.replace("%(repo)s", str(REPO)).replace("%%", "%") for text in HERE[first])
    block = block_of(first)
    for old, new in CHANGED.get(first, []):
        block, count = re.subn(old, new, block, count=1, flags=re.M)
        assert count == 1, old
    done = machine("%s\n%s\n%s\n" % (before, block, after), installed=not first.startswith("make"))
    assert done.returncode == 0, "%s\n%s\n%s" % (block, done.stdout, done.stderr)
    if first.startswith("make"):
        for word in ("000001", "000002", "current -> ", "latest -> ", "EPOCH", "model.bin", "restored to"):
            assert word in done.stdout, done
    if "catalog=" in first:
        assert "s3://bucket/run7|1|/mnt/ckpt/.epochs/000001" in done.stdout, done


@contextlib.contextmanager
def rendezvous(count):
    """A port whose callers hear of each other once all of them have called."""

    def let_all_go():
        callers = []
        with contextlib.suppress(OSError):  # closed by a test that failed
            while len(callers) < count:
                callers.append(server.accept()[0])
        for caller in callers:
            caller.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        waiter = threading.Thread(target=let_all_go)
        waiter.start()
        try:
            yield server.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            waiter.join()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", NODES)
def test_several_nodes_of_the_readme(machine, who):
    """Four machines at once, each with its own mount: their shards are one epoch."""
    first, cut, environment = NODES[who]
    (line,) = [text for text in block_of(SEVERAL).splitlines() if text.startswith(first)]
    assert line.count("...") == 1
    line = line.removeprefix(cut).replace("... train.py", "...").replace("...", "--nproc_per_node=1 --node_rank={n} shard.py")

    def node(n):
        return machine("cat >/usr/local/bin/torchrun <<'END'\n%sEND\nchmod +x /usr/local/bin/torchrun\ncat >shard.py <<'END'%sEND\n%s\n%s"
                       % (TORCHRUN % port, SHARD, environment.format(n=n), line.format(n=n)))

    with rendezvous(4) as port, concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = list(pool.map(node, range(4)))
    assert [d.returncode for d in done] == [0] * 4, "%s\n%s" % (line, "\n".join(d.stdout + d.stderr for d in done))
    said = machine("epochfs log s3://bucket/run7; epochfs export s3://bucket/run7 out; cat out/step-100/shard_*").stdout
    assert re.search(r"^000001 .* 100 +4 ", said, re.M) and said.endswith("0123"), said


def test_the_examples_of_the_manual(machine):
    block = block_of(EXAMPLES_OF_MANUAL)
    done = machine("mkdir checkpoints; echo 1 > checkpoints/model.pt; epochfs import --step 500 checkpoints /backup/run7\n"
                   + block + "cmp restored/model.pt checkpoints/model.pt; epochfs umount /mnt/ckpt; epochfs log s3://bucket/run7\n")
    assert done.returncode == 0, done
    assert re.search(r"^000001 .* 500 ", done.stdout, re.M) and "before-lr-drop" in block, done


def examples_of_help():
    """command -> the line."""
    commands = re.findall(r"^  (\w+)  ", run(BIN, "--help").stdout, re.M)
    found = {command: re.search(r"^Example: (.*)$", run(BIN, command, "--help").stdout, re.M) for command in commands}
    return {command: example[1] for command, example in found.items() if example}


def test_every_example_of_help_is_known():
    assert sorted(examples_of_help()) == sorted([*EXAMPLES, *EXAMPLES_ELSEWHERE])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", EXAMPLES)
def test_an_example_of_help(machine, command):
    before, after = EXAMPLES[command]
    line = examples_of_help()[command]
    old, new = EXAMPLES_CHANGED.get(command, ("", ""))
    assert old in line
    done = machine("%s\n%s\n%s\n" % (before, line.replace(old, new) if old else line, after))
    assert done.returncode == 0, "%s\n%s\n%s" % (line, done.stdout, done.stderr)
