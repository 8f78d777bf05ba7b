#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a root of a Debian release with some packages, runs a Python program in it (its text is standard input), and removes it.
#
#	findings/root.sh [--fuse] RELEASE PACKAGE[=VERSION]... < PROGRAM
#
# --fuse: the program may mount what nobody else sees.
# Exits with 2 where a package is there in another version, else as the program does.
set -eu
[ "$(id -u)" -eq 0 ] || { echo 'findings/root.sh: run it as root' >&2; exit 2; }
fuse=
if [ "$1" = --fuse ]; then
	fuse=yes
	shift
fi
release=$1
shift
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
apt-config dump --no-empty Acquire >"$folder/apt.conf"
names=()
for package; do
	names+=("${package%%=*}")
done
include=$(IFS=,; echo "${names[*]}")
mmdebstrap --quiet --variant=apt --include="$include" --aptopt="$folder/apt.conf" "$release" "$folder/root.tar" </dev/null
mkdir "$folder/root"
tar -C "$folder/root" -xf "$folder/root.tar" --exclude='./dev/*'
for package; do
	# shellcheck disable=SC2016 # it is dpkg-query that knows it
	there=$(chroot "$folder/root" dpkg-query -W -f '${Version}' "${package%%=*}")
	if [ "$package" != "${package#*=}" ] && [ "$there" != "${package#*=}" ]; then
		echo "findings/root.sh: ${package%%=*} is $there in $release, and ${package#*=} was looked at" >&2
		exit 2
	fi
done
cat >"$folder/root/program.py"
# Without /dev: these programs need none of it but this.
mknod -m 666 "$folder/root/dev/null" c 1 3
[ -z "$fuse" ] || mknod -m 666 "$folder/root/dev/fuse" c 10 229
unshare --mount --propagation private chroot "$folder/root" /usr/bin/env HOME=/tmp LANG=C.UTF-8 sh -c 'cd /tmp && python3 /program.py'
