# SPDX-License-Identifier: Apache-2.0
"""Volumes on WebDAV servers and XRootD: over http and https, with passwords, tokens and certificates."""

import http.server
import os
import pathlib
import subprocess
import threading

import pytest

from certificates import Authority
from conformance import RACES, conform
from conftest import BIN, MountError, run, wait_until
from server_lighttpd import PASSWORD, TOKEN, USER, Lighttpd
from papers import block_of
from story import check_files, save, whole_story



def over(*kinds):
    return pytest.mark.parametrize("server", kinds, indirect=True)


@pytest.fixture
def passthrough():
    return "auto"


@pytest.fixture
def volume(server, make_volume, request, monkeypatch):
    """Not mounted; its remote is a folder of the server, and the credentials are in the environment."""
    v = make_volume()
    v.url = server.url("a folder/%s" % request.node.originalname).replace(" ", "%20")
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "X509_USER_PROXY", "X509_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)
    return v


@over("lighttpd", "lighttpd-tls", "xrootd-tls")
def test_a_volume_is_saved_killed_and_restored(volume, tmp_path):
    whole_story(volume, tmp_path)


def refuse(volume):
    """The mount is refused: its exit code and what it printed."""
    with pytest.raises(MountError) as error:
        volume.mount()
    return error.value.code, error.value.output


@over("lighttpd")
def test_a_wrong_password_is_told_at_mount(volume, monkeypatch):
    monkeypatch.setenv("EPOCHFS_DAV_PASSWORD", "wrong-password")
    code, line = refuse(volume)
    assert code == 4
    assert "401" in line and "user and password" in line
    assert "wrong-password" not in line


@over("lighttpd-tls")
def test_a_wrong_token_is_told_at_mount(volume, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "tok-wrong")
    code, line = refuse(volume)
    assert code == 4
    assert "403" in line
    assert "tok-wrong" not in line


@over("lighttpd-tls")
def test_an_authority_that_is_not_trusted_is_told_at_mount(volume):
    volume.url = volume.url.split("?")[0]
    code, _ = refuse(volume)
    assert code == 4


@over("lighttpd")
def test_a_server_that_is_away_or_no_webdav_is_told_at_mount(volume, server):
    volume.url = volume.url.replace(":%d/" % server.port, ":1/")
    assert refuse(volume)[0] == 3


def said_anywhere(volume):
    """Everything that the daemon shows to others."""
    texts = [run(BIN, "status", volume.path).stdout, run(BIN, "status", "--json", volume.path).stdout,
             volume.log.read_text(), pathlib.Path("/proc/%d/cmdline" % volume.pid).read_text()]
    return "\n".join(texts + [path.read_text(errors="replace") for path in volume.cache.glob("*/log")])


@over("lighttpd")
@pytest.mark.parametrize("file", [False, True])
def test_a_password_of_the_environment_is_shown_nowhere(volume, monkeypatch, tmp_path, file):
    if file:
        (tmp_path / "password").write_text(PASSWORD + "\n")
        monkeypatch.delenv("EPOCHFS_DAV_PASSWORD")
        monkeypatch.setenv("EPOCHFS_DAV_PASSWORD_FILE", str(tmp_path / "password"))
    volume.mount(log_level="debug")
    save(volume, "model.pt", 1 << 20)
    volume.wait_durable()
    assert PASSWORD not in said_anywhere(volume)


@over("lighttpd")
def test_a_password_in_the_url_is_only_where_it_was_typed(volume, monkeypatch):
    monkeypatch.delenv("EPOCHFS_DAV_USER")
    monkeypatch.delenv("EPOCHFS_DAV_PASSWORD")
    encoded = "se:cr%25et%20pass"
    volume.url = volume.url.replace("://", "://%s:%s@" % (USER, encoded))
    volume.mount(log_level="debug")
    save(volume, "model.pt", 1 << 20)
    volume.wait_durable()
    shown = said_anywhere(volume)
    assert encoded not in shown and PASSWORD not in shown
    assert "trainer:***@" in shown
    assert "trainer:***@" in pathlib.Path("/proc/%d/cmdline" % volume.pid).read_text()
    assert encoded not in pathlib.Path("/proc/self/mountinfo").read_text()


