/* SPDX-License-Identifier: Apache-2.0 */
/* What renames have brought to units of the live tree. */
#include "lib/epochs/arrivals.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include "lib/meta/doubts.h"
#include "lib/epochs/seal.h"

/* "EPOCH INO ORDER" of each, with blanks between them. */
#define META_ARRIVALS "arrivals"

void arrivals_since(struct state *s, uint64_t parent, struct arrivals *ret)
{
	cleanup_buf struct buf text = {0};
	uint64_t epoch, ino, order;
	const char *at;
	int len;

	ret->count = 0;
	if (state_get_meta(s, META_ARRIVALS, &text) != 0)
		return;
	for (at = buf_str(&text);
	     ret->count < ARRIVALS_MAX &&
	     sscanf(at, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %n", &epoch, &ino, &order, &len) == 3;
	     at += len)
		if (epoch > parent)
			ret->list[ret->count++] = (struct arrival){epoch, ino, order};
}

/* What was temporary, had no step or another one is a change of the unit that it comes to; what is only moved is none. */
static bool arrives(struct volume *vol, const char *from, const char *to, bool directory)
{
	struct doubt_unit old = doubt_unit_of(vol->rules, from);
	struct doubt_unit new = doubt_unit_of(vol->rules, to);

	if (new.temporary || (!new.len && !(directory && old.temporary)))
		return false;
	return old.temporary || !old.len || old.step != new.step;
}

int arrivals_note_locked(struct volume *vol, const struct state_file *f, uint64_t parent,
			 const char *name, uint64_t new_parent, const char *new_name)
{
	cleanup_buf struct buf from = {0}, to = {0}, text = {0};
	struct arrivals a;
	struct state_file old;
	int error = sealer_path_locked(vol, parent, name, &from);

	if (!error)
		error = sealer_path_locked(vol, new_parent, new_name, &to);
	if (error)
		return error == -ENOENT ? 0 : error;
	if (!arrives(vol, buf_str(&from), buf_str(&to), S_ISDIR(f->mode)))
		return 0;
	/* Also those of an epoch that is not frozen yet: where it cannot be, the next one has them. */
	arrivals_since(vol->state, vol->current_epoch, &a);
	/* The newest first; where there are too many the oldest goes, and what is not there any more. */
	buf_printf(&text, "%" PRIu64 " %" PRIu64 " %" PRIu64, vol->next_epoch, f->ino,
		   state_version_next(vol->state));
	for (unsigned i = 0; i < a.count && i < ARRIVALS_MAX - 1; i++)
		if (a.list[i].ino != f->ino &&
		    state_file_get(vol->state, a.list[i].ino, &old) == 0 && old.nlink)
			buf_printf(&text, " %" PRIu64 " %" PRIu64 " %" PRIu64, a.list[i].epoch,
				   a.list[i].ino, a.list[i].order);
	error = buf_error(&text);
	return error ? error : state_set_meta(vol->state, META_ARRIVALS, buf_str(&text));
}

uint64_t arrivals_came(const struct arrivals *a, uint64_t ino, uint64_t above)
{
	for (unsigned i = 0; i < a->count; i++)
		if (a->list[i].ino == ino && a->list[i].order > above)
			return a->list[i].order;
	return above;
}
