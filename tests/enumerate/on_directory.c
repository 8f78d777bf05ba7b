/* SPDX-License-Identifier: Apache-2.0 */
/* Histories on a directory, by two real processes: of a mount, or of any file system. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/enumerate/worker.h"

struct place {
	struct on on;
	const char *path;
	struct worker worker[PROCESSES];
	unsigned number, epochs_made;
	uint64_t base;
	/* Of each handle. */
	unsigned descriptors[HANDLES], who[HANDLES];
	bool mapped;
	unsigned mapper; /* whose mapping it is */
};

static struct place *place_of(struct on *on)
{
	return (struct place *)on;
}

/* Where it works, which is no descriptor that keeps a mount. */
static void workers_start(struct place *p)
{
	if (chdir(p->path) < 0)
		give_up("%s: %s", p->path, strerror(errno));
	for (unsigned i = 0; i < PROCESSES; i++)
		worker_start(&p->worker[i], p->on.unit);
}

static void workers_stop(struct place *p)
{
	for (unsigned i = 0; i < PROCESSES; i++)
		worker_kill(&p->worker[i]);
	if (chdir("/") < 0)
		give_up("/: %s", strerror(errno));
}

static void path_of(char path[64], unsigned number, unsigned name)
{
	snprintf(path, 64, "d%u/%c", number, 'a' + name);
}

/* Who started this program does it, and answers with a line. */
static void ask_starter(const char *what)
{
	char line[16];

	printf("%s\n", what);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		give_up("nobody answers: %s", what);
}

/* ---- epochs ---- */

/* As mkdir .epochs/NAME does it. */
static uint64_t seal(struct on *on)
{
	struct place *p = place_of(on);
	char path[64], target[64];
	ssize_t n;

	snprintf(path, sizeof(path), ".epochs/e-%d-%u", (int)getpid(), p->epochs_made++);
	if (mkdir(path, 0755) < 0)
		give_up("%s: %s", path, strerror(errno));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		give_up("%s: %s", path, strerror(errno));
	target[n] = '\0';
	return strtoull(target, NULL, 10);
}

/* As ln -sfn does it. */
static int roll_back(const struct place *p)
{
	static const char made[] = ".epochs/CuEnumer";
	char target[32];

	snprintf(target, sizeof(target), "%llu", (unsigned long long)p->base);
	if (symlink(target, made) < 0 || rename(made, ".epochs/current") < 0)
		return -errno;
	return 0;
}

static uint64_t base(struct on *on)
{
	return place_of(on)->base;
}

static uint64_t next_epoch(struct on *on, uint64_t after)
{
	char path[64];
	struct stat st;

	(void)on;
	snprintf(path, sizeof(path), ".epochs/%06llu", (unsigned long long)after + 1);
	return stat(path, &st) == 0 ? after + 1 : 0;
}

/* ---- histories ---- */

static int save(const char *path, char letter, unsigned letters, unsigned unit)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t n = fd < 0 ? -1 : write(fd, letter_bytes(letter, letters, unit), letters * unit);

	if (n < 0 || close(fd) < 0)
		return -errno;
	return n == (ssize_t)(letters * unit) ? 0 : -EIO;
}

static void make_old(const char *path)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000}};

	if (utimensat(AT_FDCWD, path, times, 0) < 0)
		give_up("%s: %s", path, strerror(errno));
}

static void prepare(struct on *on, unsigned first, unsigned count)
{
	struct place *p = place_of(on);
	char path[64];

	for (unsigned i = first; i < first + count; i++) {
		snprintf(path, sizeof(path), "d%u", i);
		if (mkdir(path, 0755) < 0)
			give_up("%s: %s", path, strerror(errno));
		for (unsigned n = 0; n < NAMES; n++) {
			path_of(path, i, n);
			if (save(path, (char)('x' + n), BASE_LETTERS, on->unit))
				give_up("%s: %s", path, strerror(errno));
			make_old(path);
		}
	}
	if (on->contract)
		p->base = seal(on);
}

static void clean(struct on *on, unsigned first, unsigned count)
{
	char path[64];

	(void)on;
	for (unsigned i = first; i < first + count; i++) {
		for (unsigned n = 0; n < NAMES; n++) {
			path_of(path, i, n);
			unlink(path);
		}
		snprintf(path, sizeof(path), "d%u", i);
		if (rmdir(path) < 0)
			give_up("%s: %s", path, strerror(errno));
	}
}

static void begin(struct on *on, unsigned number, bool rolls_back)
{
	struct place *p = place_of(on);

	p->number = number;
	memset(p->descriptors, 0, sizeof(p->descriptors));
	p->mapped = false;
	if (rolls_back && on->contract)
		p->base = seal(on);
}

static void ask(struct place *p, unsigned who, const struct ask *question, struct seen *ret_seen)
{
	worker_ask(&p->worker[who], question, ret_seen);
}

static void act_open(struct place *p, const struct step *s, struct seen *ret_seen)
{
	struct ask question = {.kind = ASK_STEP, .step = *s};

	while (p->descriptors[question.handle])
		question.handle++;
	path_of(question.path, p->number, s->name);
	ask(p, s->who, &question, ret_seen);
	if (ret_seen->error)
		return;
	p->descriptors[question.handle] = 1;
	p->who[question.handle] = s->who;
}

static void act_handle(struct place *p, const struct step *s, unsigned k, struct seen *ret_seen)
{
	struct ask question = {.kind = ASK_STEP, .step = *s, .k = k};

	if (s->op == OP_COPY)
		path_of(question.path, p->number, COPY_NAME);
	ask(p, p->who[s->handle], &question, ret_seen);
	if (s->op == OP_MAP_KEEP) {
		p->mapped = true;
		p->mapper = p->who[s->handle];
	}
	if (s->op == OP_DUP)
		p->descriptors[s->handle]++;
	if (s->op == OP_CLOSE)
		p->descriptors[s->handle]--;
}

