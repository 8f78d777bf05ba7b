# SPDX-License-Identifier: Apache-2.0
"""Volumes on S3, on a real server: Ceph RGW."""

import base64
import concurrent.futures
import hashlib
import json
import os
import re

import pytest

from certificates import Authority
from conformance import conform
from conftest import BIN, MountError, run, wait_until
from damaging_proxy import DamagingProxy
from server_rgw import Rgw
from story import run_recipe

pytestmark = [pytest.mark.parametrize("server", ["rgw"], indirect=True), pytest.mark.timeout(300)]


@pytest.fixture
def passthrough():
    """How the kernel reads files has nothing to do with where they come from."""
    return "auto"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of this machine's user or host gets in."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def on_s3(make_volume, monkeypatch, request):
    """Makes volumes on a server, with nothing said but the two variables and the endpoint."""

    def make(server, endpoint=None, **environment):
        volume = make_volume(settle="1h")
        environment = environment or {"AWS_ACCESS_KEY_ID": server.key, "AWS_SECRET_ACCESS_KEY": server.secret}
        for name, value in {"AWS_ENDPOINT_URL": endpoint or server.endpoint, **environment}.items():
            monkeypatch.setenv(name, str(value))
        volume.url = "s3://%s/%s" % (server.bucket, re.sub(r"\W", "-", request.node.name))
        return volume

    return make


def save(volume, number, size=9 << 20):
    """Saves a checkpoint as a training program does: its bytes."""
    data = os.urandom(size)
    (volume.path / ("checkpoint-%d.tmp" % number)).write_bytes(data)
    (volume.path / ("checkpoint-%d.tmp" % number)).rename(volume.path / ("checkpoint-%d.pt" % number))
    return data


def keys(server, volume):
    return server.client().keys(server.bucket, volume.url.split("/")[3] + "/")


def test_two_variables_and_an_endpoint_are_enough(server, on_s3, tmp_path):
    volume = on_s3(server).mount()
    first = save(volume, 1)
    epoch = volume.seal()
    volume.wait_durable()
    second = save(volume, 2)
    volume.kill()
    volume.mount()
    assert (volume.path / "checkpoint-2.pt").read_bytes() == second
    volume.seal()
    volume.wait_durable()
    volume.unmount()
    volume.empty_cache()
    volume.mount()
    assert (volume.path / "checkpoint-1.pt").read_bytes() == first
    assert (volume.path / "checkpoint-2.pt").read_bytes() == second
    assert (volume.epoch(epoch) / "checkpoint-1.pt").read_bytes() == first
    volume.unmount()
    assert "no damage" in run(BIN, "fsck", "--read-data", volume.url).stdout
    run(BIN, "export", "%s@%d" % (volume.url, epoch), tmp_path / "restored")
    assert (tmp_path / "restored" / "checkpoint-1.pt").read_bytes() == first
    assert not [key for key in keys(server, volume) if "probe" in key]


def epochs(volume):
    """The epochs that the server has."""
    return [epoch["epoch"] for epoch in json.loads(run(BIN, "log", "--json", volume.url).stdout)]


def test_the_recipe_of_the_readme(server, tmp_path):
    server.client().make_bucket("my-bucket")
    run_recipe("export AWS_ACCESS_KEY_ID=KEY", tmp_path, {"KEY AWS_": server.key + " AWS_", "=SECRET\n": "=%s\n" % server.secret,
                                "https://s3.example.org": server.endpoint}, said="no damage")


def test_a_dropped_epoch_and_a_tag_reach_the_server(server, on_s3):
    volume = on_s3(server).mount()
    save(volume, 1, 1000)
    first = volume.seal("keep")
    save(volume, 2, 1000)
    dropped = volume.seal()
    save(volume, 3, 1000)
    volume.seal()
    volume.wait_durable()
    os.rmdir(volume.epoch(dropped))
    wait_until(lambda: dropped not in epochs(volume), "the drop to reach the server")
    volume.remount(empty_cache=True)
    assert volume.epochs() == [first, dropped + 1]
    assert volume.tags() == {"keep": first}


