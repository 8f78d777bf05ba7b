/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of remote that a network lies behind. Private to lib/net. */
#ifndef EPOCHFS_NET_NET_H
#define EPOCHFS_NET_NET_H

#include "lib/remote/remote_ops.h"

remote_open_fn remote_dav_open; /* http, https */
remote_open_fn remote_sftp_open;
remote_open_fn remote_s3_open; /* also gs */

#endif
