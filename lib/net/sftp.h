/* SPDX-License-Identifier: Apache-2.0 */
/* The remote that is a directory on an SFTP server. Private to sftp*.c; epochfs-remotes(7) is for users. */
#ifndef EPOCHFS_NET_SFTP_H
#define EPOCHFS_NET_SFTP_H

#include "lib/net/sftp_link.h"
#include "lib/remote/rate.h"
#include "lib/util/lock.h"

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
 * of its own. sshfs and restic do the same. So: ssh is the transport (sftp_link.h), and the little
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

/* The errno of remote.h for what a call gave (sftp_link.h): negative as it is, else by status. */
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