def refused(volume, code, *said):
    """The mount ends with this code and one line."""
    volume.log.unlink(missing_ok=True)
    with pytest.raises(MountError) as error:
        volume.mount()
    output = error.value.output
    assert error.value.code == code, output
    assert output.count("\n") == 1, output
    for text in said:
        assert text in output, output


def test_wrong_keys_and_places_are_told_at_mount(server, on_s3, monkeypatch):
    volume = on_s3(server)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong/secret")
    refused(volume, 4, "secret access key", server.bucket)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "WRONGKEY")
    refused(volume, 4, "does not know the access key ID")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key)
    good, volume.url = volume.url, volume.url.replace(server.bucket, "no-such-bucket")
    refused(volume, 3, "no-such-bucket", "does not exist")
    volume.url = good
    volume.mount()


def test_a_user_without_leave_is_told_at_mount(server, on_s3, monkeypatch):
    server.add_user("stranger", "STRANGERKEY", "strange")
    volume = on_s3(server, AWS_ACCESS_KEY_ID="STRANGERKEY", AWS_SECRET_ACCESS_KEY="strange")
    refused(volume, 4, "access is denied", "s3:PutObject")


def test_what_is_damaged_on_its_way_is_refused_and_sent_again(server, on_s3):
    with DamagingProxy(server.port) as proxy:
        volume = on_s3(server, "http://127.0.0.1:%d" % proxy.port).mount()
        proxy.damage = 2
        data = save(volume, 1)
        volume.seal()
        volume.wait_durable()
        assert proxy.damage == 0 and proxy.refusals == 2
        volume.unmount()
    volume = on_s3(server)
    assert "no damage" in run(BIN, "fsck", "--read-data", volume.url).stdout
    volume.mount()
    assert (volume.path / "checkpoint-1.pt").read_bytes() == data


LOCK = (b'<ObjectLockConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>'
        b'<DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>')
VERSIONS = b'<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></VersioningConfiguration>'


def versions(server, bucket, prefix):
    """Keys of the first 1,000 versions and markers below it."""
    return re.findall(r"<Key>([^<]*)</Key>", server.client().ask("GET", "/" + bucket, [("prefix", prefix), ("versions", "")]).decode())


@pytest.mark.parametrize("locks", [False, True])
def test_a_bucket_that_keeps_versions(server, on_s3, tmp_path, locks):
    """RGW ignores the condition of a create there."""
    bucket = "locked" if locks else "versioned"
    if locks:
        server.client().ask("PUT", "/" + bucket, headers={"x-amz-bucket-object-lock-enabled": "true"})
        server.client().ask("PUT", "/" + bucket, [("object-lock", "")], body=LOCK,
                            headers={"content-md5": base64.b64encode(hashlib.md5(LOCK).digest()).decode()})
    else:
        server.client().make_bucket(bucket)
        server.client().ask("PUT", "/" + bucket, [("versioning", "")], body=VERSIONS)
    volume = on_s3(server)
    volume.url = "s3://%s/run" % bucket
    if not locks:
        conform("s3://%s/conform?endpoint=%s" % (bucket, server.endpoint), server.env())
        assert not versions(server, bucket, "conform/epochfs.probe")
    said = run(BIN, "check", "--size", "64K", volume.url).stdout
    assert "the bucket keeps versions" in said and "NoncurrentVersionExpiration" in said, said
    stays = versions(server, bucket, "run/packs/epochfs.probe")
    assert bool(stays) == locks == ("stay until the bucket lets go of them" in said), (stays, said)
    volume.mount()
    data = save(volume, 1)
    volume.seal()
    volume.wait_durable()
    volume.unmount()
    assert "keeps versions" in volume.log.read_text()
    assert run(BIN, "export", volume.url + "@latest", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "checkpoint-1.pt").read_bytes() == data
    if not locks:
        (tmp_path / "empty").mkdir()
        run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), tmp_path / "empty", volume.url)
        run(BIN, "rm", volume.url, "1")
        said = run(BIN, "gc", "--grace", "0", volume.url).stdout
        assert "marked as deleted 9" in said and "freed" not in said, said
        assert versions(server, bucket, "run/packs/")