@over("lighttpd-tls")
def test_a_token_is_read_again_from_its_file(volume, monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("  %s\n" % TOKEN)
    monkeypatch.delenv("BEARER_TOKEN")
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(token))
    volume.mount(log_level="debug")
    files = {"a": save(volume, "a", 1 << 20)}
    volume.wait_durable()
    # It has expired: uploading stops, and goes on with the next one.
    token.write_text("tok-expired\n")
    files["b"] = save(volume, "b", 1 << 20)
    volume.seal()
    wait_until(lambda: "403" in run(BIN, "status", volume.path).stdout or
               "allow" in run(BIN, "status", volume.path).stdout, "the refusal to be in status")
    token.write_text(TOKEN + "\n")
    volume.wait_durable()
    assert TOKEN not in said_anywhere(volume)
    volume.remount(empty_cache=True)
    check_files(volume.path, files)


@over("lighttpd-tls")
def test_a_token_is_not_sent_without_tls(volume, server):
    """Anybody could read it on the way."""
    volume.url = "http://127.0.0.1:%d/plain" % server.port
    assert refuse(volume)[0] == 4


@over("lighttpd-tls")
@pytest.mark.parametrize("way", ["url", "environment"])
def test_a_client_certificate_is_shown(volume, server, monkeypatch, way):
    certificate, key = server.ca.client("alice")
    volume.url = server.mutual_url("mutual-%s" % way)
    if way == "url":
        volume.url += "&cert=%s&key=%s" % (certificate, key)
    else:
        monkeypatch.setenv("X509_USER_CERT", str(certificate))
        monkeypatch.setenv("X509_USER_KEY", str(key))
    volume.mount()
    files = {"a": save(volume, "a", 1 << 20)}
    volume.remount(empty_cache=True)
    check_files(volume.path, files)


@over("lighttpd-tls")
def test_a_strangers_certificate_or_none_is_refused(volume, server, tmp_path):
    certificate, key = Authority(tmp_path / "other", "Other").client("mallory")
    volume.url = server.mutual_url("mutual-refused")
    assert refuse(volume)[0] in (3, 4)
    volume.url += "&cert=%s&key=%s" % (certificate, key)
    assert refuse(volume)[0] in (3, 4)


@over("xrootd-tls")
def test_a_user_that_xrootd_does_not_know_is_refused(volume, server, monkeypatch):
    monkeypatch.setenv("X509_USER_PROXY", str(server.ca.proxy("bob")))
    assert refuse(volume)[0] in (3, 4)


@over("xrootd")
def test_where_nothing_is_atomic_the_mount_says_so(volume):
    volume.mount()
    assert "does not refuse to create what is there" in "\n".join(
        path.read_text() for path in [volume.log, *volume.cache.glob("*/log")])


@over("lighttpd", "nginx", "apache")
def test_a_second_writer_is_told_who_has_the_volume(volume, make_volume):
    volume.mount()
    second = make_volume()
    second.url = volume.url
    code, line = refuse(second)
    assert code == 8
    assert str(volume.path) in line


@over("nginx")
def test_the_mutex_of_a_killed_creator_expires(volume, server):
    """A creator that died left its collection; the next one waits for a while, and goes on."""
    root = server.folder / "data" / "a folder" / "test_the_mutex_of_a_killed_creator_expires"
    (root / ".tmp-creating").mkdir(parents=True)
    volume.mount()
    assert not (root / ".tmp-creating").exists()
    assert "mutex" in "\n".join(path.read_text() for path in [volume.log, *volume.cache.glob("*/log")])


@over("lighttpd")
def test_what_is_left_of_killed_uploads_is_removed(volume, server):
    root = server.folder / "data" / "a folder" / "test_what_is_left_of_killed_uploads_is_removed"
    root.mkdir(parents=True)
    for name, age in ((".tmp-0123456789abcdef", 7200), (".tmp-fedcba9876543210", 60), (".tmp-mine", 7200)):
        (root / name).write_text("x")
        then = (root / name).stat().st_mtime - age
        os.utime(root / name, (then, then))
    volume.mount()
    assert sorted(n for n in os.listdir(root) if n.startswith(".tmp-")) == [".tmp-fedcba9876543210", ".tmp-mine"]


