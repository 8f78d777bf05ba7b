#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what clang-format does not: licence and subject lines, include guards, file lengths, plurals in messages, citations of the contract and of files, the version.

    tests/tools/style.py

Prints each offence and exits 1 where there is one. Long files are only reported.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = 500
PATTERNS = ("lib/*/*.[ch]", "fs/*.[ch]", "tools/*.[ch]", "tests/*/*.[ch]", "tests/*.py", "tests/*/*.py", "tests/*/*/*.py",
            "tests/*/*.sh", "tests/*/*/*.sh", "packaging/**/*.sh", ".ci/run", "Makefile")


def guard_of(name):
    words = [w for w in re.split(r"[/.-]", name) if w not in ("lib", "h")]
    if words[0] == "tests":
        words.pop(1)
    return "EPOCHFS_" + "_".join(words).upper() + "_H"


def offences(name, text):
    lines = text.splitlines()
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    comment = ("/* %s */" if name.endswith((".c", ".h")) else "# %s")
    if not lines or lines[0] != comment % "SPDX-License-Identifier: Apache-2.0":
        yield "%s: the first line is not the licence's" % name
    elif len(lines) < 2 or not re.match(r'/\*|#|"""', lines[1]):
        yield "%s: no line says the subject" % name
    if name.endswith(".h"):
        guard = guard_of(name)
        if "#ifndef %s\n#define %s\n" % (guard, guard) not in text:
            yield "%s: the include guard is not %s" % (name, guard)
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield "%s: does not end in one newline" % name
    for number, line in enumerate(text.splitlines(), 1):
        if line != line.rstrip():
            yield "%s:%d: space at the end of the line" % (name, number)
        # Spelled so that this line is none.
        if re.search(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b(?!:)", line):
            yield "%s:%d: an open point without a reason" % (name, number)


# The rules of the contract, by number; a section is one, too.
CONTRACT = set(re.findall(r"^(?:\.B|\.SS?|\.SH) \"?(\d[\d.]*)", (ROOT / "packaging/man/epochfs-semantics.7").read_text(), re.M))


def citations(name, text):
    """What a comment cites must be there."""
    for number, line in enumerate(text.splitlines(), 1):
        for cited in re.findall(r"\b[Cc]ontract ((?:\d[\d.]*\d(?:, | and )?)+)", line):
            for rule in re.findall(r"\d[\d.]*\d", cited):
                if rule not in CONTRACT:
                    yield "%s:%d: epochfs-semantics(7) has no rule %s" % (name, number, rule)


def sections_named(name, text):
    """A section that is cited must be there: of a manual page, in its capitals, or of the README, in italics."""
    for number, line in enumerate(text.splitlines(), 1):
        for page, section in re.findall(r"\b(epochfs(?:-[a-z]+)?)\([17]\), ([A-Z]{2,}(?: [A-Z]{2,})*)", line):
            if not any(re.search(r'^\.SH "?%s"?$' % section, path.read_text(), re.M) for path in (ROOT / "packaging/man").glob(page + ".[17]")):
                yield "%s:%d: %s has no section %s" % (name, number, page, section)
        for section in re.findall(r"\bREADME, \*([^*]+)\*", line):
            if not re.search(r"^#+ %s$" % re.escape(section), (ROOT / "README.md").read_text(), re.M):
                yield "%s:%d: the README has no section %s" % (name, number, section)


def versions():
    """The Makefile has the version; each page of the manual names it."""
    version = re.search(r"^VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    for page in sorted((ROOT / "packaging/man").iterdir()):
        if '"epochfs %s"' % version not in re.search(r"^\.TH .*", page.read_text(), re.M)[0]:
            yield "packaging/man/%s: its .TH does not say epochfs %s" % (page.name, version)


# Files of others that are meant by name.
OF_OTHERS = {"lmdb.h", "mdb.c", "linux/fuse.h"}
FILES = {"/".join(path.relative_to(ROOT).parts[i:])
         for pattern in PATTERNS[:4] for path in ROOT.glob(pattern) for i in range(3)} | OF_OTHERS


def files_named(name, text):
    """A file that a comment or a page names must be there: by its name, or with its room before it."""
    if name.endswith((".c", ".h")):
        text = re.sub(r"(?s)(.*?)(/\*.*?\*/|\Z)", lambda m: "\n" * m[1].count("\n") + m[2], text)
    for number, line in enumerate(text.splitlines(), 1):
        for cited in re.findall(r"(?<![\w/<.-])((?:[a-z_0-9]+/)*[a-z][a-z_0-9]*\.[ch])\b(?![\w(])", line):
            if cited not in FILES:
                yield "%s:%d: there is no %s" % (name, number, cited)


# Where the number cannot be 1, or is not the noun's.
NO_PLURAL = re.compile(r"%N (nodes?|of nodes|waits for|shows a|races of|epochs from|keys, as many|letters, digits|objects just put|of its|and sends|ms|serves)\b|%N bytes$")


def plurals(name, text):
    """Messages that put a number before a fixed plural: "1 files" (lib/util/text.h has plural())."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    text = re.sub(r'"\s*(?:PRI\w+|JSON_INTEGER_FORMAT)', lambda m: '@"' + "\n" * m[0].count("\n"), text)
    # Strings that stand side by side are one; a number is %N.
    text = re.sub(r'"(\s*)"', lambda m: "\n" * m[1].count("\n"), text)
    text = re.sub(r"%[0-9.*]*(?:@|(?:z|l|ll|h)?[diu])(?![a-z])", "%N", text)
    for found in re.finditer(r"%N\s+(?:[a-z]+ )?[a-z]*[^s\W\d_]s\b[^\"\n]{0,20}", text):
        if not NO_PLURAL.search(" ".join(found[0].split())) and not re.match(r"%N\s+(?:is|was|has)\b", found[0]):
            yield "%s:%d: a plural behind any number: %s" % (name, text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()))


def main():
    found, long = [*versions()], []
    for pattern in PATTERNS:
        for path in sorted(ROOT.glob(pattern)):
            name, text = path.relative_to(ROOT).as_posix(), path.read_text()
            found += [*offences(name, text), *citations(name, text)]
            if name.endswith((".c", ".h")):
                found += files_named(name, text)
            if name.startswith(("lib/", "fs/", "tools/")) and name.endswith(".c"):
                found += plurals(name, text)
            if text.count("\n") > LONG and not name.startswith("tests/"):
                long.append("%s: %d lines" % (name, text.count("\n")))
    for page in (ROOT / "README.md", ROOT / "lib" / "README.md", *ROOT.glob("tests/**/README.md")):
        name, text = page.relative_to(ROOT).as_posix(), page.read_text()
        found += [*files_named(name, text), *citations(name, text), *sections_named(name, text)]
    for line in found:
        print(line)
    if long:
        print("  note: more than %d lines:\n    %s" % (LONG, "\n    ".join(long)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
