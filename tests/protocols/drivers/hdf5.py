# SPDX-License-Identifier: Apache-2.0
"""HDF5: HOW is whole (mode w each time), append (mode a, a group a save), overwrite (mode a, the same datasets), open (open all the time, flushed) or
netcdf (a record a save, synced)."""

import sys

import numpy

import marks

weights = numpy.random.default_rng(1).random((50, 50), dtype=numpy.float32)


def write(file, step):
    for name in ("model", "optimizer"):
        file.create_dataset("%d/%s" % (step, name), data=weights * step)
    file.attrs["step"] = step


def whole(step):
    with h5py.File("state.h5", "w") as file:
        write(file, step)


def append(step):
    with h5py.File("state.h5", "a") as file:
        write(file, step)


def overwrite(step):
    with h5py.File("state.h5", "a") as file:
        for name in ("model", "optimizer"):
            if name in file:
                file[name][...] = weights * step
            else:
                file.create_dataset(name, data=weights * step)
        file.attrs["step"] = step


def opened(step):
    write(opened.file, step)
    opened.file.flush()


def netcdf(step):
    netcdf.file["weights"][step - 1, :, :] = weights * step
    netcdf.file.sync()


if sys.argv[1] == "netcdf":
    import netCDF4
    netcdf.file = netCDF4.Dataset("state.nc", "w")
    netcdf.file.createDimension("step", None)
    netcdf.file.createDimension("n", 50)
    netcdf.file.createVariable("weights", "f4", ("step", "n", "n"))
else:
    import h5py
    if sys.argv[1] == "open":
        opened.file = h5py.File("state.h5", "w")
for number in range(1, 5):
    marks.train()
    with marks.save(number):
        {"whole": whole, "append": append, "overwrite": overwrite, "open": opened, "netcdf": netcdf}[sys.argv[1]](number)
if sys.argv[1] == "netcdf":
    netcdf.file.close()
elif sys.argv[1] == "open":
    opened.file.close()
