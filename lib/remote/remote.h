/* SPDX-License-Identifier: Apache-2.0 */
/* Remotes: named objects of bytes, in a directory, in memory, or behind layers that retry or inject
 * faults. */
#ifndef EPOCHFS_REMOTE_REMOTE_H
#define EPOCHFS_REMOTE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/hash.h"

/*
 * A remote keeps objects under keys. An object appears whole and at once, or not at all; it is
 * durable when the call that put it returns 0. Nothing is said about the order in which objects of
 * different calls become visible to another machine, except that what a call put before returning
 * is there for every call that starts later.
 *
 * Keys are 1 to REMOTE_KEY_MAX bytes of [A-Za-z0-9._/-], in components of at most 255 bytes separated
 * by one `/`; no component is empty, `.` or `..`, or begins with `.tmp-`. Every operation checks
 * that (-EINVAL), so a key made from hostile data cannot leave the remote's prefix. No key should
 * be the beginning of another up to a `/`: a directory cannot hold both (-EPERM).
 *
 * Errors. Every operation returns 0 or one of these (negative), whatever the remote is:
 *   ENOENT           get, size: no such object; from remote_open: the directory above a new remote is
 *                    missing. No other operation gives it: a bucket or a root that is gone is EIO
 *   EEXIST           put_if_absent: an object with that key is there
 *   EACCES, EPERM    the remote does not allow it
 *   EROFS            this remote takes no writes
 *   ENOSPC           put, put_if_absent: the remote is full, or a quota is reached. Of any other operation it is EIO, for there it
 *                    would look like a full disk here
 *   EIO, ETIMEDOUT, ECONNREFUSED   it did not work now and may be tried again: remote_may_retry()
 *   ECANCELED        remote_cancel was called
 *   EINVAL           a bad key, prefix or URL: a mistake of the caller or of the user
 *   EPROTONOSUPPORT  remote_open: no such kind of remote
 *   ENOTDIR          remote_open: the path is no directory
 *   EOPNOTSUPP       put_if_absent: the remote has no way to create an object only if it is absent
 *   EFBIG            get: more than REMOTE_GET_MAX bytes would come; put: the remote takes none so large
 *   ENOMEM           here, not there
 *
 * After EIO, ETIMEDOUT or ECONNREFUSED from a put, put_if_absent or delete, the operation may have
 * been done or not. Details that the error number cannot carry go to the log, at debug level, and
 * the last of them into remote_strerror's text.
 *
 * Threads: every operation may be called from any number of threads at once, and blocks. No lock of
 * the caller may be held that a remote_list callback takes. Only the last remote_close must be
 * alone.
 */
struct remote;

#define REMOTE_KEY_MAX	512
#define REMOTE_GET_MAX	(UINT64_C(1) << 30)
#define REMOTE_TO_END	UINT64_MAX
#define REMOTE_TEXT_MAX 512
/* Transfers at once where nobody says how many. */
#define REMOTE_CONNECTIONS 8

/* How a remote is reached, over a network above all; zero is the default of each. */
struct remote_limits {
	unsigned connections;	    /* transfers at once; 0: REMOTE_CONNECTIONS */
	uint64_t upload_rate;	    /* bytes a second, all transfers together; 0: no limit */
	uint64_t download_rate;	    /* likewise */
	int64_t connect_timeout_ns; /* 0: 10 s */
	int64_t stall_timeout_ns; /* below 1 KiB/s for so long is -ETIMEDOUT; 0: 30 s. For the answer to a body that was taken whole, up to 16 times as long where it proves too short */
	int64_t total_timeout_ns; /* of one request; 0: 10 min */
	/* Paths of what opens an encrypted volume there (lib/meta/volume_key.h), one of them or none; borrowed.
	 * No kind of remote looks at them. */
	const char *passphrase_file, *key_file;
};

/* Another reference to the same remote; each is given back with remote_close. */
struct remote *remote_ref(struct remote *r);
/* Gives a reference back; the last one frees. NULL is allowed. */
void remote_close(struct remote *r);

