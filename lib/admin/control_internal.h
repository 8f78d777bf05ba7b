/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of control*.c share. */
#ifndef EPOCHFS_ADMIN_CONTROL_INTERNAL_H
#define EPOCHFS_ADMIN_CONTROL_INTERNAL_H

#include <jansson.h>
#include "lib/cache/context.h"

/* The answer to "status": a new object, or NULL where memory runs out. */
json_t *control_status(struct volume *vol);

/* A part of a file of an epoch; `entry` counts as "files" of "show" do, from 1. */
struct control_range {
	uint64_t epoch, entry, offset, length;
};
/* Makes it local, as content_fetch does: its errors, and those of epochs_tree; -EINVAL: no such entry. */
int control_fetch(struct volume *vol, const struct control_range *range, interrupted_fn interrupted,
		  void *arg);

/* ---- A request of the command while it is answered. Private to control*.c. ---- */

static inline void cleanup_json_fn(json_t **j)
{
	json_decref(*j);
}
#define cleanup_json CLEANUP(cleanup_json_fn)

struct request {
	struct volume *vol;
	const json_t *json;
	interrupted_fn interrupted;
	void *arg;
	json_t *answer;	    /* set by the operation */
	char message[1024]; /* why it failed; empty: what errno says */
};

/* Notes why it failed, and gives `error`. */
int request_fail(struct request *r, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The text of a key (the request's), or NULL. */
const char *request_text(const struct request *r, const char *key);
/* 0; -ENOENT where the key is missing; or what is wrong with it. */
int request_number(struct request *r, const char *key, uint64_t *ret_number);
/* The epoch that a key names, by text or number. */
int request_epoch(struct request *r, const char *key, uint64_t *ret_number);
/* All tags: a new object of names and numbers. */
int request_tags(struct volume *vol, json_t **ret_tags);

/* Operations (control_status.c). */
int request_log(struct request *r);
int request_show(struct request *r);
int request_diff(struct request *r);
/* control.c */
int request_repair(struct request *r);

#endif
