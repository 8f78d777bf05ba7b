/* SPDX-License-Identifier: Apache-2.0 */
/* The remote that is a directory on an SFTP server. Private to sftp*.c; epochfs-remotes(7) is for users. */
#ifndef EPOCHFS_NET_SFTP_H
#define EPOCHFS_NET_SFTP_H

#include "lib/net/sftp_wire.h"
#include "lib/remote/rate.h"
#include "lib/remote/remote_ops.h"
#include "lib/util/child.h"
#include "lib/util/lock.h"

/* ---- one connection: a running ssh, and requests over its pipes ---- */

struct sftp;

/* Monotonic durations; none is 0. */
struct sftp_times {
	int64_t connect_ns; /* until the server answers */
	int64_t stall_ns;   /* below 1 KiB/s for so long while an answer is owed is -ETIMEDOUT */
	int64_t total_ns;   /* of one call, or one transfer */
};

/*
 * A link is used by one thread at a time. Calls send one request and wait for its answer; transfers
 * keep many under way. What fails below the protocol (ssh ended, nonsense came, time ran out, the
 * remote was cancelled) makes the link `broken`: its only use is then to be closed.
 *
 * Calls give 0 or a positive enum sftp_status where the server answered, and a negative errno of
 * remote.h where the link broke; then with a reason (remote_set_reason).
 */
struct sftp_link {
	struct sftp *owner;
	struct sftp_link *next; /* of the idle ones */
	struct child ssh;
	struct buf out; /* to be sent, from `sent` on */
	size_t sent;
	struct buf in; /* came, from `taken` on */
	size_t taken;
	uint32_t last_id;
	uint32_t forgotten[8]; /* ids whose answers nobody waits for; 0: none */
	uint32_t max_read, max_write;
	struct sftp_extensions can;
	bool broken;
	int64_t deadline_ns;	       /* of the call or transfer */
	int64_t mark_ns;	       /* the stall is measured from here */
	uint64_t moved, moved_at_mark; /* bytes, both ways */
};

/* Starts ssh and shakes hands. 0 or an error of remote.h, with a reason. */
int sftp_link_open(struct sftp *owner, struct sftp_link **ret_link);
void sftp_link_close(struct sftp_link *l);
/* Whether an idle link is of any use: false where ssh has ended or the server said something. */
bool sftp_link_alive(struct sftp_link *l);

/* ---- transfers */

/* Starts the clocks of a call or transfer. */
void sftp_link_start(struct sftp_link *l);
/* Begins a request in l->out, whose fields the caller appends; its id in ret_id (never 0). Gives
 * the mark for sftp_request_end. */
size_t sftp_request_begin(struct sftp_link *l, enum sftp_type type, uint32_t *ret_id);
void sftp_request_end(struct sftp_link *l, size_t mark);
/* Its answer will be dropped when it comes. */
void sftp_forget(struct sftp_link *l, uint32_t id);
/* Bytes of requests that wait to be sent. */
size_t sftp_unsent(const struct sftp_link *l);

struct sftp_answer {
	uint8_t type;
	uint32_t id;
	struct reader fields; /* valid until the next sftp_receive */
};
/* Sends what there is to send, and waits for the next answer. 0 or -errno. */
int sftp_receive(struct sftp_link *l, struct sftp_answer *ret_answer);
/* The server broke the protocol: the link is broken. -EIO. */
int sftp_nonsense(struct sftp_link *l, const char *what);
/* Of an SFTP_STATUS: its code; of anything else nonsense. */
int sftp_status_of(struct sftp_link *l, struct sftp_answer *a);

/* ---- calls (sftp_calls.c) */

struct sftp_handle {
	uint8_t bytes[SFTP_HANDLE_MAX];
	size_t len;
};
int sftp_call_open(struct sftp_link *l, const char *path, uint32_t pflags, uint32_t mode,
		   struct sftp_handle *ret_handle);
int sftp_call_opendir(struct sftp_link *l, const char *path, struct sftp_handle *ret_handle);
/* The next names of a directory into `names`, as an SFTP_NAME has them behind its count, which is
 * added to *count; SFTP_EOF at the end. */
int sftp_call_readdir(struct sftp_link *l, const struct sftp_handle *h, struct buf *names,
		      uint32_t *count);
int sftp_call_close(struct sftp_link *l, const struct sftp_handle *h);
/* Closes what was only read: its answer does not matter. */
void sftp_close_forget(struct sftp_link *l, const struct sftp_handle *h);
int sftp_call_lstat(struct sftp_link *l, const char *path, struct sftp_attrs *ret_attrs);
int sftp_call_stat(struct sftp_link *l, const char *path, struct sftp_attrs *ret_attrs);
int sftp_call_remove(struct sftp_link *l, const char *path);
int sftp_call_mkdir(struct sftp_link *l, const char *path, uint32_t mode);
int sftp_call_rename(struct sftp_link *l, const char *from, const char *to);
/* These three where l->can says so. */
int sftp_call_posix_rename(struct sftp_link *l, const char *from, const char *to);
int sftp_call_hardlink(struct sftp_link *l, const char *from, const char *to);
int sftp_call_fsync(struct sftp_link *l, const struct sftp_handle *h);
/* Bytes that we may still store where the path is. */
int sftp_call_room(struct sftp_link *l, const char *path, uint64_t *ret_bytes);

