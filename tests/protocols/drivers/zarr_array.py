# SPDX-License-Identifier: Apache-2.0
"""zarr: a group of two arrays in a directory, opened once and overwritten by each save."""

import numpy
import zarr

import marks

weights = numpy.random.default_rng(1).random((100, 100), dtype=numpy.float32)
group = zarr.open_group("state.zarr", mode="w")
make = getattr(group, "create_array", None) or group.zeros
arrays = [make(name=name, shape=(100, 100), chunks=(50, 100), dtype="f4") for name in ("model", "optimizer")]
for number in range(1, 5):
    marks.train()
    with marks.save(number):
        for array in arrays:
            array[:] = weights * number
        group.attrs["step"] = number
