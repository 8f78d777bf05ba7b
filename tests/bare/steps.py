# SPDX-License-Identifier: Apache-2.0
"""What is done on each bare machine, in this order: a name, who does it, and a shell script. Each takes what the ones before it left.

The scripts begin in the user's home. What the README says is taken from the README of the clone.
"""

import re

USER = "trainer"  # has no password and no sudo
# All mount and remote tests, on two busy cores.
SUITES_LIMIT_S = 9000

# A smoke, not the suite: writing, closing and sealing; a directory, SFTP, WebDAV, a program and S3 as remotes.
SMOKE = "test_contract_writing or test_s3_fake or test_sftp or (test_dav and lighttpd) or (test_exec and not xrdcp and not rclone)"
SMOKE_OF_USER = "(test_contract_writing or test_fs_files) and off"  # only root has passthrough


def first_line(readme):
    """The command that brings what a bare machine lacks."""
    return re.search(r"`(apt-get update && apt-get install [^`]*)`", readme)[1]


def quick_start(readme):
    """The block of the quick start, as printed."""
    text = readme.split("\n## Quick start\n")[1].split("\n## ")[0]
    return "".join(line[4:] + "\n" for line in text.splitlines() if line.startswith("    "))


def without_root(readme):
    """The commands of "Not root?"."""
    text = readme.split("\n## Not root? On a cluster?\n")[1].split("\n## ")[0]
    return "".join(line[4:] + "\n" for line in text.splitlines() if line.startswith("    "))


def smoke(who, keywords):
    """The results of root and of the user lie apart."""
    return "cd epochfs\nmake PACKAGES=smoke RESULTS=/results/%s check-mount ARGS='-k \"%s\"'\n" % (who, keywords)


def suites():
    """Instead of the smoke: every test that runs as root, with each server and framework that the release has."""
    return ("chmod a+x ~\ncd epochfs\ntests/tools/packages.sh test\nexport PACKAGES=test MOUNT_LIMIT=%d\nmake -j$(nproc) tests\nmake RESULTS=/results/root check-mount\n"
            % SUITES_LIMIT_S)


def steps(readme, whole=False):
    get = "apt-get install -y -q --no-install-recommends "
    return [
        ("what the first line of the README brings", "root", first_line(readme).replace("apt-get install", "apt-get install -y -q") + "\n"),
        ("make demo without PyTorch, from a clean clone, gcc", "root",
         "git clone -q /srv/epochfs.git epochfs\ncd epochfs\nmake demo >/tmp/demo.out || { cat /tmp/demo.out; exit 1; }\n"
         "grep -q 'saved model.npz' /tmp/demo.out\ngrep -q 'saving \\.\\.\\.' /tmp/demo.out\ngrep -q '^# Done' /tmp/demo.out\n"),
        ("the quick start as printed", "root",
         # sudo would build all again, with other flags.
         "echo 'Defaults env_keep += \"WERROR\"' >/etc/sudoers.d/werror\ncp /srv/train.py epochfs\ncd epochfs\n" + quick_start(readme)
         + "test $(stat -c %s restored/model.bin) = 200000\nrm -r train.py restored\n"),
        ("the installed manual", "root",
         get + "man-db\ncd epochfs\n"
         "for page in packaging/man/*.[1-9]; do man --warnings -E UTF-8 -l $page 2>&1 >/tmp/page | tee /tmp/warnings >&2; test -s /tmp/page; test ! -s /tmp/warnings; done\n"
         "man epochfs | grep -q '^NAME'\n"),
        ("packages of the tests", "root", get + "$(epochfs/tests/tools/packages.sh smoke --list) clang\nuseradd -m -s /bin/sh %s\n" % USER),
        ("unit tests", "root", "cd epochfs\nexport PACKAGES=smoke\nmake -j$(nproc) tests\nmake RESULTS=/results/root check-unit\n"),
        ("mount and remote tests", "root", suites()) if whole else ("mount and remote tests, a smoke", "root", smoke("root", SMOKE)),
        ("not root: make install, from a clean clone, clang", USER,
         "git clone -q /srv/user.git epochfs\ncd epochfs\nexport CC=clang\nmake -j$(nproc) all\n" + without_root(readme)),
        ("make demo without PyTorch, not root", USER, "cd epochfs\nmake CC=clang demo\n"),
        ("mount tests, a smoke, not root", USER,
         smoke("user", SMOKE_OF_USER).replace("make ", "make CC=clang ")),
        ("make demo with PyTorch", "root",
         get + "python3-torch\ncd epochfs\nmake demo >/tmp/demo.out || { cat /tmp/demo.out; exit 1; }\ngrep -q 'saved model.pt' /tmp/demo.out\n"),
        ("make uninstall", "root", "cd epochfs\nmake uninstall\nif command -v epochfs; then exit 1; fi\ntest ! -e /sbin/mount.epochfs\n"),
    ]
