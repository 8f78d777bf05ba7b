/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of mount -o supervise, and epochfs restart. */
#include "tools/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/mount.h"
#include "fs/supervise.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/end_signals.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "tools/cli.h"
#include "tools/client.h"

/* So many deaths in so long a time, and there is no next worker. */
#define DEATHS	  3
#define DEATHS_NS (60 * NS_PER_S)
/* A worker that cannot begin (the remote is away) is tried again for so long, and one that does not begin is killed. */
#define BEGIN_NS (60 * NS_PER_S)
#define PAUSE_MS 1000
/* A dead worker that is seen to wait in the kernel at each of so many looks hangs there. One that just ends slowly, on a busy machine
 * or with much memory, does not: those who wait for an answer get it from the next. */
#define HANG_LOOKS   50
#define HANG_LOOK_MS 100
/* A watchdog ends within this time after its worker. */
#define WATCHDOG_MS 5000

#define ARGUMENTS_MAX (1u << 20)

struct supervisor {
	const struct supervised *how;
	char program[PATH_MAX]; /* as it is installed */
	bool own;		/* that one did not begin: take the file that this process runs */
	sigset_t before;	/* the signal mask that workers begin with */
	int signal_fd, table_fd, arguments_fd;
	int fuse_fd; /* -1: nothing to go on with */
	uint32_t restarts;
	int64_t deaths[DEATHS]; /* monotonic, the latest first */
	int64_t since_ns;	/* of the last worker that had served: when it ended */
	struct end_request asked;

	/* The worker. */
	pid_t pid;
	int pid_fd, socket;
	bool serves;
	int64_t begin_by_ns;
};

/* ---- starting workers ---- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Ctrl-C on the terminal is the supervisor's, which passes it on. */
static void begin_worker(const struct supervisor *s, int socket)
{
	setpgid(0, 0);
	close(s->signal_fd);
	if (s->socket >= 0)
		close(s->socket);
	sigprocmask(SIG_SETMASK, &s->before, NULL);
	fcntl(socket, F_SETFD, FD_CLOEXEC);
}

static _Noreturn void first_worker(struct supervisor *s, int socket)
{
	struct fs_handover *handover;
	int r;

	begin_worker(s, socket);
	r = fs_handover_new(socket, s->table_fd, -1, &handover);
	if (r < 0)
		exit(cli_error(EXIT_FAILED, "cannot supervise: %s", strerror(-r)));
	r = s->how->first(s->how->arg, handover);
	fs_handover_free(handover);
	exit(r);
}

static void keep_over_exec(int fd)
{
	fcntl(fd, F_SETFD, 0);
}

static _Noreturn void next_worker(struct supervisor *s, int socket)
{
	char descriptors[64];
	char *argv[] = {(char[]){"epochfs"},
			(char[]){"mount"},
			(char[]){"--worker"},
			descriptors,
			(char *)(uintptr_t)s->how->mountpoint,
			NULL};

	begin_worker(s, socket);
	keep_over_exec(socket);
	keep_over_exec(s->table_fd);
	keep_over_exec(s->arguments_fd);
	keep_over_exec(s->fuse_fd);
	snprintf(descriptors, sizeof(descriptors), "%d,%d,%d,%d", socket, s->table_fd,
		 s->arguments_fd, s->fuse_fd);
	/* A fault point that a test asked for struck the worker before. */
	fault_disarm_children();
	execv(s->own ? "/proc/self/exe" : s->program, argv);
	log_error("%s: %s", s->program, strerror(errno));
	_exit(EXIT_FAILED);
}

/* 0 or -errno. */
static int start_worker(struct supervisor *s)
{
	int ends[2], r = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	fflush(NULL);
	s->serves = false;
	s->begin_by_ns = s->fuse_fd >= 0 ? clock_mono_ns() + BEGIN_NS : INT64_MAX;
	s->socket = ends[0];
	s->pid = fork();
	if (s->pid == 0 && s->fuse_fd < 0)
		first_worker(s, ends[1]);
	if (s->pid == 0)
		next_worker(s, ends[1]);
	if (s->pid < 0)
		r = -errno;
	close(ends[1]);
	s->pid_fd = r < 0 ? -1 : pidfd_open(s->pid, 0);
	if (r == 0 && s->pid_fd < 0)
		r = -errno;
	if (r == 0)
		return 0;
	if (s->pid > 0) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
	}
	close_fd(&s->socket);
	return r;
}

