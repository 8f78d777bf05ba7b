# SPDX-License-Identifier: Apache-2.0
"""S3 and GCS as no real server here is: over fake_s3.py, which checks each signature itself."""

import errno
import json
import os
import subprocess
import urllib.parse

import pytest

from conformance import ALONE, conform
from conftest import BIN, MountError, run, wait_until
from fake_s3 import FakeS3, Refused
from story import run_recipe

AWS = {"AWS_ACCESS_KEY_ID": "FAKEKEY", "AWS_SECRET_ACCESS_KEY": "FAKE+/SECRET"}


@pytest.fixture
def passthrough():
    """How the kernel reads files has nothing to do with where they come from."""
    return "auto"


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of this machine's user or host gets in."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "GS_", "GCE_", "GCS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.timeout(300)
def test_buckets_in_host_names_odd_prefixes_and_small_pages():
    with FakeS3() as fake:
        fake.host_style, fake.page = True, 3
        conform(fake.url("a%20b%2Bc/%C3%A4~(x)'*"), AWS)
        assert all(headers["Host"].startswith("fake-bucket.localhost:") for _, _, headers in fake.requests)
        assert any("continuation-token" in path for _, path, _ in fake.requests)


def test_another_region_and_a_session_token():
    with FakeS3() as fake:
        fake.region, fake.token = "eu-west-3", "token/with+odd=characters"
        conform(fake.url("p", region="eu-west-3"), {**AWS, "AWS_SESSION_TOKEN": fake.token}, [ALONE])
        conform(fake.url("q"), {**AWS, "AWS_SESSION_TOKEN": fake.token, "AWS_REGION": "eu-west-3"}, [ALONE])


@pytest.mark.parametrize("condition", ["ignored", "unknown"])
def test_a_server_without_conditions_is_found_out_and_the_fallback_keeps_what_it_can(condition):
    with FakeS3() as fake:
        fake.condition = condition
        # All but the races: of writers at one moment more than one may win there.
        conform(fake.url("p"), AWS, [ALONE])
        if condition == "ignored":
            assert any(headers.get("If-None-Match") for _, _, headers in fake.requests)


def test_a_bucket_that_keeps_versions_has_one_creator_and_its_bytes():
    """Also of eight that race: the first version counts, and the others are taken back."""
    with FakeS3() as fake:
        fake.versioned = True
        conform(fake.url("p"), AWS)
        assert not any("probe" in key for key in fake.versions)


