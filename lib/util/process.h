/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes, as /proc shows them. Any thread, any lock; nothing is cached. */
#ifndef EPOCHFS_UTIL_PROCESS_H
#define EPOCHFS_UTIL_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The process (thread group) of a thread: 0 where it is not known. */
pid_t process_of(pid_t tid);
/* Whether this thread is ending by a signal or with an error. */
bool process_was_killed(pid_t tid);
/* A descriptor that stands for a process, for process_ended_badly: or -errno. */
int process_hold(pid_t tgid);
/* Whether the process ended by a signal or with an error. False where it lives, or nobody knows: how one ended that its parent
 * has waited for is known since Linux 6.15. */
bool process_ended_badly(int hold, pid_t tgid);
/* How a process that has ended did, as a shell says it: 137 for SIGKILL. False where nobody knows. */
bool process_end_status(int hold, pid_t tgid, unsigned *ret_status);
/* Whether it is killed, ending or gone, though its descriptors may still be open. */
bool process_is_ending(pid_t pid);
/* What it is called, cut to what fits; "" where it is not known. */
void process_name(pid_t pid, char *ret_name, size_t size);
/* Its parent: 0 where it has none here, or it is not known. */
pid_t process_parent(pid_t pid);
/* When it was started, in clock ticks since the machine was; no two that had the same number have the same time. 0: not known. */
uint64_t process_started(pid_t pid);
/* The same by the wall clock, as far as that was not set since. 0: not known. */
int64_t process_started_ns(pid_t pid);
/* Whether the process has a descriptor open whose path ends in this one, or whose inode has this number (0: not known): a file that was replaced keeps
 * the name that it was opened by. `writing`: one that is open for writing. True where it does not let us look, but for one that has ended, false where we
 * cannot for want of descriptors or memory. */
bool process_has_open(pid_t tgid, const char *path, uint64_t ino, bool writing);
/* The same of a mapping, which keeps a file open without a descriptor; true where it cannot be told. */
bool process_has_mapped(pid_t tgid, const char *path);
/* A process that has it open, `writing`: for writing: `likely` if it does, else any, by a look through /proc; 0: none found. */
pid_t process_with_open(const char *path, bool writing, pid_t likely);

#endif
