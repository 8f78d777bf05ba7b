# SPDX-License-Identifier: Apache-2.0
"""A distributed S3 engine on one machine: Ceph with several OSDs that keep each object twice on disk,
several gateways, and haproxy in front, which sends each connection to a gateway that answers."""

import json
import os
import pathlib
import signal
import sys
import time
import uuid

sys.path.insert(0, os.fspath(pathlib.Path(__file__).resolve().parents[1] / "remotes"))

from server import find_program, free_port  # noqa: E402
from server_rgw import Rgw  # noqa: E402

BALANCER = """global
    log stdout format raw local0
defaults
    mode tcp
    timeout connect 2s
    timeout client 120s
    timeout server 120s
    retries 3
    option redispatch
frontend s3
    bind 127.0.0.1:{port}
    default_backend gateways
backend gateways
    balance leastconn
{servers}
"""


class Cluster(Rgw):
    """`osds` OSDs on bluestore at size 2, `gateways` gateways; `port` is the balancer's."""

    name = "cluster"

    def __init__(self, folder, osds=3, gateways=2):
        super().__init__(folder)
        self.osd_count, self.gateway_count = osds, gateways
        self.osds, self.gateways, self.gateway_ports = {}, {}, []

    def configure(self):
        super().configure()
        path = self.folder / "ceph.conf"
        text = path.read_text()
        for old, new in (("admin socket =\n", "admin socket = %s/$name.asok\n" % self.folder),
                         ("osd pool default size = 1", "osd pool default size = 2"),
                         ("osd objectstore = memstore", "osd objectstore = bluestore\n"
                          "bluestore block size = 21474836480\nbluestore block create = true\n"
                          "bluestore cache autotune = false\nbluestore cache size = 134217728\n"
                          "osd heartbeat interval = 1\nosd heartbeat grace = 4")):
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)

    def start(self):
        for program in ("ceph-mon", "ceph-osd", "radosgw", "ceph", "radosgw-admin", "haproxy"):
            find_program(program)
        self.configure()
        monmap = os.fspath(self.folder / "monmap")
        self.run("monmaptool", "--create", "--clobber", "--fsid", self.fsid, "--addv", "a",
                 "[v2:127.0.0.1:%d/0]" % self.mon_port, monmap)
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap)
        self.daemon("ceph-mon", "-i", "a")
        self.wait_port(self.mon_port)
        for number in range(self.osd_count):
            osd = str(uuid.uuid4())
            (self.folder / ("osd%d" % number)).mkdir(exist_ok=True)
            self.run("ceph", "osd", "new", osd)
            self.run("ceph-osd", "-i", str(number), "--mkfs", "--osd-uuid", osd)
            self.start_osd(number)
        self.wait_osds(self.osd_count)
        self.add_user("test", self.key, self.secret)
        self.gateway_ports = [free_port() for _ in range(self.gateway_count)]
        for number in range(self.gateway_count):
            self.start_one_gateway(number)
        self.start_balancer()
        self.client().make_bucket(self.bucket)

    # OSDs

    def start_osd(self, number):
        self.osds[number] = self.daemon("ceph-osd", "-i", str(number))

    def kill_osd(self, number):
        self.osds[number].send_signal(signal.SIGKILL)
        self.osds[number].wait()
        self.processes.remove(self.osds.pop(number))

    def status(self):
        return json.loads(self.run("ceph", "status", "--format", "json"))

    def wait_osds(self, count):
        self.wait(lambda: self.status()["osdmap"]["num_up_osds"] >= count, "%d OSDs to be up" % count)

    def wait_clean(self):
        """Until every object is there twice again. Without a manager daemon only the OSDs know: each
        placement group must have a primary that calls it clean."""
        pools = json.loads(self.run("ceph", "osd", "dump", "--format", "json"))["pools"]
        groups = sum(p["pg_num"] for p in pools)

        def states():
            for number in self.osds:
                answer = self.run("ceph", "--admin-daemon", os.fspath(self.folder / ("osd.%d.asok" % number)),
                                  "dump_pgstate_history")
                yield from (g["currently"] for g in json.loads(answer)["pgs"])

        def clean():
            try:
                return sum(s.endswith("/Primary/Active/Clean") for s in states()) == groups
            except RuntimeError:
                return False  # an OSD that starts does not know the command yet
        self.wait(clean, "the cluster to be clean")

    # gateways

    def start_one_gateway(self, number):
        name = "client.rgw%s" % (number + 1 if number else "")
        port = self.gateway_ports[number]
        self.gateways[number] = self.daemon("radosgw", "-n", name, "--no-mon-config",
                                            "--rgw-frontends=beast endpoint=127.0.0.1:%d tcp_nodelay=1" % port)
        self.wait_port(port)

    def kill_gateway(self, number):
        self.gateways[number].send_signal(signal.SIGKILL)
        self.gateways[number].wait()
        self.processes.remove(self.gateways.pop(number))

    def start_balancer(self):
        servers = "\n".join("    server gateway%d 127.0.0.1:%d check inter 500ms fall 1 rise 1" % item
                            for item in enumerate(self.gateway_ports))
        configuration = self.folder / "haproxy.cfg"
        configuration.write_text(BALANCER.format(port=self.port, servers=servers))
        self.spawn(find_program("haproxy"), "-db", "-f", configuration)
        self.wait_port(self.port)

    @staticmethod
    def wait(condition, what, limit=300):
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError("waited %d s in vain for %s" % (limit, what))
            time.sleep(0.2)
