# SPDX-License-Identifier: Apache-2.0
"""The part of the reference model that is about epochs: sealing, rolling back, what is durable, what a crash leaves."""

from doubts import Doubts, counts
from tree import Body, Errno, File, Name, Version, Wrong, is_log, is_temporary, walk

# What an operation gives that was under way when the daemon was killed: it may have been done or not.
CUT_OFF = {"ENOTCONN", "ECONNABORTED", "EIO", "EINTR", "ENODEV", "ESTALE"}


class Entry:
    """One path of an epoch's tree."""

    def __init__(self, file, version):
        self.file = file.serial  # whose name it was
        self.live = file
        self.kind, self.mode, self.target, self.xattrs = file.kind, file.mode, file.target, dict(file.xattrs)
        self.version = version
        self.mtime = file.mtime if file.kind != "file" or not file.body.changed else None

    def what(self):
        return self.kind, self.mode, self.target, self.xattrs, self.version and self.version.data


class Epoch:
    def __init__(self, tree, complete, automatic=False):
        self.tree = tree
        self.complete = complete  # None: the contract does not say
        self.automatic = automatic  # sealed by itself: a later one may continue it
        self.listed = not automatic  # one that nobody asked for is listed a moment later
        self.durable = False
        self.doubts = (False, [])


def same_tree(a, b):
    return {p: e.what() for p, e in a.items()} == {p: e.what() for p, e in b.items()} and groups(a) == groups(b)


def differing(a, b):
    """For people: the paths that differ, and by what."""
    def tell(entry):
        data = entry and entry.version and entry.version.data
        return "nothing" if not entry else "%s %o %s %s" % (
            entry.kind, entry.mode, entry.xattrs or "", "%d bytes %r" % (len(data), bytes(data[:12])) if data is not None else "")
    paths = sorted(p for p in a.keys() | b.keys() if p not in a or p not in b or a[p].what() != b[p].what())
    return "; ".join("%s: %s, was %s" % (p, tell(a.get(p)), tell(b.get(p))) for p in paths[:5]) or "names of one file"


def adds_nothing(tree, old):
    """Names went and attributes changed, which alone begin no epoch: what is there was in the old one, under the same path."""
    def content(entry):
        return entry.kind, entry.target, entry.version and entry.version.data
    return all(path in old and content(entry) == content(old[path]) for path, entry in tree.items())


def kept(name):
    """What is left of a name in .epochs/torn."""
    return "".join(chr(c) if 32 <= c < 127 else "?" for c in name.encode())[:230]


def groups(tree):
    """Which paths are names of one file."""
    found = {}
    for path, entry in tree.items():
        found.setdefault(entry.file, set()).add(path)
    return sorted(map(sorted, (g for g in found.values() if len(g) > 1)))


