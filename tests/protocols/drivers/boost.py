# SPDX-License-Identifier: Apache-2.0
"""xgboost: its callback TrainingCheckPoint; marks by --save-before and --over-after."""

import inspect

import numpy
import xgboost

make = numpy.random.default_rng(1)
data = xgboost.DMatrix(make.random((500, 10)), label=make.integers(0, 2, 500))
checkpoint = getattr(xgboost.callback, "TrainingCheckPoint", None) or xgboost.callback.TrainingCheckpoint
every = "interval" if "interval" in inspect.signature(checkpoint).parameters else "iterations"
xgboost.train({"objective": "binary:logistic", "max_depth": 4}, data, num_boost_round=41, callbacks=[checkpoint(".", **{every: 10})])
