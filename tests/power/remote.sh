#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A remote for exec: that forgets nothing: what it held at any moment can be put together again.
#
#	remote.sh FOLDER MARK VERB [KEY ...]
#
# Each object that ever came stays in FOLDER/blobs; FOLDER/now has those that count. Each change is told to MARK, the
# recorder's file, before it shows or is answered: `{"put": KEY, "blob": NAME}` or `{"delete": KEY}`.
set -u
now=$1/now mark=$2
object=$now/${4-}

put() { # with the lock, so that marks and names are in one order
	blob=$(mktemp -p "$1/blobs" b-XXXXXXXXXX) && cat >"$blob" || exit 1
	exec 9>"$1/lock" && flock 9 || exit 1
	[ "$3" = put ] || [ ! -e "$object" ] || exit 8
	mkdir -p "${object%/*}" && echo "{\"put\": \"$4\", \"blob\": \"${blob##*/}\"}" >"$mark" || exit 1
	ln -fT "$blob" "$object" || exit 1
}

case $3 in
capabilities) echo range size put-if-absent ;;
put | put-if-absent) put "$@" ;;
get)
	[ -f "$object" ] || exit 5
	[ $# -gt 4 ] || exec cat "$object"
	[ "$5" -lt "$(stat -c %s "$object")" ] || exit 0
	exec dd if="$object" bs=1M iflag=skip_bytes,count_bytes,fullblock skip="$5" count="$6" status=none
	;;
size)
	[ -f "$object" ] || exit 5
	exec stat -c %s "$object"
	;;
list)
	[ -d "$object" ] || exit 0
	exec find "$object" -type f -printf "%s ${4-}%P\n"
	;;
delete)
	exec 9>"$1/lock" && flock 9 || exit 1
	[ -e "$object" ] || exit 0
	echo "{\"delete\": \"$4\"}" >"$mark" && rm -f "$object"
	;;
*) exit 2 ;;
esac