class Epochs(Doubts):
    def __init__(self):
        super().__init__()
        self.epochs, self.dropped, self.tags = {}, {}, {}
        self.last = 0
        self.serials = 0
        self.taint = 0  # whether the next epoch is complete is a matter of time
        self.torn = []  # (name, bytes or None, whether it must be there), oldest first
        self.torn_before = []  # what is there of earlier histories

    def begin(self, number, torn):
        """An empty directory of our own was sealed in this epoch."""
        self.last = number
        self.epochs[number] = Epoch(self.snapshot(), None)
        self.torn_before = torn

    # ---- what changes tell

    def note_made(self, directory, word):
        """A name was made: if it is in what an epoch made that was sealed by itself, or is the temporary one of another file of
        the same save, that one came too early."""
        epoch = self.epochs.get(self.last)
        if epoch and epoch.automatic and (directory is not self.root or is_temporary(word)) and epoch.complete:
            epoch.complete = None

    def note_replaced(self, file, old):
        """Content took the place of this, or was killed in that. Where another file of the save that this is of has been replaced since, in
        epochs that were sealed by themselves, those came too early (1.3.7), if that was soon enough."""
        last = self.epochs.get(self.last)
        if not old or not last or not last.automatic:
            return
        known = {**self.dropped, **self.epochs}
        for number in sorted(n for n in self.epochs if n > old.born):
            before = max((n for n in known if n < number), default=None)
            if before and any(e.version and e.version.born == number and e.live is not file and counts(path) and
                              path in known[before].tree and self.one_save(known, known[before].tree[path].version, old)
                              for path, e in known[number].tree.items()):
                for later in range(number, self.last + 1):
                    if later in self.epochs and self.epochs[later].automatic and self.epochs[later].complete:
                        self.epochs[later].complete = None
                return

    def one_save(self, known, a, b):
        """Both are new in one epoch, or in such as may continue one another."""
        first, last = sorted((a.born if a else 0, b.born))
        return first and all(n in known and known[n].automatic for n in range(first, last))

    def note_killed(self, body, undone):
        if undone:
            self.note_undone(body)
        else:
            self.taint = 1
            self.note_left(body)

    def seals_at_rename(self, file, word, target, new_word, new):
        """(may, must) the rename of a temporary name to a final one seal an epoch?"""
        if not is_temporary(word) or is_temporary(new_word) or any(map(is_temporary, new.split("/")[:-1])):
            return False, False
        others = any(body.writers and body.born == self.last and (body.kind == "new" or body in other.pending)
                     for other in self.files() if other.body and other is not file and not self.file_is_log(other)
                     for body in [other.body] + other.pending if not body.output)
        more = any(is_temporary(name) for name in target.names)
        old = self.epochs[self.last].tree.values()
        news = file.kind == "file" and file.closed and not file.body.writers and all(e.version is not file.closed for e in old)
        return not others, bool(news and file.closed.data and not others and not more)

    def seal_by_itself(self, may, must):
        if must or may and self.choose(2):
            self.new_epoch(self.last + 1, self.snapshot(), automatic=True)

    def files(self):
        return {name.file for _, name in walk(self.root)}

    # ---- sealing

    def snapshot(self):
        """The tree that an epoch would have now."""
        tree = {".": Entry(self.numbered(self.root), None)}
        missing = set()
        for path, name in walk(self.root):
            file = name.file
            if file.kind != "file":
                tree[path] = Entry(self.numbered(file), None)
                continue
            version = file.closed
            if file.body.writers and (is_log(path.rsplit("/", 1)[-1]) or file.body.output and file.body.changed):
                version = Version(file.body.data, serial=file.body.serial)
            if not version and name.covered:
                file, version = name.covered, name.covered.closed
            if version:
                tree[path] = Entry(self.numbered(file), version)
            else:
                missing.add(path)
        return tree

    def numbered(self, file):
        if not hasattr(file, "serial"):
            self.serials += 1
            file.serial = self.serials
        return file

    def new_epoch(self, number, tree, automatic=False, source=None):
        """source: the epoch that it restores, whose doubts it has."""
        if number != self.last + 1:
            raise Wrong("epoch %d after %d" % (number, self.last))
        opened, unsure = ([], False) if source or automatic else self.note_open()
        complete = source.complete if source else self.judge(number, tree)
        self.taint = 0
        self.epochs[number] = Epoch(tree, None if unsure and complete is not None else complete, automatic)
        fog, paths = source.doubts if source else self.doubts_of(tree)
        self.epochs[number].doubts = fog or unsure, paths
        self.kills = [k for k in self.kills if k not in opened]
        self.last = number

    def take_seal(self, number):
        """An epoch was asked for: a new one, unless nothing changed."""
        tree = self.snapshot()
        self.all_listed()
        if number != self.last:
            self.new_epoch(number, tree)
        elif not same_tree(tree, self.epochs[number].tree):
            raise Wrong("something changed, and no epoch was made after %d: %s" % (number, differing(tree, self.epochs[number].tree)))
        else:
            self.taint = min(self.taint, 1)

    def all_listed(self):
        for epoch in self.epochs.values():
            epoch.listed = True

    def do_seal(self, number, name):
        if name in self.tags:
            raise Errno("EEXIST")
        if number is None:
            raise Wrong("a seal cannot fail")
        self.take_seal(number)
        self.tags[name] = number
        return number

    def do_wait(self, numbers):
        if numbers is None:
            raise Wrong("a wait cannot fail")
        self.take_seal(numbers[-1])
        for epoch in self.epochs.values():
            epoch.durable = True
        return numbers

    # ---- changes of epochs

    def concrete(self, op):
        """The operation with the number of an epoch that there is; scripts name them by their order. Where nothing is durable
        there is nothing to lose the machine for."""
        if op[0] == "lost" and not any(e.durable for e in self.epochs.values()):
            return ["weather", ""]
        if op[0] in ("rollback", "tag", "drop", "epoch"):
            known = sorted(n for n, e in self.epochs.items() if e.listed)
            return [op[0], known[op[1] % len(known)]] + op[2:]
        return op

    def do_tag(self, _, number, name):
        if name in self.tags:
            raise Errno("EEXIST")
        if number not in self.epochs:
            raise Errno("ENOENT")
        self.tags[name] = number

    def do_untag(self, _, name):
        if name not in self.tags:
            raise Errno("ENOENT")
        del self.tags[name]

    def do_drop(self, _, number):
        if number not in self.epochs:
            raise Errno("ENOENT")
        if number == self.last or number in self.tags.values():
            raise Errno("EBUSY")
        newer = [e.complete for n, e in self.epochs.items() if n > number]
        complete = self.epochs[number].complete
        if complete is not False and True not in newer:
            if complete and None not in newer or self.choose(2):
                raise Errno("EBUSY")
        self.dropped[number] = self.epochs.pop(number)

    def do_rollback(self, numbers, number):
        if numbers is None:
            raise Wrong("a rollback cannot fail")
        self.all_listed()
        new = [n for n in numbers if n > self.last]
        tree, pending = self.epochs[number].tree, self.snapshot()
        if len(new) not in (1, 2) or len(new) == 1 and not same_tree(pending, self.epochs[self.last].tree):
            raise Wrong("a rollback made the epochs %s" % new)
        if len(new) == 2:
            self.new_epoch(new[0], pending)
        self.load(tree, True)
        self.taint = 0
        source = self.epochs[number]
        if source.automatic:  # it may be half of a save: what is in doubt then the model does not know
            source.doubts = (True, source.doubts[1])
        self.take_over(source, new[-1])
        self.new_epoch(new[-1], tree, source=source)
        return numbers

    def load(self, tree, here):
        """The live tree becomes this one. here: what has open files stays what it is, if it is the same."""
        old = dict(walk(self.root)) if here else {}
        self.leave_bodies(tree, old)
        files = {}
        self.root.names = {}
        for path, entry in sorted(tree.items()):
            live = old[path].file if path in old else None
            if path != ".":
                self.load_entry(path, entry, live, files)
        root = tree["."]
        self.root.mode, self.root.xattrs, self.root.mtime = root.mode, dict(root.xattrs), root.mtime
        if not here:
            self.root.inode = None

    def load_entry(self, path, entry, live, files):
        file = files.get(entry.file)
        if not file and live and getattr(live, "serial", 0) == entry.file and live.kind == "file" == entry.kind:
            file = live
            file.links, file.inode, file.pending = 0, None, []
        if not file:
            file = File(entry.kind, entry.mode)
            file.serial = entry.file
        files[entry.file] = file
        file.mode, file.xattrs, file.mtime, file.target = entry.mode, dict(entry.xattrs), entry.mtime, entry.target
        if entry.kind == "file" and (file.closed is not entry.version or file.body.orphan):
            file.closed = entry.version
            file.body = Body(file, entry.version.data, "edit", False)
        parent, _, word = path.rpartition("/")
        directory = self.root
        for part in parent.split("/") if parent else []:
            directory = directory.names[part].file
        directory.names[word] = Name(file)
        file.links += 1

    def leave_bodies(self, tree, old):
        """Rollback: who has a file open keeps what he has open; what he wrote goes to .epochs/torn when he closes."""
        for path, name in old.items():
            for file in (name.file, name.covered):
                if not file or file.kind != "file":
                    continue
                entry = tree.get(path)
                same = entry and entry.version is file.closed and entry.file == getattr(file, "serial", 0)
                alike = entry and entry.version and file.closed and entry.version.data == file.closed.data
                for body in [file.body] + file.pending:
                    body.name = body.name or path.rsplit("/", 1)[-1]
                    stays = body is file.body and not ((body.writers or body.held) and body.changed)
                    if stays and (same or alike):
                        body.unclear = bool(body.writers or body.held) or not same or file.links > 1
                    if stays and same:
                        continue
                    body.orphan = True
                    body.tear = True if body.changed and body.writers and body.kind != "edit" else None

    # ---- what .epochs shows

    def do_epochs(self, seen):
        numbers, tags, latest, current = seen
        known = [n for n, _ in numbers]
        for number in known:
            if number in self.epochs:
                self.epochs[number].listed = True
        expected = sorted(n for n, e in self.epochs.items() if e.listed)
        if known != expected:
            raise Wrong("epochs: expected %s, found %s" % (expected, known))
        for number, complete in numbers:
            wanted = self.epochs[number].complete
            if wanted is not None and complete != str(wanted).lower():
                raise Wrong("epoch %d: complete=%s" % (number, complete))
        if tags != self.tags:
            raise Wrong("tags: expected %s, found %s" % (self.tags, tags))
        newest = max((n for n, complete in numbers if complete == "true"), default=None)
        if newest and latest != newest or current != expected[-1]:
            raise Wrong("latest %d, current %d; expected %s, %d" % (latest, current, newest, self.last))
        return seen

    def do_epoch(self, seen, number):
        if number not in self.epochs:
            raise Errno("ENOENT")
        tree, where = self.epochs[number].tree, "epoch %d: " % number
        if seen is None or sorted(seen) != sorted(tree):
            raise Wrong("%sexpected %s, found %s" % (where, sorted(tree), seen and sorted(seen)))
        inodes = {}
        for path, entry in tree.items():
            kind, mode, _, inode, mtime, content, xattrs = seen[path]
            wanted = entry.version.data if entry.version else entry.target
            if (kind, mode, xattrs) != (entry.kind, entry.mode, entry.xattrs):
                raise Wrong(where + "%s: expected %s, found %s" % (path, entry.what(), seen[path]))
            if content != wanted:
                raise Wrong(where + "%s: expected %r..., found %r..." % (path, wanted[:40], content[:40]))
            if entry.mtime is not None and entry.mtime != mtime:
                raise Wrong(where + "%s: mtime %d, found %d" % (path, entry.mtime, mtime))
            inodes.setdefault(inode, set()).add(path)
        if sorted(map(sorted, (g for g in inodes.values() if len(g) > 1))) != groups(tree):
            raise Wrong(where + "other hard links than %s" % groups(tree))
        return seen

    def do_torn_bytes(self, seen):
        """The newest 16 are kept."""
        if self.torn is None:
            return seen
        known = self.torn_before + [(kept(name), data) for name, data, _ in self.torn]
        for name, data in seen:
            if not any(n == name and d in (data, None) for n, d in known):
                raise Wrong("torn: %s of %d bytes was torn by nobody" % (name, len(data)))
        for name, data, surely in self.torn[-16:] if len(self.torn_before) + len(self.torn) <= 16 else []:
            if surely and not any(data in (d, None) and n == kept(name) for n, d in seen):
                raise Wrong("torn: %s of %d bytes is missing" % (name, len(data or b"")))
        return seen

    # ---- the mount ends, and comes back

    def end_all(self):
        for process in list(self.processes):
            self.do_end(None, process, "exit")

    def do_remount(self, numbers):
        """In order: everybody closes; what is pending is sealed."""
        self.end_all()
        self.take_seal(numbers[-1])
        return numbers

    def do_cold(self, numbers):
        """... and it comes back on a machine that has nothing but the remote."""
        self.do_remount(numbers)
        self.torn, self.torn_before = [], []
        for epoch in self.epochs.values():
            epoch.durable = True
        self.load(self.epochs[self.last].tree, False)
        self.take_over(self.epochs[self.last], self.last)
        self.fetched = self.last
        return numbers

    def do_crash(self, seen, under_way, _):
        """SIGKILL of the daemon, while an operation may have been under way; then everybody is killed."""
        done, numbers, tags, tree = seen
        numbers = list(numbers)
        if under_way and not self.cut_off(under_way, done):
            self.apply(under_way, tuple(done))
        if under_way and under_way[0] == "seal" and under_way[1] not in self.tags:
            if numbers[-1] == self.last + 1:
                self.take_seal(numbers[-1])
            if under_way[1] in tags:
                self.tags[under_way[1]] = self.last
        self.lose_writers()
        # Whoever writes next starts over, where nothing is left of what the killed ones did.
        if self.taint and adds_nothing(self.snapshot(), self.epochs[self.last].tree):
            self.taint = 1
        self.torn = None
        if numbers[-1] == self.last - 1 and not self.epochs[self.last].listed:
            del self.epochs[self.last]  # it began, and came to no end
            self.last, self.taint, self.fog = self.last - 1, 1, True
        self.all_listed()
        self.do_check(tree)
        if numbers[-1] != self.last:
            raise Wrong("epochs after the crash: %s, not up to %d" % (numbers[-5:], self.last))
        return seen

    def cut_off(self, op, result):
        """True where nobody can say whether it was done; then it was, or was not."""
        if result[0] == "ok" or result[1] not in CUT_OFF:
            return False
        if op[0] != "seal" and self.choose(2):
            try:
                getattr(self, "do_" + op[0])(None, *op[1:])
            except Errno:
                pass
        return True

    def lose_writers(self):
        """As if all writers had been killed; but what a close promised is kept."""
        bodies = []
        for process in self.processes.values():
            for handle in process.slots.values():
                if handle.writes and not handle.body.orphan and handle.body not in bodies:
                    bodies.append(handle.body)
        keeps = {}
        for body in bodies:
            # Its opener closed one descriptor and has another: nobody can tell that from a close.
            keeps[body] = not body.fragile or body.output or self.file_is_log(body.file) or bool(body.flushed and self.choose(2))
            if body.unsynced is not None and self.choose(2):
                body.data = body.unsynced
        for body in bodies:
            body.killed, body.closed_well = True, None
            if body.flushed or body.held:
                self.fog = True
            elif not self.file_is_log(body.file) and not body.output:
                self.note_killed(body, not keeps[body])
            if keeps[body]:
                self.commit(body)
            else:
                self.undo(body)
            body.writers.clear()
            body.held.clear()
            body.killed = body.closed_well = body.flushed = body.output = False
        self.processes = {}

    def do_lost(self, seen):
        """SIGKILL of the daemon, and its cache is gone: what the remote has is all there is."""
        numbers, tags = seen
        ever = {**self.dropped, **self.epochs}
        gone = [n for n, e in self.epochs.items() if e.durable and n not in numbers]
        if gone or not set(numbers) <= set(ever):
            raise Wrong("the remote has %s; lost are %s" % (numbers, gone))
        if not set(tags.values()) <= set(numbers):
            raise Wrong("tags lead nowhere: %s" % tags)
        self.epochs = {n: ever[n] for n in numbers}
        self.dropped = {n: e for n, e in ever.items() if n not in numbers and n < numbers[-1]}
        for epoch in self.epochs.values():
            epoch.durable = True
            epoch.complete = None if epoch.complete is not False else False
        self.tags, self.last = tags, numbers[-1]
        self.processes, self.torn, self.torn_before, self.taint = {}, [], [], 0
        self.load(self.epochs[self.last].tree, False)
        self.take_over(self.epochs[self.last], self.last)
        self.fetched = self.last
        return seen

    def do_weather(self, _, words):
        """Errors of the remote change nothing of what is seen."""
