#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_mount.sh as an ordinary user (as_user.sh): the same tests, mounted through fusermount3 and without passthrough. What needs
# root or passthrough is skipped. Results: RESULTS/user-*, as tests of "user".
#
#	tests/tools/run_user.sh BUILD RESULTS SAN [pytest's arguments]
set -u
build=$1 results=$2 san=$3
shift 3
tools=$(dirname "$0")

mkdir -p "$results"
own=$(mktemp -d "${TMPDIR:-/tmp}/epochfs-results-XXXXXX") || exit 1
trap 'rm -rf "$own"' EXIT
chmod 777 "$own"
"$tools/as_user.sh" "$tools/run_mount.sh" "$build" "$own" "$san" "$@"
status=$?
for file in "$own"/*; do
	[ -e "$file" ] || continue
	sed 's/ classname="/&user./g' "$file" >"$results/user-${file##*/}"
done
exit $status
