/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of check.h share. Private to check*.c. */
#ifndef EPOCHFS_ADMIN_CHECK_INTERNAL_H
#define EPOCHFS_ADMIN_CHECK_INTERNAL_H

#include <stdatomic.h>
#include "lib/admin/check.h"
#include "lib/remote/remote.h"

struct check {
	const struct check_options *how;
	struct remote *remote;
	char id[17];		 /* of this run's objects */
	struct remote_keys keys; /* of all that was put: to be deleted */
	json_t *operations;	 /* grows */
	_Atomic bool cancelled;	 /* the remote is */
	_Atomic bool done;	 /* nothing is left to be cancelled */
	bool usable;		 /* so far */
	bool ranges;		 /* exact */
	enum remote_create create;
	bool racy;
	json_t *latency, *throughput;
	double upload, download; /* the best bytes a second; 0: not known */
};

#define CHECK_KEY_MAX 320

/* The key of an object of this run, which will be deleted at the end: in `ret_key`, for the
 * callers, which run one at a time. */
const char *check_key(struct check *c, const char *name, char ret_key[CHECK_KEY_MAX]);
void check_step(const struct check *c, const char *what);
/* One line of the report: error 0 is ok, else a failure, told by `detail` or where that is NULL by
 * the remote's words. A failure of what is `needed` makes the remote unusable. */
void check_note(struct check *c, const char *name, int error, bool needed, const char *detail);

/* check_speed.c: latency and throughput. */
void check_speed(struct check *c);

#endif