/* The address of plain content in this remote, whatever layers are above: its SHA-256, or where one of them
 * encrypts (encrypt.h), an HMAC of that under a key of the volume's. The second is the first of each job, computed as
 * hash_of_many does. */
void remote_address(const struct remote *r, const void *data, size_t len, struct hash *ret_address);
void remote_address_many(const struct remote *r, const struct hash_job *jobs, size_t count);

/* The URL as people may see and log it, without its secrets. Lives as long as the remote. */
const char *remote_name(const struct remote *r);
/* True for `none`, also below retry and fault. */
bool remote_is_none(const struct remote *r);

/* Makes the object hold these bytes, whether it was there or not: readers see the old or the new,
 * whole. But apache looks at a file's size before it opens it: for a moment it gives the beginning of
 * the new one at the length of the old. Who gets an object to its end is spared that (net/dav.c looks at
 * its size), who gets a range is not. So whatever is replaced in its life has an end that tells. */
int remote_put(struct remote *r, const char *key, const void *data, size_t len);
/* The same, but -EEXIST and nothing changed where the object is there. Of any number of callers on
 * any number of machines that race, one wins. */
int remote_put_if_absent(struct remote *r, const char *key, const void *data, size_t len);
/* Appends bytes [offset, offset + len) to `out`; fewer (or none) where the object ends before; len
 * REMOTE_TO_END: to its end. On failure `out` is as it was. The bytes are as the remote gave them:
 * check them. */
int remote_get(struct remote *r, const char *key, uint64_t offset, uint64_t len, struct buf *out);
/* The object's size in bytes, or -ENOENT. */
int remote_size(struct remote *r, const char *key, uint64_t *ret_size);

/* Anything but 0 ends the listing, and remote_list returns it. */
typedef int remote_list_fn(void *arg, const char *key, uint64_t size);
/*
 * Calls fn for each object below `prefix`, at any depth, in no promised order, once each. `prefix`
 * is "" or a key followed by `/`; one that holds nothing is no error. Objects whose names are no
 * keys are left out; whatever else lies there is passed on: skip what you do not know. fn may call
 * operations of the same remote; an object that is put or deleted meanwhile may be seen or not. No
 * lock is held in fn.
 */
int remote_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg);
/* Removes the object; 0 where it is not there. */
int remote_delete(struct remote *r, const char *key);
/*
 * Removes all of these, in no promised order: 0 where none of them is there any more, whether they
 * were or not. A remote that takes many at once (s3: 1,000) is asked so, any other one by one. Where
 * a key is bad it is -EINVAL, and nothing is removed.
 *
 * One that is refused (-EACCES, -EPERM, -EROFS, ...) does not keep the others from being tried; the
 * first such error is returned at the end. What says that the remote does not work now
 * (remote_may_retry), -ECANCELED and -ENOMEM end the call and are returned: what is left then may be
 * there or not. It may be called again with the same keys, as often as one likes. On a retry layer
 * each request is repeated, and bounded by the policy, for itself.
 */
int remote_delete_many(struct remote *r, const char *const *keys, size_t count);

/* Whether an answer has said by now that what is replaced or deleted stays there, as a version that nobody sees and that only a rule of the bucket's removes (S3). */
bool remote_keeps_versions(const struct remote *r);
#define REMOTE_VERSIONS_ADVICE                                                                       \
	"the bucket keeps versions (versioning, or object lock): what is deleted or replaced stays " \
	"until a lifecycle rule of the bucket removes it: NoncurrentVersionExpiration, with "        \
	"ExpiredObjectDeleteMarker"
/*
 * Where it does, removes each version of objects whose keys begin with `begin`, for good: for what was the caller's alone, as a probe is, and has been deleted.
 * Elsewhere it does nothing. No layer repeats it. 0, or the first error: -EACCES where the user may not, or a lock holds them.
 */
int remote_erase_versions(struct remote *r, const char *begin);

