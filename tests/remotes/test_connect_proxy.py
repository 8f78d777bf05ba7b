# SPDX-License-Identifier: Apache-2.0
"""Servers that are reached only through a proxy: https in a tunnel, and nothing else."""

import base64
import pathlib

import pytest

from certificates import Authority
from conftest import BIN, MountError, run
from connect_proxy import PASSWORD as PROXY_PASSWORD
from connect_proxy import USER as PROXY_USER
from connect_proxy import ConnectProxy
from server_lighttpd import TOKEN
from server_rgw import Rgw
from story import check_files, save


@pytest.fixture
def passthrough():
    return "auto"


@pytest.fixture
def volume(server, make_volume, request, monkeypatch):
    v = make_volume()
    v.url = server.url(request.node.originalname)
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)
    return v


@pytest.fixture
def proxy():
    with ConnectProxy() as running:
        yield running


def over(*kinds):
    return pytest.mark.parametrize("server", kinds, indirect=True)


def shown(volume):
    texts = [run(BIN, "status", "--json", volume.path).stdout, volume.log.read_text(),
             pathlib.Path("/proc/%d/cmdline" % volume.pid).read_text()]
    return "\n".join(texts + [path.read_text(errors="replace") for path in volume.cache.glob("*/log")])


def secrets():
    pair = "%s:%s" % (PROXY_USER, PROXY_PASSWORD)
    return [PROXY_PASSWORD, "pr%3Aoxy%40pass", base64.b64encode(pair.encode()).decode()]


@over("lighttpd-tls")
@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
def test_https_goes_through_a_tunnel(volume, server, proxy, monkeypatch, name):
    monkeypatch.setenv(name, proxy.url)
    volume.mount(log_level="debug")
    files = {"a": save(volume, "a", 1 << 20)}
    volume.wait_durable()
    text = shown(volume)
    assert not [secret for secret in [*secrets(), TOKEN] if secret in text]
    volume.remount(empty_cache=True)
    check_files(volume.path, files)
    volume.unmount()
    assert set(proxy.asked) == {"CONNECT localhost:%d" % server.tls_port}
    assert TOKEN.encode() not in proxy.carried and b"Authorization: Bearer" not in proxy.carried


def test_signed_requests_go_through_a_tunnel(make_volume, proxy, monkeypatch, tmp_path, tmp_path_factory):
    authority = Authority(tmp_path / "ca")
    with Rgw(tmp_path_factory.mktemp("rgw-tls"), certificate=authority.server()) as rgw:
        rgw.wait_port(rgw.tls_port)
        for name, value in {**rgw.env(), "AWS_ENDPOINT_URL": rgw.tls_endpoint, "https_proxy": proxy.url,
                            "AWS_CA_BUNDLE": str(authority.certificate)}.items():
            monkeypatch.setenv(name, value)
        volume = make_volume()
        volume.url = "s3://%s/tunnel" % rgw.bucket
        volume.mount()
        files = {"a": save(volume, "a", 9 << 20)}
        volume.remount(empty_cache=True)
        check_files(volume.path, files)
        volume.unmount()
        assert set(proxy.asked) == {"CONNECT localhost:%d" % rgw.tls_port}
        assert b"AWS4-HMAC" not in proxy.carried


@over("lighttpd-tls")
@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_no_proxy_is_heeded(volume, proxy, monkeypatch, name):
    monkeypatch.setenv("https_proxy", proxy.url)
    monkeypatch.setenv(name, "example.org,localhost")
    volume.mount()
    volume.unmount()
    assert proxy.asked == []


@over("lighttpd")
def test_plain_http_goes_through_none(volume, proxy, monkeypatch):
    for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    volume.mount()
    volume.unmount()
    assert proxy.asked == []


def refused(volume, code):
    with pytest.raises(MountError) as error:
        volume.mount(log_level="debug")
    assert error.value.code == code, error.value.output
    said = error.value.output + "".join(p.read_text(errors="replace") for p in volume.cache.glob("*/log"))
    assert not [secret for secret in secrets() if secret in said]
    return error.value.output.splitlines()[-1]


@over("lighttpd-tls")
def test_a_wrong_password_of_the_proxy_is_told_at_mount(volume, proxy, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy.url.replace("oxy", "oxywrong"))
    line = refused(volume, 4)
    assert "proxy does not know us" in line and "oxywrong" not in line


@over("lighttpd-tls")
@pytest.mark.parametrize("status, code", [(403, 4), (502, 3)])
def test_a_tunnel_that_is_refused_is_told_at_mount(volume, monkeypatch, status, code):
    with ConnectProxy(refuse=status) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        line = refused(volume, code)
    assert "proxy does not allow" in line if status == 403 else "502" in line


@over("lighttpd-tls")
@pytest.mark.parametrize("value, code", [("http://squid:pr%3Aoxy%40pass@127.0.0.1:port", 2),
                                         ("http://squid:pr%3Aoxy%40pass@127.0.0.1:1", 3),
                                         ("gopher://squid:pr%3Aoxy%40pass@127.0.0.1:1", 3)])
def test_a_proxy_that_is_none_is_told_without_its_password(volume, monkeypatch, value, code):
    monkeypatch.setenv("https_proxy", value)
    line = refused(volume, code)
    if code == 2:
        assert "https_proxy in the environment is no URL of a proxy" in line
