#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests on a real mount, tests/mount, and those with real servers, tests/remotes, with
# pytest; afterwards nothing may be left over.
#
#	tests/tools/run_mount.sh BUILD RESULTS SAN [pytest's arguments]
#
# The tests find the program in EPOCHFS_BIN: BUILD/tests/epochfs, which differs from the one that is installed in that it obeys
# EPOCHFS_FAULT. That one is EPOCHFS_INSTALLED, the unit test programs are in EPOCHFS_UNITS. All that they make lies in one temporary directory
# (TMPDIR and pytest's tmp_path). What is still mounted or running there at the end is taken away
# and fails the run, and so does a report of a sanitizer, which the daemon has no terminal to
# print on. Results: RESULTS/mount.xml, RESULTS/mount-guard.json.
set -u
build=$1 results=$2 san=$3
shift 3
tools=$(dirname "$0")
tests=$tools/..

if [ ! -c /dev/fuse ]; then
	echo 'run_mount.sh: there is no /dev/fuse here: load the module fuse, or give the container the device' >&2
	exit 1
fi
# Seconds for all tests, and for one: pytest.ini's, but a sanitizer takes its time.
limit=2700 test_limit=180
[ -z "$san" ] || limit=3600 test_limit=600
limit=${MOUNT_LIMIT:-$limit}

run=$(mktemp -d "${TMPDIR:-/tmp}/epochfs-mount-XXXXXX") || exit 1
# The files of another user's processes lie there too.
chmod 755 "$run"
mkdir -p "$run/tmp" "$run/reports" "$results"
chmod 1777 "$run/tmp" "$run/reports"
"$tools/guard.py" --watch $((test_limit + 60)) "$run" &
watcher=$!
finish() {
	kill "$watcher"
	"$tools/guard.py" "$run" "$results"
}
trap 'finish; exit 130' INT TERM HUP

export TMPDIR=$run/tmp EPOCHFS_TEST_RUN=$run PYTHONDONTWRITEBYTECODE=1
EPOCHFS_BIN=$(realpath "$build/tests/epochfs")
EPOCHFS_INSTALLED=$(realpath "$build/epochfs")
EPOCHFS_UNITS=$(realpath "$build/tests")
export EPOCHFS_BIN EPOCHFS_INSTALLED EPOCHFS_UNITS EPOCHFS_TEST_SAN=$san
export ASAN_OPTIONS=detect_leaks=1:log_path=$run/reports/asan
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:log_path=$run/reports/ubsan
# OpenSSL is not instrumented: what its own locks order looks like a race to TSan.
export TSAN_OPTIONS=second_deadlock_stack=1:ignore_noninstrumented_modules=1:log_path=$run/reports/tsan

# Many tests wait for a pause between two saves, so there are more workers than processors. The longest files are in tests/remotes:
# where they are begun last, one worker ends alone.
xml=$results/mount${san:+-$san}.xml
timeout --kill-after=30 "$limit" /usr/bin/python3 -m pytest -c "$tests/pytest.ini" \
	--rootdir "$tests/.." -p no:cacheprovider -n $(($(nproc) + 2)) --dist loadfile --timeout $test_limit \
	--basetemp "$run/tmp/pytest" --junit-xml "$xml" "$tests/remotes" "$tests/mount" "$@"
status=$?
case $status in
0)
	# Where all were skipped, as where none was chosen, nothing was shown.
	counts=$(grep -o '<testsuite [^>]*' "$xml")
	[ "$(expr "$counts" : '.* tests="\([0-9]*\)"')" -gt "$(expr "$counts" : '.* skipped="\([0-9]*\)"')" ] || {
		echo 'run_mount.sh: every test was skipped' >&2
		status=1
	}
	;;
5) echo 'run_mount.sh: no test was chosen' >&2 ;;
124 | 137) echo "run_mount.sh: killed after $limit s" >&2 ;;
esac
trap - INT TERM HUP
finish || status=1
exit $status
