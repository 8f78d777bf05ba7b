/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of remote implements. Private to lib/remote. */
#ifndef EPOCHFS_REMOTE_REMOTE_OPS_H
#define EPOCHFS_REMOTE_REMOTE_OPS_H

#include <pthread.h>
#include <stdatomic.h>
#include "lib/remote/remote.h"
#include "lib/remote/remote_url.h"

/*
 * The operations of one kind, with the meaning of the remote_* functions of the same name. remote.c
 * has already checked keys, prefixes and cancellation, and logs what fails; an implementation gives
 * only errors of the table in remote.h (remote_errno_of helps). It may be called from any thread.
 */
struct remote_ops {
	int (*put)(struct remote *r, const char *key, const void *data, size_t len);
	int (*put_if_absent)(struct remote *r, const char *key, const void *data, size_t len);
	int (*get)(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		   struct buf *out);
	int (*size)(struct remote *r, const char *key, uint64_t *ret_size);
	int (*list)(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg);
	int (*delete)(struct remote *r, const char *key);
	/* Frees what the kind added; remote.c frees the rest. NULL: nothing. */
	void (*release)(struct remote *r);
	/* Only the retry layer: else NULL. */
	void (*get_state)(struct remote *r, struct remote_state *ret_state);
};

/* The first member of every kind's struct, which is allocated with calloc as one block. */
struct remote {
	const struct remote_ops *ops;
	char *name;
	struct remote *inner; /* the remote below a layer; owned; NULL: none */
	bool is_none;
	atomic_uint refs;
	atomic_bool cancelled;
	/* Guards nothing but the sleep: taken to wait on `wake` and to change `cancelled`, last in
	 * every order. */
	pthread_mutex_t sleep_lock;
	pthread_cond_t wake;
};

/* Sets up the common part, with one reference; `name` is redacted and copied. 0 or -ENOMEM; on
 * failure the block is still the caller's. `inner` (or NULL) is taken over on success. */
int remote_init(struct remote *r, const struct remote_ops *ops, const char *name,
		struct remote *inner);

/* Sleeps this long: 0, or -ECANCELED at once when the remote is or gets cancelled. */
int remote_sleep(struct remote *r, int64_t ns);

/* Maps an errno (positive) to the table of remote.h: a negative errno. */
int remote_errno_of(int err);

/* True for what can be a whole key or the beginning of longer ones: "" or a key and one `/`. */
bool remote_prefix_valid(const char *prefix);

/* The kinds. `text` is the whole URL as given, for the name. */
typedef int remote_open_fn(const struct remote_url *url, const char *text,
			   const struct remote_limits *limits, struct remote **ret_remote);
remote_open_fn remote_file_open;
remote_open_fn remote_memory_open;
remote_open_fn remote_none_open;
remote_open_fn remote_fault_open;

#endif
