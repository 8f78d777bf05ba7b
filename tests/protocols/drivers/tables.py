# SPDX-License-Identifier: Apache-2.0
"""Data bases: HOW is optuna (a study in SQLite), lmdb, or lmdb-writemap."""

import sys

import marks


def optuna():
    import optuna as program
    study = program.create_study(study_name="s", storage="sqlite:///study.db", load_if_exists=True)
    for number in range(1, 5):
        marks.train()
        trial = study.ask()
        with marks.save(number):
            trial.suggest_float("x", 0, 1)
            study.tell(trial, 0.5 * number)


def lmdb(writemap=False):
    import lmdb as program
    env = program.open("state.lmdb", map_size=24 * 4096, writemap=writemap)
    for number in range(1, 5):
        marks.train()
        with marks.save(number):
            with env.begin(write=True) as transaction:
                transaction.put(b"model", bytes([number]) * 12000)
                transaction.put(b"step", b"%d" % number)
    env.close()


{"optuna": optuna, "lmdb": lmdb, "lmdb-writemap": lambda: lmdb(True)}[sys.argv[1]]()
