/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs mount: opens the volume, mounts it, and serves it in the background. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/mount.h"
#include "lib/cache/cache_dir.h"
#include "lib/metrics/address.h"
#include "lib/metrics/server.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/end_signals.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"
#include "lib/volume/volume.h"
#include "tools/cli.h"
#include "tools/job.h"
#include "tools/mount_options.h"
#include "tools/mountpoint.h"
#include "tools/supervise.h"
#include "tools/target.h"

/* What the serving process needs to tell the one that was started: its end of a pipe, one byte with the exit code. */
struct served {
	struct mount_options *options;
	const char *mountpoint; /* absolute */
	char **arguments;	/* of the command, with that */
	struct volume *vol;
	struct metrics_server *metrics; /* NULL: none */
	int ready_fd;			/* -1 in the foreground */
	bool goes_on;			/* the mount is there, of a worker that died */
	int log_fd;
};

/* While another writer's lease is waited for: the command that was started was interrupted. */
static bool starter_gone(void *arg)
{
	const struct served *s = arg;
	struct pollfd end = {.fd = s->ready_fd};

	return s->ready_fd >= 0 && poll(&end, 1, 0) == 1 && (end.revents & POLLERR);
}

/* stdout and stdin lead nowhere from now on; stderr and the log go to the log file. */
static void detach_output(struct served *s)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		close(null);
	}
	if (s->log_fd >= 0)
		dup2(s->log_fd, STDERR_FILENO);
}

/* Whoever started it was interrupted meanwhile: then nobody knows of the mount. */
static bool on_ready(void *arg)
{
	struct served *s = arg;
	uint8_t code = EXIT_DONE;
	bool wanted;

	if (s->ready_fd < 0)
		return true;
	detach_output(s);
	wanted = !starter_gone(s) && write(s->ready_fd, &code, 1) == 1;
	if (!wanted)
		log_warn("%s: the command that started this mount is gone: it ends", s->mountpoint);
	close(s->ready_fd);
	s->ready_fd = -1;
	return wanted;
}

static int open_log(struct served *s)
{
	const char *path = s->options->log_file;
	char standard[PATH_MAX];

	if (s->ready_fd < 0 && !path)
		return EXIT_DONE;
	if (!path) {
		snprintf(standard, sizeof(standard), "%s/log", volume_cache_path(s->vol));
		path = standard;
	}
	s->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (s->log_fd < 0)
		return cli_error(EXIT_FAILED, "%s: cannot open the log file: %s", path,
				 strerror(errno));
	if (s->ready_fd < 0)
		log_set_fd(s->log_fd);
	return EXIT_DONE;
}

/* A mount that is there is not given up for want of metrics. */
static int start_metrics(struct served *s)
{
	cleanup_free char *message = NULL;
	int error;

	if (!s->options->metrics)
		return EXIT_DONE;
	error = metrics_server_start(s->vol, s->options->metrics, &s->metrics, &message);
	if (error && s->goes_on)
		log_warn("%s", message ? message : strerror(-error));
	return error && !s->goes_on
		       ? cli_error(EXIT_FAILED, "%s", message ? message : strerror(-error))
		       : EXIT_DONE;
}

/* Until unmounted. The exit code; where the kernel is not done with this process, it ends here. */
static int serve_mounted(struct served *s, struct fs_mount *mount)
{
	int error, code = start_metrics(s);

	if (code != EXIT_DONE)
		return code;
	error = fs_serve(mount, on_ready, s);
	if (error == -ERESTART)
		_exit(FS_EXIT_RESTART);
	if (error == -EBUSY) {
		/* The next mount recovers them. */
		log_warn("%s: cut off while files were open", s->mountpoint);
		_exit(EXIT_FAILED);
	}
	metrics_server_stop(s->metrics);
	return error ? EXIT_FAILED : EXIT_DONE;
}

/* Opens, mounts, serves until unmounted. The exit code. */
static int serve(struct served *s, const char *mountpoint)
{
	cleanup_free char *message = NULL;
	struct fs_mount *mount = NULL;
	int error, code;

	memory_set_up();
	if (s->options->fs.handover)
		fs_handover_survivors(s->options->fs.handover, &s->options->volume);
	if (s->goes_on)
		end_signals_block();
	s->options->volume.mountpoint = mountpoint;
	mount_options_tell(s->options);
	s->options->volume.give_up = starter_gone;
	s->options->volume.give_up_arg = s;
	error = volume_open(&s->options->volume, &s->vol, &message);
	if (error)
		return cli_error(exit_code_of(error), "%s", message ? message : strerror(-error));
	end_signals_block();
	code = s->goes_on ? EXIT_DONE : mountpoint_uncover(mountpoint, s->options->nonempty);
	if (code == EXIT_DONE)
		code = open_log(s);
	if (code == EXIT_DONE) {
		error = fs_mount(s->vol, mountpoint, &s->options->fs, &mount, &message);
		if (error)
			code = cli_error(exit_code_of(error) == EXIT_USAGE ? EXIT_FAILED
									   : exit_code_of(error),
					 "%s", message ? message : strerror(-error));
	}
	/* What is open stays so, for the next worker. */
	if (code != EXIT_DONE && s->options->volume.survivors_count)
		_exit(code);
	if (code == EXIT_DONE) {
		code = serve_mounted(s, mount);
		fs_unmount(mount);
	}
	volume_close(s->vol);
	return code;
}

