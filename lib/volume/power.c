/* SPDX-License-Identifier: Apache-2.0 */
/* After a power loss (a changed boot id): closed content that no fsync made safe. */
#include "lib/volume/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "lib/format/tails.h"
#include "lib/state/left.h"
#include "lib/util/io.h"
#include "lib/util/log.h"

int boot_changed_locked(struct volume *vol, bool *ret_changed)
{
	cleanup_buf struct buf now = {0}, then = {0};
	int error = state_get_meta(vol->state, "boot_id", &then);

	if (error == -ENOENT) { /* a new state */
		*ret_changed = false;
		return 0;
	}
	if (!error)
		error = left_boot_id(&now);
	if (!error)
		*ret_changed = strcmp(buf_str(&now), buf_str(&then)) != 0;
	return error;
}

int boot_remember_locked(struct volume *vol)
{
	cleanup_buf struct buf now = {0};
	int error = left_boot_id(&now);

	return error ? error : state_set_meta(vol->state, "boot_id", buf_str(&now));
}

/* A size may be on the disk before what was written below it (ftruncate, fallocate). What had all its
 * blocks when it was closed has them still. */
static bool lacks_blocks(int fd, const struct state_version *v)
{
	return v->local_bytes >= v->size && lseek(fd, 0, SEEK_HOLE) < (off_t)v->size;
}

/* Why the content is not what was closed: NULL where nothing is wrong. */
static const char *what_is_wrong(struct volume *vol, const struct recovery *r,
				 const struct state_version *v, const char *name)
{
	cleanup_close int fd = -1;
	const char *why = NULL;
	struct stat st;

	if (!v->size)
		return NULL;
	if (!recovery_has_object(r, v->id))
		return "its bytes are gone";
	if (!r->rebooted || v->fsynced)
		return NULL;
	fd = object_open(vol, v->id, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return "its bytes cannot be read";
	if ((uint64_t)st.st_size != v->size)
		return "it is shorter than it was closed";
	if (lacks_blocks(fd, v))
		return "it lacks bytes that it was closed with";
	return tail_check(fd, v->size, name, &why) == 1 ? why : NULL;
}

/* Reads give what is there, and zeros for what is not; epochs that hold it keep their sizes. */
static int fill(struct volume *vol, const struct state_version *v)
{
	cleanup_close int fd = object_open(vol, v->id, O_RDWR | O_CREAT);

	if (fd < 0)
		return fd;
	return ftruncate(fd, (off_t)v->size) < 0 ? -errno : 0;
}

static int note_torn(struct recovery *r, uint64_t version, const char *why)
{
	struct torn_version *grown = reallocarray(r->torn, r->torn_count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	r->torn = grown;
	r->torn[r->torn_count++] = (struct torn_version){version, why};
	return 0;
}

int check_closed_locked(struct volume *vol, struct recovery *r)
{
	for (size_t i = 0; i < r->closed.count; i++) {
		struct state_version row, *v = &row;
		char name[256];
		const char *why;
		int error = state_version_get(vol->state, r->closed.v[i].id, v);

		/* What was open replaced it just now, and nothing needs it any more. */
		if (error == -ENOENT)
			continue;
		if (error)
			return error;
		/* The copy of an open log, or what was replaced since: for an epoch that is none. */
		if (r->unfinished && v->died && v->born >= r->unfinished)
			continue;
		first_name_locked(vol, v->ino, name, NULL);
		why = v->torn ? NULL : what_is_wrong(vol, r, v, name);
		if (!why)
			continue;
		log_error("inode %" PRIu64 " (%s): %s since the machine last ran", v->ino,
			  name[0] ? name : "no name", why);
		v->torn = true;
		r->killed = true;
		error = fill(vol, v);
		if (!error)
			error = state_version_set(vol->state, v);
		if (!error)
			error = note_torn(r, v->id, why);
		if (error)
			return error;
	}
	return 0;
}

static int doubt_copy(void *arg, const struct state_version *v)
{
	struct volume *vol = arg;
	struct state_version doubted = *v;

	if (v->fsynced || !v->size)
		return 0;
	doubted.local_whole = false;
	if (!v->has_recipe) { /* the database has its bytes */
		doubted.local_bytes = 0;
		object_remove(vol, v->id);
	}
	return state_version_set(vol->state, &doubted);
}

int doubt_copies_locked(struct volume *vol)
{
	int error = state_begin(vol->state);

	return error ? error
		     : state_end(vol->state,
				 state_version_each_evictable(vol->state, doubt_copy, vol));
}
