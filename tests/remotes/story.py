# SPDX-License-Identifier: Apache-2.0
"""What a volume goes through on any remote: saved, sealed, killed, mounted again, collected, restored on a machine that has nothing."""

import json
import os

from conftest import BIN, is_mounted, run, wait_until
from papers import block_of


def save(volume, name, size):
    """Writes a file of random bytes: what it holds."""
    data = os.urandom(size)
    path = volume.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return data


def check_files(root, files):
    for name, data in files.items():
        assert (root / name).read_bytes() == data, name


def whole_story(volume, tmp_path, large=40 << 20):
    """`volume` is not mounted, and its url names an empty remote. `large`: bytes of the file while whose upload the daemon dies."""
    volume.mount(settle="1h")
    files = {"model.pt": save(volume, "model.pt", 5 << 20), "sub/small": save(volume, "sub/small", 100)}
    first = volume.seal("first")
    volume.wait_durable()
    # The daemon dies while it uploads, or just before.
    files["big.pt"] = save(volume, "big.pt", large)
    volume.seal()
    volume.kill()
    volume.mount(settle="1h")
    check_files(volume.path, files)
    volume.wait_durable()
    volume.remount(empty_cache=True, settle="1h")
    assert volume.tags() == {"first": first}
    check_files(volume.path, files)
    assert not (volume.epoch(first) / "big.pt").exists()
    # What is replaced, dropped and collected is gone, and the rest is there.
    files["model.pt"], files["sub/small"] = save(volume, "model.pt", 100000), save(volume, "sub/small", 100)
    volume.seal()
    volume.wait_durable()
    os.unlink(volume.epochs_dir / "first")
    for number in volume.epochs()[:-1]:
        os.rmdir(volume.epoch(number))
    wait_until(lambda: not volume.status()["upload"]["pending_changes"], "the drops to reach the remote")
    volume.unmount()
    assert "deleted now" in run(BIN, "gc", "--grace", "0", volume.url, timeout=120).stdout
    assert json.loads(run(BIN, "gc", "--json", volume.url, timeout=120).stdout)["after"]["bytes"] < large + (2 << 20)
    run(BIN, "export", volume.url, tmp_path / "restored", timeout=120)
    check_files(tmp_path / "restored", files)
    run(BIN, "fsck", "--read-data", volume.url, timeout=120)


def run_recipe(first, tmp_path, replaced, said="one mount writes at a time"):
    """Runs the commands of the papers that begin so as they are printed, but for what is replaced; they print `said`."""
    script = block_of(first)
    for printed, here in {"/mnt/ckpt": str(tmp_path / "mnt"), **replaced}.items():
        assert printed in script
        script = script.replace(printed, here)
    for folder in ("mnt", "bin"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "bin" / "epochfs").symlink_to(BIN)
    (tmp_path / "model.pt").write_bytes(os.urandom(300000))
    env = {**os.environ, "PATH": "%s:%s" % (tmp_path / "bin", os.environ["PATH"]),
           "EPOCHFS_CACHE_DIR": str(tmp_path / "cache"), "EPOCHFS_MIN_FREE": "0"}
    try:
        done = run("sh", "-e", "-c", script, cwd=tmp_path, check=False, env=env, timeout=150)
    finally:
        if is_mounted(tmp_path / "mnt"):
            run("umount", "-l", tmp_path / "mnt", check=False)
    assert done.returncode == 0, done
    assert said in done.stdout
    assert (tmp_path / "restored" / "model.pt").read_bytes() == (tmp_path / "model.pt").read_bytes()