/* Scheme and host that reads were redirected to by now; NULL: to none. Valid as long as the remote. */
const char *remote_redirects_to(const struct remote *r);
/* When the credentials that are in use end. False: never, as far as is known. */
struct remote_expiry {
	int64_t at_ns; /* wall clock; may be past */
	bool renewed;  /* by itself, from where they came; else who gave them must give new ones */
};
bool remote_expiry(struct remote *r, struct remote_expiry *ret_expiry);

/* True for a key that keeps the rules above. */
bool remote_key_valid(const char *key);

/* Puts a small object `epochfs.probe-RANDOM`, reads it back and deletes it: 0, or why it cannot be
 * written (-EIO also where other bytes came back). */
int remote_check_writable(struct remote *r);

/* What put_if_absent is worth on a remote. */
enum remote_create {
	REMOTE_CREATE_ATOMIC, /* of any number of racing writers, on any machines, one wins */
	REMOTE_CREATE_CHECKED, /* the remote ignores or lacks the condition: put_if_absent looks whether
				  the object is there, puts it, and reads it back. It never replaces
				  what was there before, but of writers that race within that moment
				  more than one may win: one writer at a time is the user's to keep.
				  Where versions are kept and may be listed, the one whose version is
				  the first wins, and each other one removes its own: what is left to
				  the user is one that dies before it has, and an answer that is lost */
	REMOTE_CREATE_NONE, /* there is no way: put_if_absent is -EOPNOTSUPP */
};
/*
 * Finds out by trying, never by the server's name: an object `epochfs.probe-RANDOM` is created twice
 * with the condition; only a server that refuses the second time and still holds the first bytes is
 * taken as ATOMIC. The probe is made once per opened remote, at the first call of this or of
 * put_if_absent (which so cannot be misled either), and remembered; kinds that need none (a
 * directory, memory) say ATOMIC at once. 0 or an error of the table (-EIO: it refused, but holds other
 * bytes); after one, the next call tries again. Needs leave to write.
 */
int remote_check_create(struct remote *r, enum remote_create *ret_create);

/* What guards the bytes of an upload on their way, for people to read; NULL where nobody can tell.
 * Static. */
const char *remote_upload_check(const struct remote *r);

/* How far the server's clock is ahead of ours, as its last answer said, to a second or so; negative: behind. False: no answer has told its time. */
bool remote_clock(const struct remote *r, int64_t *ret_ahead_ns);

/*
 * Makes waits and retries that are in progress, and every operation until remote_resume, give
 * -ECANCELED soon. An operation that is not waiting may still finish as usual. Resume only once the
 * callers that were to end have ended: a wait that has not seen the cancel yet would go on. Both
 * reach all layers below, and so everyone who shares them.
 */
void remote_cancel(struct remote *r);
void remote_resume(struct remote *r);
/* Between the two: for who works long before it asks the remote for anything. */
bool remote_is_cancelled(const struct remote *r);

/* True for errors of this table that the same call may not give later without anyone's help. */
bool remote_may_retry(int err);
/* One line: what failed, where, what to do. `err` is what an operation of `r` returned; where the
 * remote gave a reason with the last such error (also in another thread's call), it is said. Returns
 * ret_text. */
const char *remote_strerror(struct remote *r, int err, char ret_text[REMOTE_TEXT_MAX]);
/* The same for what remote_open (lib/net/open.h) returned last in this thread, for this URL (which is shown without
 * its secrets). */
const char *remote_open_strerror(const char *url, int err, char ret_text[REMOTE_TEXT_MAX]);

