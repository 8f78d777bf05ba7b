#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes epochfs(1) of its template and of the tables of commands and options, as `epochfs help --json` gives them.

    tests/tools/man_page.py PROGRAM [TEMPLATE] [--check]

The page is the template without ".in", beside it. A line of the template that begins with '@' stands for what the tables say:

    @synopsis              each form of each command
    @command NAME          what it is for, and its options
    @common                the options that all commands take
    @options NAME...       these options of a mount
    @ignored               those that are accepted and change nothing, in one line

What follows such a line says more, in the same paragraph or, after .PP, in the next. Exits 1 where an entry of the tables is missing or is
there twice, and with --check, which writes nothing, where the page is another than the one that is there.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "man" / "epochfs.1.in"
NOTE = '.\\" Made of %s and the tables of the program: edit those, and run `make man`.\n'


def escaped(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def bold(text):
    return "\\fB%s\\fR" % escaped(text)


def shown(arguments):
    """What is typed as it stands is bold, what stands for something else is in italics."""
    return re.sub(r"(--(?= )|-{0,2}[a-z][a-z-]*)|([A-Z]+)", lambda m: bold(m[1]) if m[1] else "\\fI%s\\fR" % m[2], arguments)


def sentence(text):
    """A text of the tables, with the options that it names in bold. No line of roff begins with a dot."""
    parts = re.split(r"(?<![\w-])(--[a-z-]+|-o [a-z-]+)", text)
    return re.sub(r"^(?=[.'])", r"\\&", "".join(bold(part) if i % 2 else escaped(part) for i, part in enumerate(parts))) + "." * (text[-1] != ".")


def entry(term, text):
    return ".TP\n%s\n%s\n" % (term, sentence(text))


def option_of_command(option):
    names = (["-" + option["letter"]] if "letter" in option else []) + ["--" + option["name"]]
    return entry(", ".join(map(bold, names)) + (" " + shown(option["value"]) if "value" in option else ""), option["help"])


def option_of_mount(row):
    default = " (default: %s)" % row["default"] if "default" in row else ""
    return entry(bold(row["name"] + ("=" if row["value"] else "")) + shown(row["value"]), row["help"] + default)


class Page:
    """What the tables hold, and what of it is not in the page yet."""

    def __init__(self, tables):
        self.tables = tables
        self.commands = {command["name"]: command for command in tables["commands"]}
        self.options = {row["name"]: row for row in tables["mount_options"] if "value" in row}
        self.missing = {"@synopsis", "@common", "@ignored", *("@command " + name for name in self.commands), *("@options " + name for name in self.options)}

    def take(self, what):
        if what not in self.missing:
            sys.exit("%s: the tables have no such entry, or it is there twice" % what)
        self.missing.remove(what)

    def synopsis(self):
        forms = [(name, form) for name, command in self.commands.items() for form in command["arguments"].split("\n")]
        return ".br\n".join(("%s %s" % (bold("epochfs " + name), shown(form))).rstrip() + "\n" for name, form in forms)

    def command(self, name):
        summary = self.commands[name]["summary"]
        return ".SS %s\n%s\n%s" % (name, sentence(summary[0].upper() + summary[1:]), "".join(map(option_of_command, self.commands[name]["options"])))

    def filled(self, line):
        """What a line of the template stands for."""
        if not line.startswith("@"):
            return line
        kind, *names = line.split()
        for what in [" ".join((kind, name)) for name in names] or [kind]:
            self.take(what)
        if kind == "@synopsis":
            return self.synopsis()
        if kind == "@common":
            return "".join(map(option_of_command, self.tables["common_options"]))
        if kind == "@ignored":
            return ", ".join(bold(row["name"]) for row in self.tables["mount_options"] if "value" not in row) + ".\n"
        if kind == "@command":
            return "".join(map(self.command, names))
        return "".join(option_of_mount(self.options[name]) for name in names)

    def made_of(self, template):
        head, *lines = template.read_text().splitlines(keepends=True)
        text = head + NOTE % template.name + "".join(map(self.filled, lines))
        if self.missing:
            sys.exit("%s lacks %s" % (template.name, ", ".join(sorted(self.missing))))
        return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("template", nargs="?", type=pathlib.Path, default=TEMPLATE)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    tables = json.loads(subprocess.run([args.program, "help", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    made, page = Page(tables).made_of(args.template), args.template.with_suffix("")
    if not args.check:
        page.write_text(made)
    elif made != page.read_text():
        sys.exit("%s is not what %s and the tables make: run `make man`" % (page.name, args.template.name))


if __name__ == "__main__":
    main()
