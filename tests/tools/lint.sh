#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the source: format, warnings of both compilers, headers alone, layers, scripts, what is made of the tables.
#
#	tests/tools/lint.sh 'COMPILER FLAGS' BUILD	(make lint gives them; BUILD has the objects and the program)
#
# Runs all checks and exits 1 where one finds something.
set -u
cd "$(dirname "$0")/../.." || exit 1
flags=()
eval "flags=($1)"
shopt -s nullglob
sources=(lib/*/*.c fs/*.c tools/*.c tests/*/*.c)
headers=(lib/*/*.h fs/*.h tools/*.h tests/*/*.h)
shells=(.ci/run findings/*.sh tests/*/*.sh tests/*/*/*.sh packaging/completions/*.bash)
for file in packaging/* packaging/*/* packaging/*/*/*; do
	[ -f "$file" ] && head -c 40 "$file" | grep -q '^#!.*sh' && shells+=("$file")
done
pythons=(tests/*.py tests/*/*.py tests/*/*/*.py)
failed=0

check() {
	local name=$1
	shift
	if "$@"; then
		printf '  %-7s %s\n' ok "$name"
	else
		printf '  %-7s %s\n' FAILED "$name"
		failed=1
	fi
}

# Arguments: compiler and its flags, then --, then files; as many at a time as there are processors.
# shellcheck disable=SC2317 # check calls it
compile() {
	local command=()
	while [ "$1" != -- ]; do
		command+=("$1")
		shift
	done
	shift
	[ $# -eq 0 ] || printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" "${command[@]}"
}

check 'clang-format' clang-format --dry-run -Werror "${sources[@]}" "${headers[@]}"
# gcc finds the use of what was never set only while it optimizes; clang's warnings come before that.
check 'gcc: sources' compile gcc "${flags[@]}" -O2 -D_FORTIFY_SOURCE=2 -Werror -S -o /dev/null -- "${sources[@]}"
check 'clang: sources' compile clang "${flags[@]}" -O2 -D_FORTIFY_SOURCE=2 -Werror -fsyntax-only -- "${sources[@]}"
for cc in gcc clang; do
	check "$cc: headers alone" compile $cc "${flags[@]}" -Werror -Wno-unused-function -fsyntax-only -x c -- "${headers[@]}"
done
check 'layers' tests/tools/layers.py "$2"
check 'licence, guards, lengths' tests/tools/style.py
check 'epochfs(1)' tests/tools/man_page.py "$2/epochfs" --check
check 'completions' tests/tools/completions.py "$2/epochfs" --check
check 'protocols' python3 tests/protocols/protocol_run.py --check
check 'shellcheck' shellcheck "${shells[@]}"
check 'pyflakes' pyflakes3 "${pythons[@]}"
exit $failed
