# SPDX-License-Identifier: Apache-2.0
"""A gateway of S3 that redirects reads to another host, as Hugging Face's does: over fake_s3.py, which checks each signature, and a host with TLS that must see none."""

import datetime
import json
import os

import pytest

from certificates import Authority
from conformance import ALONE, conform
from conftest import BIN, run
from fake_s3 import Elsewhere, FakeS3
from test_s3_fake import AWS, environment, passthrough, refusal

__all__ = ["environment", "passthrough"]  # fixtures of that file


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def gateway(authority):
    """The gateway and the host behind it; the gateway's own URL names the authority of both."""
    with FakeS3() as fake, Elsewhere(fake, *authority.server()) as elsewhere:
        fake.redirect = elsewhere.origin
        yield fake, elsewhere


def checked(url, code=0, env=None):
    done = run(BIN, "check", "--json", "--size", "64K", url, check=False, env={**os.environ, **AWS, **(env or {})})
    assert done.returncode == code, done
    return json.loads(done.stdout)


def failures(report):
    return [o["detail"] for o in report["operations"] if not o["ok"]]


def test_reads_follow_once_and_without_credentials(gateway, authority):
    fake, elsewhere = gateway
    fake.token = "sEsSiOn"
    env = {**AWS, "AWS_SESSION_TOKEN": fake.token}
    conform(fake.url("p", **{"ca-file": authority.certificate}), env, [ALONE])
    assert {method for method, _, _ in elsewhere.requests} <= {"GET", "HEAD"} and elsewhere.requests
    for _, _, headers in elsewhere.requests:
        assert {n.lower() for n in headers} <= {"host", "range", "user-agent", "accept"}, headers
    report = checked(fake.url("p", **{"ca-file": authority.certificate}), env=env)
    assert report["usable"] and report["redirects_to"] == elsewhere.origin
    text = run(BIN, "check", "--size", "64K", fake.url("p"), env={**os.environ, **env, "AWS_CA_BUNDLE": str(authority.certificate)}).stdout
    assert "- reads are redirected to %s, which must be reachable, too\n" % elsewhere.origin in text and "sIgNeD" not in text


def test_a_mount_works_and_the_doctor_names_the_host(gateway, authority, make_volume, monkeypatch):
    fake, elsewhere = gateway
    for name, value in {**AWS, "AWS_CA_BUNDLE": str(authority.certificate)}.items():
        monkeypatch.setenv(name, value)
    volume = make_volume()
    volume.url = fake.url("p")
    volume.mount()
    (volume.path / "model").write_bytes(b"1" * 100000)
    volume.seal()
    volume.wait_durable()
    found = json.loads(run(BIN, "doctor", "--json", volume.path).stdout)
    (note,) = [f for f in found if f["check"] == "redirects"]
    assert note["ok"] and elsewhere.origin in note["what"] and note["do"]
    assert run(BIN, "export", volume.url + "@latest", volume.base / "out").returncode == 0
    assert (volume.base / "out" / "model").read_bytes() == b"1" * 100000


@pytest.mark.parametrize("place, said", [
    ("http://localhost:1", "is redirected to http://localhost:1, which is not https"),
    ("https://localhost:1", "is redirected to https://localhost:1, which cannot be reached"),
    ("https://user:sEcReT@localhost:1", "is redirected to an address with a user in it"),
    ("ftp://localhost:1", "which is not https")])
def test_where_it_is_not_followed(gateway, authority, place, said):
    fake, elsewhere = gateway
    fake.redirect = place
    report = checked(fake.url("p", **{"ca-file": authority.certificate}), code=1)
    assert any(said in f for f in failures(report)), failures(report)
    assert not elsewhere.requests and "sIgNeD" not in json.dumps(report) and "sEcReT" not in json.dumps(report)


def test_a_host_that_nobody_vouches_for(gateway, authority, tmp_path):
    fake, elsewhere = gateway
    other = Authority(tmp_path / "other", "Other")
    report = checked(fake.url("p", **{"ca-file": other.certificate}), code=1)
    assert any("redirected to %s, which has a certificate that is not trusted" % elsewhere.origin in f for f in failures(report)), failures(report)
    assert not elsewhere.requests


@pytest.mark.parametrize("answer, said", [
    ((302, {"Location": "https://127.0.0.1:1/again"}), "which redirects once more: that is not followed"),
    ((404, {}), "which answers 404"), ((403, {}), "which answers 403")])
def test_what_the_other_host_may_answer(gateway, authority, answer, said):
    """No 404 of its says that an object is not there."""
    fake, elsewhere = gateway
    elsewhere.answer = answer[0], b"body", answer[1]
    url = fake.url("p", **{"ca-file": authority.certificate})
    report = checked(url, code=1)
    assert any("is redirected to %s, %s" % (elsewhere.origin, said) in f for f in failures(report)), failures(report)
    fake.objects["p/epochfs.json"] = b"{}"
    if answer[0] == 403:
        refusal(url, 4, elsewhere.origin, said)


def test_a_host_that_redirects_to_itself_ends(gateway, authority):
    fake, elsewhere = gateway
    elsewhere.answer = 302, b"", {"Location": "/round"}
    checked(fake.url("p", **{"ca-file": authority.certificate}), code=1)
    asked = len([1 for method, path, _ in fake.requests if method in ("GET", "HEAD") and path.partition("?")[0] != "/fake-bucket/"])
    assert 0 < len(elsewhere.requests) <= 6 * asked


# ---- credentials that end


def at(hours):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize("hours, verdict, said", [(-1, "wrong", "ended 60 min ago"), (3.01, "note", "end in 3 h"), (99.01, "ok", "end in 4 d")])
def test_the_doctor_tells_when_credentials_end(make_volume, monkeypatch, hours, verdict, said):
    with FakeS3() as fake:
        fake.token = "sEsSiOn"
        for name, value in {**AWS, "AWS_SESSION_TOKEN": fake.token, "AWS_CREDENTIAL_EXPIRATION": at(hours)}.items():
            monkeypatch.setenv(name, value)
        volume = make_volume()
        volume.url = fake.url("p")
        volume.mount()
        # It has them from its start: what this shell has by now is another matter.
        assert json.loads(run(BIN, "status", "--json", volume.path).stdout)["credentials"]["renewed"] is False
        for target, whose in ((volume.path, "of the mount"), (volume.url, "of this environment")):
            lines = run(BIN, "doctor", target, check=False).stdout.splitlines()
            (line,) = [text for text in lines if "the credentials %s %s" % (whose, said) in text]
            assert line.split()[0] == verdict and ("mount again" in line) == (verdict != "ok")


def test_credentials_that_are_renewed_are_no_matter(monkeypatch, tmp_path):
    with FakeS3() as fake:
        told = {"Version": 1, "AccessKeyId": fake.key, "SecretAccessKey": fake.secret, "Expiration": at(0.5)}
        (tmp_path / "told").write_text(json.dumps(told))
        (tmp_path / "config").write_text("[default]\ncredential_process = cat %s\n" % (tmp_path / "told"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        run(BIN, "import", tmp_path, fake.url("p"))
        lines = run(BIN, "doctor", fake.url("p")).stdout.splitlines()
        assert "ok     the credentials of this environment are renewed by themselves" in lines
