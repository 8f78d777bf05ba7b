/* SPDX-License-Identifier: Apache-2.0 */
/* Makes hard links fail, as on file systems that have none. */
#ifndef EPOCHFS_TESTS_NO_LINKS_H
#define EPOCHFS_TESTS_NO_LINKS_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "tests/unit/unit.h"

/* From now on linkat(2) fails with this errno in this thread and those that it starts. */
static void forbid_links(int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_linkat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
	ck_assert_int_eq(linkat(AT_FDCWD, unit_root, AT_FDCWD, "/no/such/place", 0), -1);
	ck_assert_int_eq(errno, err);
}

#endif
