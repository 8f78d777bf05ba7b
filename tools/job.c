/* SPDX-License-Identifier: Apache-2.0 */
/* Running a command. */
#include "tools/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/util/clock.h"
#include "lib/util/end_signals.h"

#define SHELL_SIGNAL_BASE 128

static const int passed_on[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCONT};
#define PASSED_ON (sizeof(passed_on) / sizeof(passed_on[0]))

/* How job_block_signals found things: the command is to have them so. */
static sigset_t before;
static struct sigaction actions[PASSED_ON];
static bool blocked;

static volatile sig_atomic_t came;

static void note(int number)
{
	if (number != SIGCONT)
		came = number;
}

static void wanted_signals(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	for (size_t i = 0; i < PASSED_ON; i++)
		if (!end_signals_ignored(passed_on[i]))
			sigaddset(ret_set, passed_on[i]);
	sigaddset(ret_set, SIGCHLD);
}

void job_block_signals(void)
{
	const struct sigaction noted = {.sa_handler = note};
	sigset_t set;

	wanted_signals(&set);
	sigprocmask(SIG_BLOCK, &set, &before);
	for (size_t i = 0; i < PASSED_ON; i++) {
		sigaction(passed_on[i], NULL, &actions[i]);
		if (!end_signals_ignored(passed_on[i]))
			sigaction(passed_on[i], &noted, NULL);
	}
	blocked = true;
}

void job_restore_signals(void)
{
	if (!blocked)
		return;
	for (size_t i = 0; i < PASSED_ON; i++)
		sigaction(passed_on[i], &actions[i], NULL);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

int job_interrupted(void)
{
	return came;
}

bool job_wait_readable(int fd)
{
	struct pollfd end = {.fd = fd, .events = POLLIN};

	while (!came && ppoll(&end, 1, NULL, blocked ? &before : NULL) < 0)
		if (errno != EINTR)
			break;
	return !came;
}

void job_let_interrupt(bool on)
{
	sigset_t set;

	wanted_signals(&set);
	if (blocked && on)
		sigprocmask(SIG_SETMASK, &before, NULL);
	else if (blocked)
		sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Gives the terminal on stdin to a process group, when it is ours to give. */
static void give_terminal(pid_t group, bool have)
{
	sigset_t tty, old;

	if (!have)
		return;
	/* A background process that does this would be stopped. */
	sigemptyset(&tty);
	sigaddset(&tty, SIGTTOU);
	sigprocmask(SIG_BLOCK, &tty, &old);
	tcsetpgrp(STDIN_FILENO, group);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* In the child: never returns. The pipe tells errno where the program cannot be started. */
static void start(char *const argv[], int error_fd, bool terminal)
{
	int error;

	setpgid(0, 0);
	give_terminal(getpid(), terminal);
	job_restore_signals();
	execvp(argv[0], argv);
	error = errno;
	if (write(error_fd, &error, sizeof(error)) < 0)
		_exit(SHELL_SIGNAL_BASE - 1);
	_exit(SHELL_SIGNAL_BASE - 2);
}

static void pass_on(struct job *c, int number)
{
	bool first = !c->interrupted && number != SIGCONT;

	kill(-c->pid, number);
	if (!first)
		return;
	c->interrupted = true;
	end_request_note(&c->asked, number, false, clock_mono_ns());
	if (c->on_interrupt)
		c->on_interrupt(c->arg);
}

/* The command was stopped at the terminal: so are we, until somebody continues us. */
static void stop_with_it(struct job *c, bool terminal)
{
	give_terminal(getpgrp(), terminal);
	raise(SIGSTOP);
	give_terminal(c->pid, terminal);
	kill(-c->pid, SIGCONT);
}

/* Takes in what became of the command: true once it has ended. */
static bool has_ended(struct job *c, bool terminal)
{
	pid_t pid = waitpid(c->pid, &c->status, WNOHANG | WUNTRACED);

	if (pid != c->pid)
		return false;
	if (!WIFSTOPPED(c->status))
		return true;
	if (terminal)
		stop_with_it(c, terminal);
	return false;
}

static void wait_for_end(struct job *c, bool terminal)
{
	sigset_t set;

	wanted_signals(&set);
	while (!has_ended(c, terminal)) {
		siginfo_t info;
		int number = sigwaitinfo(&set, &info);

		if (number > 0 && number != SIGCHLD)
			pass_on(c, number);
	}
}

int job_run(struct job *c, char *const argv[])
{
	bool terminal = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp();
	int pipes[2], error = 0;
	ssize_t n;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	c->pid = fork();
	if (c->pid < 0) {
		error = -errno;
		close(pipes[0]);
		close(pipes[1]);
		return error;
	}
	if (c->pid == 0)
		start(argv, pipes[1], terminal);
	close(pipes[1]);
	setpgid(c->pid, c->pid); /* whoever comes first: the group must be there for pass_on */
	n = read(pipes[0], &error, sizeof(error));
	close(pipes[0]);
	wait_for_end(c, terminal);
	give_terminal(getpgrp(), terminal);
	return n == (ssize_t)sizeof(error) ? -error : 0;
}

const struct end_request *job_asked(struct job *c)
{
	const struct timespec none = {0};
	siginfo_t info;
	sigset_t set;
	int number;

	wanted_signals(&set);
	while ((number = sigtimedwait(&set, &info, &none)) > 0)
		if (number != SIGCONT && number != SIGCHLD)
			end_request_note(&c->asked, number, info.si_code == SI_KERNEL,
					 clock_mono_ns());
	return &c->asked;
}

int job_exit_code(const struct job *c)
{
	return WIFSIGNALED(c->status) ? SHELL_SIGNAL_BASE + WTERMSIG(c->status)
				      : WEXITSTATUS(c->status);
}
