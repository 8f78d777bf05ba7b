/* SPDX-License-Identifier: Apache-2.0 */
/* Processes are children that only wait: the engine asks /proc what became of them. */
#include "tests/protocols/place.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/epochs/epochs.h"
#include "lib/live/live.h"
#include "lib/net/open.h"
#include "lib/remote/remote.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/volume/volume.h"
#include "tests/enumerate/volume_files.h"
#include "tests/protocols/clock.h"
#include "tests/protocols/place_look.h"

#define PROCESSES   64
#define DESCRIPTORS 64
#define ROOT	    1

/* What one open(2) made: several descriptors may stand for it. */
struct open_file {
	struct vfile *file;
	unsigned descriptors;
	uint64_t at;
	bool appends;
};

struct process {
	char name[16]; /* "": none */
	pid_t pid;
	int order; /* a pipe: the byte that is written there is its exit status */
	struct open_file *fd[DESCRIPTORS];
};

struct place {
	char *dir, *cache, *memory;
	bool passthrough;
	struct remote *remote; /* a memory remote is there as long as somebody has it open */
	struct volume *vol;
	struct vnodes *nodes;
	struct process process[PROCESSES];
};

static void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(2);
}

/* What cannot be done has nothing to do with a protocol. */
static void must(int result, const char *what)
{
	if (result < 0)
		give_up("%s: %s", what, strerror(-result));
}

/* ---- the volume ---- */

struct place *place_new(const char *dir, bool passthrough)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->passthrough = passthrough;
	if (asprintf(&p->dir, "%s/protocol-XXXXXX", dir) < 0 || !mkdtemp(p->dir))
		give_up("%s: %s", dir, strerror(errno));
	if (asprintf(&p->cache, "%s/cache", p->dir) < 0 ||
	    asprintf(&p->memory, "memory:%s", p->dir + strlen(dir) + 1) < 0)
		abort();
	must(remote_open(p->memory, &p->remote), p->memory);
	log_set_level(LOG_LEVEL_ERROR);
	return p;
}

void place_free(struct place *p)
{
	remote_close(p->remote);
	must(io_remove_tree(AT_FDCWD, p->dir), p->dir);
	free(p->dir);
	free(p->cache);
	free(p->memory);
	free(p);
}

void place_up(struct place *p, const struct place_options *options)
{
	struct volume_options o;
	char *message = NULL;

	volume_options_init(&o);
	o.remote = p->memory;
	o.cache_dir = p->cache;
	o.settle_ns = options->settle_ns;
	o.patience_ns = options->patience_ns;
	o.by_saves = true;
	o.resume = options->resume ? RESUME_ALWAYS : RESUME_KNOWN;
	o.min_free_percent = 0;
	o.threads = 1;
	o.upload_ahead = 0;
	if (volume_open(&o, &p->vol, &message))
		give_up("volume_open: %s", message ? message : "");
	p->nodes = vnodes_new(p->vol, p->passthrough);
}

void place_down(struct place *p, bool in_order, bool cold)
{
	place_kill_all(p);
	if (in_order)
		must(volume_finish(p->vol, true, NULL, NULL), "volume_finish");
	volume_close(p->vol);
	vnodes_free(p->nodes);
	p->vol = NULL;
	if (cold)
		must(io_remove_tree(AT_FDCWD, p->cache), p->cache);
}

void place_upload(struct place *p)
{
	uint64_t last = 0;

	for (uint64_t number; (number = look_next_epoch(p->vol, last));)
		last = number;
	if (last)
		must(epochs_wait(p->vol, last, -1, NULL, NULL), "epochs_wait");
}

void place_look(struct place *p, const char *what, FILE *out)
{
	/* Who looks was started after all that happened. */
	struct look l = {p->vol, p->nodes, p->remote, place_pid(p, "look"), what};

	look_at(&l, out);
	place_kill(p, "look");
}

uint64_t place_latest(struct place *p)
{
	return epochs_latest(p->vol);
}

/* ---- processes ---- */

static void child(int order, pid_t parent)
{
	unsigned char status = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Nothing of the volume is kept open, its lock least of all. */
	if (dup2(order, 0) < 0)
		_exit(1);
	close_range(1, ~0u, 0);
	if (getppid() != parent)
		_exit(1);
	while (read(0, &status, 1) < 0 && errno == EINTR)
		;
	_exit(status);
}