/* ---- watching a worker ---- */

static bool hangs(const struct supervisor *s)
{
	struct pollfd end = {.fd = s->pid_fd, .events = POLLIN};

	for (int looks = 0; looks < HANG_LOOKS;) {
		if (poll(&end, 1, HANG_LOOK_MS) != 0)
			return false;
		looks = fs_waits_in_kernel(s->pid) ? looks + 1 : 0;
	}
	return true;
}

static void take_message(struct supervisor *s)
{
	cleanup_close int fd = -1;

	switch (fs_told(s->socket, &fd)) {
	case FS_TOLD_SERVES:
		s->serves = true;
		/* It knows nothing of what the one before it was told. */
		if (s->asked.first)
			fs_tell_end(s->socket, s->asked.hurry);
		if (s->fuse_fd < 0)
			s->fuse_fd = steal_fd(&fd);
		break;
	case FS_TOLD_LOG:
		if (s->how->background && fd >= 0 && s->restarts == 0) {
			int null = open("/dev/null", O_RDWR | O_CLOEXEC);

			dup2(null, STDIN_FILENO);
			dup2(null, STDOUT_FILENO);
			dup2(fd, STDERR_FILENO);
			close_fd(&null);
		}
		break;
	case FS_TOLD_DEAD:
		if (s->fuse_fd >= 0 && hangs(s))
			fs_refuse(s->fuse_fd, s->table_fd, s->pid_fd);
		break;
	case FS_TOLD_NOTHING:
		close_fd(&s->socket);
		break;
	}
}

static void take_signal(struct supervisor *s)
{
	end_signals_take(s->signal_fd, &s->asked);
	if (!s->asked.first)
		return;
	/* One that takes a mount over is told once it serves; the first one may end before. */
	if (s->serves && s->socket >= 0)
		fs_tell_end(s->socket, s->asked.hurry);
	else if (s->pid > 0 && s->fuse_fd < 0)
		kill(s->pid, s->asked.first);
}

static int poll_limit(const struct supervisor *s)
{
	int64_t left;

	if (s->serves || s->begin_by_ns == INT64_MAX)
		return -1;
	left = s->begin_by_ns - clock_mono_ns();
	return left > 0 ? (int)(left / NS_PER_MS) + 1 : 0;
}

/* Its watchdog ends the connection if it finds this end closed: so it must have looked before. */
static void hear_watchdog(struct supervisor *s)
{
	struct pollfd end = {.fd = s->socket, .events = POLLIN};

	while (s->socket >= 0 && poll(&end, 1, WATCHDOG_MS) > 0)
		take_message(s);
}

/* Until the worker has ended, and all it said is heard: its status as of wait(2). */
static int watch_worker(struct supervisor *s)
{
	int status = 0;

	for (;;) {
		struct pollfd fds[] = {{.fd = s->pid_fd, .events = POLLIN},
				       {.fd = s->signal_fd, .events = POLLIN},
				       {.fd = s->socket, .events = POLLIN}};
		int n = poll(fds, 3, poll_limit(s));

		if (n == 0) {
			log_error("%s: process %d did not begin to serve in time",
				  s->how->mountpoint, (int)s->pid);
			kill(s->pid, SIGKILL);
			s->begin_by_ns = INT64_MAX;
		}
		if (n <= 0)
			continue;
		if (fds[1].revents)
			take_signal(s);
		if (fds[2].revents)
			take_message(s);
		else if (fds[0].revents)
			break;
	}
	while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
		;
	hear_watchdog(s);
	close_fd(&s->pid_fd);
	close_fd(&s->socket);
	s->pid = 0;
	return status;
}

/* ---- what follows a worker ---- */

static bool connection_ended(const struct supervisor *s)
{
	struct pollfd end = {.fd = s->fuse_fd};

	return poll(&end, 1, 0) == 1 && end.revents & (POLLERR | POLLHUP);
}

static void put_end(char text[64], int status)
{
	if (WIFSIGNALED(status))
		snprintf(text, 64, "was killed by signal %d", WTERMSIG(status));
	else
		snprintf(text, 64, "ended with code %d before it served", WEXITSTATUS(status));
}