@pytest.mark.parametrize("who", ["before", "after"])
def test_of_two_creators_in_a_bucket_that_keeps_versions_the_first_wins(tmp_path, who):
    """Another's version comes just before ours, or just after; nobody can tell by reading back."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "f").write_text("1")
    env = {**AWS, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with FakeS3() as fake:
        fake.versioned = True
        seen = []

        def fault(request):
            wanted = ("PUT", "/p/epochs/") if who == "before" else ("GET", "?")
            if not seen and request.command == wanted[0] and (wanted[1] in request.path if who == "before" else
                                                               "prefix=p%2Fepochs%2F" in request.path and "versions=" in request.path):
                seen.append(request.path)
                key = urllib.parse.unquote(request.path.split("/fake-bucket/")[1]) if who == "before" else next(
                    k for k in fake.objects if k.startswith("p/epochs/"))
                fake.put(key, b"another's")
                seen.append(key)

        fake.fault = fault
        done = run(BIN, "import", tmp_path / "source", fake.url("p"), env={**os.environ, **env}, check=False)
        assert len(seen) == 2, fake.requests
        bodies = [body for _, body in fake.versions[seen[1]]]
        if who == "before":
            assert done.returncode == 8 and bodies == [b"another's"], done.stderr
        else:
            # Who came later takes it back, and did not here.
            assert done.returncode == 0 and len(bodies) == 2 and bodies[0] == b"another's", done.stderr


def test_where_versions_may_not_be_listed_the_last_one_counts_as_before():
    with FakeS3() as fake:
        fake.versioned, fake.lists_versions = True, False
        conform(fake.url("p"), AWS, [ALONE])


def test_probes_leave_nothing():
    with FakeS3() as fake:
        conform(fake.url("p"), AWS, [ALONE])
        assert not any("probe" in key for key in fake.objects)


def test_a_wrong_clock_here_costs_a_line_in_the_log():
    with FakeS3() as fake:
        fake.clock_ahead = 3 * 86400
        assert "ahead of that of this host" in conform(fake.url("p"), AWS, [ALONE])
        fake.clock_ahead = -3 * 86400
        assert "behind that of this host" in conform(fake.url("q"), AWS, [ALONE])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["hmac", "bearer"])
def test_google_by_key_or_token(how):
    env = {"hmac": {"GS_ACCESS_KEY_ID": "FAKEKEY", "GS_SECRET_ACCESS_KEY": "FAKE+/SECRET"},
           "bearer": {"GOOGLE_OAUTH_ACCESS_TOKEN": "ya29.token-_"}}[how]
    with FakeS3("goog") as fake:
        fake.bearer = env.get("GOOGLE_OAUTH_ACCESS_TOKEN")
        conform(fake.url("p"), env)
        assert any(h.get("x-goog-if-generation-match") == "0" for _, _, h in fake.requests)
        # Google refuses requests with both.
        assert not any(name.lower().startswith("x-amz-") for _, _, h in fake.requests for name in h)


def test_the_recipe_of_the_readme_for_google(tmp_path):
    with FakeS3("goog") as fake:
        run_recipe("export GS_ACCESS_KEY_ID=KEY", tmp_path, {
            "=KEY ": "=%s " % fake.key, "=SECRET ": "=%s " % fake.secret, "gs://my-bucket/run7": fake.url("run7")},
            said="no damage")


def delete_many(fake, error=0, prefix="a%26%3Cb%3E%22%27/%C3%A4", env=None):
    """Deletes many/0000 to many/1000, of which three are there; returns what was asked of the server, and said."""
    below = urllib.parse.unquote(prefix) + "/"
    fake.objects.update({below + name: b"x" for name in ("many/0000", "many/0007", "many/1000", "kept")})
    done = subprocess.run(
        [os.path.join(os.environ["EPOCHFS_UNITS"], "test_remote_delete_many")], capture_output=True, text=True,
        errors="replace", check=False,
        env={**os.environ, **(env or AWS), "EPOCHFS_TEST_REMOTE": fake.url(prefix), "CK_TIMEOUT_MULTIPLIER": "4",
             "EPOCHFS_TEST_ERROR": str(error)})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    left = sorted(key[len(below):] for key in fake.objects)
    return [method for method, _, _ in fake.requests], left, done.stderr


@pytest.mark.parametrize("batch", ["quiet", "verbose"])
def test_a_thousand_objects_are_deleted_in_one_request(batch):
    with FakeS3() as fake:
        fake.batch = batch
        asked, left, _ = delete_many(fake)
        # The last one alone needs no list.
        assert asked == ["POST", "DELETE"]
        assert left == ["kept"]


def test_one_object_that_is_refused_is_told_and_the_others_go():
    with FakeS3() as fake:
        fake.undeletable = {"p/many/0007": "AccessDenied"}
        asked, left, said = delete_many(fake, errno.EACCES, prefix="p")
        assert asked == ["POST", "DELETE"]
        assert left == ["kept", "many/0007"]
        assert "s3:DeleteObject" in said


def test_one_object_that_is_not_there_is_no_failure_and_one_that_fails_for_now_may_be_repeated():
    with FakeS3() as fake:
        fake.undeletable = {"p/many/0003": "NoSuchKey"}
        assert delete_many(fake, prefix="p")[1] == ["kept"]
        fake.requests.clear()
        fake.undeletable = {"p/many/0003": "AccessDenied", "p/many/0007": "InternalError"}
        asked, left, said = delete_many(fake, errno.EIO, prefix="p")
        # That ends it: the thousand-and-first is not tried.
        assert asked == ["POST"] and left == ["kept", "many/0007", "many/1000"]
        assert "InternalError" in said


@pytest.mark.parametrize("batch", ["unknown", "odd"])
def test_where_many_cannot_be_deleted_at_once_they_are_one_by_one(batch):
    with FakeS3() as fake:
        fake.batch = batch
        asked, left, _ = delete_many(fake)
        assert asked == ["POST"] + 1001 * ["DELETE"]
        assert left == ["kept"]


def test_google_is_asked_for_one_by_one():
    with FakeS3("goog") as fake:
        asked, left, _ = delete_many(fake, env={"GS_ACCESS_KEY_ID": "FAKEKEY", "GS_SECRET_ACCESS_KEY": "FAKE+/SECRET"})
        assert asked == 1001 * ["DELETE"]
        assert left == ["kept"]


def test_the_whole_request_may_be_refused():
    with FakeS3() as fake:

        def denied(request):
            if request.command == "POST":
                raise Refused(403, "AccessDenied")

        fake.fault = denied
        # Only what goes alone is gone.
        assert delete_many(fake, errno.EACCES, prefix="p")[1] == ["kept", "many/0000", "many/0007"]


def test_check_cleans_up_in_few_requests():
    with FakeS3() as fake:
        run(BIN, "check", fake.url("p"), env={**os.environ, **AWS})
        assert not fake.objects
        # A request has no key twice.
        assert 0 < [method for method, _, _ in fake.requests].count("POST") <= 10


def refusal(url, code, *said, env=None):
    """The command ends with this code and one line that says all of this; while it is tried again (code 3) another says so."""
    done = run(BIN, "log", url, check=False, env={**os.environ, **(AWS if env is None else env)})
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if code != 3 or "is tried again" not in line]
    assert len(lines) == 1 and lines[0] == done.stderr.splitlines()[-1], done.stderr
    for text in said:
        assert text in done.stderr, done.stderr
    assert "SECRET" not in done.stderr.replace("AWS_SECRET_ACCESS_KEY", ""), done.stderr


@pytest.mark.parametrize("locked", [False, True])
def test_check_of_a_bucket_that_keeps_versions_leaves_nothing_and_says_what_it_means(locked):
    with FakeS3() as fake:
        fake.versioned, fake.locked = True, locked
        done = run(BIN, "check", "--size", "64K", fake.url("p"), env={**os.environ, **AWS})
        assert "the bucket keeps versions (versioning, or object lock)" in done.stdout and "NoncurrentVersionExpiration" in done.stdout
        if locked:
            assert "stay until the bucket lets go of them" in done.stdout and fake.versions and not fake.objects
        else:
            assert not fake.versions, fake.versions


def test_gc_of_a_bucket_that_keeps_versions_frees_nothing_and_says_so(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    env = {**os.environ, **AWS, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with FakeS3() as fake:
        fake.versioned = True
        for number in range(2):
            (source / "f").write_bytes(os.urandom(3 << 20))
            run(BIN, "import", source, fake.url("p"), env=env)
        run(BIN, "rm", fake.url("p"), "1", env=env)
        done = run(BIN, "gc", "--grace", "0", fake.url("p"), env=env)
        assert "marked as deleted 3" in done.stdout and "freed" not in done.stdout and "NoncurrentVersionExpiration" in done.stdout, done.stdout
        again = json.loads(run(BIN, "gc", "--json", fake.url("p"), env=env).stdout)
        assert again["keeps_versions"] is True
        packs = [versions for key, versions in fake.versions.items() if key.startswith("p/packs/")]
        assert sum(any(body for _, body in versions) for versions in packs) >= 2


def test_what_a_server_refuses_is_told_in_one_line():
    with FakeS3() as fake:
        fake.region = "ap-south-1"
        refusal(fake.url("p"), 2, "fake-bucket", "is in region ap-south-1, not us-east-1", "region=ap-south-1")
        refusal(fake.url("p", region="ap-south-1"), 5)
        fake.region = "us-east-1"
        bucket, fake.bucket = fake.bucket, "another"
        refusal(fake.url("p").replace("another", bucket), 3, bucket, "does not exist")
        fake.bucket = bucket
        refusal(fake.url("p"), 4, "secret access key", env={**AWS, "AWS_SECRET_ACCESS_KEY": "WRONG-SECRET"})
        refusal(fake.url("p"), 4, "does not know the access key", env={**AWS, "AWS_ACCESS_KEY_ID": "WRONG"})
        refusal(fake.url("p"), 4, "session token has expired", env={**AWS, "AWS_SESSION_TOKEN": "OLD-SECRET"})
        refusal(fake.url("p"), 4, "no credentials found", "AWS_ACCESS_KEY_ID", env={})
        refusal(fake.url("p", profile="none"), 4, "profile none has no credentials")

        def html(_):
            raise Refused(403, "AccessDenied")

        fake.fault = html
        refusal(fake.url("p"), 4, "s3:ListBucket")
    refusal(fake.url("p"), 3, "cannot be reached")


def test_a_redirect_of_amazon_names_the_place():
    with FakeS3() as fake:

        def redirect(_):
            raise Refused(301, "PermanentRedirect", Endpoint="fake-bucket.s3.eu-west-1.amazonaws.com")

        fake.fault = redirect
        refusal(fake.url("p"), 2, "fake-bucket.s3.eu-west-1.amazonaws.com")


@pytest.mark.parametrize("query, said", [
    ("?endpoint=ftp://h", "endpoint is no http"), ("?ca-file=/nonexistent", "/nonexistent holds no certificate"),
    ("?colour=red", "colour is no parameter"), ("?path-style=maybe", "path-style is 1 or 0"),
    ("?region=a/b", "region"), ("/a//b", "prefix")])
def test_a_wrong_url_is_told(query, said):
    refusal("s3://fake-bucket" + query, 2, said)


def test_a_busy_server_and_conflicts_only_cost_time(make_volume, monkeypatch):
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        volume = make_volume(settle="1h")
        volume.url = fake.url("p")
        volume.mount()
        count = [0]

        def sometimes(request):
            count[0] += 1
            if count[0] % 2:
                raise Refused(*((503, "SlowDown") if request.command != "PUT" or "If-None-Match" not in request.headers
                                else (409, "ConditionalRequestConflict")))

        fake.fault = sometimes
        (volume.path / "a").write_bytes(os.urandom(100000))
        number = volume.seal()
        volume.wait_durable()
        assert count[0] > 4
        fake.fault = lambda _: None
        assert "epochs/%020d.json" % number in [key[len("p/"):] for key in fake.objects]


def test_a_quota_is_told_and_waited_for(make_volume, monkeypatch):
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        volume = make_volume(settle="1h")
        volume.url = fake.url("p")
        volume.mount()

        def full(request):
            if request.command == "PUT" and "/packs/" in request.path:
                raise Refused(403, "QuotaExceeded")

        fake.fault = full
        (volume.path / "a").write_bytes(os.urandom(100000))
        volume.seal()
        wait_until(lambda: "quota is reached" in str(volume.status()), "status to say why")
        (volume.path / "b").write_text("training goes on")
        fake.fault = lambda _: None
        volume.wait_durable()


@pytest.mark.parametrize("code", ["NoSuchBucket", "NoSuchKey", "NoSuchUpload"])
def test_a_bucket_that_goes_takes_no_file_out_of_an_epoch(make_volume, monkeypatch, code):
    """A put answered with 404 is a failure of the remote, not of the cache: the epoch waits, and is whole."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        volume = make_volume(settle="1h")
        volume.url = fake.url("p")
        volume.mount()
        refused = []

        def gone(request):
            if request.command == "PUT" and "/packs/" in request.path:
                refused.append(request.path)
                raise Refused(404, code)

        fake.fault = gone
        # More than a pack: it is put, and refused, while the next content is read.
        contents = {name: os.urandom(40 << 20) for name in "abc"}
        for name, content in contents.items():
            (volume.path / name).write_bytes(content)
        number = volume.seal()
        wait_until(lambda: len(refused) > 2, "three puts that were refused")
        if code == "NoSuchBucket":
            wait_until(lambda: "bucket fake-bucket: does not exist" in str(volume.status()), "status to say why")
        assert "epochs/%020d.json" % number not in [key[len("p/"):] for key in fake.objects]
        fake.fault = lambda _: None
        volume.wait_durable()
        assert json.loads(fake.objects["p/epochs/%020d.json" % number])["complete"] is True
        volume.remount(empty_cache=True)
        for name, content in contents.items():
            assert (volume.path / name).read_bytes() == content, name
        assert "gone from the cache" not in volume.log.read_text()


