# SPDX-License-Identifier: Apache-2.0
"""Ceph RGW, an S3 server, over one OSD whose objects lie in memory.

Three daemons in the foreground: monitor, OSD, gateway. Their addresses, data and sockets are those of
the configuration in the server's folder, so that any number run side by side and none touches
/etc/ceph or /var/lib/ceph.
"""

import json
import os
import re
import subprocess
import urllib.parse
import uuid

import s3_client
from server import Server, find_program, free_port

CONFIGURATION = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{mon_port}/0
mon initial members = a
ms bind msgr1 = false
ms bind ipv6 = false
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {folder}
admin socket =
pid file =
log file = {folder}/$name.log
log to stderr = false
crash dir = {folder}/crash
keyring = {folder}/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd crush update on start = true
mon allow pool size one = true
mon max pg per osd = 10000
[mon]
mon data = {folder}/mon
mon cluster log file = {folder}/cluster.log
mon data avail crit = 1
mon data avail warn = 2
auth allow insecure global id reclaim = true
# Without these two the start takes 12 s.
paxos propose interval = 0.02
paxos min wait = 0.01
mon tick interval = 1
mon osd min down reporters = 1
[osd]
osd data = {folder}/osd$id
osd objectstore = memstore
osd fast shutdown = false
memstore device bytes = {memory}
osd op num threads per shard = 1
[client]
rgw data = {folder}/rgw
rgw frontends = {frontends}
{sts}rgw enable usage log = false
# Without these two deleted data stays in memory for hours.
rgw gc obj min wait = 5
rgw gc processor period = 5
"""


ALLOW = json.dumps({"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": ["s3:*", "sts:*"], "Resource": ["*"]}]})


class Rgw(Server):
    """RGW with one user and one bucket. `certificate`: PEM files (certificate, key) for https on
    `tls_port` too. `sts`: it gives session tokens too, and then says AccessDenied for every
    wrong key. `memory` bounds what it keeps."""

    name = "rgw"
    key, secret, bucket, region = "TESTKEY", "TESTSECRET", "epochfs-test", "us-east-1"

    def __init__(self, folder, certificate=None, sts=False, memory=2 << 30):
        super().__init__(folder)
        self.certificate = certificate
        self.sts = sts
        self.memory = memory
        self.port = self.tls_port = None

    @property
    def endpoint(self):
        return "http://127.0.0.1:%d" % self.port

    @property
    def tls_endpoint(self):
        return "https://localhost:%d" % self.tls_port

    def url(self, prefix):
        return "s3://%s/%s?endpoint=%s" % (self.bucket, prefix, self.endpoint)

    def env(self):
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret,
                # Nothing of this machine's user or host gets in.
                "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                "AWS_EC2_METADATA_DISABLED": "true"}

    def curl(self, payload_hash=None):
        return "%s/%s" % (self.endpoint, self.bucket), [
            'aws-sigv4 = "aws:amz:%s:s3"' % self.region, 'user = "%s:%s"' % (self.key, self.secret),
            'header = "x-amz-content-sha256: %s"' % (payload_hash or "UNSIGNED-PAYLOAD")]

    def client(self):
        """A client of its own, to make and look at things."""
        return s3_client.Client(self.endpoint, self.key, self.secret, self.region)

    def run(self, program, *arguments):
        """Runs one of Ceph's commands on this cluster; its output."""
        done = subprocess.run([find_program(program), *arguments], env=self.environment(), timeout=60,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError("%s %s: %s%s" % (program, arguments, done.stderr, self.output()))
        return done.stdout

    def environment(self):
        return {**os.environ, "CEPH_CONF": os.fspath(self.folder / "ceph.conf")}

    def daemon(self, program, *arguments):
        # Debian's Ceph 18 looks for its classes in lib/..., as seen from a service's folder.
        return self.spawn(find_program(program), "-f", *arguments, env=self.environment(), cwd="/")

    def configure(self):
        self.port, self.tls_port, self.mon_port = free_port(), free_port(), free_port()
        frontends = "beast endpoint=127.0.0.1:%d tcp_nodelay=1" % self.port  # else a small GET takes 40 ms more
        if self.certificate:
            frontends += " ssl_endpoint=127.0.0.1:%d ssl_certificate=%s ssl_private_key=%s" % (
                self.tls_port, *self.certificate)
        self.fsid = str(uuid.uuid4())
        (self.folder / "mon").mkdir()
        (self.folder / "osd0").mkdir()
        (self.folder / "ceph.conf").write_text(CONFIGURATION.format(
            folder=self.folder, fsid=self.fsid, mon_port=self.mon_port, frontends=frontends, memory=self.memory,
            sts="rgw enable apis = s3, sts, iam\nrgw s3 auth use sts = true\nrgw sts key = 0123456789abcdef\n"
            if self.sts else ""))

    def start(self):
        for program in ("ceph-mon", "ceph-osd", "radosgw", "ceph", "radosgw-admin"):
            find_program(program)
        self.configure()
        monmap = os.fspath(self.folder / "monmap")
        self.run("monmaptool", "--create", "--clobber", "--fsid", self.fsid, "--addv", "a",
                 "[v2:127.0.0.1:%d/0]" % self.mon_port, monmap)
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap)
        self.daemon("ceph-mon", "-i", "a")
        self.wait_port(self.mon_port)
        osd = str(uuid.uuid4())
        self.run("ceph", "osd", "new", osd)
        self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.daemon("ceph-osd", "-i", "0")
        self.add_user("test", self.key, self.secret)
        self.start_gateway()
        self.client().make_bucket(self.bucket)

    def start_gateway(self):
        gateway = self.daemon("radosgw", "-n", "client.rgw", "--no-mon-config")
        self.wait_port(self.port)
        return gateway

    def stop(self):
        """All is in memory, so nothing is gained by waiting for orderly ends (the gateway's takes 5 s)."""
        for process in reversed(self.processes):
            process.kill()
        super().stop()

    def iam(self, service, **fields):
        """The answer of IAM or STS."""
        return self.client().ask("POST", "/", body=urllib.parse.urlencode(fields).encode(), service=service,
                                 headers={"content-type": "application/x-www-form-urlencoded"}).decode()

    def session(self):
        """Key, secret and token of a session of the user."""
        self.run("radosgw-admin", "caps", "add", "--uid", "test", "--caps", "user-policy=*")
        self.iam("iam", Action="PutUserPolicy", UserName="test", PolicyName="all", PolicyDocument=ALLOW)
        answer = self.iam("sts", Action="GetSessionToken", Version="2011-06-15")
        return tuple(re.search("<%s>(.*?)</%s>" % (n, n), answer)[1]
                     for n in ("AccessKeyId", "SecretAccessKey", "SessionToken"))

    def role(self, name):
        """Makes a role that the user may take, and that may do all: its ARN."""
        trust = json.dumps({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": ["arn:aws:iam:::user/test"]}, "Action": ["sts:AssumeRole"]}]})
        self.run("radosgw-admin", "role", "create", "--role-name", name, "--assume-role-policy-doc", trust)
        self.run("radosgw-admin", "role-policy", "put", "--role-name", name, "--policy-name", "all", "--policy-doc",
                 ALLOW)
        return "arn:aws:iam:::role/" + name

    def add_user(self, name, key, secret):
        self.run("radosgw-admin", "user", "create", "--uid", name, "--display-name", name, "--access-key", key,
                 "--secret", secret)
