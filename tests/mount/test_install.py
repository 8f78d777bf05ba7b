# SPDX-License-Identifier: Apache-2.0
"""make install and uninstall, and the completions of the shells as these use them."""

import os
import pathlib
import pty
import re
import select
import subprocess
import time

import papers
import pytest

from conftest import LIMIT, run
from test_command import epochfs

REPO = pathlib.Path(__file__).resolve().parents[2]
COMPLETIONS = REPO / "packaging" / "completions"


def make(*words):
    """make with the program as it was built for this run."""
    return run("make", "-C", REPO, "-o", "all", "O=" + os.path.dirname(os.environ["EPOCHFS_INSTALLED"]), *words)


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# ---- make install


def test_install(tmp_path):
    where = ("DESTDIR=%s" % tmp_path, "prefix=/opt/e")
    make(*where, "install")
    examples = ["opt/e/share/epochfs/examples/" + path.name for path in (REPO / "packaging/examples").iterdir()]
    pages = ["opt/e/share/man/man%s/%s" % (page.suffix[1:], page.name) for page in papers.PAGES] + ["opt/e/share/man/man8/mount.fuse.epochfs.8"]
    assert len(examples) > 1 and len(pages) > 1
    completions = ["opt/e/share/" + name for name in ("bash-completion/completions/epochfs", "zsh/site-functions/_epochfs", "fish/vendor_completions.d/epochfs.fish")]
    assert files_below(tmp_path) == sorted(["opt/e/bin/epochfs", *completions, *pages, "sbin/mount.epochfs", "sbin/mount.fuse.epochfs", *examples])
    assert run(tmp_path / "opt/e/bin/epochfs", "version").stdout == epochfs("version")
    assert not [name for name in examples + pages if "/usr/local/" in (tmp_path / name).read_text()]
    assert "\nepochfs=/opt/e/bin/epochfs " in (tmp_path / "sbin/mount.epochfs").read_text()
    make(*where, "uninstall")
    assert not files_below(tmp_path) and not (tmp_path / "opt/e/share/epochfs").exists()


def test_install_by_the_variables_of_gnu(tmp_path):
    where = ("DESTDIR=%s" % tmp_path, "prefix=/usr", "exec_prefix=/x", "mandir=/m", "datarootdir=/d", "rootsbindir=/usr/sbin", "INSTALL=install -p")
    make(*where, "install-strip")
    found = files_below(tmp_path)
    assert {"x/bin/epochfs", "m/man1/epochfs.1", "usr/sbin/mount.epochfs", "d/epochfs/examples/slurm.sh", "d/fish/vendor_completions.d/epochfs.fish"} <= set(found)
    assert {name.split("/")[0] for name in found} == {"x", "m", "d", "usr"} and (tmp_path / "x/bin/epochfs").stat().st_mode & 0o777 == 0o755
    assert "/d/epochfs/examples" in (tmp_path / "m/man7/epochfs-integrations.7").read_text()
    assert ".debug_info" not in run("readelf", "-SW", tmp_path / "x/bin/epochfs").stdout
    make(*where, "uninstall")
    assert not files_below(tmp_path)


def test_install_where_sbin_is_roots(tmp_path):
    where = ("PREFIX=%s" % tmp_path, "rootsbindir=/proc/sbin")
    assert "installed without /proc/sbin/mount.epochfs" in make(*where, "install").stdout
    assert run(tmp_path / "bin/epochfs", "version").stdout == epochfs("version")
    make(*where, "uninstall")
    assert not files_below(tmp_path)


def test_uninstall_leaves_the_mount_helper_of_another_program(tmp_path):
    sbin = "rootsbindir=%s" % (tmp_path / "sbin")
    for name in ("a", "b"):
        make("prefix=%s" % (tmp_path / name), sbin, "install")
    make("prefix=%s" % (tmp_path / "a"), sbin, "uninstall")
    assert (tmp_path / "sbin" / "mount.epochfs").exists()
    make("prefix=%s" % (tmp_path / "b"), sbin, "uninstall")
    assert not files_below(tmp_path)


