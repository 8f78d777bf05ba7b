/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save that is over (contract 1.3.7): a sign has said so that seals, such as the last file of a framework. A writer that is killed
 * after that, in a file that is new, was at a part of the save only where he saved other parts of it, or where the save before had that
 * file as its sign came, as where another rank is late. Else it is something that others put beside the save, as who evaluates it does.
 */
#include "lib/epochs/seal.h"

#include <string.h>
#include <sys/stat.h>

#include "lib/epochs/epochs.h"
#include "lib/epochs/node_state.h"
#include "lib/meta/doubts.h"
#include "lib/util/cleanup.h"

/* So many names beside a directory are looked at. */
#define BESIDE_MAX 1024

/* ---- who saved ---- */

static bool is_saver(const struct seal_savers *s, pid_t by)
{
	for (unsigned i = 0; i < s->count; i++)
		if (s->by[i] == by)
			return true;
	return false;
}

static bool add_saver(void *arg, const struct changed_file *f)
{
	struct seal_savers *s = arg;

	if (f->by && s->count < SEAL_SAVERS && !is_saver(s, f->by))
		s->by[s->count++] = f->by;
	return false;
}

/* One who may have. */
static bool saved(void *arg, const struct changed_file *f)
{
	return !f->by || is_saver(arg, f->by);
}

void sealer_over_begun_locked(struct volume *vol, const struct seal_job *job)
{
	struct sealer *s = vol->sealer;
	struct seal_over *over = &s->over;
	const struct pending *p = &s->pending;
	bool goes_on = p->continues && p->continues == over->number;

	if (!p->continues)
		s->savers = (struct seal_savers){0};
	changed_any(&p->changed, add_saver, &s->savers);
	if (job->certain)
		*over = (struct seal_over){job->number, s->savers};
	else if (goes_on && !p->kept && over->savers.count &&
		 !changed_any(&p->changed, saved, &over->savers))
		/* Only others have added something. */
		over->number = job->number;
	else if (goes_on)
		over->number = 0;
}

/* ---- whether the save before had the file ---- */

struct beside {
	struct volume *vol;
	const char *name; /* of the unit's directory */
	size_t name_len;
	const char *rest; /* the killed writer's file, below that */
	uint64_t before;  /* a directory of an earlier save is older than this epoch */
	unsigned looked;
};

/* Whether the directory has a file of this path since its first epoch, or since one that was sealed by a sign. */
static bool had_it(struct volume *vol, const struct state_file *dir, const char *rest)
{
	const struct epoch_index *x = nodes_is_set(vol) ? NULL : epochs_index_locked(vol);
	const struct epoch_brief *e;
	struct state_version v;
	struct state_name n = {.ino = dir->ino};
	struct state_file f;
	char name[NAME_MAX + 1];

	for (size_t len; *rest; rest += len + (rest[len] == '/')) {
		len = strcspn(rest, "/");
		if (len > NAME_MAX)
			return false;
		memcpy(name, rest, len);
		name[len] = '\0';
		if (state_name_get(vol->state, n.ino, name, &n) != 0)
			return false;
	}
	if (state_file_get(vol->state, n.ino, &f) != 0 || !f.closed ||
	    state_version_get(vol->state, f.closed, &v) != 0)
		return false;
	e = x ? epoch_index_find(x, state_version_epoch(&v)) : NULL;
	return state_version_epoch(&v) <= dir->born || (e && e->trigger == RECORD_TRIGGER_MARKER);
}

static int look_beside(void *arg, const struct state_name *n, const char *name,
		       const struct state_file *f)
{
	struct beside *b = arg;
	char own[NAME_MAX + 1];

	(void)n;
	if (b->looked++ >= BESIDE_MAX)
		return -1;
	if (!f || !S_ISDIR(f->mode) || f->born >= b->before || b->name_len > NAME_MAX)
		return 0;
	memcpy(own, b->name, b->name_len);
	own[b->name_len] = '\0';
	return doubt_same_shape(name, own) && had_it(b->vol, f, b->rest);
}

static bool save_before_had(struct volume *vol, uint64_t dir, const char *path)
{
	struct doubt_unit unit = doubt_unit_of_kill(vol->rules, path);
	size_t at = doubt_directory_len(path, unit.len);
	struct beside b = {.vol = vol, .name = path + at, .name_len = unit.len - at};
	struct state_file f;

	if (!unit.len || unit.file)
		return false;
	b.rest = path + unit.len + 1;
	/* From the file's directory up to the one that holds the unit's. */
	for (const char *c = path + unit.len; c; c = strchr(c + 1, '/')) {
		if (state_file_get(vol->state, dir, &f) != 0 || dir == ROOT_INO)
			return false;
		b.before = f.born;
		dir = f.parent;
	}
	return state_dir_list(vol->state, dir, 0, look_beside, &b) == 1;
}

bool sealer_is_over_locked(struct volume *vol, uint64_t dir, const char *name, pid_t by)
{
	const struct seal_over *over = &vol->sealer->over;
	cleanup_buf struct buf path = {0};

	if (!over->number || over->number != vol->sealer->pending.continues ||
	    (by && is_saver(&over->savers, by)))
		return false;
	return sealer_path_locked(vol, dir, name, &path) == 0 &&
	       !save_before_had(vol, dir, buf_str(&path));
}
