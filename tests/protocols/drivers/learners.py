# SPDX-License-Identifier: Apache-2.0
"""HOW is emcee (its HDF5 backend, a few steps a save), or sklearn (warm start, pickled beside its scores)."""

import json
import sys

import numpy

import marks


def emcee():
    import emcee as program
    backend = program.backends.HDFBackend("chain.h5")
    backend.reset(8, 2)
    sampler = program.EnsembleSampler(8, 2, lambda x: -0.5 * numpy.sum(x ** 2), backend=backend)
    state = numpy.random.default_rng(1).random((8, 2))
    number, steps = 1, sampler.sample(state, iterations=8)
    while True:
        marks.train(2)
        with marks.save(number):
            if next(steps, None) is None:
                raise SystemExit("no step is left")
        number += 1
        if number > 4:
            break


def sklearn():
    import joblib
    from sklearn.neural_network import MLPClassifier
    data = numpy.random.default_rng(1).random((200, 10))
    model = MLPClassifier(max_iter=1, warm_start=True)
    for number in range(1, 5):
        marks.train()
        model.fit(data, data[:, 0] > 0.5)
        with marks.save(number):
            joblib.dump(model, "model.joblib")
            with open("scores.json", "w", encoding="utf-8") as file:
                json.dump({"epoch": number, "loss": model.loss_}, file)


{"emcee": emcee, "sklearn": sklearn}[sys.argv[1]]()