/* ---- transfers of files (sftp_write.c) */

/* Writes all bytes to an open file. */
int sftp_send_file(struct sftp_link *l, const struct sftp_handle *h, const uint8_t *data,
		   size_t len);
/* Appends [offset, offset + len) of an open file, or less where it ends before, to `out`; -ENOENT
 * where it is a directory, -EPERM where it is no regular file, -EFBIG. After a failure `out` may
 * have grown. */
int sftp_receive_file(struct sftp_link *l, const struct sftp_handle *h, uint64_t offset,
		      uint64_t len, struct buf *out);

/*
 * sftp://[USER@]HOST[:PORT]/abs/dir   or /~/dir, which is below the user's home there
 *   ?known-hosts=FILE   in place of ssh's own known_hosts files
 *   ?key=FILE           this private key and no other; else what ssh takes: the agent
 *                       (SSH_AUTH_SOCK), ~/.ssh/id_*, what ~/.ssh/config says for the host
 * FILE is absolute or begins with ~/. There are no passwords in URLs, and nobody is asked for one.
 *
 * Why the program ssh, and neither libcurl nor libssh2. Tried on Debian 12, libcurl 7.88.1 and
 * libssh2 1.10.0 against OpenSSH 9.2: libcurl's QUOTE "rename" gives error 21 where the target
 * exists, it knows no "posix-rename", and libssh2 1.10 has neither that call nor one for extended
 * requests, so nothing could be replaced atomically or created by a hard link; and RSA keys fail to
 * authenticate (error 67), since it signs with SHA-1 only, which OpenSSH refuses since 8.8; OpenSSH's
 * own sftp gets in with the same key. ssh also brings the user's ~/.ssh/config, jump hosts,
 * certificates and hardware keys, checks host keys as its users know it, and encrypts in a process
 * of its own. sshfs and restic do the same. So: ssh is the transport (sftp_link.c), and the little
 * protocol (sftp_wire.h) is ours.
 *
 * Writing. An object goes to `.tmp-RANDOM` in the root, is fsynced where the server can
 * (fsync@openssh.com), and is then
 *   put            moved over what is there by posix-rename@openssh.com. A server without it gets a
 *                  plain rename, and where that is refused because the target is there, remove and
 *                  rename: a reader may then find nothing for a moment
 *   put_if_absent  linked by hardlink@openssh.com, which refuses an existing target; else renamed,
 *                  which version 3 says must refuse it too. Tried before it is believed
 *                  (remote_check_create); where it is not kept, REMOTE_CREATE_CHECKED
 * Directories are made as needed. Their modes and the files' are those of the root (0700 where it
 * is made too), less what the server's umask takes.
 * The server's directories cannot be fsynced by SFTP: a name may be lost with the server's power,
 * within the time in which its file system writes names.
 * `.tmp-` files that killed uploads left are removed, once they are an hour old by the server's
 * clock, before the first write of a mount.
 *
 * Reading. Only regular files are objects. Names from the server are checked as keys. The server's
 * symbolic links are its own affair, and are followed but not listed.
 */
struct sftp {
	struct remote base;
	char **argv;	   /* of ssh; NULL-terminated */
	char *root;	   /* of the remote on the server, with a `/` at its end; "" is the home */
	char *host;	   /* "HOST" or "-p PORT HOST": for advice */
	char *known_hosts; /* the file to name in advice */
	struct sftp_times times;
	struct rate upload, download; /* of all links */
	unsigned connections;
	struct mutex lock;	/* guards what follows; nothing else is locked under it */
	pthread_cond_t freed;	/* a link was given back */
	struct sftp_link *idle; /* last used first */
	unsigned links;		/* idle and taken */
	uint32_t root_mode;	/* permission bits; 0: not known yet */
	bool swept;
	bool tried; /* `create` is known */
	enum remote_create create;
};

/* An idle link or a new one, for this thread alone; waits where all are in use. 0 or an error of
 * remote.h, with a reason. */
int sftp_take(struct sftp *s, struct sftp_link **ret_link);
/* Gives it back; one that is broken is closed. NULL is allowed. */
void sftp_give(struct sftp *s, struct sftp_link *link);
void sftp_close_links(struct sftp *s);

/* The path of a key or prefix on the server; the buffer is the caller's. 0 or -ENOMEM. */
int sftp_path(const struct sftp *s, const char *key, struct buf *out);

/* The errno of remote.h for what a call gave: negative as it is, else by status. */
int sftp_errno(int status);

extern const struct remote_ops sftp_ops; /* sftp.c */
void sftp_release(struct remote *r);	 /* sftp.c */

/* sftp_calls.c: the listing, and the sweeping of stale temporaries in the root (`now`: the server's
 * clock, seconds). */
int sftp_list_all(struct sftp *s, const char *prefix, remote_list_fn *fn, void *arg);
void sftp_sweep(struct sftp *s, struct sftp_link *link, uint32_t now);

/* sftp_write.c */
int sftp_put(struct remote *r, const char *key, const void *data, size_t len);
int sftp_put_if_absent(struct remote *r, const char *key, const void *data, size_t len);
int sftp_check_create(struct remote *r, enum remote_create *ret_create);
#define TEMP_PREFIX ".tmp-"

#endif
