#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the completions of the shells of their templates and of the tables of commands and options, as `epochfs help --json` gives them.

    tests/tools/completions.py PROGRAM [--check]

A completion is its template in packaging/completions without ".in", beside it. "@name" in a template stands for what the tables say: the
method of that name, of the class that is its shell's. With --check nothing is written: exits 1 where one is another than the one that is there.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "completions"
NOTE = "# Made of %s and the tables of the program: edit those, and run `make completions`.\n"


def kind_of(value):
    """What the value of an option is, by the word that stands for it."""
    if value.startswith("OPTION"):
        return "options"
    return "file" if value in ("FILE", "PROGRAM") else "directory" if value in ("DIR", "REMOTE:DIRECTORY") else "text"


def choices(value):
    """Those that are typed as they stand."""
    return [word for word in value.split("|") if word.islower()]


def spelt(option):
    return (["-" + option["letter"]] if "letter" in option else []) + ["--" + option["name"]]


def takes_directory(command):
    return re.search("TARGET|REMOTE|DIRECTORY", command["arguments"])


class Shell:
    """What all shells need of the tables."""

    def __init__(self, tables):
        self.tables, self.table, self.common_table = tables, tables["commands"], tables["common_options"]
        self.mount_table = [row for row in tables["mount_options"] if "value" in row]
        # Who takes -o takes each option of a mount as a long one, too.
        for command in self.table:
            names = {option["name"] for option in command["options"] + self.common_table}
            if "options" in names:
                command["options"] = command["options"] + [{k: v for k, v in row.items() if v} for row in self.mount_table if row["name"] not in names]

    def words_of(self, command):
        """The words of which the first operand is one: of a command that has commands of its own, and of help."""
        if command["name"] == "help":
            return [other["name"] for other in self.table]
        return re.findall(r"^[a-z]+", command["arguments"], re.M)

    def mount_words(self):
        """(word, help) of each option of a mount; of each value that it may have, where those are known."""
        for row in self.mount_table:
            known = choices(row["value"])
            for word in ["=" + word for word in known] + ["="] * (row["value"] != "|".join(known)) if row["value"] else [""]:
                yield row["name"] + word, row["help"]


class Bash(Shell):
    """Words in lists."""

    def words(self, options):
        return shlex.quote(" ".join(name + ("=" + kind_of(option["value"]) if "value" in option else "") for option in options for name in spelt(option)))

    def options(self):
        return "".join("\t%s) echo %s ;;\n" % (c["name"], self.words(c["options"])) for c in self.table if c["options"])

    def common(self):
        return self.words(self.common_table)

    def operands(self):
        return "".join("\t%s) echo %s ;;\n" % (c["name"], shlex.quote(" ".join(self.words_of(c)))) for c in self.table if self.words_of(c))

    def commands(self):
        return " ".join([c["name"] for c in self.table] + ["--help", "--version"])

    def mount_options(self):
        return shlex.quote("".join(" " + word for word, _ in self.mount_words()))

    def path_options(self):
        return "@(%s)=*" % "|".join(row["name"] for row in self.mount_table if kind_of(row["value"]) in ("file", "directory"))