/* Of the socket or file with the metrics; NULL: it has no path. */
static const char *metrics_path(const struct mount_options *o)
{
	struct metrics_address address;

	return o->metrics && metrics_address_parse(o->metrics, &address) == 0 ? address.path : NULL;
}

/* Nothing that serving the mount takes may lie in it. */
static int check_places(const struct mount_options *o, const char *mountpoint)
{
	cleanup_buf struct buf cache = {0};
	int code = EXIT_DONE;

	if (volume_cache_root(&o->volume, &cache) == 0)
		code = mountpoint_check_outside(mountpoint, "cache directory", buf_str(&cache));
	if (code == EXIT_DONE && o->log_file)
		code = mountpoint_check_outside(mountpoint, "log file", o->log_file);
	if (code == EXIT_DONE && o->volume.catalog_db)
		code = mountpoint_check_outside(mountpoint, "catalog", o->volume.catalog_db);
	if (code == EXIT_DONE && metrics_path(o))
		code = mountpoint_check_outside(mountpoint, "metrics", metrics_path(o));
	return code;
}

/* Serves, and says how it went to whoever still waits for that. */
static int serve_and_tell(struct served *s)
{
	int code = serve(s, s->mountpoint);

	if (s->ready_fd >= 0) {
		uint8_t byte = (uint8_t)code;

		if (write(s->ready_fd, &byte, 1) < 0)
			code = EXIT_FAILED;
	}
	return code;
}

static int first_worker(void *arg, struct fs_handover *handover)
{
	struct served *s = arg;
	int code;

	s->options->fs.handover = handover;
	code = serve_and_tell(s);
	mount_options_free(s->options);
	return code;
}

/* Serves in this process, or under it. */
static int serve_here(struct served *s)
{
	struct supervised how = {.mountpoint = s->mountpoint,
				 .background = s->ready_fd >= 0,
				 .ready_fd = s->ready_fd,
				 .arguments = s->arguments,
				 .first = first_worker,
				 .arg = s};

	return s->options->supervise ? supervise(&how) : serve_and_tell(s);
}

/* In the child: a session of its own, then serve. Never returns. */
static void run_daemon(struct served *s)
{
	int code;

	setsid();
	job_restore_signals();
	/* The command that started this may be gone when it is told. */
	signal(SIGPIPE, SIG_IGN);
	if (chdir("/") < 0)
		_exit(EXIT_FAILED);
	code = serve_here(s);
	mount_options_free(s->options);
	exit(code);
}

