#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command as an ordinary user of a machine where users may mount, with an empty home that is removed afterwards:
#
#	tests/tools/as_user.sh COMMAND...
#
# Root becomes a user that has a name and no capability, in a mount namespace where /dev/fuse is everybody's and no other FUSE
# mount is seen, so that fusermount3 does what it does on a user's machine. Who is an ordinary user already stays what he is.
set -eu
user=epochfs-test
uid=64300
place=${AS_USER_PLACE:-}

if [ "$place" = '' ]; then
	place=$(mktemp -d "${TMPDIR:-/tmp}/epochfs-user-XXXXXX")
	trap 'rm -rf --one-file-system "$place"' EXIT
	trap 'exit 143' TERM INT HUP
	chmod 755 "$place"
	mkdir "$place/home"
	if [ "$(id -u)" != 0 ]; then
		env -u XDG_CACHE_HOME HOME="$place/home" "$@"
	else
		AS_USER_PLACE=$place unshare --mount --propagation private "$(dirname "$0")/alone.sh" "$0" "$@"
	fi
	exit
fi

mkdir "$place/system"
mount -t tmpfs -o mode=755,size=1m system "$place/system"
mknod -m 666 "$place/system/fuse" c 10 229
mount --bind "$place/system/fuse" /dev/fuse
# fusermount3, ssh and sshd ask for the user's name.
{ cat /etc/passwd && echo "$user:x:$uid:$uid::$place/home:/bin/sh"; } >"$place/system/passwd"
mount --bind "$place/system/passwd" /etc/passwd
chown "$uid:$uid" "$place/home"
# By it the mount's watchdog, which is no root here, lets go whoever waits for a daemon that was killed.
if [ -e /sys/fs/fuse/connections/. ] && ! mountpoint -q /sys/fs/fuse/connections; then
	mount -t fusectl fusectl /sys/fs/fuse/connections || true
fi
exec env -u AS_USER_PLACE -u XDG_CACHE_HOME -u XDG_RUNTIME_DIR HOME="$place/home" USER="$user" LOGNAME="$user" \
	setpriv --reuid="$uid" --regid="$uid" --clear-groups --inh-caps=-all "$@"
