#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make protocols: plays all protocols in all ways, and compares with results.json.

    protocol_run.py BUILD [NAME...]          --write: what is found becomes results.json and results.md
    protocol_run.py BUILD --some N           N plays of each, drawn by a seed (--seed), beside what results.json knows (make test)
    protocol_run.py BUILD --random N         N plays of programs that nobody wrote (random_program.py)
    protocol_run.py BUILD --page ...         by lib/saves alone in place of the engine (page.py): what its rules would give
    protocol_run.py BUILD --unlike --some N  whether the engine shows what the rules alone do not
    protocol_run.py --check                  whether results.md is what results.json says, and no protocol changed since (make lint)
"""

import argparse
import collections
import concurrent.futures
import os
import random
import sys
import time

import intent
import page
import place
import player
import protocol
import random_program
import table
from place import PATIENCE

sys.path.append(os.path.join(protocol.FOLDER, "../tools"))
import results  # noqa: E402: of tests/tools


# alone: the rules without the engine.
Program = collections.namedtuple("Program", "path alone")


def place_of(program, arena, path):
    if program.alone:
        return page.Page(arena, program.path)
    return place.InProcess(program.path, arena, path == "on")


def play_one(name, program, path, chosen):
    """Plays some plays of a protocol on one data path: [(play, run)]."""
    arena = intent.Arena()
    where = place_of(program, arena, path)
    try:
        one = player.Player(protocol.load(name), where, arena)
        return [(play, summary(one.play(play))) for play in chosen]
    except place.PlaceError as error:
        raise SystemExit("%s, passthrough %s: %s" % (name, path, error)) from error
    finally:
        where.close()


def summary(run):
    """What of a run may go to another process."""
    return {"faults": {kind: tuple(fault) for kind, fault in run.faults.items()}, "delay": run.delay, "epochs": run.epochs, "stored": run.stored}


def row_of(name, done):
    """done: {data path: [(play, summary)]}."""
    p = protocol.load(name)
    delays, wrong = {path: collections.Counter() for path in done}, table.Wrong()
    row = {"text": table.digest_of(name), "program": p.program, "saves": len(p.saves()), "plays": 0, "kills": 0}
    for path, plays in done.items():
        for play, run in plays:
            row["plays"] += 1
            row["kills"] += play.disturbance == "kill"
            for fault in run["faults"]:
                wrong.add(path, player.kind_of(play), fault, play.at)
            if play.disturbance == "delay":
                delays[path][run["delay"]] += 1
            if play == player.Play() and path == "on":
                row["epochs"], row["stored"] = run["epochs"], run["stored"]
    row["delay"], row["wrong"] = table.of_both(delays), wrong.as_json()
    return row


def play_whole(name, program):
    start = time.monotonic()
    chosen = list(player.plays_of(protocol.load(name)))
    done = {path: play_one(name, program, path, chosen) for path in ("off", "on")}
    return done, time.monotonic() - start


def tell(name, done):
    for path, plays in done.items():
        for play, run in plays:
            for kind, where, why in run["faults"].values():
                print("    %s, passthrough %s, %s: %s: %s: %s" % (name, path, player.text_of(play), kind, where, why))


# A child has inherited a descriptor: whether its opener's close is taken in before or after the child's depends on who looks first (test_events.py).
INHERITED = ("torch-2.6-dcp-workers",)


def is_known(old, name, path, play, run):
    """The table is what the rules alone give: the engine, which looks at other moments, may show less. Of a protocol that was not yet played
    whole, only that it can be played is known. Nor in a pause longer than patience: there nothing is promised of the save that it is in, and
    which of two threads looks first decides."""
    if name not in old or name in INHERITED or (play.disturbance == "pause" and play.seconds >= PATIENCE):
        return "failed" not in run["faults"]
    return set(run["faults"]) <= set(table.expected(old, name, path, player.kind_of(play), play.at))


def unknown(old, name, path, plays):
    """Plays that show something else than what is known, as lines."""
    return ["%s: passthrough %s, %s: not as results.json has it: %s" % (name, path, player.text_of(play), sorted(map(str, run["faults"].values())))
            for play, run in plays if not is_known(old, name, path, play, run)]


def differences(name, done, row, old):
    """Not in what is stored, which the engine's threads share out in one way or another."""
    if name not in old:
        return ["%s: it is not in results.json" % name]
    lines = ["%s: %s was %s, and is %s" % (name, key, old[name].get(key), row[key])
             for key in row if key not in ("wrong", "stored") and row[key] != old[name].get(key)]
    return lines + [line for path, plays in done.items() for line in unknown(old, name, path, plays)]


def page_of(program):
    return Program(os.path.join(os.path.dirname(program.path), "../saves/saves"), True)


def program_of(options):
    if options.page:
        return Program(os.path.join(options.build, "tests/saves/saves"), True)
    return Program(os.path.join(options.build, "tests/protocols/protocols"), False)


