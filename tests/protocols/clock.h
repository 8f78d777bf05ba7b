/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock of its own for a program that has the engine in it. Time stands still while any thread can run. Once all of them wait, it jumps to
 * the earliest time that one of them waits for. So nothing depends on how busy the machine is, and hours take no time.
 *
 * Linked with -Wl,--wrap of what CLOCK_WRAPPED in the Makefile lists: the clocks and waits of lib/util, and what threads begin, wait and end with.
 */
#ifndef EPOCHFS_TESTS_CLOCK_H
#define EPOCHFS_TESTS_CLOCK_H

#include <stdint.h>
#include <sys/types.h>

/*
 * So many nanoseconds pass for the caller. All that other threads wait for until then happens, in the order of its times. 0: only what is
 * under way is done.
 */
void clock_pass(int64_t ns);
/* This process was started now: the engine asks /proc, which knows nothing of this clock. */
void clock_process_started(pid_t pid);

#endif
