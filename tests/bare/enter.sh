#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a shell command in a root directory as if that were a machine of its own.
#
#	unshare --mount --pid --fork --kill-child enter.sh ROOT DEBS RESULTS USER COMMAND
#
# The caller makes the namespaces: with the first process of them all others end, and all mounts are gone.
# DEBS becomes apt's archive there, RESULTS /results. Exits with 1 where COMMAND leaves processes or FUSE mounts behind.
set -eu
root=$1 debs=$2 results=$3 user=$4 command=$5

mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755,size=1m dev "$root/dev"
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 fuse:10:229; do
	name=${node%%:*} numbers=${node#*:}
	mknod -m 666 "$root/dev/$name" c "${numbers%:*}" "${numbers#*:}"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for stream in 0:stdin 1:stdout 2:stderr; do
	ln -s "/proc/self/fd/${stream%:*}" "$root/dev/${stream#*:}"
done
mount --bind "$debs" "$root/var/cache/apt/archives"
mkdir -p "$root/results"
mount --bind "$results" "$root/results"

# Not by chroot: who stands in one makes no user namespaces, and its top is no mount, which unshare(1) wants.
cd "$root"
pivot_root . .
umount -l .
cd /

home=/root
[ "$user" = root ] || home=/home/$user
status=0
# WERROR=1: warnings of this release's compilers and headers count.
setpriv --reuid="$user" --regid="$user" --init-groups \
	env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" USER="$user" LOGNAME="$user" \
	LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive WERROR=1 \
	sh -e -c "cd; $command" </dev/null || status=$?

if grep -E ' - fuse([.][^ ]*)? ' /proc/self/mountinfo; then
	echo 'enter.sh: left mounted, see above' >&2
	status=1
fi
# Process 1 is this shell. What has just been asked to end gets a moment.
left=
for _ in 1 2 3 4 5 6 7 8 9 10; do
	left=
	for process in /proc/[0-9]*; do
		[ "$process" != /proc/1 ] || continue
		# A zombie has no command line.
		words=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) || true
		left=$left${words:+ "$words"}
	done
	[ -n "$left" ] || break
	sleep 1
done
if [ -n "$left" ]; then
	echo "enter.sh: left running:$left" >&2
	status=1
fi
echo 'processor time of this shell, of what it ran (user, system):'
times
exit "$status"
