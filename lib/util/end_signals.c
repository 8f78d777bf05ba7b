/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that ask a process to end. */
#include "lib/util/end_signals.h"

#include <errno.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SHELL_SIGNAL_BASE 128

void end_request_note(struct end_request *r, int number, bool terminal, int64_t now_ns)
{
	if (!r->first) {
		r->first = number;
		r->asked_ns = now_ns;
	} else if (number == SIGINT) {
		r->hurry |= r->first != SIGINT || terminal ||
			    now_ns - r->asked_ns >= END_SIGNALS_APART_NS;
	}
}

int64_t end_request_deadline(const struct end_request *r, int64_t grace_ns)
{
	if (!r->first)
		return INT64_MAX;
	if (r->hurry)
		return 0;
	return grace_ns < INT64_MAX - r->asked_ns ? r->asked_ns + grace_ns : INT64_MAX;
}

bool end_signals_ignored(int number)
{
	struct sigaction now;

	return number == SIGHUP && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

void end_signals_set(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	sigaddset(ret_set, SIGTERM);
	sigaddset(ret_set, SIGINT);
	if (!end_signals_ignored(SIGHUP))
		sigaddset(ret_set, SIGHUP);
}

void end_signals_block(void)
{
	sigset_t set;

	end_signals_set(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGXCPU);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int end_signals_open(void)
{
	sigset_t set;
	int fd;

	end_signals_block();
	end_signals_set(&set);
	fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

void end_signals_take(int fd, struct end_request *r)
{
	struct signalfd_siginfo info;

	while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		end_request_note(r, (int)info.ssi_signo, info.ssi_code == SI_KERNEL,
				 clock_mono_ns());
}

void end_signals_let(void)
{
	sigset_t set;

	end_signals_set(&set);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void end_signals_leave(const struct end_request *r, int64_t grace_ns)
{
	if (r->hurry)
		_exit(SHELL_SIGNAL_BASE + SIGINT);
	if (clock_mono_ns() >= end_request_deadline(r, grace_ns))
		end_signals_let();
}
