/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals that ask a process to end: one rule for all that drain, which epochfs(1), SIGNALS, states for users.
 *
 * SIGTERM, SIGINT or SIGHUP asks for an end in order, for which there is a grace from then on. The same once more changes nothing: batch systems send two, some
 * milliseconds apart (Slurm: SIGTERM, SIGCONT, SIGTERM; timeout(1): one to the process, one to its group). Only a second SIGINT hurries, as of a person who presses
 * Ctrl-C twice: after a SIGTERM or SIGHUP at once; after a SIGINT where a terminal sent it, or where it comes END_SIGNALS_APART_NS later. When the grace
 * is over nothing is waited for any more, and each signal may end the process.
 */
#ifndef EPOCHFS_UTIL_END_SIGNALS_H
#define EPOCHFS_UTIL_END_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "lib/util/clock.h"

#define END_SIGNALS_APART_NS NS_PER_S
/* Where no option says otherwise. */
#define END_SIGNALS_GRACE_NS (25 * NS_PER_S)

/* What was asked; zero-initialised: nothing. */
struct end_request {
	int first;	  /* the signal, 0: none came */
	int64_t asked_ns; /* monotonic: when it came */
	bool hurry;	  /* nothing is to be waited for */
};

/* Takes in a signal that came at `now_ns` (monotonic); `terminal`: its si_code is SI_KERNEL. Any signal may be the first; calls no function. */
void end_request_note(struct end_request *r, int number, bool terminal, int64_t now_ns);
/* Until when (monotonic) is waited: INT64_MAX where nothing was asked, 0 where it is to hurry. */
int64_t end_request_deadline(const struct end_request *r, int64_t grace_ns);

/* Whether it is SIGHUP, and ignored, as nohup(1) leaves it: then it asks for nothing. */
bool end_signals_ignored(int number);
/* SIGTERM, SIGINT, and SIGHUP unless it is ignored. Blocked, it would come all the same. */
void end_signals_set(sigset_t *ret_set);
/* Blocks them in this thread, and SIGUSR1, SIGUSR2 and SIGXCPU, which batch systems send to every process of a job as a notice for training. */
void end_signals_block(void);
/* Blocks them, and gives a descriptor (non-blocking, close-on-exec) that is readable when one of the three has come; or -errno. */
int end_signals_open(void);
/* Takes in all that have come, without waiting. */
void end_signals_take(int fd, struct end_request *r);
/* From now on each of the three ends the process, and one that waits does so at once: for what is left to do once nothing is waited for. */
void end_signals_let(void);
/* To be polled by a command that ends by itself soon after a signal: where it is to hurry, the process ends here (exit code 130); once the grace is over, end_signals_let. */
void end_signals_leave(const struct end_request *r, int64_t grace_ns);

#endif
