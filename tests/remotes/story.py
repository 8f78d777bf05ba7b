# SPDX-License-Identifier: Apache-2.0
"""What a volume goes through on any remote: saved, sealed, killed, mounted again, restored on a machine that has nothing."""

import os

from conftest import BIN, run


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


def whole_story(volume, tmp_path):
    """`volume` is not mounted, and its url names an empty remote."""
    volume.mount(settle="1h")
    files = {"model.pt": save(volume, "model.pt", 5 << 20), "sub/small": save(volume, "sub/small", 100)}
    first = volume.seal("first")
    volume.wait_durable()
    # The daemon dies while it uploads, or just before.
    files["big.pt"] = save(volume, "big.pt", 40 << 20)
    volume.seal()
    volume.kill()
    volume.mount(settle="1h")
    check_files(volume.path, files)
    volume.wait_durable()
    volume.remount(empty_cache=True, settle="1h")
    assert volume.tags() == {"first": first}
    check_files(volume.path, files)
    assert not (volume.epoch(first) / "big.pt").exists()
    volume.unmount()
    run(BIN, "export", volume.url, tmp_path / "restored", timeout=120)
    check_files(tmp_path / "restored", files)
    run(BIN, "fsck", "--read-data", volume.url, timeout=120)