def test_a_list_of_more_than_a_page(server, on_s3):
    volume = on_s3(server).mount()
    save(volume, 1, 1000)
    number = volume.seal()
    volume.wait_durable()
    volume.unmount()
    prefix = volume.url.split("/")[3]
    # They sort before the record, which so is on the second page.
    strangers = ["%s/epochs/%020d.stranger-%04d" % (prefix, 0, i) for i in range(1010)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: server.client().put(server.bucket, key, b"x"), strangers))
    assert epochs(volume) == [number]


def test_keys_of_a_profile(server, on_s3, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[profile training]\nregion = us-east-1\nservices = rgw\n[services rgw]\ns3 =\n  endpoint_url = %s\n"
        % server.endpoint)
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = no\naws_secret_access_key = no\n[training]\naws_access_key_id = %s\n"
        "aws_secret_access_key = %s\n" % (server.key, server.secret))
    volume = on_s3(server, AWS_PROFILE="training")
    os.environ.pop("AWS_ENDPOINT_URL")
    volume.mount()
    save(volume, 1, 1000)
    volume.seal()
    volume.wait_durable()
    volume.unmount()
    os.environ["AWS_PROFILE"] = "default"
    volume.url += "?profile=training"
    volume.remount(empty_cache=True)
    assert (volume.path / "checkpoint-1.pt").stat().st_size == 1000


def test_a_session_token(server, on_s3, tmp_path_factory, monkeypatch):
    with Rgw(tmp_path_factory.mktemp("rgw-sts"), sts=True) as rgw:
        key, secret, token = rgw.session()
        volume = on_s3(rgw, AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_SESSION_TOKEN=token).mount()
        data = save(volume, 1, 100000)
        volume.seal()
        volume.wait_durable()
        volume.unmount()
        volume.empty_cache()
        monkeypatch.delenv("AWS_SESSION_TOKEN")
        refused(volume, 4)
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        volume.mount()
        assert (volume.path / "checkpoint-1.pt").read_bytes() == data
        volume.unmount()


def test_a_role_of_a_profile(server, on_s3, tmp_path_factory, tmp_path):
    with Rgw(tmp_path_factory.mktemp("rgw-role"), sts=True) as rgw:
        (tmp_path / ".aws").mkdir()
        (tmp_path / ".aws" / "config").write_text(
            "[profile base]\naws_access_key_id = %s\naws_secret_access_key = %s\n"
            "[profile trainer]\nrole_arn = %s\nsource_profile = base\n" % (rgw.key, rgw.secret, rgw.role("trainer")))
        volume = on_s3(rgw, AWS_PROFILE="trainer").mount()
        data = save(volume, 1, 100000)
        volume.seal()
        volume.remount(empty_cache=True)
        assert (volume.path / "checkpoint-1.pt").read_bytes() == data
        volume.unmount()


def test_tls_with_a_private_authority(server, on_s3, tmp_path_factory, tmp_path, monkeypatch):
    authority = Authority(tmp_path / "ca")
    with Rgw(tmp_path_factory.mktemp("rgw-tls"), certificate=authority.server()) as rgw:
        rgw.wait_port(rgw.tls_port)
        volume = on_s3(rgw, rgw.tls_endpoint)
        refused(volume, 4, "certificate is not trusted", "ca-file=")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.certificate))
        volume.mount()
        data = save(volume, 1, 3 << 20)
        volume.seal()
        volume.wait_durable()
        volume.unmount()
        monkeypatch.delenv("AWS_CA_BUNDLE")
        volume.url += "?ca-file=%s" % authority.certificate
        volume.remount(empty_cache=True)
        assert (volume.path / "checkpoint-1.pt").read_bytes() == data
        volume.unmount()
