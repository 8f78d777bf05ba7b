#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a mount namespace without the FUSE mounts that the namespace was copied with:
#
#	unshare --mount tests/tools/alone.sh COMMAND...
#
# Such a copy keeps a mount alive, and its daemon, for as long as the namespace is there, when a test
# beside this one has long unmounted it.
awk '$0 ~ / - fuse(blk)?[. ]/ { print $5 }' /proc/self/mountinfo | while read -r mount; do
	umount -l "$(printf '%b' "$mount")" 2>/dev/null
done
exec "$@"
