#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the packages of HEAD in minimal roots of Debian releases, and tries them in others that have nothing but the files.

    tests/bare/dist.py --packages FOLDER [--jobs N] [--keep] [RELEASE...]

The roots are those of machine.py. In one an ordinary user runs dpkg-buildpackage, and lintian must have no error and no warning; in the next the package is
installed from its file, and mounts, saves and is removed again; autopkgtest is run there, too. The newest release also builds by
packaging/rpm, and rpmlint looks at it; of that the source package is kept, since a binary has Debian's libraries. FOLDER gets the source, the
packages and SHA256SUMS; what the steps print is in FOLDER/log/RELEASE.log. Exits 1 where anything failed. Needs root.
"""

import argparse
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.append(str(REPO / "tests" / "tools"))

import results  # noqa: E402
import totals  # noqa: E402
from machine import Machine, do_steps, on_machines, output_of  # noqa: E402

RELEASES = {"bookworm": "12", "trixie": "13"}
WITH_RPM = "trixie"
LIMIT_S = 1800  # of a step
USER = "builder"
GET = "apt-get install -y -q --no-install-recommends "


def git(*words):
    return output_of("git", "-C", REPO, *words)


def version():
    return re.search(r"^VERSION := (\S+)$", git("show", "HEAD:Makefile"), re.M)[1]


def source(folder):
    """The source of HEAD as a tar file, of which the same commit gives the same bytes."""
    name = "epochfs-" + version()
    tar = subprocess.run(["git", "-C", REPO, "archive", "--prefix=%s/" % name, "HEAD"], check=True, stdout=subprocess.PIPE).stdout
    path = folder / (name.replace("-", "_") + ".orig.tar.gz")
    path.write_bytes(gzip.compress(tar, mtime=0))
    return path


def maintainer_of(tree):
    return re.search(r"^Maintainer: (.*)$", (tree / "packaging" / "debian" / "control").read_text(), re.M)[1]


def change():
    return "Release %s, commit %s." % (version(), git("rev-parse", "--short=12", "HEAD").strip())


def changelog(release, tree):
    """Packages of a later release are newer, so that an upgrade of the machine takes them."""
    return ("epochfs (%s-1~deb%s) %s; urgency=medium\n\n  * %s\n\n -- %s  %s"
            % (version(), RELEASES[release], release, change(), maintainer_of(tree), git("log", "-1", "--format=%cD")))


def spec(tree):
    """The spec of a tree, with what it does not know."""
    date = git("log", "-1", "--date=format:%a %b %d %Y", "--format=%cd").strip()
    log = "* %s %s - %s-1\n- %s" % (date, maintainer_of(tree), version(), change())
    return (tree / "packaging" / "rpm" / "epochfs.spec.in").read_text().replace("@VERSION@", version()).replace("@CHANGELOG@", log)


def unpack(release, tar, into):
    """The source with its debian/, as dpkg-buildpackage wants it."""
    into.mkdir()
    shutil.copy(tar, into)
    subprocess.run(["tar", "-C", into, "-xf", tar], check=True)
    (tree,) = [path for path in into.iterdir() if path.is_dir()]
    shutil.copytree(tree / "packaging" / "debian", tree / "debian")
    (tree / "debian" / "changelog").write_text(changelog(release, tree))
    return tree


def prepare_rpm(tree, tar, into):
    """What rpmbuild wants, beside the source of the Debian packages."""
    (into / "SOURCES").mkdir(parents=True)
    shutil.copy(tar, into / "SOURCES" / (tree.name + ".tar.gz"))
    (into / "epochfs.spec").write_text(spec(tree))
    shutil.copy(tree / "packaging" / "rpm" / "rpmlint.toml", into)


def steps_of_build(tree):
    return [
        ("what the build needs", "root", "apt-get update -q\n" + GET + "build-essential fakeroot lintian\ncd /srv/build/%s\napt-get build-dep -y -q --no-install-recommends ./\n"
         "useradd -m -s /bin/sh %s\nchown -R %s /srv/build\n" % (tree, USER, USER)),
        # Warnings of a compiler that is newer than this source are no reason to have no package.
        ("dpkg-buildpackage", USER, "cd /srv/build/%s\nWERROR=0 DEB_BUILD_OPTIONS=parallel=$(nproc) dpkg-buildpackage -us -uc\n" % tree),
        ("lintian", USER, "cd /srv/build\nlintian --version\nlintian --fail-on error,warning --display-info --tag-display-limit 0 epochfs_*.changes\n"),
    ]


STEPS_OF_RPM = [
    ("what rpmbuild needs", "root", GET + "rpm rpmlint elfutils debugedit\nchown -R %s /srv/rpm\n" % USER),
    ("rpmbuild", USER, "cd /srv/rpm\nWERROR=0 rpmbuild -ba --nodeps --define '_topdir /srv/rpm' epochfs.spec\nrpm -qlp RPMS/*/epochfs-[0-9]*.rpm | grep -x /usr/bin/epochfs\n"),
    # Not that of the debug symbols, which is rpm's own work.
    ("rpmlint", USER, "cd /srv/rpm\nrpmlint --strict -c rpmlint.toml epochfs.spec SRPMS/*.rpm RPMS/*/epochfs-[0-9]*.rpm RPMS/*/epochfs-doc-*.rpm\n"),
]

STEPS_OF_TRIAL = [
    ("apt install ./epochfs_*.deb", "root", "apt-get update -q\n" + GET + "/srv/epochfs_*.deb\nepochfs --version\nepochfs help >/dev/null\n"),
    ("mount, save, browse, unmount", "root", "AUTOPKGTEST_TMP=$(mktemp -d) /srv/mount\n"),
    ("the same as an ordinary user", USER,
     "mkdir ckpt\nepochfs mount -o cache-dir=$HOME/cache $HOME/remote ckpt\nepochfs status ckpt\necho 1 >ckpt/model.pt\nepochfs commit ckpt\n"
     "cmp ckpt/model.pt ckpt/.epochs/latest/model.pt\nepochfs umount ckpt\nepochfs export $HOME/remote restored\ncmp restored/model.pt /dev/stdin <<END\n1\nEND\n"),
    ("the manual, examples and completions", "root",
     GET + "man-db bash-completion zsh fish /srv/epochfs-doc_*.deb\nman epochfs | grep -q '^NAME'\nman 8 mount.fuse.epochfs | grep -q '^NAME'\n"
     "test -s /usr/share/doc/epochfs/html/epochfs-semantics.7.html\ntest -x /usr/share/doc/epochfs/examples/exec-rclone\n"
     "if grep -r /usr/local/ /usr/share/epochfs; then exit 1; fi\n"
     "bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader epochfs || _comp_load epochfs; complete -p epochfs'\n"
     "zsh -fc 'autoload -Uz compinit; compinit -u -D; echo $_comps[epochfs]' | grep -x _epochfs\n"
     "test \"$(fish -c 'complete -C \"epochfs roll\"' | cut -f1)\" = rollback\n"),
    ("autopkgtest", "root", GET + "autopkgtest\ncd /srv\nautopkgtest ./epochfs_*.deb ./epochfs_*.dsc -- null\n"),
    ("apt purge", "root", "apt-get purge -y -q epochfs epochfs-doc\nif find /etc /usr /var/lib/systemd -name '*epochfs*' | grep .; then exit 1; fi\n"),
]


def machine_in(folder, release, log):
    folder.mkdir()
    machine = Machine(release, folder, log, LIMIT_S)
    machine.results.mkdir()
    return machine


def one_release(release, into, log, log_path, options):
    """Builds, takes what was built, and tries it: (name, outcome, detail) of each step."""
    builder = machine_in(into / "build", release, log)
    built = builder.root / "srv" / "build"
    tree = unpack(release, options.source, built)
    done = do_steps(builder, steps_of_build(tree.name), log_path)
    packages = [path for path in built.iterdir() if path.is_file()]
    rpms = builder.root / "srv" / "rpm"
    if release == WITH_RPM:
        prepare_rpm(tree, options.source, rpms)
        done += do_steps(builder, STEPS_OF_RPM, log_path)
    for path in [*packages, *rpms.glob("SRPMS/*.rpm")]:
        shutil.copy(path, options.packages)
    trial = machine_in(into / "trial", release, log)
    for path in packages + [tree / "debian" / "tests" / "mount"]:
        shutil.copy(path, trial.root / "srv")
    subprocess.run(["chroot", trial.root, "useradd", "-m", "-s", "/bin/sh", USER], check=True)
    return done + do_steps(trial, STEPS_OF_TRIAL, log_path)


def write_sums(folder):
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    text = "".join("%s  %s\n" % (hashlib.sha256(path.read_bytes()).hexdigest(), path.name) for path in files)
    (folder / "SHA256SUMS").write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", required=True, type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2, help="how many releases at a time")
    parser.add_argument("--keep", action="store_true", help="leave the roots, and say where they are")
    parser.add_argument("releases", nargs="*", default=list(RELEASES), metavar="RELEASE")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("dist.py: making a root needs root")
    if git("status", "--porcelain"):
        print("dist.py: what is not committed is not packaged")
    shutil.rmtree(options.packages, ignore_errors=True)
    options.packages.mkdir(parents=True)
    options.results = options.packages / "log" / "results"
    options.source = source(options.packages)
    tests = on_machines("dist.py", one_release, options)
    write_sums(options.packages)
    results.write(options.results, "dist", tests)
    return totals.report(tests)


if __name__ == "__main__":
    sys.exit(main())
