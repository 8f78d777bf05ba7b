# SPDX-License-Identifier: Apache-2.0
"""NumPy, pickle, joblib: HOW is save, savez, memmap, pickle or joblib."""

import pickle
import sys

import joblib
import numpy

import marks

weights = numpy.random.default_rng(1).random((100, 100), dtype=numpy.float32)


def save(_):
    numpy.save("weights.npy", weights)
    numpy.save("momentum.npy", weights * 2)


def savez(step):
    numpy.savez("state.npz", step=step, weights=weights, momentum=weights * 2)


def memmap(step):
    file = numpy.memmap("state.dat", dtype="float32", mode="w+" if step == 1 else "r+", shape=(100, 100))
    file[:] = weights * step
    file.flush()


def pickled(step):
    with open("state.pkl", "wb") as file:
        pickle.dump({"step": step, "weights": weights, "history": [0.5] * step}, file)


def joblibbed(step):
    joblib.dump({"step": step, "weights": weights, "history": [0.5] * step}, "model.joblib", compress=3)


HOW = {"save": save, "savez": savez, "memmap": memmap, "pickle": pickled, "joblib": joblibbed}
for number in range(1, 5):
    marks.train()
    with marks.save(number):
        HOW[sys.argv[1]](number)
