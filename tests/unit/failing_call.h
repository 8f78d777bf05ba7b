/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a system call fail, as a file system does that has no such thing, or no room. */
#ifndef EPOCHFS_TESTS_FAILING_CALL_H
#define EPOCHFS_TESTS_FAILING_CALL_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "tests/unit/unit.h"

/* From now on this call fails with this errno, in all threads. fd: where it is the first argument; -1: always. */
__attribute__((unused)) static void call_fails(unsigned call, int fd, int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, fd < 0 ? 0 : UINT32_MAX),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, fd < 0 ? 0 : (unsigned)fd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(
		syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter),
		0);
}

/* linkat(2), as on file systems that have no hard links. */
__attribute__((unused)) static void forbid_links(int err)
{
	call_fails(SYS_linkat, -1, err);
	ck_assert_int_eq(linkat(AT_FDCWD, unit_root, AT_FDCWD, "/no/such/place", 0), -1);
	ck_assert_int_eq(errno, err);
}

#endif
