/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the local state, which may be damaged. */
#include "lib/volume/open_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/cache/cache_dir.h"
#include "lib/live/bodies.h"
#include "lib/live/live_internal.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/volume/recovery.h"
#include "lib/volume/volume.h"

#define ROOT_MODE 0755
#define HOST_MAX  256

/* The cache belongs to the volume that its directory is named after. */
static int check_uuid(struct volume *vol, const char *path, struct opening_message *m)
{
	cleanup_buf struct buf uuid = {0};
	int error = state_get_meta(vol->state, "uuid", &uuid);

	if (error == -ENOENT)
		return state_set_meta(vol->state, "uuid", vol->uuid);
	if (!error && strcmp(buf_str(&uuid), vol->uuid) != 0)
		return opening_fail(m, -EBADMSG,
				    "%s is the cache of another volume (%s): give this one a cache "
				    "of its own with -o cache-dir=DIR",
				    path, buf_str(&uuid));
	return error;
}

static int load_number(struct volume *vol, const char *key, uint64_t fallback, uint64_t *ret_value)
{
	int error = state_get_meta_u64(vol->state, key, ret_value);

	if (error != -ENOENT)
		return error;
	*ret_value = fallback;
	return state_set_meta_u64(vol->state, key, fallback);
}

/* Who runs this: the option, what a scheduler says, or a name that stays with the volume's state. */
static int choose_run_id(struct volume *vol)
{
	static const char *const names[] = {"EPOCHFS_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID",
					    "LSB_JOBID", "JOB_ID"};
	cleanup_buf struct buf stored = {0};
	const char *id = vol->options.run_id;
	char uuid[37];
	int error;

	for (size_t i = 0; !id && i < sizeof(names) / sizeof(names[0]); i++)
		if (getenv(names[i]) && *getenv(names[i]))
			id = getenv(names[i]);
	if (!id) {
		error = state_get_meta(vol->state, "run_id", &stored);
		if (error == -ENOENT) {
			error = uuid_make(uuid);
			if (!error)
				error = state_set_meta(vol->state, "run_id", uuid);
			buf_printf(&stored, "%s", uuid);
		}
		if (error)
			return error;
		id = buf_str(&stored);
	}
	vol->run_id = strdup(id);
	return vol->run_id ? 0 : -ENOMEM;
}

static int choose_node_name(struct volume *vol)
{
	char host[HOST_MAX] = "localhost";

	if (!vol->options.node && gethostname(host, sizeof(host) - 1) < 0)
		return -errno;
	vol->node_name = strdup(vol->options.node ? vol->options.node : host);
	return vol->node_name ? 0 : -ENOMEM;
}

static int load_state(struct volume *vol, const char *path, struct opening_message *m)
{
	int error = check_uuid(vol, path, m);

	if (!error)
		error = load_number(vol, "next_epoch", 1, &vol->next_epoch);
	if (!error)
		error = load_number(vol, "current", 0, &vol->current_epoch);
	if (!error)
		error = live_make_root(vol, ROOT_MODE, geteuid(), getegid());
	if (!error)
		error = choose_run_id(vol);
	if (!error)
		error = choose_node_name(vol);
	return error;
}

/* ---- the database itself ---- */

/* 1 or 0, or -errno: what cannot be listed must not be taken for a new cache. */
static int has_objects(struct volume *vol)
{
	cleanup_closedir DIR *dir = NULL;
	const char *name;
	int error = io_opendir(vol->objects_fd, &dir);

	return error ? error : io_readdir(dir, &name);
}

/* Whether something in objects/, or it itself, was made, written or closed after the database was last
 * written: 1, 0 or -errno. */
