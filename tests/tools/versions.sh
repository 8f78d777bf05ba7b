#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Refuses, with a line each, libraries and headers that are too old to build with.
#
#	tests/tools/versions.sh CC PKG-CONFIG-NAME:VERSION...
#
# glibc and the kernel's headers have no pkg-config file: the compiler is asked.
set -u
cc=$1
shift
status=0
refuse() {
	echo "epochfs needs $1; Debian 12 and 13 have it" >&2
	status=1
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
exit $status