def run_all(options):
    names = options.names or protocol.names()
    old, new, failed = table.load(), {}, []
    program = program_of(options)
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(play_whole, name, program): name for name in names}
        for future in concurrent.futures.as_completed(futures):
            name = futures[future]
            done, took = future.result()
            new[name] = row_of(name, done)
            print("%s: %d plays in %.0f s" % (name, new[name]["plays"], took), flush=True)
            if options.verbose:
                tell(name, done)
            failed += differences(name, done, new[name], old)
            if options.write:
                table.save({**{k: v for k, v in old.items() if k in protocol.names()}, **new})
    if options.page:
        print(table.table(new))
        return 0
    if options.write:
        return 0
    if not options.names:
        failed += ["%s: it has no protocol" % name for name in old if name not in new]
    print("\n".join(failed))
    print("%d passed, %d failed" % (len(new) - len({f.split(":")[0] for f in failed}), len({f.split(":")[0] for f in failed})))
    return bool(failed)


def drawn(name, program, seed, count, look):
    """A few plays of a protocol: what `look` finds in them, as lines."""
    draw, lines = random.Random("%s %s" % (seed, name)), []
    everything = list(player.plays_of(protocol.load(name)))
    for path in ("off", "on"):
        chosen = [everything[0], *draw.sample(everything[1:], min(count, len(everything) - 1))]
        done = play_one(name, program, path, chosen)
        lines += look(name, program, path, done)
    return lines


def not_in_table(name, _, path, done):
    return unknown(table.load(), name, path, done)


def unlike_page(name, program, path, done):
    """The faults that the rules alone do not have in the same plays."""
    alone = play_one(name, page_of(program), path, [play for play, _ in done])
    return ["%s: passthrough %s, %s: by the rules alone not: %s" % (name, path, player.text_of(play), fault)
            for (play, run), (_, by_rules) in zip(done, alone) for kind, fault in run["faults"].items() if kind not in by_rules["faults"]]


def run_some(options):
    program, look = program_of(options), unlike_page if options.unlike else not_in_table
    print("seed %d" % options.seed, flush=True)
    outcomes = []
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        names = protocol.names()
        for name, lines in zip(names, pool.map(drawn, names, *([value] * len(names) for value in (program, options.seed, options.some, look)))):
            outcomes.append(("protocol " + name, "failed" if lines else "passed", "\n".join(lines)))
            print("\n".join(lines), end="\n" if lines else "")
    if options.results:
        results.write(options.results, "protocols-unlike" if options.unlike else "protocols", outcomes)
    failed = sum(outcome == "failed" for _, outcome, _ in outcomes)
    print("%d passed, %d failed" % (len(outcomes) - failed, failed))
    return bool(failed)


def play_random(seed, program, count):
    """One program: its faults, as (kind, text)."""
    p, _ = random_program.program(seed)
    arena, draw = intent.Arena(), random.Random(seed)
    where = place_of(program, arena, draw.choice(("off", "on")))
    try:
        one = player.Player(p, where, arena)
        everything = list(player.plays_of(p))
        faults = []
        for play in [everything[0], *draw.sample(everything[1:], count)]:
            faults += [(fault.what, "%s, %s: %s: %s" % (p.program, player.text_of(play), fault.where, fault.why))
                       for fault in one.play(play).faults.values()]
        return faults
    except place.PlaceError as error:
        return [("failed", "%s: %s" % (p.program, error))]
    finally:
        where.close()


def run_random(options):
    program = program_of(options)
    seeds = range(options.seed, options.seed + max(1, options.random // 10))
    counts = collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for faults in pool.map(play_random, seeds, [program] * len(seeds), [9] * len(seeds)):
            counts.update(what for what, _ in faults)
            if options.verbose:
                print("\n".join("%s: %s" % fault for fault in faults), end="\n" if faults else "")
    print("%d plays of %d programs from seed %d: %s" % (10 * len(seeds), len(seeds), options.seed, dict(counts) or "nothing is wrong"))
    return bool(counts["failed"])


def check():
    old = table.load()
    failed = ["%s.txt is another than results.json has: run make protocols ARGS=--write" % name
              for name in protocol.names() if old.get(name, {}).get("text") != table.digest_of(name)]
    failed += ["%s of results.json has no protocol" % name for name in old if name not in protocol.names()]
    with open(table.TABLE, encoding="utf-8") as file:
        if file.read() != table.table(old):
            failed.append("results.md is not what results.json says: run make protocols ARGS=--write")
    print("\n".join(failed), end="\n" if failed else "")
    return bool(failed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--unlike", action="store_true")
    parser.add_argument("--some", type=int, metavar="N")
    parser.add_argument("--random", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--results", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", "-v", action="store_true", help="each fault")
    options = parser.parse_intermixed_args()
    if options.check:
        return check()
    if options.some:
        return run_some(options)
    return run_random(options) if options.random else run_all(options)


if __name__ == "__main__":
    sys.exit(main())
