/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous writes by the system calls themselves: io_uring, or the kernel's older AIO. */
#ifndef EPOCHFS_TESTS_ASYNC_H
#define EPOCHFS_TESTS_ASYNC_H

#include <stdbool.h>
#include <sys/types.h>

/* Submits one write and waits until it is done: what it gave, or -errno. `older`: by io_submit, which also serves where
 * io_uring is not allowed. */
ssize_t async_write(int fd, const void *data, size_t len, off_t at, bool older);

#endif
