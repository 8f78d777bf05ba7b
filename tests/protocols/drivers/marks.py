# SPDX-License-Identifier: Apache-2.0
"""How a driver tells record.py where a save begins and is over: by names that are not there. A driver works in the current directory."""

import contextlib
import os


def mark(text):
    with contextlib.suppress(FileNotFoundError):
        os.stat(".mark-" + text)


@contextlib.contextmanager
def save(number):
    mark("save-%d" % number)
    yield
    mark("over-%d" % number)


def train(seconds=30):
    mark("pause-%g" % seconds)