/* Starts the child and waits until it serves or has failed. */
static int serve_in_background(struct served *s)
{
	uint8_t code = EXIT_FAILED;
	int pipes[2];
	ssize_t n;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return cli_error(EXIT_FAILED, "cannot make a pipe: %s", strerror(errno));
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return cli_error(EXIT_FAILED, "cannot start a process: %s", strerror(errno));
	if (pid == 0) {
		close(pipes[0]);
		s->ready_fd = pipes[1];
		run_daemon(s);
	}
	close(pipes[1]);
	/* `epochfs run` was interrupted: nobody wants the mount any more. */
	if (!job_wait_readable(pipes[0]))
		kill(pid, SIGTERM);
	do
		n = read(pipes[0], &code, 1);
	while (n < 0 && errno == EINTR);
	close(pipes[0]);
	if (n != 1) {
		int status = 0;

		waitpid(pid, &status, 0);
		if (job_interrupted())
			return cli_error(EXIT_FAILED, "%s: interrupted before it was mounted",
					 s->mountpoint);
		return cli_error(EXIT_FAILED,
				 "%s: the mount process ended before it served (%s %d)",
				 s->mountpoint, WIFSIGNALED(status) ? "signal" : "exit code",
				 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	return code;
}

struct arguments {
	bool foreground, take_over, help_all;
	const char *options; /* all of -o; NULL: none */
	const char *operands[2];
};

/* False: the end has come, with this code. */
static bool parse_arguments(int argc, char **argv, struct arguments *a, int *ret_code)
{
	const struct cli_place places[] = {{"foreground", &a->foreground, NULL},
					   {"options", NULL, &a->options},
					   {"take-over", &a->take_over, NULL},
					   {"help-all", &a->help_all, NULL},
					   {0}};
	int count = cli_parse("mount", argc, argv, places, a->operands, 2, ret_code);

	if (count >= 0 && a->help_all) {
		mount_help_all();
		*ret_code = EXIT_DONE;
		return false;
	}
	if (count >= 0 && count < 2)
		*ret_code = cli_usage_error("mount", "needs a REMOTE and a DIRECTORY");
	return count == 2;
}

/* What stands on the command line wins over the environment. */
static int take_arguments(const struct arguments *a, struct mount_options *o)
{
	int code = a->options ? mount_options_parse(o, a->options) : EXIT_DONE;

	o->volume.take_over |= a->take_over;
	return code == EXIT_DONE ? mount_options_nodes(o) : code;
}

/* A worker after the first of a supervised mount, which is there. */
static int command_worker(char **argv)
{
	struct mount_options options;
	struct served served = {.options = &options, .ready_fd = -1, .log_fd = -1, .goes_on = true};
	struct arguments a = {0};
	char **before = argv;
	int argc, code;

	mount_options_init(&options);
	code = supervise_worker(argv[2], &options.fs.handover, &argc, &argv);
	/* First the environment: the worker before it made the path of a key in it absolute. */
	if (code == EXIT_DONE)
		code = mount_options_environment(&options);
	if (code == EXIT_DONE && parse_arguments(argc, argv, &a, &code))
		code = take_arguments(&a, &options);
	if (code == EXIT_DONE) {
		options.volume.remote = a.operands[0];
		/* From whoever took the lease since, it is not taken back. */
		options.volume.take_over = false;
		served.mountpoint = a.operands[1];
		code = serve(&served, served.mountpoint);
	}
	fs_handover_free(options.fs.handover);
	mount_options_free(&options);
	if (argv != before) {
		free(argv[1]);
		free(argv);
	}
	return code;
}

/*
 * The arguments, with remote and mount point as paths from /, the latter without symlinks, after what the configuration said: it may be another when a worker is started again. Free
 * the list.
 */
static char **arguments_with(int argc, char **argv, const char *const operands[2],
			     const char *const places[2], const char *configured)
{
	char **arguments = calloc((size_t)argc + 2, sizeof(*arguments)), **next = arguments;

	if (arguments && *configured) {
		*next++ = (char *)(uintptr_t) "-o";
		*next++ = (char *)(uintptr_t)configured;
	}
	for (int i = 1; arguments && i < argc; i++, next++) {
		*next = argv[i];
		for (int k = 0; k < 2; k++)
			if (argv[i] == operands[k])
				*next = (char *)(uintptr_t)places[k];
	}
	return arguments;
}

/* With options that are complete. */
static int mount_there(struct served *s, int argc, char **argv, const char *const operands[2],
		       bool foreground)
{
	char remote[PATH_MAX], mountpoint[PATH_MAX];
	const char *places[2] = {NULL, mountpoint}, *configured;
	bool makes = access(operands[1], F_OK) < 0 && errno == ENOENT;
	int code = target_remote(operands[0], remote, &places[0]);

	if (code == EXIT_DONE)
		code = mountpoint_prepare(operands[1], places[0], s->options->nonempty, mountpoint);
	if (code != EXIT_DONE)
		return code;
	code = check_places(s->options, mountpoint);
	s->options->volume.remote = places[0];
	s->mountpoint = mountpoint;
	configured = mount_options_configured(s->options);
	s->arguments = configured ? arguments_with(argc, argv, operands, places, configured) : NULL;
	if (!s->arguments)
		code = cli_error(EXIT_FAILED, "out of memory");
	if (code == EXIT_DONE)
		code = foreground ? serve_here(s) : serve_in_background(s);
	if (code != EXIT_DONE && makes)
		rmdir(mountpoint);
	free(s->arguments);
	return code;
}

int command_mount(int argc, char **argv)
{
	struct mount_options options;
	struct served served = {.options = &options, .ready_fd = -1, .log_fd = -1};
	struct arguments a = {0};
	int code;

	if (argc > 2 && !strcmp(argv[1], "--worker"))
		return command_worker(argv);
	if (!parse_arguments(argc, argv, &a, &code))
		return code;
	mount_options_init(&options);
	/* After the arguments, which may name a key (cli_parse). */
	code = mount_options_defaults(&options, a.operands[0]);
	if (code == EXIT_DONE)
		code = take_arguments(&a, &options);
	if (code == EXIT_DONE)
		code = mount_options_check(&options);
	if (code == EXIT_DONE)
		code = mount_there(&served, argc, argv, a.operands, a.foreground);
	mount_options_free(&options);
	return code;
}
