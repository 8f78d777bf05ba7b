#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# HDF5 1.10.8 (h5py 3.7.0, Debian 12): opened with mode "a", a file is written to though its user only reads.
#
# One would guess that a file whose data sets are only read is not touched, whatever mode it was opened with. The library writes the superblock again at
# open and at close, with the same bytes. So the modification time of a checkpoint says when somebody last looked at it with h5py's mode "a" (pandas'
# HDFStore has it by default), and whoever keeps "the newest three" by time, or copies what has changed, does so for each look. With mode "r" nothing is written.
set -eu
"$(dirname "$0")/root.sh" bookworm python3-h5py=3.7.0-8 libhdf5-103-1=1.10.8+repack1-1 <<'PROGRAM'
import hashlib
import os
import time

import h5py

def state():
    with open("state.h5", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest(), os.stat("state.h5").st_mtime_ns

def read(mode):
    time.sleep(0.1)
    with h5py.File("state.h5", mode) as file:
        assert list(file["x"][:3]) == [0, 1, 2]
    return state()

with h5py.File("state.h5", "w") as file:
    file["x"] = list(range(100))
made = state()
appended, only = read("a"), None
only = read("r")
print("HDF5", h5py.version.hdf5_version)
print('mode "a", only read: bytes %s, time %s' % ("stay" if appended[0] == made[0] else "change", "moves" if appended[1] != made[1] else "stays"))
print('mode "r", only read: time %s' % ("moves" if only[1] != appended[1] else "stays"))
assert appended[0] == made[0] and appended[1] != made[1] and only == appended, "it is not so any more"
PROGRAM
