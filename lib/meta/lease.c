/* SPDX-License-Identifier: Apache-2.0 */
/* One writer at a time: the lease of a volume, in its remote. */
#include "lib/meta/lease_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

void lease_free(struct lease *l)
{
	if (!l)
		return;
	mutex_destroy(&l->lock);
	free(l);
}

/* ---- holding ---- */

void lease_get(struct lease *l, struct lease_view *ret_view)
{
	SCOPED_LOCK(&l->lock);
	*ret_view = l->view;
}

static int lose(struct lease *l, const struct lease_info *winner)
{
	SCOPED_LOCK(&l->lock);
	if (!l->view.lost) {
		l->view.lost = true;
		l->view.winner = winner ? *winner : (struct lease_info){0};
	}
	return -ESTALE;
}

/* A higher generation is there: our own run's, or another's; who it is is worth a look, no more. */
static int go_on_or_lose(struct lease *l, struct remote *remote, uint64_t generation,
			 int64_t asked_ns)
{
	cleanup_seen struct seen seen = {0};
	struct lease_info winner = {0};
	struct lease_view view;
	char key[KEY_MAX];
	int error;

	lease_get(l, &view);
	if (!view.own.nodes) {
		lease_key(generation, key);
		error = lease_read(remote, key, generation, &seen);
		return lose(l, error || seen.damaged ? NULL : &seen.info);
	}
	error = lease_set_follow(remote, generation, &view.own, &winner);
	if (error)
		return error == -ESTALE ? lose(l, &winner) : error;
	SCOPED_LOCK(&l->lock);
	if (l->view.own.generation < generation)
		l->view.own = view.own;
	l->view.confirmed_ns = asked_ns;
	return 0;
}

int lease_confirm(struct lease *l, struct remote *remote, int64_t max_age_ns)
{
	cleanup_seen struct seen seen = {0};
	int64_t asked_ns = clock_mono_ns();
	uint64_t highest = 0;
	struct lease_view view;
	char key[KEY_MAX];
	int error;

	lease_get(l, &view);
	if (view.lost)
		return -ESTALE;
	if (asked_ns - view.confirmed_ns < max_age_ns)
		return 0;
	error = remote_list(remote, PREFIX_LEASE, lease_note_highest, &highest);
	if (error)
		return error;
	if (highest > view.own.generation)
		return go_on_or_lose(l, remote, highest, asked_ns);
	lease_own_key(&view.own, key);
	error = lease_read(remote, key, view.own.generation, &seen);
	if (error == -ENOENT)
		return lose(l, NULL);
	if (error)
		return error;
	if (seen.damaged || strcmp(seen.info.holder, view.own.holder) != 0)
		return lose(l, seen.damaged ? NULL : &seen.info);
	SCOPED_LOCK(&l->lock);
	l->view.confirmed_ns = asked_ns;
	return 0;
}

/* Writes the own object again. */
static int write_own(struct lease *l, struct remote *remote, bool released, uint64_t pending)
{
	cleanup_buf struct buf text = {0};
	struct lease_view view;
	char key[KEY_MAX];
	int error = lease_confirm(l, remote, 0);

	lease_get(l, &view);
	view.own.renewed += !released;
	view.own.released = released;
	view.own.pending = pending;
	if (!error)
		error = lease_encode(&view.own, &text);
	if (error)
		return error;
	lease_own_key(&view.own, key);
	error = remote_put(remote, key, text.data, text.len);
	if (error)
		return error;
	SCOPED_LOCK(&l->lock);
	/* Unless it went on to another generation meanwhile. */
	if (l->view.own.generation == view.own.generation)
		l->view.own = view.own;
	return 0;
}

int lease_renew(struct lease *l, struct remote *remote)
{
	return write_own(l, remote, false, 0);
}

int lease_release(struct lease *l, struct remote *remote, uint64_t pending)
{
	return write_own(l, remote, true, pending);
}

void lease_describe(const struct lease_info *l, struct buf *out)
{
	if (!l->generation || !l->holder[0]) {
		buf_printf(out, "an unknown host");
		return;
	}
	buf_printf(out, "%s (process %llu", l->host, (unsigned long long)l->pid);
	if (l->mountpoint[0])
		buf_printf(out, ", mounted at %s", l->mountpoint);
	buf_printf(out, ")");
}

void lease_describe_held(const struct lease_info *l, struct buf *out)
{
	char since[FORMAT_MAX];

	buf_printf(out, "held for writing by ");
	if (l->nodes)
		buf_printf(out, "run %s of %u node%s: %s on ", l->run, (unsigned)l->nodes,
			   plural(l->nodes), l->node);
	lease_describe(l, out);
	if (!l->holder[0])
		return;
	/* Whole seconds are what people read. */
	format_time(l->since_ns / NS_PER_S * NS_PER_S, since);
	buf_printf(out, " since %s (its clock)", since);
}
