# SPDX-License-Identifier: Apache-2.0
"""Of a history that fails, the part that still does: delta debugging (Zeller and Hildebrandt, 2002), by operations."""

import time


def shrink(ops, fails, seconds):
    """fails(ops) runs them: the failure's text, or None. Gives the shortest history found, and its failure (None: it did not
    fail again at all)."""
    end = time.monotonic() + seconds
    text = None
    for _ in range(3):
        text = text or fails(ops)
    if not text:
        return ops, None
    size = len(ops) // 2
    while size and time.monotonic() < end:
        shorter, found = without_some(ops, size, fails, end)
        if found:
            ops, text = shorter, found
        elif size == 1:
            break
        size = min(max(size // 2, 1), len(ops) // 2) if not found or size > len(ops) // 2 else size
    return simpler(ops, text, fails, end)


def without_some(ops, size, fails, end):
    """Leaves out each run of `size` operations that is not needed, the last ones first."""
    found = None
    for start in range(len(ops) - size, -size, -size):
        if time.monotonic() > end:
            break
        shorter = ops[:max(start, 0)] + ops[max(start, 0) + size:]
        text = fails(shorter) if len(shorter) < len(ops) else None
        if text:
            ops, found = shorter, text
    return ops, found


def simpler(ops, text, fails, end):
    """Small writes instead of large ones, one operation instead of two at once."""
    for i, op in enumerate(ops):
        changes = []
        if op[0] in ("write", "pwrite", "async") and op[4] > 10:
            changes = [op[:4] + [10] + op[5:]]
        elif op[0] == "both":
            changes = [op[1], op[2]]
        elif op[0] == "crash" and op[1]:
            changes = [["crash", None, 0]]
        for change in changes:
            if time.monotonic() > end:
                break
            found = fails(ops[:i] + [change] + ops[i + 1:])
            if found:
                ops, text = ops[:i] + [change] + ops[i + 1:], found
                break
    return ops, text
