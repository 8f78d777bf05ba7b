#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# zarr 2.13.6 (Debian 12): what a killed write leaves counts as a chunk that is there.
#
# A chunk is written as KEY.<32 hex digits>.partial and then renamed to KEY, so that nobody sees half of one. One would guess that what is left of
# a writer that was killed in between is not seen either. But nchunks_initialized counts files: with the temporary one it says one more chunk than can be
# read, and reading that chunk gives the fill value, without an error. So a check by this count takes a save for whole that is not.
set -eu
"$(dirname "$0")/root.sh" bookworm python3-zarr=2.13.6+ds-1 <<'PROGRAM'
import zarr

array = zarr.open("state.zarr", mode="w", shape=(40,), chunks=(10,), dtype="i4")
array[:10] = 1
before = array.nchunks_initialized
# As a writer leaves it that was killed before its rename.
with open("state.zarr/1.%032x.partial" % 1, "wb") as file:
    file.write(b"half")
after = zarr.open("state.zarr", mode="r")
print("zarr", zarr.__version__)
print("one chunk was written: nchunks_initialized %d; with what is left of a second: %d" % (before, after.nchunks_initialized))
print("the second chunk reads as", after[10:13])
assert (before, after.nchunks_initialized) == (1, 2) and list(after[10:13]) == [0, 0, 0], "it is not so any more"
PROGRAM