@over("lighttpd", "nginx")
@pytest.mark.parametrize("means", ["mkcol", "lock"])
@pytest.mark.timeout(300)
def test_other_means_of_creating_let_one_win_too(server, tmp_path, means):
    conform("%s?create=%s" % (server.url("by-" + means), means), {**server.env(), "TMPDIR": str(tmp_path)}, [RACES], server.output)


class Redirector(http.server.BaseHTTPRequestHandler):
    """Sends everybody to the same path of `place`, as the redirector of a cluster does."""

    place = "?"

    def redirect(self):
        self.send_response(307)
        self.send_header("Location", self.place + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_DELETE = do_MKCOL = do_MOVE = do_PROPFIND = redirect

    def handle_expect_100(self):
        return True  # the answer comes instead

    def log_message(self, *_):
        pass


class Anonymous(Lighttpd):
    access = "none"


def test_a_data_server_that_we_are_sent_to_is_not_told_who_we_are(make_volume, tmp_path, monkeypatch):
    monkeypatch.setenv("EPOCHFS_DAV_USER", USER)
    monkeypatch.setenv("EPOCHFS_DAV_PASSWORD", PASSWORD)
    with Anonymous(tmp_path / "server") as server:
        handler = type("Handler", (Redirector,), {"place": "http://127.0.0.1:%d" % server.port})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as redirector:
            threading.Thread(target=redirector.serve_forever, daemon=True).start()
            volume = make_volume()
            volume.url = "http://127.0.0.1:%d/cluster" % redirector.server_port
            volume.mount(settle="1h")
            files = {"a": save(volume, "a", 3 << 20)}
            volume.remount(empty_cache=True)
            check_files(volume.path, files)
            volume.unmount()
            redirector.shutdown()


def follow(text, replaced, tmp_path):
    """Runs a recipe as it is printed, but for the names of example.org."""
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, str(new))
    env = {**os.environ, "PATH": "%s:%s" % (os.path.dirname(os.path.abspath(BIN)), os.environ["PATH"]),
           "HOME": str(tmp_path), "EPOCHFS_CACHE_DIR": str(tmp_path / "cache")}
    text += "\ncp /bin/true mnt/model.pt\nepochfs umount mnt\n"
    done = subprocess.run(["sh", "-ec", text], env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
                          timeout=120)
    subprocess.run(["umount", "-l", str(tmp_path / "mnt")], capture_output=True, check=False)
    assert done.returncode == 0, "%s\n%s%s" % (text, done.stdout, done.stderr)
    return done.stdout


@over("lighttpd")
def test_the_recipe_for_webdav_works_as_it_is_printed(volume, tmp_path, monkeypatch):
    monkeypatch.delenv("EPOCHFS_DAV_USER")
    monkeypatch.delenv("EPOCHFS_DAV_PASSWORD")
    (tmp_path / "mnt").mkdir()
    (tmp_path / ".dav-password").write_text(PASSWORD + "\n")
    follow(block_of("export EPOCHFS_DAV_USER=alice"), {"https://dav.example.org/ckpt/run7": volume.url, "/mnt/ckpt": tmp_path / "mnt",
                                  "alice": USER}, tmp_path)


@over("xrootd-tls")
def test_the_recipe_for_xrootd_works_as_it_is_printed(volume, server, tmp_path):
    (tmp_path / "mnt").mkdir()
    follow(block_of("export X509_USER_PROXY="), {"https://xrootd.example.org:1094/store/run7": volume.url,
                                  "/mnt/ckpt": tmp_path / "mnt",
                                  "/tmp/x509up_u$(id -u)": server.ca.proxy("alice"),
                                  "/etc/grid-security/certificates": server.ca.hashed_folder()}, tmp_path)
