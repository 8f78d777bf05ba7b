# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a real mount; the alerts and the dashboard of packaging/examples are put to it."""

import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest

import remote_weather
from conftest import run, wait_until
from papers import REPO, block_of
from server import free_port
from test_metrics import Watched

weather = remote_weather.weather
pytestmark = pytest.mark.options(settle="1h")

ALERTS = REPO / "packaging" / "examples" / "epochfs-alerts.yml"
DASHBOARD = REPO / "packaging" / "examples" / "epochfs-dashboard.json"

# Samples of every 15 s. The upload dies between the second and the third; the first save ends at 30 s, its epoch is sealed a minute
# later and is not complete; a healthy mount saves and uploads meanwhile.
OF_RULES = """
rule_files: [%(rules)s]
evaluation_interval: 15s
tests:
  - interval: 15s
    input_series:
      - {series: 'epochfs_upload_failing_seconds{node="dead"}', values: '0 0 5+15x40'}
      - {series: 'epochfs_upload_failing_seconds{node="well"}', values: '0x10 5 20 35 0x40'}
    alert_rule_test:
      - {eval_time: 1m, alertname: EpochfsUploadFails}
      - eval_time: 2m30s
        alertname: EpochfsUploadFails
        exp_alerts: [{exp_labels: {severity: critical, node: dead}, exp_annotations: {
          summary: 'Checkpoints of dead do not reach the remote',
          description: 'Nothing was uploaded for 2m 5s. `epochfs status` on dead says why.'}}]
  - interval: 15s
    input_series:
      - {series: 'epochfs_save_duration_seconds_count{node="stands"}', values: '0 0 1+1x100'}
      - {series: 'epochfs_latest_lag_seconds{node="stands"}', values: '0x6 10+15x100'}
      - {series: 'epochfs_save_duration_seconds_count{node="well"}', values: '0 0 1+1x100'}
      - {series: 'epochfs_latest_lag_seconds{node="well"}', values: '0x6 10 0x20 10 25 0x100'}
      - {series: 'epochfs_save_duration_seconds_count{node="idle"}', values: '7x100'}
      - {series: 'epochfs_latest_lag_seconds{node="idle"}', values: '1000+15x100'}
    alert_rule_test:
      - {eval_time: 3m, alertname: EpochfsLatestStands}
      - eval_time: 5m
        alertname: EpochfsLatestStands
        exp_alerts: [{exp_labels: {severity: critical, node: stands}, exp_annotations: {
          summary: 'Saves on stands make no complete epoch',
          description: 'The first epoch after the newest complete one is 3m 25s old. `epochfs log` on stands says what they lack.'}}]
  - interval: 15s
    input_series:
      - {series: 'epochfs_lease_held{node="lost"}', values: '1x3 0x40'}
      - {series: 'epochfs_failed_saves_total{node="lost",reason="killed"}', values: '0x3 1x100'}
      - {series: 'up{job="epochfs",instance="gone"}', values: '1x3 0x40'}
    alert_rule_test:
      - {eval_time: 45s, alertname: EpochfsLeaseLost}
      - eval_time: 2m
        alertname: EpochfsLeaseLost
        exp_alerts: [{exp_labels: {severity: critical, node: lost}, exp_annotations: {
          summary: 'The mount on lost does not hold the lease of its volume', description: '`epochfs status` on lost says who does.'}}]
      - eval_time: 2m
        alertname: EpochfsSaveFailed
        exp_alerts: [{exp_labels: {severity: warning, node: lost, reason: killed}, exp_annotations: {
          summary: 'A save on lost failed (killed)',
          description: 'The files before it are as they were. `epochfs log` and `epochfs explain` on lost say more.'}}]
      - {eval_time: 15m, alertname: EpochfsSaveFailed}
      - eval_time: 3m
        alertname: EpochfsGone
        exp_alerts: [{exp_labels: {severity: critical, job: epochfs, instance: gone}, exp_annotations: {
          summary: 'The mount at gone does not answer', description: 'It was unmounted, or its process has died.'}}]
"""


