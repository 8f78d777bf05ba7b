/* SPDX-License-Identifier: Apache-2.0 */
/* What ordinary tools change in .epochs: seal, tag, roll back, drop, wait; and its views while somebody waits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/epochs_dir.h"
#include "fs/invalidate.h"
#include "fs/loop.h"
#include "lib/epochs/epochs.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

int epochs_dir_mkdir(struct fs_mount *m, const char *name, struct fuse_entry_param *ret_e)
{
	const struct epochs_seal how = {.trigger = "mkdir", .tag = name};
	uint64_t number;
	int r;

	if (epochs_name_kind(name, &number) != EPOCHS_NAME_OTHER)
		return -EEXIST;
	if (volume_read_only(m->vol))
		return -EROFS;
	r = epochs_seal(m->vol, &how, &number);
	return r < 0 ? r : epoch_dir_entry(m, number, NODE_MADE, 0, ret_e);
}

int epochs_dir_rmdir(struct fs_mount *m, const char *name)
{
	uint64_t number;

	if (epochs_name_kind(name, &number) != EPOCHS_NAME_EPOCH || volume_read_only(m->vol))
		return -EROFS;
	return epochs_drop(m->vol, number);
}

/*
 * What people write as the target of a link in .epochs: "42", "000042", "latest", "best", or a path
 * that ends so: "./42", "/mnt/ckpt/.epochs/000042".
 */
static int resolve_target(struct fs_mount *m, const char *target, uint64_t *ret_epoch)
{
	cleanup_free char *path = strdup(target);
	size_t len = strlen(target);
	uint64_t step;
	char *name;
	int r;

	if (!path)
		return -ENOMEM;
	while (len > 1 && path[len - 1] == '/')
		path[--len] = 0;
	name = strrchr(path, '/');
	if (name) {
		*name++ = 0;
		len = strlen(path);
		if (strcmp(path, ".") && strcmp(path, ".epochs") &&
		    (len < 8 || strcmp(path + len - 8, "/.epochs")))
			return -EROFS;
	} else {
		name = path;
	}
	/* A step means here what its own symlink leads to. */
	if (epochs_name_kind(name, &step) == EPOCHS_NAME_STEP)
		return epochs_of_step(m->vol, step, ret_epoch);
	r = epochs_resolve(m->vol, name, ret_epoch);
	return r == -EINVAL ? -EROFS : r;
}

int epochs_dir_symlink(struct fs_mount *m, const struct node *dir, const char *name,
		       const char *target, struct fuse_entry_param *ret_e)
{
	uint64_t epoch;
	int r;

	if (epochs_name_kind(name, &epoch) != EPOCHS_NAME_OTHER)
		return -EEXIST;
	if (volume_read_only(m->vol))
		return -EROFS;
	if (epochs_dir_target(m, name, &epoch) == 0)
		return -EEXIST;
	r = resolve_target(m, target, &epoch);
	if (r < 0)
		return r;
	if (epochs_name_temporary(name))
		r = epochs_names_add_temporary(m->names, name, epoch);
	else
		r = epochs_tag(m->vol, name, epoch, false);
	return r < 0 ? r : epochs_dir_lookup(m, dir, name, ret_e);
}

int epochs_dir_unlink(struct fs_mount *m, const char *name)
{
	uint64_t number;

	if (epochs_name_kind(name, &number) != EPOCHS_NAME_OTHER || volume_read_only(m->vol))
		return -EROFS;
	if (epochs_names_remove_temporary(m->names, name) == 0)
		return 0;
	return epochs_untag(m->vol, name);
}

static int roll_back(struct fs_mount *m, uint64_t epoch)
{
	uint64_t made;
	int r;

	/* Whoever waits for this holds the kernel's lock of .epochs, none of the live tree: what
	 * changes there is to be seen when it returns. */
	loop_defer_off();
	r = epochs_rollback(m->vol, epoch, &made);
	loop_defer_on();
	return r;
}

/* Gives an epoch a second name in place of the first. */
static int move(struct fs_mount *m, uint64_t epoch, const char *new_name, bool replace)
{
	uint64_t number;

	switch (epochs_name_kind(new_name, &number)) {
	case EPOCHS_NAME_CURRENT:
		return replace ? roll_back(m, epoch) : -EEXIST;
	case EPOCHS_NAME_OTHER:
		if (!epochs_name_temporary(new_name))
			return epochs_tag(m->vol, new_name, epoch, replace);
		if (replace)
			(void)epochs_names_remove_temporary(m->names, new_name);
		return epochs_names_add_temporary(m->names, new_name, epoch);
	default:
		return -EROFS;
	}
}

int epochs_dir_rename(struct fs_mount *m, const char *name, const char *new_name, unsigned flags)
{
	uint64_t number;
	int r;

	if (flags & ~(unsigned)RENAME_NOREPLACE || volume_read_only(m->vol) ||
	    epochs_name_kind(name, &number) != EPOCHS_NAME_OTHER)
		return -EROFS;
	r = epochs_dir_target(m, name, &number);
	if (r == 0)
		r = move(m, number, new_name, !(flags & RENAME_NOREPLACE));
	return r < 0 ? r : epochs_dir_unlink(m, name);
}

int epochs_dir_fsync(struct fs_mount *m, const struct node *dir, fuse_req_t req)
{
	int r;

	epochs_views_wait_begin(m->views, dir->view);
	invalidate_view(m);
	r = epochs_wait(m->vol, 0, -1, request_interrupted, req);
	epochs_views_wait_end(m->views, dir->view);
	return r;
}

/* ---- views of .epochs ---- */

#define VIEWS_MAX 64

struct epochs_views {
	struct mutex lock;
	unsigned waiting[VIEWS_MAX]; /* guarded by lock */
};

int epochs_views_new(struct epochs_views **ret_views)
{
	struct epochs_views *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	mutex_init(&v->lock, LOCK_FS_EPOCH_VIEWS);
	*ret_views = v;
	return 0;
}

void epochs_views_free(struct epochs_views *v)
{
	if (!v)
		return;
	mutex_destroy(&v->lock);
	free(v);
}

uint32_t epochs_views_free_one(struct epochs_views *v)
{
	uint32_t view = 0;

	SCOPED_LOCK(&v->lock);
	while (view < VIEWS_MAX - 1 && v->waiting[view])
		view++;
	return view;
}

bool epochs_views_any_busy(struct epochs_views *v)
{
	SCOPED_LOCK(&v->lock);
	for (uint32_t view = 0; view < VIEWS_MAX; view++)
		if (v->waiting[view])
			return true;
	return false;
}

bool epochs_views_busy(struct epochs_views *v, uint32_t view)
{
	SCOPED_LOCK(&v->lock);
	return v->waiting[view];
}

uint32_t epochs_views_max(void)
{
	return VIEWS_MAX;
}

void epochs_views_wait_begin(struct epochs_views *v, uint32_t view)
{
	SCOPED_LOCK(&v->lock);
	v->waiting[view]++;
}

void epochs_views_wait_end(struct epochs_views *v, uint32_t view)
{
	SCOPED_LOCK(&v->lock);
	v->waiting[view]--;
}
