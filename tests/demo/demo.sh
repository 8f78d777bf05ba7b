#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job, shown: an ordinary training run on a mount is saved, killed in mid-save, rolled back, resumed, and restored on a
# machine that has nothing. Run by `make demo`. Ends with an error where anything is not as it should be.
set -euo pipefail

epochfs=${EPOCHFS_BIN:?the program to show, as make demo sets it}
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
work=$(mktemp -d "${TMPDIR:-/tmp}/epochfs-demo.XXXXXX")
mnt=$work/ckpt
trainer=
mkdir "$mnt" "$work/remote" "$work/cache" "$work/empty-cache" "$work/tmp"
# What a trainer that is killed leaves there goes with all else: newer versions of PyTorch make a folder when they are imported.
export TMPDIR=$work/tmp

tidy() {
	if [ -n "$trainer" ]; then
		kill -9 "$trainer" 2>/dev/null || true
	fi
	if mountpoint -q "$mnt" || ! stat "$mnt" >/dev/null 2>&1; then
		"$epochfs" umount --no-drain "$mnt" 2>/dev/null || umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt" || true
	fi
	rm -rf "$work"
}
trap tidy EXIT

if [ -t 1 ]; then
	bold=$(printf '\033[1m') plain=$(printf '\033[0m')
else
	bold='' plain=''
fi

say() {
	printf '\n%s# %s%s\n' "$bold" "$*" "$plain"
}

# Shows a command as a user would type it, and runs it.
show() {
	printf '$ %s\n' "${*//$work/}"
	"$@"
}

hashes() {
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

# Gives up after a minute.
wait_for() {
	for _ in $(seq 600); do
		if eval "$2"; then
			return 0
		fi
		sleep 0.1
	done
	echo "demo: waited a minute in vain: $1" >&2
	exit 1
}

epoch_of() {
	readlink "$mnt/.epochs/$1"
}

say 'Mount a volume where the training code expects its checkpoints.'
show "$epochfs" mount -o "cache-dir=$work/cache,settle=700ms,min-free=0" "$work/remote" "$mnt"

say 'Train. The script is an ordinary one; it saves over the same file every ten steps.'
show "$python" "$here/train.py" "$mnt" 30

say 'Go on training, and kill it with SIGKILL in the middle of a save.'
hashes "$mnt" | grep model >"$work/before"
"$python" "$here/train.py" "$mnt" 20 --slow-save 40 >"$work/out" 2>&1 &
trainer=$!
wait_for 'the slow save' "grep -q saving '$work/out'"
cat "$work/out"
show kill -9 "$trainer"
wait "$trainer" 2>/dev/null || true
trainer=
hashes "$mnt" | grep model >"$work/after"
cmp "$work/before" "$work/after"
echo 'model: the last good save, byte for byte. The torn bytes are kept aside:'
show ls -l "$mnt/.epochs/torn/"

say 'Every whole checkpoint is an epoch.'
wait_for 'an epoch of the killed run' "'$epochfs' log --json '$mnt' 2>>'$work/errors' | grep -q '\"complete\": false'"
show ls -l "$mnt/.epochs"
show "$epochfs" log "$mnt"

say 'Roll back to the first epoch with an ordinary tool, and resume from there.'
show ln -sfn 1 "$mnt/.epochs/current"
show "$python" "$here/train.py" "$mnt" 10

say 'Unmount: what is pending is sealed and uploaded first.'
latest=$(epoch_of latest)
hashes "$mnt" >"$work/live.sums"
hashes "$mnt/.epochs/$latest" >"$work/epoch.sums"
show "$epochfs" umount "$mnt"

say 'A machine with an empty cache: everything is back, byte for byte.'
show "$epochfs" mount -o "cache-dir=$work/empty-cache,min-free=0" "$work/remote" "$mnt"
hashes "$mnt" | cmp - "$work/live.sums"
hashes "$mnt/.epochs/$latest" | cmp - "$work/epoch.sums"
echo "the live tree and epoch $latest have the same hashes as before"
show "$epochfs" log "$mnt"
show "$epochfs" umount "$mnt"

say 'Done.'