/* Whether there were too many lately, this one included. */
static bool note_death(struct supervisor *s)
{
	memmove(s->deaths + 1, s->deaths, sizeof(s->deaths) - sizeof(s->deaths[0]));
	s->since_ns = s->deaths[0] = clock_mono_ns();
	return s->deaths[DEATHS - 1] && s->deaths[0] - s->deaths[DEATHS - 1] < DEATHS_NS;
}

/* A worker of `pid` ended unasked. Whether another is to follow; `began` says that it had served. */
static bool another_follows(struct supervisor *s, pid_t pid, int status, bool began)
{
	char how[64];
	bool over;

	put_end(how, status);
	if (began)
		over = note_death(s);
	else
		over = clock_mono_ns() - s->since_ns >= BEGIN_NS;
	/* Asked to end, too: files may be open, and the mount is unmounted in order. */
	if (over) {
		log_error(
			"%s: process %d %s; %s, so the mount is dead: `epochfs mount` brings it back",
			s->how->mountpoint, (int)pid, how,
			began ? "the third in a minute" : "none could begin for a minute");
		return false;
	}
	log_warn("%s: process %d %s; another one goes on%s", s->how->mountpoint, (int)pid, how,
		 began || s->own ? "" : ", of the release that mounted this");
	if (!began && s->own)
		usleep(PAUSE_MS * 1000);
	s->own = !began;
	return true;
}

/* The worker ended: the exit code where that is the end of the mount, or -1 where another one is to be started. */
static int after_worker(struct supervisor *s, pid_t pid, int status)
{
	bool planned = WIFEXITED(status) && WEXITSTATUS(status) == FS_EXIT_RESTART;

	if (s->fuse_fd < 0 || connection_ended(s))
		return WIFEXITED(status) && !planned ? WEXITSTATUS(status) : EXIT_FAILED;
	if (WIFEXITED(status) && s->serves && !planned)
		return WEXITSTATUS(status);
	if (planned) {
		log_info("%s: process %d ended to be restarted", s->how->mountpoint, (int)pid);
		s->since_ns = clock_mono_ns();
		s->own = false;
		return -1;
	}
	return another_follows(s, pid, status, s->serves || WIFSIGNALED(status)) ? -1 : EXIT_FAILED;
}

static int run(struct supervisor *s)
{
	int ready = s->how->ready_fd, code = -1, r;

	while (code < 0) {
		pid_t pid;

		r = fs_table_note(s->table_fd, s->restarts);
		if (r == 0)
			r = start_worker(s);
		if (r < 0)
			return cli_error(EXIT_FAILED, "%s: cannot start a process: %s",
					 s->how->mountpoint, strerror(-r));
		/* Whoever waits for the first one must see its end. */
		close_fd(&ready);
		pid = s->pid;
		r = watch_worker(s);
		code = after_worker(s, pid, r);
		s->restarts++;
	}
	return code;
}

/* ---- the arguments ---- */

