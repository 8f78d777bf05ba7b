# SPDX-License-Identifier: Apache-2.0
"""What the README and the pages of the manual print to be typed, for the tests that run it."""

import pathlib
import re

REPO = pathlib.Path(__file__).resolve().parents[1]
README = REPO / "README.md"
PAGES = sorted((REPO / "packaging" / "man").glob("*.[1-9]"))
CHARACTERS = {"\\-": "-", "\\e": "\\", "\\(aq": "'", "\\(dq": '"', "\\(ga": "`", "\\(ti": "~", "\\(ha": "^", "\\(rs": "\\", "\\&": "", "\\ ": " "}


def typed(text):
    """Lines of a page, as one reads them: without the marks of roff."""
    text = re.sub(r"\\f(\(..|\[.*?\]|.)", "", text)
    return re.sub(r"\\(\(..|.)", lambda found: CHARACTERS.get(found[0], found[0]), text)


def blocks_of_page(text):
    """What stands between .EX and .EE."""
    return [typed(block) for block in re.findall(r"^\.EX\n(.*?)^\.EE$", text, re.M | re.S)]


def blocks_of_readme(text):
    """Indented blocks, without what they are indented by; empty lines inside are theirs."""
    return [re.sub("^    ", "", block, flags=re.M) for block in re.findall(r"(?:^    .*\n(?:\n+(?=    ))?)+", text, re.M)]


def blocks():
    """All of them. What stands in two papers is in here once."""
    found = blocks_of_readme(README.read_text())
    for page in PAGES:
        found += blocks_of_page(page.read_text())
    return list(dict.fromkeys(found))


def block_of(first):
    """The one that begins so."""
    (found,) = [block for block in blocks() if block.startswith(first)]
    return found


def page(name):
    """The source of a page."""
    return (REPO / "packaging" / "man" / name).read_text()