/*
 * Retrying (retry.c). A layer that repeats what failed with an error that remote_may_retry(), after
 * a wait that starts at `first_wait_ns`, doubles each time up to `longest_wait_ns`, and is then
 * shortened by a random part of up to a half, so that many clients do not return in step. Where the
 * server asked to be left alone (Retry-After), no attempt is repeated before that time, at most five
 * minutes; first attempts of other calls are made.
 *
 * What may be repeated blindly: get, size, delete (of one or many), put (the same bytes under the
 * same key) and list (a later attempt leaves out the keys that fn has seen). put_if_absent may not: when the
 * answer to an attempt was lost, the object may be there because of it. So when a later attempt
 * says -EEXIST, the object is read: with exactly our bytes it is taken as ours, and the call
 * succeeds; with others it is -EEXIST. Hence two callers that race with identical bytes may both be
 * told 0 when answers are lost: where there must be one winner, put something of the caller's own
 * into the bytes. An attempt that is the first to be answered is never second-guessed; hence nothing
 * below may repeat a create by itself, or the answer to its own first attempt would count as
 * another's: a kind gives -EIO instead (http.h says how the HTTP engine keeps curl from it).
 */
struct remote_retry_policy {
	int64_t first_wait_ns;	 /* 0: 100 ms */
	int64_t longest_wait_ns; /* 0: 30 s */
	unsigned max_tries;	 /* attempts of one call; 0: no limit */
	int64_t max_total_ns; /* no attempt starts this long after the call's first; 0: no limit */
	/* Also repeat what a person can put right: ENOSPC, EACCES, EPERM (but not EROFS). */
	bool persist;
};

/* Takes over the caller's reference to `inner` on success, and leaves it alone on failure. `policy`
 * is copied; NULL is the default: for ever, 100 ms to 30 s. The name is the inner one's. */
int remote_retry_new(struct remote *inner, const struct remote_retry_policy *policy,
		     struct remote **ret_remote);

/* How it goes, for `status`. An answer such as -ENOENT or -EEXIST is no failure. */
struct remote_state {
	int64_t failing_since_ns; /* wall clock: first failure since the last success; 0: none */
	int64_t last_failure_ns;  /* wall clock; 0: never */
	int last_error;		  /* negative errno of the last failure; 0: never */
	uint64_t failures;	  /* failed attempts since failing_since_ns; 0: all is well */
	uint64_t retries;	  /* attempts that were repeated, since the layer was made */
	unsigned waiting;	  /* calls that wait for their next attempt now */
};
/* All zero where `r` is not a retry layer. Thread-safe. */
void remote_get_state(struct remote *r, struct remote_state *ret_state);

/* ---- what went over a remote, since it was opened ---- */

/* Why an operation failed. What is an answer (no such object, one is there already, cancelled) is no failure. */
enum remote_failure {
	REMOTE_FAILURE_REFUSED,	    /* EACCES, EPERM, EROFS */
	REMOTE_FAILURE_FULL,	    /* ENOSPC */
	REMOTE_FAILURE_TIMEOUT,	    /* ETIMEDOUT */
	REMOTE_FAILURE_UNREACHABLE, /* ECONNREFUSED */
	REMOTE_FAILURE_OTHER,
	REMOTE_FAILURES
};
/* "refused" */
const char *remote_failure_name(enum remote_failure failure);

struct remote_traffic {
	uint64_t sent,
		received; /* bytes of objects that were put and got whole, or as much as was asked for */
	uint64_t failures[REMOTE_FAILURES];
};
/* Of this layer: one that retries counts a call, those below it count each attempt. Any thread, any lock. */
void remote_get_traffic(const struct remote *r, struct remote_traffic *ret_traffic);

/* ---- Keys that are collected, in a listing say, to be deleted together. ---- */

/* Zero-initialise; free with remote_keys_free. Not thread-safe. */
struct remote_keys {
	struct buf text; /* each with its NUL */
	size_t count;
};

/* Copies the key: 0 or -ENOMEM, which remote_keys_delete tells too. */
int remote_keys_add(struct remote_keys *keys, const char *key);
void remote_keys_free(struct remote_keys *keys);
#define cleanup_remote_keys CLEANUP(remote_keys_free)

/* remote_delete_many of all of them, which stay in the list. */
int remote_keys_delete(struct remote *r, const struct remote_keys *keys);

#endif
