/* SPDX-License-Identifier: Apache-2.0 */
/* Rollback by itself: logs stay, and the directories that hold them. */
#include "lib/volume/rollback_passes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/meta/doubts.h"
#include "lib/util/clock.h"
#include "lib/volume/body.h"
#include "lib/volume/seal.h"
#include "lib/volume/sealer.h"

/* Held open with O_APPEND for longer than patience. */
static bool is_open_log(struct apply *a, const struct state_file *f)
{
	struct body *b = body_of_file_locked(a->vol, f);

	return b && b->writers &&
	       (b->is_log ||
		(b->append_only && clock_mono_ns() - b->opened_ns > a->vol->options.patience_ns));
}

bool is_kept_log(struct apply *a, uint64_t dir, const struct live_name *n)
{
	return a->keep_logs && S_ISREG(n->file.mode) &&
	       (sealer_rule_locked(a->vol, rules_log, dir, n->name) || is_open_log(a, &n->file));
}

/* What belongs to one save goes as a whole. */
static bool is_of_a_save(struct apply *a, uint64_t parent, const char *name)
{
	const struct rules *rules = a->vol->rules;
	cleanup_buf struct buf path = {0};

	return sealer_path_locked(a->vol, parent, name, &path) != 0 ||
	       doubt_unit_of(rules, buf_str(&path)).len != 0;
}

/* 1: a log in it stays, so it does. */
static int keep_in(struct apply *a, uint64_t parent, const struct live_name *dir);

static int keep_name(struct apply *a, uint64_t dir, struct live_name *n, uint32_t *ret_subdirs)
{
	int kept, error = uncover(a, dir, n);

	if (error)
		return error;
	if (is_kept_log(a, dir, n))
		return 1;
	kept = S_ISDIR(n->file.mode) ? keep_in(a, dir, n) : 0;
	*ret_subdirs += kept == 1;
	return kept ? kept : note_removal(a, dir, n);
}

static int keep_in(struct apply *a, uint64_t parent, const struct live_name *dir)
{
	cleanup_buf struct buf list = {0};
	size_t removed = a->removed.len;
	struct state_file f = dir->file;
	struct live_name *names;
	uint32_t subdirs = 0;
	bool any = false;
	int kept, error;

	if (is_of_a_save(a, parent, dir->name))
		return 0;
	error = list_live_names(a, f.ino, &list);
	names = (struct live_name *)list.data;
	for (size_t i = 0; !error && i < list.len / sizeof(*names); i++) {
		kept = keep_name(a, f.ino, &names[i], &subdirs);
		any |= kept == 1;
		error = kept < 0 ? kept : 0;
	}
	if (error)
		return error;
	if (!any) {
		a->removed.len = removed; /* it goes with what is in it */
		return 0;
	}
	f.nlink = 2 + subdirs;
	error = state_file_set(a->vol->state, &f);
	return error ? error : 1;
}

int keep_logs_in(struct apply *a, uint64_t parent, uint32_t entry, struct live_name *n)
{
	int kept = keep_in(a, parent, n);

	if (kept == 1)
		a->more_links[entry]++;
	return kept > 0 ? 0 : kept < 0 ? kept : note_removal(a, parent, n);
}