static int put_arguments(char *const *arguments)
{
	cleanup_buf struct buf text = {0};
	cleanup_close int fd = -1;
	int r;

	for (; *arguments; arguments++)
		buf_put(&text, *arguments, strlen(*arguments) + 1);
	if (buf_error(&text))
		return -ENOMEM;
	fd = memfd_create("epochfs-arguments", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = io_pwrite_full(fd, (const char *)text.data, text.len, 0);
	explicit_bzero(text.data, text.len);
	return r < 0 ? r : steal_fd(&fd);
}

static int get_arguments(int fd, int *ret_argc, char ***ret_argv)
{
	char *text, **argv;
	ssize_t len;
	int argc = 1;

	text = calloc(1, ARGUMENTS_MAX + 1);
	len = text ? io_pread_some(fd, text, ARGUMENTS_MAX, 0) : -ENOMEM;
	if (len < 0)
		return (int)len;
	argv = calloc((size_t)len + 2, sizeof(*argv));
	if (!argv)
		return -ENOMEM;
	argv[0] = (char *)(uintptr_t) "mount";
	for (char *p = text; p < text + len; p += strlen(p) + 1)
		argv[argc++] = p;
	*ret_argc = argc;
	*ret_argv = argv;
	return 0;
}

/* ---- both ends ---- */

static int open_signals(struct supervisor *s)
{
	sigprocmask(SIG_BLOCK, NULL, &s->before);
	return end_signals_open();
}

int supervise(const struct supervised *how)
{
	struct supervisor s = {.how = how, .fuse_fd = -1, .pid_fd = -1, .socket = -1};
	ssize_t len = readlink("/proc/self/exe", s.program, sizeof(s.program) - 1);
	int code;

	prctl(PR_SET_NAME, "epochfs-super");
	s.table_fd = len < 0 ? -errno : fs_table_make();
	s.arguments_fd = s.table_fd < 0 ? s.table_fd : put_arguments(how->arguments);
	s.signal_fd = s.arguments_fd < 0 ? s.arguments_fd : open_signals(&s);
	if (s.signal_fd < 0)
		return cli_error(EXIT_FAILED, "%s: cannot supervise: %s", how->mountpoint,
				 strerror(-s.signal_fd));
	code = run(&s);
	/* Where the mount is still there, its connection ends with this: programs get errors. */
	close_fd(&s.fuse_fd);
	close_fd(&s.signal_fd);
	close_fd(&s.arguments_fd);
	close_fd(&s.table_fd);
	return code;
}

int supervise_worker(const char *descriptors, struct fs_handover **ret_handover, int *ret_argc,
		     char ***ret_argv)
{
	int socket, table_fd, arguments_fd, fuse_fd, r;

	if (sscanf(descriptors, "%d,%d,%d,%d", &socket, &table_fd, &arguments_fd, &fuse_fd) != 4)
		return cli_usage_error("mount", "--worker is for epochfs itself");
	fcntl(socket, F_SETFD, FD_CLOEXEC);
	fcntl(table_fd, F_SETFD, FD_CLOEXEC);
	fcntl(fuse_fd, F_SETFD, FD_CLOEXEC);
	r = get_arguments(arguments_fd, ret_argc, ret_argv);
	close(arguments_fd);
	if (r == 0)
		r = fs_handover_new(socket, table_fd, fuse_fd, ret_handover);
	close(table_fd);
	if (r == -EPROTONOSUPPORT)
		return cli_error(
			EXIT_FAILED,
			"the epochfs that mounted this keeps its table otherwise than this one "
			"(%s): unmount, and mount again",
			EPOCHFS_VERSION);
	return r < 0 ? cli_error(EXIT_FAILED, "cannot go on with the mount: %s", strerror(-r))
		     : EXIT_DONE;
}

/* ---- epochfs restart: another process, of the program as it is installed now, goes on ---- */

#define LIMIT_NS (120 * NS_PER_S)
#define POLL_US	 20000

static json_int_t pid_in(const json_t *response)
{
	return json_integer_value(json_object_get(response, "pid"));
}

/* A request that the old process had taken in may fail; the next one reaches the new process. */
static int wait_for_another(const char *path, json_int_t before)
{
	int64_t deadline = clock_mono_ns() + LIMIT_NS;

	while (clock_mono_ns() < deadline) {
		json_t *status = NULL;
		json_int_t now = 0;

		if (client_ask(path, json_pack("{s:s}", "op", "status"), &status) == 0)
			now = pid_in(status);
		json_decref(status);
		if (now && now != before)
			return EXIT_DONE;
		if (!now && client_is_mount(path) < 0)
			break;
		usleep(POLL_US);
	}
	return cli_error(EXIT_FAILED, "%s: no new process serves the mount: its log says why",
			 path);
}

int command_restart(int argc, char **argv)
{
	static const struct cli_place none[] = {{0}};
	static const struct target_missing needs = {"a DIRECTORY", 0, 1};
	cleanup_free char *mount = NULL;
	json_t *response = NULL;
	json_int_t before;
	const char *path;
	int code, count, error;

	count = cli_parse("restart", argc, argv, none, &path, 1, &error);
	if (count < 0)
		return error;
	code = target_complete("restart", &needs, &path, &count, &mount);
	if (code != EXIT_DONE)
		return code;
	code = client_call(path, json_pack("{s:s}", "op", "restart"), &response);
	if (code != EXIT_DONE)
		return code;
	before = pid_in(response);
	json_decref(response);
	return wait_for_another(path, before);
}
