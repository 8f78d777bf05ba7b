/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules say now, for `status`. */
#include "lib/epochs/driver_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/epochs/epochs.h"
#include "lib/meta/listing.h"
#include "lib/saves/judge_rules.h"
#include "lib/saves/seal_rules.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

int driver_look_locked(struct volume *vol, struct driver_view *ret_view)
{
	const struct seal_rule *asked = seal_rule_of(SEAL_ASKED);
	struct driver *d = vol->driver;
	struct driver_view v = {0};
	struct judged j;

	driver_tell_ended_locked(vol);
	j = saves_judge(d->saves, asked, false);
	v.pending = d->pending;
	v.goes_back = saves_back(d->saves) != BACK_NOT;
	v.waits_for = (pid_t)save_process_pid(saves_back_waits(d->saves));
	v.held_up = saves_held_up(d->saves, &v.hold);
	if (v.hold.path && !(v.path = strdup(v.hold.path)))
		return -ENOMEM;
	v.hold.path = v.path;
	/* What is being written, pending or unseen is nothing wrong. */
	if (j.rule->goes_back) {
		v.rule = j.rule->id;
		saves_put_reason(d->saves, &j, &v.why);
	}
	*ret_view = v;
	return buf_error(&v.why) ? -ENOMEM : 0;
}

void driver_view_free(struct driver_view *v)
{
	free(v->path);
	buf_free(&v->why);
	*v = (struct driver_view){0};
}

/* Why it is not whole; the caller's. NULL: it is, or is gone. */
static char *reason_of(struct volume *vol, uint64_t number)
{
	struct epoch_info info;
	char *reason;

	if (!number || epochs_get(vol, number, &info) != 0)
		return NULL;
	reason = info.record.reason ? strdup(info.record.reason) : NULL;
	epoch_info_free(&info);
	return reason;
}

json_t *driver_back_status(struct volume *vol)
{
	const char *at = vol->options.mountpoint ? vol->options.mountpoint : "DIRECTORY";
	cleanup_free char *why = NULL;
	struct resumed back;
	int64_t at_ns;
	int error;

	mutex_lock(&vol->lock);
	back = vol->driver->back;
	at_ns = vol->driver->back_ns;
	error = vol->driver->error;
	mutex_unlock(&vol->lock);
	if (error)
		return json_pack("{s:o}", "error",
				 json_sprintf("%s: it is tried again", strerror(-error)));
	if (!at_ns)
		return NULL;
	why = reason_of(vol, back.left);
	return json_pack("{s:I, s:o, s:I, s:I, s:I, s:o}", "at_ns", (json_int_t)at_ns, "why",
			 listing_string(why ? why : ""), "left", (json_int_t)back.left, "to",
			 (json_int_t)back.to, "epoch", (json_int_t)back.as, "to_undo",
			 json_sprintf("epochfs rollback %s %" PRIu64, at, back.left));
}
