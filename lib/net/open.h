/* SPDX-License-Identifier: Apache-2.0 */
/* Opening remotes by URL. */
#ifndef EPOCHFS_NET_OPEN_H
#define EPOCHFS_NET_OPEN_H

#include "lib/remote/remote.h"
#include "lib/remote/remote_ops.h"

/*
 * Opens the remote that `url` names:
 *   /abs/dir, file:///abs/dir
 *                a directory (file.c). Where it is missing but the one above is there, it is an
 *                empty remote until the first put makes it
 *   memory:NAME  objects of this process; all that open one NAME share them, for as long as one of
 *                them is open
 *   none         nothing: every get is -ENOENT, every put and delete -EROFS
 *   https://HOST/PATH, http://HOST/PATH
 *                a collection on a WebDAV server (dav.h)
 *   sftp://[USER@]HOST[:PORT]/abs/dir
 *                a directory on an SSH server (sftp.h)
 *   exec:PROGRAM ARGS
 *                a program that stores, gives, lists and deletes (exec.h has its protocol)
 *   s3://BUCKET/PREFIX, gs://BUCKET/PREFIX
 *                objects of Amazon S3, any server that speaks its protocol, and Google Cloud
 *                Storage (s3_url.h has the parameters, credential_sources.h says where
 *                credentials come from)
 *   fault+URL    any of these with faults injected (fault.c says how)
 * No retries: wrap it with remote_retry_new. Does no I/O but on a local directory. Errors: -EINVAL,
 * -EPROTONOSUPPORT, -ENOENT, -ENOTDIR, -EACCES, -ENOMEM, -EIO.
 */
int remote_open(const char *url, struct remote **ret_remote);
/* The same with limits (copied; NULL: the defaults). The rates hold for all kinds but `memory`; what is about connections,
 * for those that a network lies behind. */
int remote_open_with(const char *url, const struct remote_limits *limits,
		     struct remote **ret_remote);

/* ---- The kinds of remote that a network lies behind. Private to lib/net. ---- */

remote_open_fn remote_dav_open; /* http, https */
remote_open_fn remote_sftp_open;
remote_open_fn remote_s3_open; /* also gs */

#endif
