/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A clock for a mount under test, for which nothing depends on how busy the machine is. Its time goes SLOWNESS times slower than the machine's,
 * and jumps when the test says so. EPOCHFS_SLOW_CLOCK names a file with the table below, which the test made and maps as well
 * (tests/protocols/protocol_mount.py). Without it, time is the machine's.
 *
 * Linked with -Wl,--wrap of what SLOW_CLOCK_WRAPPED in the Makefile lists.
 */
#ifndef EPOCHFS_TESTS_SLOW_CLOCK_H
#define EPOCHFS_TESTS_SLOW_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#define SLOWNESS	 10
#define SLOW_CLOCK_WAITS 128
#define SLOW_CLOCK_JUMPS 16384

/* All fields are 8 bytes, in the host's order. Times are nanoseconds; those of the machine are CLOCK_REALTIME's. */
struct slow_clock {
	int64_t begun_ns; /* when the file was made: until then both clocks are the same */
	/* Written by the test: first the jump, then the count. */
	atomic_int_least64_t jumps;
	/* Threads that wait for a time of this clock. thread 0: a free place. deadline 0: only for a moment. */
	struct {
		atomic_int_least64_t thread;
		atomic_int_least64_t deadline_ns; /* of clock_mono_ns */
	} wait[SLOW_CLOCK_WAITS];
	struct {
		int64_t at_ns; /* of the machine */
		int64_t by_ns;
	} jump[SLOW_CLOCK_JUMPS];
};

#endif