class Zsh(Shell):
    """Specifications of _arguments and _values."""

    ACTIONS = {"options": "_epochfs_mount_options", "file": "_files", "directory": "_directories", "text": ""}

    @staticmethod
    def escaped(text):
        return re.sub(r"([][:\\])", r"\\\1", text)

    def value(self, value):
        known = choices(value)
        return ":%s:%s" % (self.escaped(value), "(%s)" % " ".join(known) if known else self.ACTIONS[kind_of(value)])

    def option(self, option):
        repeated = option.get("value", "").startswith("OPTION")
        names = [name + ("" if "value" not in option else "=" if name.startswith("--") else "+") for name in spelt(option)]
        before = "'*'" if repeated else "'(%s)'" % " ".join(spelt(option))
        rest = "[%s]" % self.escaped(option["help"]) + (self.value(option["value"]) if "value" in option else "")
        return before + ("{%s}" % ",".join(names) if len(names) > 1 else names[0]) + shlex.quote(rest)

    def operands(self, command):
        words = self.words_of(command)
        directories = "_epochfs_run_operands" if command["name"] == "run" else "_directories"
        return ["'1:word:(%s)'" % " ".join(words)] * bool(words) + ["'*:operand:%s'" % directories] * bool(takes_directory(command))

    def common(self):
        return "".join("\t\t%s\n" % self.option(option) for option in self.common_table)

    def commands(self):
        return "".join("\t\t%s\n" % shlex.quote("%s:%s" % (c["name"], self.escaped(c["summary"]))) for c in self.table)

    def mount_options(self):
        specs = ["%s%s[%s]%s" % ("*" if row["value"].startswith("GLOB") else "", row["name"], self.escaped(row["help"]), self.value(row["value"]) if row["value"] else "")
                 for row in self.mount_table]
        return " \\\n".join("\t\t" + shlex.quote(spec) for spec in specs) + "\n"

    def arguments(self):
        text = ""
        for c in self.table:
            specs = [*map(self.option, c["options"]), *self.operands(c)]
            text += "\t%s)\n\t\t_arguments -s -S $common%s\n\t\t;;\n" % (c["name"], "".join(" \\\n\t\t\t" + spec for spec in specs))
        return text


class Fish(Shell):
    """Calls of complete."""

    VALUES = {"options": " -x -a '(__fish_complete_list , __epochfs_mount_options)'", "file": " -r -F", "directory": " -x -a '(__fish_complete_directories)'", "text": " -x"}

    @staticmethod
    def quoted(text):
        return "'%s'" % re.sub(r"(['\\])", r"\\\1", text)

    def mount_options(self):
        return "".join("    printf '%%s\\t%%s\\n' %s %s\n" % (word, self.quoted(says)) for word, says in self.mount_words())

    def option(self, condition, option):
        letter = " -s " + option["letter"] if "letter" in option else ""
        value = self.VALUES[kind_of(option["value"])] if "value" in option else ""
        return "complete -c epochfs -n '%s'%s -l %s%s -d %s\n" % (condition, letter, option["name"], value, self.quoted(option["help"]))

    def of_command(self, command):
        """Its options, the words of its first operand, and directories for the others."""
        here = "__epochfs_is " + command["name"]
        lines = [self.option(here, option) for option in command["options"]]
        words = self.words_of(command)
        if words:
            lines.append("complete -c epochfs -n '__epochfs_begins %s' -a '%s'\n" % (command["name"], " ".join(words)))
            here += "; and not __epochfs_begins " + command["name"]
        if command["name"] == "run":
            here += "; and not __epochfs_runs"
        if takes_directory(command):
            lines.append("complete -c epochfs -n '%s' -a '(__fish_complete_directories)'\n" % here)
        return lines

    def complete(self):
        names = "__epochfs_is " + " ".join(c["name"] for c in self.table)
        lines = ["complete -c epochfs -n __epochfs_is -a %s -d %s\n" % (c["name"], self.quoted(c["summary"])) for c in self.table]
        lines += [self.option(names, option) for option in self.common_table]
        return "".join(lines + [line for command in self.table for line in self.of_command(command)])


def made_of(template, shell):
    """A line that is one name is replaced as a whole."""
    text = re.sub(r"^@(\w+)\n|(?<=[ =])@([a-z_]+)", lambda found: getattr(shell, found[1] or found[2])(), template.read_text(), flags=re.M)
    return re.sub(r"^(# Completion for .*\n)", lambda found: found[1] + NOTE % template.name, text, flags=re.M)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    tables = json.loads(subprocess.run([args.program, "help", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    for name, shell in (("epochfs.bash", Bash), ("_epochfs", Zsh), ("epochfs.fish", Fish)):
        made, path = made_of(FOLDER / (name + ".in"), shell(tables)), FOLDER / name
        if not args.check:
            path.write_text(made)
        elif made != path.read_text():
            sys.exit("%s is not what %s.in and the tables make: run `make completions`" % (name, name))


if __name__ == "__main__":
    main()