static void act_map(struct place *p, const struct step *s, unsigned k, struct seen *ret_seen)
{
	const struct ask question = {.kind = ASK_STEP, .step = *s, .k = k};

	ask(p, p->mapper, &question, ret_seen);
	p->mapped = p->mapped && s->op != OP_UNMAP;
}

static int act_name(const struct place *p, const struct step *s, unsigned k)
{
	char name[64], other[64];
	int r;

	path_of(name, p->number, s->name);
	path_of(other, p->number, 1u - s->name);
	switch (s->op) {
	case OP_RENAME:
		return rename(name, other) < 0 ? -errno : 0;
	case OP_LINK:
		return link(name, other) < 0 ? -errno : 0;
	case OP_UNLINK:
		return unlink(name) < 0 ? -errno : 0;
	default:
		snprintf(other, sizeof(other), "d%u/other", p->number);
		r = save(other, (char)('a' + k), REPLACE_LETTERS, p->on.unit);
		return r ? r : rename(other, name) < 0 ? -errno : 0;
	}
}

static void act_kill(struct place *p, unsigned who)
{
	worker_kill(&p->worker[who]);
	worker_start(&p->worker[who], p->on.unit);
	for (unsigned i = 0; i < HANDLES; i++)
		if (p->who[i] == who)
			p->descriptors[i] = 0;
	p->mapped = p->mapped && p->mapper != who;
}

static void act(struct on *on, const struct step *s, unsigned k, struct seen *ret_seen)
{
	struct place *p = place_of(on);

	*ret_seen = (struct seen){0};
	if (op_opens(s->op))
		act_open(p, s, ret_seen);
	else if (op_handles(s->op))
		act_handle(p, s, k, ret_seen);
	else if (op_maps(s->op))
		act_map(p, s, k, ret_seen);
	else if (op_names(s->op))
		ret_seen->error = -act_name(p, s, k);
	else if (s->op == OP_COMMIT)
		ret_seen->epoch = seal(on);
	else if (s->op == OP_ROLLBACK)
		ret_seen->error = -roll_back(p);
	else if (s->op == OP_EVICT)
		ask_starter("evict");
	else
		act_kill(p, s->who);
}

static void end(struct on *on)
{
	struct place *p = place_of(on);
	struct seen seen;

	for (unsigned i = 0; i < HANDLES; i++)
		while (p->descriptors[i])
			act_handle(p, &(struct step){.op = OP_CLOSE, .handle = (uint8_t)i}, 0,
				   &seen);
	if (p->mapped)
		act_map(p, &(struct step){.op = OP_UNMAP}, 0, &seen);
}

/* ---- looks ---- */

static void look_at_handle(struct place *p, enum ask_kind kind, unsigned handle,
			   struct seen *ret_seen)
{
	const struct ask question = {.kind = kind, .step = {.handle = (uint8_t)handle}};

	ask(p, p->who[handle], &question, ret_seen);
}

static void stat_handle(struct on *on, unsigned handle, struct seen *ret_seen)
{
	look_at_handle(place_of(on), ASK_STAT_HANDLE, handle, ret_seen);
}

static void read_handle(struct on *on, unsigned handle, struct seen *ret_seen)
{
	look_at_handle(place_of(on), ASK_READ_HANDLE, handle, ret_seen);
}

static void stat_name(struct on *on, unsigned who, unsigned name, struct seen *ret_seen)
{
	struct place *p = place_of(on);
	struct ask question = {.kind = ASK_STAT_NAME};

	path_of(question.path, p->number, name);
	if (who < PROCESSES) {
		ask(p, who, &question, ret_seen);
		return;
	}
	*ret_seen = (struct seen){0};
	ret_seen->error = -stat_path(question.path, ret_seen);
}

static void read_path(const char *path, unsigned unit, struct seen *ret_seen)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	*ret_seen = (struct seen){.error = fd < 0 ? errno : 0};
	if (fd < 0)
		return;
	ret_seen->error = -read_descriptor(fd, unit, ret_seen);
	close(fd);
}

static void read_name(struct on *on, unsigned number, unsigned name, struct seen *ret_seen)
{
	char path[64];

	path_of(path, number, name);
	read_path(path, on->unit, ret_seen);
}

static void read_epoch(struct on *on, uint64_t epoch, unsigned number, unsigned name,
		       struct seen *ret_seen)
{
	char path[128];

	snprintf(path, sizeof(path), ".epochs/%06llu/d%u/%c", (unsigned long long)epoch, number,
		 'a' + name);
	read_path(path, on->unit, ret_seen);
}

static void remount(struct on *on, bool cold)
{
	struct place *p = place_of(on);

	workers_stop(p);
	ask_starter(cold ? "remount cold" : "remount warm");
	workers_start(p);
}

static void close_place(struct on *on)
{
	workers_stop(place_of(on));
	free(on);
}

struct on *on_directory(const char *dir, bool mount, bool remounts, bool evicts, unsigned unit)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->path = dir;
	p->on = (struct on){.contract = mount,
			    .evicts = evicts,
			    .asynchronous = true,
			    .unit = unit,
			    .prepare = prepare,
			    .clean = clean,
			    .begin = begin,
			    .act = act,
			    .stat_handle = stat_handle,
			    .stat_name = stat_name,
			    .read_handle = read_handle,
			    .read_name = read_name,
			    .end = end,
			    .base = base,
			    .next_epoch = next_epoch,
			    .read_epoch = read_epoch,
			    .seal = seal,
			    .remount = remounts ? remount : NULL,
			    .close = close_place};
	workers_start(p);
	return &p->on;
}