def test_new_keys_in_the_file_are_taken_up_while_mounted(make_volume, tmp_path):
    keys = tmp_path / ".aws" / "credentials"
    keys.parent.mkdir()

    def write(key):
        keys.with_suffix(".new").write_text("[default]\naws_access_key_id = %s\naws_secret_access_key = FAKE+/SECRET\n"
                                            % key)
        keys.with_suffix(".new").rename(keys)

    write("FAKEKEY")
    with FakeS3() as fake:
        volume = make_volume(settle="1h")
        volume.url = fake.url("p")
        volume.mount()
        fake.key = "NEXTKEY"
        (volume.path / "a").write_text("with the next key")
        volume.seal()
        wait_until(lambda: "does not know the access key ID" in str(volume.status()), "status to say why")
        write("NEXTKEY")
        volume.wait_durable()
        volume.unmount()
        volume.empty_cache()
        volume.mount()
        assert (volume.path / "a").read_text() == "with the next key"


def test_a_mount_says_that_nothing_keeps_writers_apart(make_volume, monkeypatch):
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        fake.condition = "ignored"
        volume = make_volume(settle="1h")
        volume.url = fake.url("p")
        volume.mount()
        (volume.path / "a").write_text("x")
        volume.seal()
        volume.wait_durable()
        volume.unmount()
        assert "one machine at a time" in volume.log.read_text()


