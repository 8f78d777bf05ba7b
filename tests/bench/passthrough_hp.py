# SPDX-License-Identifier: Apache-2.0
"""libfuse's own pass-through, its example passthrough_hp, for compare.py: Debian has it as source only."""

import subprocess

from competitors import Unusable, program


def build(folder):
    """libfuse's example from the source package of this Debian; made once. Its path."""
    made = folder / "passthrough_hp"
    if made.exists():
        return made
    compiler = program("g++")
    lists = folder / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sites = subprocess.run([program("apt-get"), "indextargets", "--format", "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)",
                            "Created-By: Packages"], capture_output=True, text=True, check=False).stdout
    (folder / "sources.list").write_text("\n".join(sorted(set(sites.splitlines()))) + "\n")
    options = ["-q", "-o", "Dir::Etc::SourceList=%s" % (folder / "sources.list"), "-o", "Dir::Etc::SourceParts=/dev/null",
               "-o", "Dir::State::Lists=%s" % lists, "-o", "APT::Sandbox::User=root"]
    for words in (["update"], ["source", "fuse3"]):
        done = subprocess.run([program("apt-get"), *options, *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unusable("apt-get %s fuse3: %s" % (words[0], done.stderr.strip()[-200:]))
    source = next(folder.glob("fuse3-*/example/passthrough_hp.cc"))
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True).stdout.split()
    done = subprocess.run([compiler, "-O2", "-D_FILE_OFFSET_BITS=64", "-o", made, source, *flags, "-pthread"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unusable("passthrough_hp does not build: %s" % done.stderr.strip()[-200:])
    return made