static void process_start(struct process *pr, const char *name)
{
	pid_t parent = getpid();
	int pipe_fd[2];

	if (pipe2(pipe_fd, O_CLOEXEC) < 0)
		give_up("pipe: %s", strerror(errno));
	*pr = (struct process){.order = pipe_fd[1]};
	snprintf(pr->name, sizeof(pr->name), "%s", name);
	pr->pid = fork();
	if (pr->pid < 0)
		give_up("fork: %s", strerror(errno));
	if (!pr->pid)
		child(pipe_fd[0], parent);
	close(pipe_fd[0]);
	clock_process_started(pr->pid);
}

static struct process *process_find(struct place *p, const char *name)
{
	for (unsigned i = 0; i < PROCESSES; i++)
		if (!strcmp(p->process[i].name, name))
			return &p->process[i];
	return NULL;
}

static struct process *process_get(struct place *p, const char *name)
{
	struct process *pr = process_find(p, name);

	if (pr)
		return pr;
	pr = process_find(p, "");
	if (!pr)
		give_up("too many processes");
	process_start(pr, name);
	return pr;
}

pid_t place_pid(struct place *p, const char *name)
{
	return process_get(p, name)->pid;
}

static struct open_file *file_of(struct place *p, const char *who, unsigned fd)
{
	struct process *pr = process_find(p, who);

	return pr && fd < DESCRIPTORS ? pr->fd[fd] : NULL;
}

/* One descriptor is closed by a process, which may be dead. */
static int descriptor_close(struct process *pr, unsigned fd)
{
	struct open_file *f = pr->fd[fd];
	int r = vfile_flush(f->file, pr->pid);

	pr->fd[fd] = NULL;
	if (--f->descriptors)
		return r;
	vfile_release(f->file);
	free(f);
	return r;
}

/* It is a zombie while its descriptors are closed, as the kernel does it. */
static void process_end(struct process *pr)
{
	siginfo_t info;

	waitid(P_PID, (id_t)pr->pid, &info, WEXITED | WNOWAIT);
	for (unsigned fd = 0; fd < DESCRIPTORS; fd++)
		if (pr->fd[fd])
			descriptor_close(pr, fd);
	waitpid(pr->pid, NULL, 0);
	close(pr->order);
	pr->name[0] = '\0';
}

int place_kill(struct place *p, const char *who)
{
	struct process *pr = process_find(p, who);

	if (!pr)
		return 0;
	kill(pr->pid, SIGKILL);
	process_end(pr);
	return 0;
}

void place_kill_all(struct place *p)
{
	/* All are dead before the first descriptor is closed, as where a job is killed. */
	for (unsigned i = 0; i < PROCESSES; i++)
		if (p->process[i].name[0])
			kill(p->process[i].pid, SIGKILL);
	for (unsigned i = 0; i < PROCESSES; i++)
		if (p->process[i].name[0])
			process_end(&p->process[i]);
}

int place_exit(struct place *p, const char *who, int status)
{
	struct process *pr = process_get(p, who);
	unsigned char byte = (unsigned char)status;

	if (write(pr->order, &byte, 1) != 1)
		return -errno;
	process_end(pr);
	return 0;
}

int place_fork(struct place *p, const char *who, const char *name)
{
	struct process *pr = process_get(p, who), *born;

	if (process_find(p, name))
		return -EEXIST;
	born = process_get(p, name);
	for (unsigned fd = 0; fd < DESCRIPTORS; fd++) {
		born->fd[fd] = pr->fd[fd];
		if (born->fd[fd])
			born->fd[fd]->descriptors++;
	}
	return 0;
}

/* ---- names ---- */

/* The directory of a path, and its last name, which points into the path. */
static int walk(struct place *p, const char *path, uint64_t *ret_dir, const char **ret_name)
{
	const char *slash;
	int r;

	*ret_dir = ROOT;
	while ((slash = strchr(path, '/'))) {
		struct live_attr attr;
		char name[256];

		snprintf(name, sizeof(name), "%.*s", (int)(slash - path), path);
		r = live_lookup(p->vol, *ret_dir, name, 1, &attr);
		if (r)
			return r;
		*ret_dir = attr.ino;
		path = slash + 1;
	}
	*ret_name = path;
	return 0;
}

static struct live_caller caller(struct place *p, const char *who)
{
	return (struct live_caller){.uid = getuid(), .gid = getgid(), .pid = place_pid(p, who)};
}

