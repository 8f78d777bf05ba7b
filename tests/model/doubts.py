# SPDX-License-Identifier: Apache-2.0
"""The part of the reference model that is about doubts: which epochs are complete after writers were killed."""

from tree import SERIALS, is_log, is_temporary, lookup, walk


def counts(path):
    """No log, and nothing below a temporary name. No name that scripts use carries a step: all else is of the root."""
    parts = path.split("/")
    return not is_log(parts[-1]) and not any(map(is_temporary, parts))


class Kill:
    """A file that was undone because its writer was killed, or is left half under a temporary name."""

    def __init__(self, directory, word, then, since, left=False):
        self.directory, self.word, self.left = directory, word, left
        self.then = then  # the file and its version that its name leads to once it is undone
        self.since = since
        self.serial = next(SERIALS)
        self.saved = None  # the file that was saved under its name since
        self.again = []  # (file, the epoch that had its content first) of what was saved again before a seal judged
        self.companions = None  # file -> version; None: not judged yet
        self.late = set()  # files that were saved after the kill: whether their writers lived then, the model does not follow
        self.unsure = False  # something may have settled it

    def asks_for(self, file):
        return self.companions is None or file is self.then[0] or file in self.companions


class Doubts:
    def __init__(self):
        self.kills = []
        self.fog = False  # something is in doubt of which the model does not know
        self.loaded = 0  # the epoch whose tree the live tree was rebuilt from
        self.fetched = 0  # up to this epoch trees come from the remote, which may fail

    # ---- what happens

    def note_undone(self, body):
        paths = self.names(body.file)
        if len(paths) != 1:
            self.fog |= bool(paths)
            return
        directory, word, entry = lookup(self.root, paths[0])
        file = body.file if body in body.file.pending else entry.covered
        self.note_replaced(file, file and file.closed)
        self.kills.append(Kill(directory, word, (file, file and file.closed), self.last + 1))

    def note_left(self, body):
        """What was fsynced stays, but the save that it is for is half where its name alone is temporary."""
        for path in self.names(body.file):
            directory, word, _ = lookup(self.root, path)
            if is_temporary(word):
                self.kills.append(Kill(directory, word, (None, None), self.last + 1, left=True))

    def note_open(self):
        """What is being replaced or made since the last epoch is in doubt in the one that is sealed now, as if its writer had been killed:
        (those kills, whether there may be more)."""
        bodies = [b for file in self.files() if file.kind == "file" and not self.file_is_log(file) for b in [file.body] + file.pending
                  if b.writers and (b.fragile or not file.closed) and not b.orphan and not b.output and b.born == self.last]
        kills = []
        for body in bodies:
            paths = self.names(body.file)
            directory, word, entry = lookup(self.root, paths[0]) if paths else (None, "", None)
            if entry:
                file = body.file if body in body.file.pending else entry.covered
                kills.append(Kill(directory, word, (file, file and file.closed), self.last + 1))
        unsure = any(b.appended or len(self.names(b.file)) != 1 for b in bodies)
        self.kills += kills
        return kills, unsure

    def note_saved(self, file, old):
        for kill in self.kills:
            if old and kill.companions is None:
                kill.again.append((file, old.born))
            name = kill.directory and kill.directory.names.get(kill.word)
            if name and name.file is file:
                kill.saved = file

    def note_changed_in_part(self, file, old, surely):
        """That saves nothing again; else the model does not know."""
        for kill in self.kills:
            self.fog |= not surely
            kill.unsure |= not surely and kill.asks_for(file)
            if kill.then == (file, old):
                kill.then = (file, file.closed)
            if kill.companions and kill.companions.get(file) is old:
                kill.companions[file] = file.closed

    # ---- judging

    def judge(self, number, tree):
        """Whether the epoch is complete; None: the model does not know."""
        torn = [e.version.torn for path, e in tree.items() if e.version and counts(path)]
        verdicts = [self.judge_kill(kill, number, tree) for kill in list(self.kills)]
        if True in torn or "in doubt" in verdicts:
            return False
        return None if self.fog or self.taint or None in torn or "maybe" in verdicts or self.has_torn_temporary(tree) else True

    def has_torn_temporary(self, tree):
        """Renamed to such a name: its save is half where other files are of that, which is a matter of whose they are and since when they run."""
        return any(e.version and e.version.torn is not False and is_temporary(path.rpartition("/")[2]) and counts(path.rpartition("/")[0])
                   for path, e in tree.items())

    def path_of(self, kill):
        for path, name in walk(self.root):
            if name.file is kill.directory:
                return path + "/" + kill.word
        return kill.word if kill.directory is self.root else None

    def judge_kill(self, kill, number, tree):
        path = self.path_of(kill)
        entry = tree.get(path)
        now = (entry.live, entry.version) if entry and entry.version else (None, None)
        then = kill.then if kill.then[1] else (None, None)
        if not now[0] and then[0] and any(e.live is then[0] and e.version is then[1] for e in tree.values()):
            now = then  # renamed
        temporary = path is not None and is_temporary(kill.word)
        if not now[0] and kill.saved and any(e.live is kill.saved for e in tree.values()):
            # Saved, and renamed then.
            return "maybe" if temporary else self.kills.remove(kill)
        if path is None or not kill.left and self.is_over(kill, now, then, temporary):
            return self.kills.remove(kill)
        if not counts(path) and (not temporary or not counts(path.rpartition("/")[0])):
            return None
        if kill.companions is None:
            self.find_companions(kill, self.base_of(kill, number), tree, now[0])
        standing = {e.live: e.version for e in tree.values() if e.live in kill.companions and e.version is kill.companions[e.live]}
        if not standing and not self.is_gone(kill, self.base_of(kill, number), path, now[0], tree):
            return self.kills.remove(kill)
        kill.companions = standing
        # Which of them were begun before the kill, and whether the final name was saved since, the model does not follow.
        return "maybe" if temporary or kill.unsure or (standing and kill.late.issuperset(standing)) else "in doubt"

    def is_over(self, kill, now, then, temporary):
        """Removed, or saved since; what has the name now may be older."""
        if not now[0]:
            return then[0] and not temporary
        return now[1] is not then[1] and now[1].serial > kill.serial

    def base_of(self, kill, number):
        """The newest complete epoch from before it, 0 without one; None: the model does not know."""
        before = sorted((n for n in self.epochs if n < min(kill.since, number)), reverse=True)
        base = next((n for n in before if self.epochs[n].complete), 0)
        unknown = self.dropped or any(n > base and self.epochs[n].complete is None for n in before)
        return None if unknown else base

    def is_gone(self, kill, base, path, file, tree):
        """Whether the save had removed files before it was killed; where it had companions, this file alone is asked for."""
        gone = [p for p, e in self.epochs[base].tree.items() if e.version and counts(p) and p not in tree] if base else []
        if path in gone and file is None if kill.companions else gone:
            return True
        self.fog |= base is None or 0 < base <= self.fetched
        return False

    def find_companions(self, kill, base, tree, file):
        if base is None or base < self.loaded:
            self.fog, kill.companions = True, {}
            return
        again = [f for f, born in kill.again if born >= kill.since]
        kill.companions = {e.live: e.version for path, e in tree.items()
                           if e.version and counts(path) and e.version.born > base and e.live is not file and e.live not in again}
        kill.late = {f for f, version in kill.companions.items() if version.serial > kill.serial}

    # ---- epochs carry them

    def doubts_of(self, tree):
        """What the record of an epoch says: paths."""
        paths = {}
        for path, e in tree.items():
            paths.setdefault(e.live, path)
        return self.fog or any(k.companions is None for k in self.kills), [
            (self.path_of(k), [paths[f] for f in k.companions if f in paths], k.since) for k in self.kills if k.companions is not None]

    def take_over(self, epoch, number):
        """The live tree was rebuilt from this epoch's."""
        self.fog, saved = epoch.doubts
        self.loaded = number
        self.kills = []
        for path, companions, since in saved:
            directory, word, entry = lookup(self.root, path) if self.has_directory(path) else (None, None, None)
            file = entry and entry.file
            kill = Kill(directory, word, (file, file and file.closed), since)
            found = [lookup(self.root, p)[2] for p in companions]
            kill.companions = {name.file: name.file.closed for name in found if name}
            kill.unsure = self.fog
            self.kills.append(kill)

    def has_directory(self, path):
        parent = path.rpartition("/")[0]
        return not parent or any(p == parent for p, _ in walk(self.root))
