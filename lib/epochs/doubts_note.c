/* SPDX-License-Identifier: Apache-2.0 */
/* Noting the doubts of an open volume: a writer was killed, or found to be gone after a crash. */
#include "lib/epochs/doubts_volume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/live/bodies.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"

/* What has the name of a killed writer's file once that is undone, or left as it is. */
static void set_then(struct volume *vol, const struct body *b, bool undone, struct state_doubt *d)
{
	struct state_name n;
	struct state_file f;

	d->ino = b->ino;
	if (!undone) {
		d->version = b->version;
		return;
	}
	if (!b->pending && b->staged)
		d->ino = state_name_get(vol->state, d->parent, d->name, &n) == 0 ? n.covered : 0;
	if (d->ino && state_file_get(vol->state, d->ino, &f) == 0)
		d->version = f.closed;
}

/* It was fsynced, and so stays; but the save that it was for is half all the same, as where it is undone. */
static bool is_left_half(struct volume *vol, const struct body *b, const struct state_doubt *d)
{
	return !b->closed_well && !b->append_only && doubt_name_is_temporary(vol->rules, d->path) &&
	       !file_endures_kill(b->fd, d->name);
}

static int note_locked(struct volume *vol, const struct state_doubt *d)
{
	uint64_t id = 0;
	int error = state_begin(vol->state);

	if (!error)
		error = state_end(vol->state, state_doubt_add(vol->state, d, &id));
	if (!error && !vol->sealer && !vol->recovered_doubt)
		vol->recovered_doubt = id;
	return error;
}

void doubts_killed_locked(struct volume *vol, const struct body *b, bool undone, const char *why)
{
	cleanup_buf struct buf path = {0};
	uint64_t continued = 0;
	struct state_doubt d = {
		.since = vol->next_epoch,
		.at_ns = clock_wall_ns(),
		.why = (char *)(uintptr_t)why,
	};
	int error;

	first_name_locked(vol, b->ino, d.name, &d.parent);
	if (!d.name[0])
		return;
	volume_path_locked(vol, b->ino, &path);
	d.path = (char *)(uintptr_t)buf_str(&path);
	d.kind = undone || is_left_half(vol, b, &d) ? DOUBT_UNDONE : DOUBT_LEFT;
	resume_due_locked(vol, d.path);
	set_then(vol, b, undone, &d);
	/* The save began before the last epoch, which is no whole one then. */
	if (undone && !d.ino)
		continued = sealer_continued_locked(vol, d.parent, d.name, b->closer);
	if (continued)
		d.since = continued;
	error = note_locked(vol, &d);
	if (error)
		log_warn("%s: %s, and that could not be noted: %s", d.path, why, strerror(-error));
	vol->doubts = DOUBTS_SOME;
}

/* ---- what recovery has noted, before there was a sealer to say which epoch the save began with ---- */

struct recovered {
	uint64_t id, parent;
	char name[NAME_MAX + 1];
};

struct recovered_list {
	struct volume *vol;
	struct recovered *v;
	size_t count;
};

static int collect_recovered(void *arg, const struct state_doubt *d)
{
	struct recovered_list *l = arg;
	struct recovered *grown;

	if (d->id < l->vol->recovered_doubt || d->judged || d->kind != DOUBT_UNDONE || d->ino)
		return 0;
	grown = reallocarray(l->v, l->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	l->v = grown;
	l->v[l->count] = (struct recovered){.id = d->id, .parent = d->parent};
	memcpy(l->v[l->count++].name, d->name, sizeof(d->name));
	return 0;
}

int doubts_recovered_locked(struct volume *vol)
{
	struct recovered_list l = {.vol = vol};
	int error = 0;

	if (!vol->recovered_doubt)
		return 0;
	error = state_doubt_each(vol->state, collect_recovered, &l);
	for (size_t i = 0; !error && i < l.count; i++) {
		uint64_t continued = sealer_continued_locked(vol, l.v[i].parent, l.v[i].name, 0);

		if (continued)
			error = state_doubt_since(vol->state, l.v[i].id, continued);
	}
	free(l.v);
	vol->recovered_doubt = 0;
	return error;
}