def test_a_mount_names_versions_as_the_cause(make_volume, monkeypatch):
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        fake.versioned = True
        volume = make_volume(settle="1h", keep="last:3")
        volume.url = fake.url("p")
        volume.mount()
        (volume.path / "a").write_text("x")
        volume.seal()
        volume.wait_durable()
        assert volume.status()["gc"]["keeps_versions"] is True
        volume.unmount()
        log = volume.log.read_text()
        assert "keeps versions (versioning, or object lock)" in log and "one machine at a time" in log and "NoncurrentVersionExpiration" in log
        assert not any("probe" in key for key in fake.versions)


def test_a_version_that_a_put_names_is_none_that_is_kept(make_volume, monkeypatch):
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        fake.names_versions = True
        volume = make_volume(settle="1h", keep="last:3")
        volume.url = fake.url("p")
        volume.mount()
        (volume.path / "a").write_text("x")
        volume.seal()
        volume.wait_durable()
        assert volume.status()["gc"]["keeps_versions"] is False
        volume.unmount()
        assert "versions" not in volume.log.read_text()


def node(make_volume, fake, name):
    volume = make_volume(settle="1h", refresh="200ms", nodes=2, run="r", node=name)
    volume.url = fake.url("p")
    return volume


def test_two_nodes_write_one_checkpoint_over_small_pages_and_conflicts(make_volume, monkeypatch):
    """Listings of two keys each; each creation of a record is refused once with 409, as S3 does while others create."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        fake.page = 2
        refused = set()

        def conflict(request):
            if request.command == "PUT" and "/epochs/" in request.path and request.path not in refused:
                refused.add(request.path)
                raise Refused(409, "ConditionalRequestConflict")

        fake.fault = conflict
        nodes = [node(make_volume, fake, name).mount() for name in ("a", "b")]
        for step in (1, 2):
            for v in nodes:
                (v.path / ("step-%d" % step)).mkdir()
                (v.path / ("step-%d" % step) / ("of_" + v.options["node"])).write_text(str(step))
                v.request("commit")
                v.wait_durable()
        for v in nodes:
            wait_until(lambda: v.epochs() == [1, 2], "both epochs")
            assert sorted(os.listdir(v.epoch(2) / "step-2")) == ["of_a", "of_b"]
        assert len(refused) == 2


def test_a_node_set_needs_a_server_that_keeps_what_is_there(make_volume, monkeypatch):
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        fake.condition = "ignored"
        with pytest.raises(MountError) as refused:
            node(make_volume, fake, "a").mount()
        assert refused.value.code == 1 and "cannot hold the epochs of several nodes" in refused.value.output
