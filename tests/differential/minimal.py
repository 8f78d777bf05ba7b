# SPDX-License-Identifier: Apache-2.0
"""The shortest history that still fails in the same way."""


def shrink(steps, fails, say=lambda left: None):
    """FAILS(steps) runs a history, and gives the number of the step that it failed at, or None. Leaves out ever smaller parts."""
    size = max(len(steps) // 2, 1)
    while True:
        start, shrunk = 0, False
        while start < len(steps):
            fewer = steps[:start] + steps[start + size:]
            at = fails(fewer) if fewer else None
            if at is None:
                start += size
            else:
                steps, shrunk = fewer[:at + 1], True
                say(len(steps))
        if size == 1 and not shrunk:
            return steps
        size = max(size // 2, 1)