# ---- completions

# Control-T puts all that is offered into the line, and what stands for the program prints its arguments. The terminal echoes what is typed: other words end it.
PRINTS = "epochfs() { printf '<%s>\\n' \"$@\"; echo the '''end'''; }; echo the '''start'''"
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"],
             "PS1=; bind '\"\\C-t\": insert-completions'; bind 'set enable-bracketed-paste off'; . %s/epochfs.bash\n" % COMPLETIONS),
    "zsh": (["zsh", "-f", "-i"],
            "PS1=; unset zle_bracketed_paste; fpath=(%s $fpath); autoload -Uz compinit; compinit -u -D; zle -C all complete-word _generic; bindkey '^T' all\n" % COMPLETIONS
            + "zstyle ':completion:all:*' completer _all_matches _complete; zstyle ':completion:all:*' insert yes\n"),
}


class Terminal:
    """A shell that believes that somebody types."""

    def __init__(self, command, folder):
        environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        self.fd, other = pty.openpty()
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, cwd=folder, env=environment, start_new_session=True)
        os.close(other)

    def type(self, text, until):
        """What is shown until then."""
        os.write(self.fd, text.encode())
        shown, deadline = "", time.monotonic() + LIMIT
        while not re.search(until, shown, re.M):
            assert select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0], shown
            shown += os.read(self.fd, 65536).decode(errors="replace").replace("\r", "")
        return shown

    def end(self):
        os.close(self.fd)
        self.process.kill()
        self.process.wait()


def offered(shell, line, folder):
    """What the shell makes of the last word of the line."""
    if shell == "fish":
        done = run("fish", "--no-config", "-c", "source %s/epochfs.fish; complete -C $argv" % COMPLETIONS, line, cwd=folder, env={**os.environ, "HOME": str(folder)})
        return sorted(words.split("\t")[0] for words in done.stdout.splitlines())
    command, prepare = SHELLS[shell]
    terminal = Terminal(command, folder)
    try:
        terminal.type(prepare + PRINTS + "\n", r"^the start$")
        words = re.findall(r"^<(.*)>$", terminal.type(line + "\x14\n", r"^the end$"), re.M)
    finally:
        terminal.end()
    # What was before the last word is there, too.
    return sorted(words[len(line.split(" ")) - 2:])


@pytest.mark.parametrize("line, expected", [
    ("roll", {"rollback"}),
    ("prune --d", {"--dry-run"}),
    ("gc --pass", {"--passphrase-file"}),
    ("mount -o resume,se", {"resume,settle="}),
    ("mount -o cache-size=2G,up", {"cache-size=2G,upload-ahead=", "cache-size=2G,upload-limit="}),
    ("mount -o full=w", {"full=wait"}),
    ("mount --options=gc=of", {"--options=gc=off"}),
    ("key ", {"add", "list", "remove"}),
    ("help ver", {"verify", "version"}),
    ("key add --new-key-file fi", {"file"}),
    ("status ", {"folder"}),
    ("run fo", {"folder"}),
    ("run --resume -- ls fi", {"file"}),
    ("log -n ", set()),
], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell, line, expected, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    found = {word.rstrip("/") for word in offered(shell, "epochfs " + line, tmp_path)}
    if shell == "bash" and len(expected) > 1 and "=" in line:
        # Readline itself leaves off what is before the '=' of all but the first.
        expected = {word if word == min(expected) else word.split("=", 1)[1] for word in expected}
    # Where nothing is offered the shell leaves the line as it is.
    assert found - {""} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_all_commands_are_offered(shell, tmp_path):
    found = set(offered(shell, "epochfs ", tmp_path))
    assert found - {"--help", "--version"} == set(re.findall(r"^  ([a-z]+) ", epochfs("help"), re.M))
