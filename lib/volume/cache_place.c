/* SPDX-License-Identifier: Apache-2.0 */
/* Where caches lie: the directory that nobody named, and a warning where that is reached over a network. */
#include "lib/volume/open_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "lib/util/io.h"
#include "lib/util/log.h"

#define ROOT_CACHE_PARENT "/var/cache"
#define ROOT_CACHE	  ROOT_CACHE_PARENT "/epochfs"
/* More than the kernel's 340 lines of it. */
#define UID_MAP_MAX (16 << 10)
/* In a user namespace another user may be called 0: root's directories are not his. */
static bool is_mapped_root(void)
{
	cleanup_buf struct buf map = {0};
	unsigned long inside, outside;

	return io_read_file(AT_FDCWD, "/proc/self/uid_map", UID_MAP_MAX, &map) == 0 &&
	       sscanf(buf_str(&map), "%lu %lu", &inside, &outside) == 2 && inside == 0 &&
	       outside != 0;
}

/* Root has it, and so has root of a container, whose file system is its own. */
static bool is_root_cache_ours(void)
{
	return geteuid() == 0 && (!is_mapped_root() || access(ROOT_CACHE, W_OK) == 0 ||
				  (errno == ENOENT && access(ROOT_CACHE_PARENT, W_OK) == 0));
}

int volume_cache_root(const struct volume_options *o, struct buf *out)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (o->cache_dir)
		buf_printf(out, "%s", o->cache_dir);
	else if (is_root_cache_ours())
		buf_printf(out, "%s", ROOT_CACHE);
	else if (xdg && xdg[0] == '/')
		buf_printf(out, "%s/epochfs", xdg);
	else if (home && home[0] == '/')
		buf_printf(out, "%s/.cache/epochfs", home);
	else
		return -EINVAL;
	return buf_error(out) ? -ENOMEM : 0;
}

/* ---- file systems that a network lies behind ---- */

/* NULL: none that we know of. */
static const char *network_of(const struct statfs *st)
{
	static const struct {
		unsigned long type;
		const char *name;
	} known[] = {
		{0x6969, "NFS"},       {0x517B, "SMB"},	       {0xFF534D42, "SMB"},
		{0xFE534D42, "SMB"},   {0x0BD00BD0, "Lustre"}, {0x00C36400, "CephFS"},
		{0x47504653, "GPFS"},  {0x19830326, "BeeGFS"}, {0x5346414F, "AFS"},
		{0x6B414653, "AFS"},   {0x73757245, "Coda"},   {0x20030528, "OrangeFS"},
		{0xAAD7AAEA, "PanFS"}, {0x01161970, "GFS2"},   {0x7461636F, "OCFS2"},
		{0x01021997, "9P"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((uint32_t)st->f_type == known[i].type)
			return known[i].name;
	return NULL;
}

/* Whether a cache could lie there, and would be local. */
static bool is_better(const char *path)
{
	struct statfs st;

	return path && path[0] == '/' && access(path, W_OK | X_OK) == 0 && statfs(path, &st) == 0 &&
	       !network_of(&st);
}

void cache_warn_of_network(int fd, const char *path)
{
	static const struct {
		const char *variable; /* or NULL */
		const char *path;
	} places[] = {
		{"SLURM_TMPDIR", NULL},
		{"TMPDIR", NULL},
		{NULL, "/local"},
		{NULL, "/scratch"},
	};
	cleanup_buf struct buf better = {0};
	struct statfs st;
	const char *name = fstatfs(fd, &st) == 0 ? network_of(&st) : NULL;

	if (!name)
		return;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *variable = places[i].variable;
		const char *place = variable ? getenv(variable) : places[i].path;

		if (is_better(place))
			buf_printf(&better, "%s%s%s%s", better.len ? " or " : ": ",
				   variable ? "$" : "", variable ? variable : place, "/epochfs");
	}
	log_warn(
		"cache %s lies on %s, a network file system: saves wait for it; put the cache on a local disk with "
		"-o cache-dir=DIR%s",
		path, name, better.len ? buf_str(&better) : ", such as $TMPDIR or /local");
}
