/* SPDX-License-Identifier: Apache-2.0 */
/* Children that wait, and show what they have open. They come of a process with threads, so they call what signal handlers may. */
#include "tests/enumerate/volume_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/enumerate/history.h"

#define LEN 4096

struct order {
	bool has, maps;
	char path[NAMES][256];
};

/* ---- the child ---- */

static void obey(const struct order *o)
{
	static void *map[NAMES];

	close_range(STDOUT_FILENO + 1, ~0u, 0);
	for (unsigned i = 0; i < NAMES; i++) {
		int fd = o->has || o->maps ? open(o->path[i], O_RDWR | O_CREAT, 0600) : -1;

		if (map[i])
			munmap(map[i], LEN);
		map[i] = o->maps ? mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0) : NULL;
		if (fd >= 0 && !o->has)
			close(fd);
	}
}

static void wait_for_orders(pid_t parent)
{
	struct order o;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	while (read(STDIN_FILENO, &o, sizeof(o)) == sizeof(o)) {
		obey(&o);
		if (write(STDOUT_FILENO, "d", 1) != 1)
			break;
	}
	_exit(0);
}

/* ---- its parent ---- */

int vprocess_start(struct vprocess *v)
{
	pid_t parent = getpid();
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return -errno;
	v->pid = fork();
	if (v->pid < 0)
		return -errno;
	if (!v->pid) {
		/* Nothing of the volume is kept open, its lock least of all. */
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		close_range(STDOUT_FILENO + 1, ~0u, 0);
		wait_for_orders(parent);
	}
	close(in[0]);
	close(out[1]);
	*v = (struct vprocess){.pid = v->pid, .orders = in[1], .answers = out[0]};
	return 0;
}

void vprocess_kill(struct vprocess *v)
{
	kill(v->pid, SIGKILL);
	v->has = v->maps = false;
}

void vprocess_gone(struct vprocess *v)
{
	close(v->orders);
	close(v->answers);
}

void vprocess_show(struct vprocess *v, const char *dir, bool has, bool maps)
{
	static const char *const names[NAMES] = {"a", "b"};
	struct order o = {.has = has, .maps = maps};
	char answer;

	if (v->has == has && v->maps == maps)
		return;
	mkdir(dir, 0700);
	for (unsigned i = 0; i < NAMES; i++)
		snprintf(o.path[i], sizeof(o.path[i]), "%s/%s", dir, names[i]);
	if (write(v->orders, &o, sizeof(o)) != sizeof(o) || read(v->answers, &answer, 1) != 1)
		abort();
	v->has = has;
	v->maps = maps;
}
