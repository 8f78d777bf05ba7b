#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that are missing for a verb of the Makefile.
#
#	tests/tools/packages.sh build|demo|test|power|lint|fuzz|scale|bench|smoke|bare|batch|kills|docs [--list | --note FILE]
#
# Says what it installs; does nothing where all are there. --list only prints the names. --note makes FILE where something was installed.
set -eu

build='gcc libc6-dev make pkg-config libfuse3-dev liblz4-dev libsqlite3-dev libssl-dev libjansson-dev
	libcurl4-openssl-dev libexpat1-dev libmicrohttpd-dev'
demo="$build fuse3 python3 python3-numpy"
test="$demo check git sudo util-linux procps python3-pytest python3-pytest-xdist python3-pytest-timeout
	python3-yaml python3-torch python3-h5py python3-lmdb python3-plyvel rsync attr acl sqlite3 vim-tiny
	lighttpd lighttpd-mod-webdav lighttpd-mod-openssl openssl
	ceph-mon ceph-osd radosgw ceph-common
	openssh-server openssh-client e2fsprogs man-db mandoc systemd prometheus zsh fish"
# Power losses on other file systems.
power="$demo util-linux procps e2fsprogs xfsprogs btrfs-progs python3-pytest"
# The unit tests and some mount tests, inside the roots of `check-bare`; and what makes those roots.
smoke="$demo check python3-pytest python3-pytest-xdist python3-pytest-timeout python3-yaml attr acl procps
	util-linux rsync openssl openssh-server openssh-client lighttpd lighttpd-mod-webdav lighttpd-mod-openssl"
bare='mmdebstrap git util-linux tar python3'
# Batch systems, inside the roots of `check-batch`. Debian 12 has no HTCondor.
batch="$demo git procps util-linux iproute2 python3-pytest python3-pytest-timeout slurm-wlm munge"
pools='condor'
docs='mandoc'
# More servers: `test` goes on without those that cannot be had.
more='nginx libnginx-mod-http-dav-ext apache2-bin xrootd-server xrootd-server-plugins xrootd-client python3-xrootd
	rclone postgresql'
# Debian 12 has none.
# shellcheck source=/dev/null
[ "$(. /etc/os-release && echo "${VERSION_ID:-0}")" = 12 ] || more="$more python3-safetensors"
# package:unit of the services that Debian would start on their default ports, now and at each boot.
services='lighttpd:lighttpd.service openssh-server:ssh.service openssh-server:ssh.socket
	nginx:nginx.service haproxy:haproxy.service postgresql:postgresql.service prometheus:prometheus.service'
scale="$test haproxy"
bench="$demo git procps util-linux python3-pytest python3-torch ceph-mon ceph-osd radosgw ceph-common lighttpd openssh-server openssh-client curl"
# Who is compared with; the benchmark goes on without those that cannot be had.
kills="$demo git procps util-linux e2fsprogs python3-torch ceph-mon ceph-osd radosgw ceph-common openssh-server openssh-client rsync"
copiers='s3fs rclone sshfs'
others='bindfs s3fs rclone sshfs awscli python3-matplotlib python3-h5py g++ dpkg-dev'
lint="$test clang clang-format shellcheck pyflakes3"
fuzz="$build clang llvm libclang-rt-dev python3 afl++"

wishes=
case "${1:-}" in
build) wanted=$build ;;
demo) wanted=$demo ;;
test)
	wanted=$test
	wishes=$more
	;;
power) wanted=$power ;;
lint) wanted=$lint ;;
fuzz) wanted=$fuzz ;;
scale) wanted=$scale ;;
smoke) wanted=$smoke ;;
bare) wanted=$bare ;;
batch)
	wanted=$batch
	wishes=$pools
	;;
kills)
	wanted=$kills
	wishes=$copiers
	;;
docs) wanted=$docs ;;
bench)
	wanted=$bench
	wishes=$others
	;;
*)
	echo 'usage: tests/tools/packages.sh build|demo|test|power|lint|fuzz|scale|bench|smoke|bare|batch|kills|docs [--list | --note FILE]' >&2
	exit 2
	;;
esac
if [ "${2:-}" = --list ]; then
	# shellcheck disable=SC2086 # a list of words
	printf '%s\n' $wanted
	exit 0
fi
note=
[ "${2:-}" != --note ] || note=$3
# shellcheck disable=SC2086 # a list of words
set -- $wanted

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "packages.sh: this is no Debian: install by hand what is missing of: $*" >&2
	exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p')
without() {
	for package in "$@"; do
		printf '%s\n' "$installed" | grep -qxF "$package" || printf ' %s' "$package"
	done
}
missing=$(without "$@")
# shellcheck disable=SC2086 # a list of words
wishes=$(without $wishes)
[ -n "$missing$wishes" ] || exit 0

root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		[ -n "$missing" ] || exit 0
		echo "packages.sh: as root, run: apt-get install$missing" >&2
		exit 1
	fi
	root=sudo
fi

get() {
	# Another apt may be at work: wait for its lock.
	$root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
		-o Acquire::Retries=3 "$@"
}

# Nothing starts a service while this file says no (101, see invoke-rc.d(8)). Where there is one
# already, somebody else decides.
policy=/usr/sbin/policy-rc.d
script=
forbid_services() {
	[ ! -e $policy ] || return 0
	trap 'rm -f "$script"; $root rm -f $policy' EXIT
	trap 'exit 1' HUP INT TERM
	script=$(mktemp)
	printf '#!/bin/sh\nexit 101\n' >"$script"
	$root install -m 755 "$script" $policy
}

# What was just installed does not start at the next boot either.
disable_services() {
	command -v systemctl >/dev/null || return 0
	for service in $services; do
		case " $missing $wishes " in *" ${service%%:*} "*) ;; *) continue ;; esac
		$root systemctl --quiet disable "${service#*:}" || true
	done
}

# A fresh machine has no lists, an old one has stale ones: fetch them when the first try fails.
echo "packages.sh: installing$missing$wishes"
forbid_services
# shellcheck disable=SC2086 # a list of words
if ! get install --no-install-recommends $missing $wishes >/dev/null 2>&1; then
	get update || [ -z "$missing" ]
	[ -z "$missing" ] || get install --no-install-recommends $missing
	[ -z "$wishes" ] || get install --no-install-recommends $wishes ||
		echo "packages.sh: without$wishes"
fi
disable_services
if [ -n "$note" ]; then
	mkdir -p "$(dirname "$note")"
	touch "$note"
fi
