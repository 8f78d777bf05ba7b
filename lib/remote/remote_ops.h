/* SPDX-License-Identifier: Apache-2.0 */
/* What a kind of remote implements. Private to lib/remote and lib/net. */
#ifndef EPOCHFS_REMOTE_REMOTE_OPS_H
#define EPOCHFS_REMOTE_REMOTE_OPS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "lib/remote/remote.h"
#include "lib/remote/remote_url.h"
#include "lib/util/lock.h"

/*
 * The operations of one kind, with the meaning of the remote_* functions of the same name. remote.c
 * has already checked keys, prefixes and cancellation, and logs what fails; an implementation gives
 * only errors of the table in remote.h (remote_errno_of helps; of others remote.c makes -EIO). It may
 * be called from any thread.
 */
struct remote_ops {
	int (*put)(struct remote *r, const char *key, const void *data, size_t len);
	int (*put_if_absent)(struct remote *r, const char *key, const void *data, size_t len);
	int (*get)(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		   struct buf *out);
	int (*size)(struct remote *r, const char *key, uint64_t *ret_size);
	int (*list)(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg);
	int (*delete)(struct remote *r, const char *key);
	/* One request of remote_delete_many, or several that a layer hands on. *count is how many keys
	 * there are, at least 1, and becomes, also on failure, how many of the first of them this was
	 * about, at least 1: all of those were tried. Of several errors one that remote_may_retry()
	 * counts first. NULL: `delete`, one by one. */
	int (*delete_batch)(struct remote *r, const char *const *keys, size_t *count);
	/* NULL: never. */
	bool (*keeps_versions)(const struct remote *r);
	/* Where it does: remote_erase_versions. */
	int (*erase_versions)(struct remote *r, const char *begin);
	/* NULL: nowhere, and never. */
	const char *(*redirects_to)(const struct remote *r);
	bool (*expiry)(struct remote *r, struct remote_expiry *ret_expiry);
	/* NULL: put_if_absent is atomic by nature, or a layer passes the question on to `inner`. Else
	 * remote_probe_create is the heart of it, and the kind remembers what it found. */
	int (*check_create)(struct remote *r, enum remote_create *ret_create);
	/* Frees what the kind added; remote.c frees the rest. NULL: nothing. */
	void (*release)(struct remote *r);
	/* For remote_upload_check; NULL: nobody can tell. */
	const char *upload_check;
	/* Only the retry layer: else NULL. */
	void (*get_state)(struct remote *r, struct remote_state *ret_state);
};

/* Bytes of a reason, with its NUL. */
#define REMOTE_REASON_MAX 320

/* The first member of every kind's struct, which is allocated with calloc as one block. */
struct remote {
	const struct remote_ops *ops;
	char *name;
	struct remote *inner; /* the remote below a layer; owned; NULL: none */
	_Atomic uint64_t sent, received, failures[REMOTE_FAILURES]; /* as in remote_traffic */
	bool is_none;
	atomic_uint refs;
	atomic_bool cancelled;
	/* What remote_clock gives; INT64_MIN: nothing yet. */
	_Atomic int64_t clock_ahead_ns;
	/* Monotonic: until then the server wants no repeated request (Retry-After). 0: never asked. */
	_Atomic int64_t not_before_ns;
	/* Guards nothing but the sleep: taken to wait on `wake` and to change `cancelled`, last in
	 * every order. */
	struct mutex sleep_lock;
	pthread_cond_t wake;
	/* Guards the two below; nothing else is locked under it. */
	struct mutex reason_lock;
	int reason_error; /* the error that `reason` was given with; 0: none yet */
	char reason[REMOTE_REASON_MAX];
};

/* Sets up the common part, with one reference; `name` is redacted and copied. 0 or -ENOMEM; on
 * failure the block is still the caller's. `inner` (or NULL) is taken over on success. */
int remote_init(struct remote *r, const struct remote_ops *ops, const char *name,
		struct remote *inner);

/* For layers: what the member delete_batch does, of any kind. The keys have been checked. */
int remote_delete_batch(struct remote *r, const char *const *keys, size_t *count);

/* Sleeps this long: 0, or -ECANCELED at once when the remote is or gets cancelled. */
int remote_sleep(struct remote *r, int64_t ns);

/*
 * Keeps in words why an operation fails with `err`, for remote_strerror: what is wrong and what to
 * do, in one line without the place ("the bucket b does not exist; create it, or check its name").
 * A reason without a `;` says nothing of what to do: it is told behind the general advice.
 * Never a secret; control characters from a server are replaced. Returns err.
 */
int remote_set_reason(struct remote *r, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* What was given as the reason for `from` is the reason for `to`. */
void remote_move_reason(struct remote *r, int from, int to);

/* The same for remote_open, which has no remote yet: for remote_open_strerror in this thread. */
int remote_open_reason(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void remote_open_forget(void);

/* One try to create an object only if it is absent, as the kind would make it: 0, -EEXIST, or why it
 * failed. */
typedef int remote_create_fn(struct remote *r, const char *key, const void *data, size_t len);
/*
 * Does `create` keep its promise on this server? Creates a probe, creates it again with other bytes,
 * reads it, and deletes it. *ret_kept is true where the second was refused with -EEXIST and the first
 * bytes are there. Uses the kind's get and delete; no version stays. 0, or what failed: then nothing is known, -EOPNOTSUPP
 * where the first try says so.
 */
int remote_probe_create(struct remote *r, remote_create_fn *create, bool *ret_kept);

/* The server of `r` asked to be left alone for so long: the retry layer above repeats nothing
 * before. At most 5 minutes are believed; what was asked before stays where it is later. */
void remote_hold_off(struct remote *r, int64_t ns);
/* How long, from now, `r` or a layer below it is to be left alone: ns, 0: not at all. */
int64_t remote_held_off(const struct remote *r);

/* The server told its time (wall clock) just now. */
void remote_note_clock(struct remote *r, int64_t server_ns);

/* Maps an errno (positive) to the table of remote.h: a negative errno. */
int remote_errno_of(int err);

/* The kinds of this room; those behind a network are in lib/net. `text` is the whole URL as given, for the name. */
typedef int remote_open_fn(const struct remote_url *url, const char *text,
			   const struct remote_limits *limits, struct remote **ret_remote);
remote_open_fn remote_file_open;
remote_open_fn remote_memory_open;
remote_open_fn remote_none_open;
remote_open_fn remote_exec_open;
/* A layer, over what `open_inner` makes of the URL behind `fault+`. */
typedef int remote_open_inner_fn(const char *url, const struct remote_limits *limits,
				 struct remote **ret_remote);
int remote_fault_open(const struct remote_url *url, const char *text,
		      const struct remote_limits *limits, remote_open_inner_fn *open_inner,
		      struct remote **ret_remote);

#endif
