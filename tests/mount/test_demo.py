# SPDX-License-Identifier: Apache-2.0
"""`make demo`, the first command of the README, with each of its trainers."""

import html
import os
import pathlib
import re
import subprocess
import sys

import pytest

DEMO = pathlib.Path(__file__).resolve().parents[1] / "demo" / "demo.sh"

# What Python finds in the place of an installed PyTorch: the machine has none.
NO_TORCH = 'raise ImportError("no PyTorch here")\n'


def demo(tmp_path, environment):
    """Runs the demo to its end: what it printed. Nothing of it is left in the directory for temporary files."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run([DEMO], env={**os.environ, "TMPDIR": os.fspath(temporary), **environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150, check=False)
    assert done.returncode == 0, done.stdout
    assert "\n# Done." in done.stdout
    assert list(temporary.iterdir()) == []
    return done.stdout


def test_the_demo_without_pytorch(tmp_path):
    (tmp_path / "torch.py").write_text(NO_TORCH)
    shown = demo(tmp_path, {"PYTHONPATH": os.fspath(tmp_path)})
    assert "saving ..." in shown and "saved model.npz" in shown
    assert "model.pt" not in shown


def steps_of(text):
    return re.findall(r"# [A-Z][^\n<]*", html.unescape(text))


def test_the_demo_with_pytorch(tmp_path):
    torch = subprocess.run([sys.executable, "-c", "import torch"], check=False, capture_output=True)
    if torch.returncode:
        pytest.skip("PyTorch is not installed")
    shown = demo(tmp_path, {})
    assert "saving ..." in shown and "saved model.pt" in shown
    # The README shows it as it is now.
    picture = DEMO.with_name("demo.svg").read_text()
    assert steps_of(picture.split("</style>")[1]) == steps_of(shown), "make picture"