static int objects_are_newer(struct volume *vol)
{
	cleanup_closedir DIR *dir = NULL;
	const char *name = ".";
	struct stat db, st;
	int got = io_opendir(vol->objects_fd, &dir);

	if (got)
		return got;
	if (fstatat(vol->cache_fd, "state.db", &db, AT_SYMLINK_NOFOLLOW) < 0)
		return 1;
	do
		if (fstatat(vol->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    stat_ctime(&st) > stat_mtime(&db))
			return 1;
	while ((got = io_readdir(dir, &name)) > 0);
	return got;
}

/*
 * SQLite keeps the journal from the first transaction to the end of the last connection. Somebody who looks into the
 * database of a killed mount with SQLite's own program is that last one: then the journal is gone because it was moved
 * into the database, which is as young as anything here.
 */
static int journal_is_gone(struct volume *vol)
{
	if (vol->last_shutdown != SHUTDOWN_KILLED ||
	    faccessat(vol->cache_fd, "state.db-wal", F_OK, 0) == 0 || errno != ENOENT)
		return 0;
	return objects_are_newer(vol);
}

/*
 * -EUCLEAN: damaged, and `ret_why` says how; it is closed again. The whole is looked at where it was
 * not closed in order, changed since, or was found damaged.
 */
static int open_database(struct volume *vol, const char *db, const char **ret_why)
{
	int full = has_objects(vol), gone = full < 0 ? full : journal_is_gone(vol), error;

	*ret_why = "its journal state.db-wal is gone";
	/* A directory that the disk has damaged is no reason to move all aside. */
	if (gone)
		return gone > 0 ? -EUCLEAN : gone == -EUCLEAN ? -EIO : gone;
	if (vol->last_shutdown == SHUTDOWN_KILLED ||
	    vol->last_shutdown == SHUTDOWN_KILLED_CLOSING) {
		*ret_why = "its journal state.db-wal is damaged";
		error = state_check_journal(vol->cache_fd);
		if (error)
			return error;
	}
	*ret_why = "it is not what epochfs has written";
	error = full ? state_open_existing(vol->cache_fd, db, &vol->state)
		     : state_open(vol->cache_fd, db, &vol->state);
	if (!error && vol->last_shutdown != SHUTDOWN_CLEAN) {
		*ret_why = "a check of the whole has failed";
		error = state_check(vol->state, vol->last_shutdown == SHUTDOWN_DAMAGED);
	}
	if (error) {
		state_close(vol->state);
		vol->state = NULL;
	}
	return error;
}

static int open_or_rebuild(struct volume *vol, const char *db, struct opening_message *m)
{
	const char *why;
	int error = rebuild_resume(vol);

	if (error)
		return opening_fail(m, error,
				    "%s: finishing what an earlier mount began with a "
				    "damaged local state: %s",
				    vol->cache_path, strerror(-error));
	error = open_database(vol, db, &why);
	if (error != -EUCLEAN)
		return error;
	error = rebuild_begin(vol, why);
	if (error)
		return opening_fail(
			m, error,
			"local state %s is damaged (%s) and cannot be moved aside: %s: move "
			"%s away yourself, what is in objects/ there may be in no epoch yet",
			db, why, strerror(-error), vol->cache_path);
	return state_open(vol->cache_fd, db, &vol->state);
}

/* From here on an end without order is seen by the next one who opens it. */
static int write_mark(const struct volume *vol, enum shutdown_mark mark)
{
	const struct shutdown_mark_place place = {.cache_fd = vol->cache_fd,
						  .lock_fd = vol->lock_fd,
						  .device = vol->device,
						  .mounted_at = vol->mounted_at};

	return shutdown_mark_write(&place, mark);
}

static int mark_running(struct volume *vol)
{
	int error = write_mark(vol, MARK_RUNNING);

	vol->noted = !error;
	return error;
}

int open_state(struct volume *vol, struct opening_message *m)
{
	cleanup_buf struct buf path = {0};
	cleanup_free char *db = NULL;
	int error = cache_open(vol, &path, m);

	if (error)
		return error;
	if (text_print(&db, "%s/state.db", buf_str(&path)) < 0)
		return -ENOMEM;
	vol->cache_path = strdup(buf_str(&path));
	error = vol->cache_path ? open_or_rebuild(vol, db, m) : -ENOMEM;
	if (!error)
		error = load_state(vol, buf_str(&path), m);
	if (!error)
		error = mark_running(vol);
	if (error == -EPROTONOSUPPORT)
		return opening_fail(
			m, error,
			"%s was created by a newer version of epochfs: upgrade this one, or give "
			"another cache with -o cache-dir=DIR",
			db);
	return error ? opening_fail(m, error,
				    "local state %s: %s: see to that disk, or give another cache "
				    "with -o cache-dir=DIR",
				    db, strerror(-error))
		     : 0;
}

static void mark_mount(struct volume *vol, enum shutdown_mark mark)
{
	int error = vol->noted ? write_mark(vol, mark) : 0;

	if (error)
		log_debug("%s/lock: %s", vol->cache_path, strerror(-error));
}

void volume_mounted(struct volume *vol, const char *device, const char *mountpoint)
{
	snprintf(vol->device, sizeof(vol->device), "%s", device);
	mountinfo_escape(mountpoint, vol->mounted_at);
	mark_mount(vol, MARK_RUNNING);
}

void volume_unmounted(struct volume *vol)
{
	mark_mount(vol, MARK_UNMOUNTED);
}

void leave_state(struct volume *vol)
{
	enum shutdown_mark mark = MARK_CLEAN;
	int error = 0;

	if (!vol->state)
		return;
	if (state_is_damaged(vol->state))
		mark = MARK_DAMAGED;
	if (vol->noted && mark == MARK_CLEAN)
		error = write_mark(vol, MARK_CLOSING);
	state_close(vol->state);
	vol->state = NULL;
	/* Where it could not be moved into the database, all is as after a kill. */
	if (faccessat(vol->cache_fd, "state.db-wal", F_OK, 0) == 0 && mark == MARK_CLEAN)
		mark = MARK_RUNNING;
	if (!error && (vol->noted || mark == MARK_DAMAGED))
		error = write_mark(vol, mark);
	if (error)
		log_warn("%s/lock: %s: the next mount takes this one for killed", vol->cache_path,
			 strerror(-error));
}
