#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Refuses, with a line each, libraries and headers that are too old to build with; with one line a Debian that is.
#
#	tests/tools/versions.sh CC PKG-CONFIG-NAME:VERSION...
#
# glibc and the kernel's headers have no pkg-config file: the compiler is asked.
set -u
cc=$1
shift
refused=
refuse() {
	refused="${refused}epochfs needs $1; Debian 12 and 13 have it
"
}

for need in "$@"; do
	name=${need%:*} version=${need#*:}
	pkg-config --atleast-version="$version" "$name" ||
		refuse "$name $version or newer, and this is $(pkg-config --modversion "$name")"
done

# true where the preprocessor takes this condition for true
is_so() {
	printf '#include <features.h>\n#include <linux/version.h>\n#if !(%s)\n#error\n#endif\n' "$1" |
		$cc -E -o /dev/null - 2>/dev/null
}
if is_so 1; then
	is_so '!defined(__GLIBC__) || __GLIBC__ * 1000 + __GLIBC_MINOR__ >= 2036' || refuse 'glibc 2.36 or newer'
	is_so 'LINUX_VERSION_CODE >= 0x051100' || refuse 'headers of Linux 5.17 or newer'
fi
[ -n "$refused" ] || exit 0
# shellcheck source=/dev/null
old=$(. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && [ "${ID:-}" = debian ] && [ "${VERSION_ID:-12}" -lt 12 ] && echo "$PRETTY_NAME")
if [ -n "$old" ]; then
	echo "epochfs needs Debian 12 or newer, and this is $old, of which the libraries are too old" >&2
else
	printf %s "$refused" >&2
fi
exit 1
