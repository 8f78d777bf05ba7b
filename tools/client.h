/* SPDX-License-Identifier: Apache-2.0 */
/* A mounted volume, spoken to through its .epochs/.control file. */
#ifndef EPOCHFS_TOOLS_CLIENT_H
#define EPOCHFS_TOOLS_CLIENT_H

#include <jansson.h>
#include <stdbool.h>

/* Whether this path is the root of an epochfs mount that answers. -ENOTCONN: a dead mount; else 1, 0 or -errno. */
int client_is_mount(const char *path);

/*
 * Sends one request (lib/admin/control.h; the reference is taken over) to the mount at `path` and gives the answer.
 * On failure prints the one line and returns its exit code; EXIT_DONE otherwise.
 */
int client_call(const char *path, json_t *request, json_t **ret_response);

/* The same, but where the mount could not do it by this errno, that is EXIT_DONE, and the answer has "error". */
int client_call_unless(const char *path, json_t *request, int fine, json_t **ret_response);

/*
 * Takes hold of the mount: until client_release, or until this process is gone, signals do not end it. `mounted`: it was mounted for this process, and
 * is to be unmounted where that dies. 0 and a descriptor (close-on-exec), or -errno: -EOPNOTSUPP of a mount by an older epochfs.
 */
int client_hold(const char *path, bool mounted, int *ret_fd);
/* Ends the hold in order and closes the descriptor; `unmount`: the mount ends, once nobody has anything open in it. */
int client_release(int fd, bool unmount);

/* The same without a line: 0 and the answer, which has "error" and "errno" where the mount could not do it, or -errno where it did not answer. From any thread. */
int client_ask(const char *path, json_t *request, json_t **ret_response);

#endif
