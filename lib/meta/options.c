/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a volume: defaults, and a copy of their own. */
#include "lib/meta/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/format/lease.h"
#include "lib/format/names.h"
#include "lib/meta/collection.h"
#include "lib/util/clock.h"

#define DEFAULT_MIN_FREE 10
#define DEFAULT_SETTLE	 (5 * NS_PER_S)
#define DEFAULT_PATIENCE (60 * NS_PER_S)
#define DEFAULT_LEASE	 (60 * NS_PER_S)
#define DEFAULT_REFRESH	 (10 * NS_PER_S)
#define DEFAULT_ON_EPOCH (60 * NS_PER_S)
#define DEFAULT_AHEAD	 (UINT64_C(32) << 20)

void volume_options_init(struct volume_options *o)
{
	*o = (struct volume_options){
		.remote = "none",
		.min_free_percent = DEFAULT_MIN_FREE,
		.settle_ns = DEFAULT_SETTLE,
		.patience_ns = DEFAULT_PATIENCE,
		.full_wait = true,
		.resume = RESUME_KNOWN,
		.upload_ahead = DEFAULT_AHEAD,
		.gc_grace_ns = GC_GRACE_NS,
		.lease_ns = DEFAULT_LEASE,
		.refresh_ns = DEFAULT_REFRESH,
		.on_epoch_timeout_ns = DEFAULT_ON_EPOCH,
	};
}

_Static_assert(NODES_MIN == LEASE_NODES_MIN && NODES_MAX == LEASE_NODES_MAX &&
		       NODE_TEXT_MAX == NODE_NAME_MAX + 1 && RUN_TEXT_MAX == LEASE_NAME_MAX + 1,
	       "what may be asked for is what can be written");

bool options_node_name_valid(const char *name)
{
	return node_name_valid(name);
}

static int copy_text(const char **text)
{
	if (!*text)
		return 0;
	*text = strdup(*text);
	return *text ? 0 : -ENOMEM;
}

/* On failure what is not copied is NULL, so that options_free is right. */
static int copy_globs(struct globs *g)
{
	unsigned count = g->count;

	for (unsigned i = 0; i < count; i++) {
		if (copy_text(&g->pattern[i])) {
			g->count = i;
			return -ENOMEM;
		}
	}
	return 0;
}

static struct globs *globs_of(struct volume_options *o, unsigned i)
{
	return i == 0 ? &o->temporary : i == 1 ? &o->marker : &o->log;
}

#define TEXT_COUNT 14
static const char **text_of(struct volume_options *o, unsigned i)
{
	const char **texts[TEXT_COUNT] = {
		&o->remote,	     &o->cache_dir, &o->step_regex, &o->node,
		&o->run_id,	     &o->message,   &o->mountpoint, &o->on_epoch,
		&o->catalog_db,	     &o->keep,	    &o->db_type,    &o->limits.passphrase_file,
		&o->limits.key_file, &o->told};

	return texts[i];
}

int options_copy(const struct volume_options *from, struct volume_options *ret_options)
{
	struct volume_options o = *from;
	int error = 0;

	for (unsigned i = 0; i < 3; i++)
		*globs_of(&o, i) = (struct globs){0};
	for (unsigned i = 0; i < TEXT_COUNT; i++)
		error = copy_text(text_of(&o, i)) ? -ENOMEM : error;
	for (unsigned i = 0; !error && i < 3; i++) {
		*globs_of(&o, i) = *globs_of((struct volume_options *)(uintptr_t)from, i);
		error = copy_globs(globs_of(&o, i));
	}
	if (error) {
		options_free(&o);
		return error;
	}
	*ret_options = o;
	return 0;
}

void options_free(struct volume_options *o)
{
	for (unsigned i = 0; i < TEXT_COUNT; i++)
		free((void *)(uintptr_t)*text_of(o, i));
	for (unsigned i = 0; i < 3; i++)
		for (unsigned j = 0; j < globs_of(o, i)->count; j++)
			free((void *)(uintptr_t)globs_of(o, i)->pattern[j]);
}