class Prometheus:
    """On loopback, with the scrape configuration that the manual prints, but for the port and a scrape each second."""

    def __init__(self, folder, port, rules):
        self.url = "http://127.0.0.1:%d" % free_port()
        config = block_of("scrape_configs:").replace("127.0.0.1:9610", "127.0.0.1:%d" % port).replace("15s", "1s")
        assert "%d" % port in config and "1s" in config
        (folder / "rules.yml").write_text(rules)
        (folder / "prometheus.yml").write_text("rule_files: [rules.yml]\n" + config)
        run("promtool", "check", "config", folder / "prometheus.yml")
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", "--config.file=%s" % (folder / "prometheus.yml"), "--storage.tsdb.path=%s" % (folder / "data"),
                 "--web.listen-address=" + self.url.partition("//")[2]], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, what, **query):
        """The data of an answer; None where it does not answer yet."""
        try:
            with urllib.request.urlopen("%s/api/v1/%s?%s" % (self.url, what, urllib.parse.urlencode(query)), timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            pytest.fail("%s: %s" % (query or what, error.read().decode(errors="replace")))
        except OSError:
            assert self.process.poll() is None, self.log.read_text(errors="replace")
            return None

    def query(self, expression):
        return (self.ask("query", query=expression) or {"result": []})["result"]

    def number(self, expression):
        result = self.query(expression)
        return float(result[0]["value"][1]) if result else None

    def end(self):
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def prometheus(tmp_path):
    with contextlib.ExitStack() as stack:
        def start(port, rules):
            p = Prometheus(tmp_path, port, rules)
            stack.callback(p.end)
            wait_until(lambda: p.query("up"), "a scrape")
            return p
        yield start


def expressions_of_dashboard():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    return [target["expr"].replace("$volume", ".*") for panel in panels for target in panel["targets"]]


@pytest.mark.parametrize("passthrough", ["off"], indirect=True)
def test_the_alerts_are_raised_in_time(tmp_path, passthrough):
    (tmp_path / "test.yml").write_text(OF_RULES % {"rules": ALERTS})
    run("promtool", "check", "rules", ALERTS)
    run("promtool", "test", "rules", tmp_path / "test.yml")


def test_prometheus_knows_each_metric_that_alerts_and_dashboard_use(volume, prometheus):
    w = Watched(volume)
    volume.mount()
    p = prometheus(w.port, ALERTS.read_text())
    (volume.path / "model").write_bytes(b"1" * 100000)
    volume.seal()
    volume.wait_durable()
    wait_until(lambda: p.number("epochfs_durable_epoch") == 1, "the epoch in Prometheus")
    (target,) = p.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert p.number("epochfs_save_duration_seconds_count") == 1 and p.number("epochfs_store_input_bytes_total") == 100000
    # It takes names, types, units and help of the families from what is scraped.
    metadata = p.ask("metadata")
    assert metadata["epochfs_at_risk_bytes"][0]["type"] == "gauge" and metadata["epochfs_at_risk_bytes"][0]["unit"] == "bytes"
    assert metadata["epochfs_close_duration_seconds"][0]["type"] == "histogram"
    rules = [rule["query"] for group in p.ask("rules")["groups"] for rule in group["rules"]]
    for expression in expressions_of_dashboard() + rules:
        p.ask("query", query=expression)
        for name in re.findall(r"\bepochfs_[a-z_]+", expression):
            assert p.query(name), (name, expression)


def test_a_dead_upload_raises_the_alert_and_a_live_one_ends_it(volume, weather, prometheus):
    w = Watched(volume)
    volume.mount()
    # The minute of the rule, and its interval, in little.
    p = prometheus(w.port, ALERTS.read_text().replace("> 60", "> 2").replace("15s", "1s"))
    weather.turn("put.down=1")
    (volume.path / "model").write_bytes(b"1")
    volume.seal()

    def firing():
        return {alert["labels"]["alertname"] for alert in p.ask("alerts")["alerts"] if alert["state"] == "firing"}

    wait_until(lambda: "EpochfsUploadFails" in firing(), "the alert")
    assert firing() == {"EpochfsUploadFails"}
    weather.clear()
    wait_until(lambda: not firing(), "its end")
