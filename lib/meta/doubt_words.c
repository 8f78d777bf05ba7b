/* SPDX-License-Identifier: Apache-2.0 */
/* Doubts in words: the names of their kinds, what settles one, and why an epoch is not complete. */
#include "lib/meta/doubts.h"

#include <string.h>

static const char *const kind_names[] = {
	[DOUBT_TORN] = "torn",
	[DOUBT_UNDONE] = "undone",
	[DOUBT_LEFT] = "left",
};

const char *doubt_kind_name(enum doubt_kind kind)
{
	return kind_names[kind];
}

enum doubt_kind doubt_kind_parse(const char *name)
{
	for (enum doubt_kind k = DOUBT_TORN; k <= DOUBT_LEFT; k++)
		if (name && !strcmp(name, kind_names[k]))
			return k;
	return DOUBT_TORN;
}

const char *doubt_settled_by(enum doubt_kind kind, bool companions, bool alone)
{
	switch (kind) {
	case DOUBT_UNDONE:
		if (companions)
			return "saving it again whole (under a temporary name: what it was for, in "
			       "the same way), or removing it unless its name is a temporary one, "
			       "or saving or removing all files that were saved with it, or by "
			       "epochfs commit --whole";
		if (!alone)
			return "saving it, or what was removed before it, or removing its "
			       "directory where that is empty, or by epochfs commit --whole";
		break;
	case DOUBT_LEFT:
		return "the next epoch";
	case DOUBT_TORN:
		break;
	}
	return "saving it again whole or removing it, or by epochfs commit --whole";
}

/* ---- why an epoch is not complete ---- */

void reason_add(struct buf *reason, unsigned *named, const char *name, const char *why)
{
	if ((*named)++ < REASON_NAMED_MAX)
		buf_printf(reason, "%s%s: %s", reason->len ? "; " : "", name, why);
}

void reason_end(struct buf *reason, unsigned named)
{
	if (named > REASON_NAMED_MAX)
		buf_printf(reason, "; and %u more", named - REASON_NAMED_MAX);
}