int place_mkdir(struct place *p, const char *who, const char *path)
{
	struct live_caller by = caller(p, who);
	struct live_attr attr;
	const char *name;
	uint64_t dir;
	int r = walk(p, path, &dir, &name);

	return r ? r : live_mkdir(p->vol, dir, name, 0755, &by, &attr);
}

int place_remove(struct place *p, const char *who, const char *path, bool directory)
{
	const char *name;
	uint64_t dir;
	int r = walk(p, path, &dir, &name);

	(void)who;
	if (r)
		return r;
	return directory ? live_rmdir(p->vol, dir, name) : live_unlink(p->vol, dir, name);
}

int place_rename(struct place *p, const char *who, const char *from, const char *to, bool exchange)
{
	struct live_caller by = caller(p, who);
	const char *name, *new_name;
	uint64_t dir, new_dir;
	int r = walk(p, from, &dir, &name);

	if (!r)
		r = walk(p, to, &new_dir, &new_name);
	if (r)
		return r;
	return live_rename(p->vol, dir, name, new_dir, new_name, exchange ? RENAME_EXCHANGE : 0,
			   &by);
}

int place_link(struct place *p, const char *who, const char *from, const char *to)
{
	struct live_caller by = caller(p, who);
	const char *name, *new_name;
	uint64_t dir, new_dir;
	struct live_attr attr;
	int r = walk(p, from, &dir, &name);

	if (!r)
		r = walk(p, to, &new_dir, &new_name);
	if (!r)
		r = live_lookup(p->vol, dir, name, by.pid, &attr);
	return r ? r : live_link(p->vol, attr.ino, new_dir, new_name, &by, &attr);
}

int place_symlink(struct place *p, const char *who, const char *target, const char *path)
{
	struct live_caller by = caller(p, who);
	struct live_attr attr;
	const char *name;
	uint64_t dir;
	int r = walk(p, path, &dir, &name);

	return r ? r : live_symlink(p->vol, dir, name, target, &by, &attr);
}

int place_sync(struct place *p)
{
	return live_sync(p->vol);
}

int place_touch(struct place *p, const char *who, const char *path, bool mode)
{
	struct live_change change = {.set = mode ? LIVE_SET_MODE : LIVE_SET_MTIME,
				     .mode = 0644,
				     .pid = place_pid(p, who)};
	struct live_attr attr;
	const char *name;
	uint64_t dir;
	int r = walk(p, path, &dir, &name);

	if (!r)
		r = live_lookup(p->vol, dir, name, change.pid, &attr);
	change.mtime_ns = clock_wall_ns();
	return r ? r : live_setattr(p->vol, attr.ino, attr.body, &change, &attr);
}

/* ---- open files ---- */

int place_open(struct place *p, const char *who, unsigned fd, const char *path, int flags)
{
	struct process *pr = process_get(p, who);
	struct open_file *f;
	const char *name;
	uint64_t dir;
	int r = walk(p, path, &dir, &name);

	if (r)
		return r;
	if (fd >= DESCRIPTORS || pr->fd[fd])
		return -EBADF;
	f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	r = vfile_open(p->nodes, dir, name, flags, pr->pid, &f->file);
	if (r) {
		free(f);
		return r;
	}
	f->descriptors = 1;
	f->appends = flags & O_APPEND;
	pr->fd[fd] = f;
	return 0;
}

int place_write(struct place *p, const char *who, unsigned fd, const void *data, size_t len,
		uint64_t offset)
{
	struct open_file *f = file_of(p, who, fd);
	bool here = offset == UINT64_MAX;
	ssize_t n;

	if (!f)
		return -EBADF;
	if (f->appends)
		f->at = (uint64_t)vfile_size(f->file);
	n = vfile_pwrite(f->file, data, len, here ? f->at : offset);
	if (n < 0)
		return (int)n;
	if (here)
		f->at += (size_t)n;
	return (size_t)n == len ? 0 : -EIO;
}

int place_truncate(struct place *p, const char *who, unsigned fd, uint64_t size)
{
	struct open_file *f = file_of(p, who, fd);

	return f ? vfile_truncate(f->file, size) : -EBADF;
}

int place_fsync(struct place *p, const char *who, unsigned fd)
{
	struct open_file *f = file_of(p, who, fd);

	return f ? vfile_fsync(f->file) : -EBADF;
}

int place_close(struct place *p, const char *who, unsigned fd)
{
	struct process *pr = process_find(p, who);

	return pr && fd < DESCRIPTORS && pr->fd[fd] ? descriptor_close(pr, fd) : -EBADF;
}
