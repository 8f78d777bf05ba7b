# SPDX-License-Identifier: Apache-2.0
"""The part of the reference model that is about names and attributes, with the errors that Linux gives."""

import re

from tree import Errno, File, Name, is_inside, lookup
from worker import pattern


class Names:
    # ---- names

    def do_mkdir(self, _, process, path, mode):
        directory, word = self.find_free(path)
        self.add(directory, word, File("dir", mode & ~0o022))

    def do_rmdir(self, _, process, path):
        directory, word, entry = self.find(path)
        if entry.file.kind != "dir":
            raise Errno("ENOTDIR")
        if entry.file.names:
            raise Errno("ENOTEMPTY")
        self.remove(directory, word)

    def do_unlink(self, _, process, path):
        directory, word, entry = self.find(path)
        if entry.file.kind == "dir":
            raise Errno("EISDIR")
        self.remove(directory, word)

    def remove(self, directory, word):
        entry = directory.names.pop(word)
        directory.mtime = None
        self.unlink(entry.file)
        if entry.covered:
            self.unlink(entry.covered)

    def do_rename(self, _, process, old, new):
        lookup(self.root, old)  # the kernel walks to both directories before it looks for the names
        target, new_word, replaced = lookup(self.root, new)
        source, word, entry = self.find(old)
        file = entry.file
        if file.kind == "dir" and is_inside(file, target):
            raise Errno("EINVAL")
        if replaced and replaced.file.kind == "dir" and is_inside(replaced.file, source):
            raise Errno("ENOTEMPTY")
        if replaced and replaced.file is file:
            return
        if replaced and file.kind == "dir" != replaced.file.kind:
            raise Errno("ENOTDIR")
        if replaced and file.kind != "dir" == replaced.file.kind:
            raise Errno("EISDIR")
        if replaced and replaced.file.kind == "dir" and replaced.file.names:
            raise Errno("ENOTEMPTY")
        self.move(source, word, target, new_word)
        self.note_output(process, new, new_word)
        may, must = self.seals_at_rename(file, word, target, new_word, new)
        # After one rename to such a name a save may have gone on: then none seals, whatever its numbers (1.3.7).
        place = re.sub("[0-9]+", "#", new)
        self.seal_by_itself(may, must and place not in self.renamed_to)
        self.renamed_to.add(place)

    def move(self, source, word, target, new_word):
        entry, replaced = source.names.pop(word), target.names.pop(new_word, None)
        if replaced:
            self.note_replaced(replaced.file, replaced.file.closed)
            self.note_saved(entry.file, replaced.file.closed)
        file, covered = entry.file, None
        source.mtime = target.mtime = None
        if entry.covered:
            self.unlink(entry.covered)
        if replaced:
            open_new = file.kind == "file" and file.closed is None and file.body.fragile
            candidates = [replaced.covered, replaced.file if replaced.file.closed else None]
            covered = next((f for f in candidates if f), None) if open_new else None
            for left in (replaced.file, replaced.covered):
                if left and left is not covered:
                    self.unlink(left)
        target.names[new_word] = Name(file, covered)
        self.note_made(target, new_word)

    def do_link(self, _, process, old, new):
        entry = self.find(old)[2]
        directory, word = self.find_free(new)
        if entry.file.kind == "dir":
            raise Errno("EPERM")
        self.add(directory, word, entry.file)

    def do_symlink(self, _, process, target, path):
        directory, word = self.find_free(path)
        file = File("link", 0o777)
        file.target = target
        self.add(directory, word, file)

    def do_mkfifo(self, _, process, path):
        directory, word = self.find_free(path)
        self.add(directory, word, File("fifo", 0o644))

    # ---- attributes

    def do_truncate(self, _, process, path, size):
        file = self.find(path, True)[2].file
        if file.kind != "file":
            raise Errno("EISDIR" if file.kind == "dir" else "EINVAL")
        body = self.view(process, file)
        if body.unclear:
            return
        body.resize(size)
        file.mtime = None
        if not body.writers:
            self.commit(body)

    def do_chmod(self, _, process, path, mode):
        self.find(path, True)[2].file.mode = mode

    def do_utime(self, _, process, path, when):
        file = self.find(path)[2].file
        file.mtime = when if not file.pending else None

    def do_setxattr(self, _, process, path, name, seed, length):
        file = self.find(path, True)[2].file
        if file.kind == "fifo":
            raise Errno("EPERM")
        file.xattrs[name] = pattern(seed, length)

    def do_removexattr(self, _, process, path, name):
        file = self.find(path, True)[2].file
        if file.kind == "fifo":
            raise Errno("EPERM")
        if name not in file.xattrs:
            raise Errno("ENODATA")
        del file.xattrs[name]
