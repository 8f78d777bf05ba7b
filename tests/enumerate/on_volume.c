/* SPDX-License-Identifier: Apache-2.0 */
/* Histories on a volume in this process: the volume itself, its processes, and where a history begins and ends. The two
 * processes are children that only wait (volume_process.h). */
#include "lib/net/open.h"
#include "lib/live/live.h"
#include "tests/enumerate/volume_place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/epochs/epochs.h"

/* An edit is told from none by the file's time, where that is older than a tick of the clock. */
#define LONG_AGO_NS (1000000 * NS_PER_S)

/* What cannot be done has nothing to do with a history. */
#define must(call)                                                                                 \
	do {                                                                                       \
		int must_ = (int)(call);                                                           \
		if (must_ < 0)                                                                     \
			give_up("%s: %s", #call, strerror(-must_));                                \
	} while (0)

/* ---- the volume ---- */

static void volume_up(struct place *p)
{
	struct volume_options o;
	char *message = NULL;

	volume_options_init(&o);
	o.resume = RESUME_OFF;
	o.remote = p->url;
	o.cache_dir = p->cache;
	o.settle_ns = 24 * 3600 * NS_PER_S;
	o.patience_ns = 24 * 3600 * NS_PER_S;
	o.min_free_percent = 0;
	o.threads = 1;
	o.upload_ahead = 0;
	if (volume_open(&o, &p->vol, &message))
		give_up("volume_open: %s", message ? message : "");
	p->nodes = vnodes_new(p->vol, p->passthrough);
}

static void volume_down(struct place *p)
{
	volume_close(p->vol);
	vnodes_free(p->nodes);
}

/* Nothing gets to the remote. */
static void weather(struct place *p, bool bad)
{
	static const char faults[] = "put.error=1&only=packs/";

	if (bad)
		must(io_replace_file(AT_FDCWD, p->weather, faults, strlen(faults)));
	else
		unlink(p->weather);
}

static void remount(struct on *on, bool cold)
{
	struct place *p = place_of(on);

	if (cold && !p->durable) {
		weather(p, false);
		volume_down(p);
		volume_up(p);
	}
	if (cold)
		must(volume_finish(p->vol, true, NULL, NULL));
	volume_down(p);
	if (cold)
		must(io_remove_tree(AT_FDCWD, p->cache));
	volume_up(p);
	if (cold && !p->durable)
		weather(p, true);
}

static void close_place(struct on *on)
{
	struct place *p = place_of(on);

	for (unsigned i = 0; i < PROCESSES; i++) {
		vprocess_kill(&p->process[i]);
		waitpid(p->process[i].pid, NULL, 0);
		vprocess_gone(&p->process[i]);
	}
	volume_down(p);
	remote_close(p->remote);
	must(io_remove_tree(AT_FDCWD, p->dir_path));
	free(p->dir_path);
	free(p->cache);
	free(p->url);
	free(p->memory);
	free(p->weather);
	free(p);
}

/* ---- processes ---- */

static void process_start(struct place *p, unsigned who)
{
	must(vprocess_start(&p->process[who]));
	p->pid[who] = p->process[who].pid;
}

/* Elsewhere, and found by its end. */
void vplace_show(struct place *p, unsigned who)
{
	bool has = false;
	char dir[PATH_MAX];

	for (unsigned i = 0; i < HANDLES; i++) {
		const struct model_handle *h = &p->handle[i];

		has = has ||
		      (h->descriptors && p->shared[i] && h->who == who && h->op != OP_OPEN_READ);
	}
	snprintf(dir, sizeof(dir), "%s/d%u", p->dir_path, p->number);
	vprocess_show(&p->process[who], dir, has, p->maps && p->mapper == who);
}

void vplace_close(struct place *p, unsigned handle)
{
	vfile_release(p->file[handle]);
	p->file[handle] = NULL;
	p->handle[handle].descriptors = 0;
	p->shared[handle] = false;
}

void vplace_unmap(struct place *p)
{
	p->maps = false;
	vplace_show(p, p->mapper);
	if (p->mapping)
		vmapping_free(p->mapping);
	p->mapping = NULL;
}

void vplace_kill(struct place *p, unsigned who)
{
	siginfo_t info;

	vprocess_kill(&p->process[who]);
	waitid(P_PID, (id_t)p->pid[who], &info, WEXITED | WNOWAIT);
	for (unsigned i = 0; i < HANDLES; i++) {
		struct model_handle *h = &p->handle[i];

		if (!h->descriptors || h->who != who)
			continue;
		while (h->descriptors--)
			vfile_flush(p->file[i], p->pid[who]);
		vplace_close(p, i);
	}
	if (p->mapper == who)
		vplace_unmap(p);
	waitpid(p->pid[who], NULL, 0);
	vprocess_gone(&p->process[who]);
	process_start(p, who);
}

/* ---- histories ---- */

void vplace_save(struct place *p, uint64_t dir, const char *name, char letter, unsigned letters)
{
	const char *bytes = letter_bytes(letter, letters, p->on.unit);
	size_t len = (size_t)letters * p->on.unit;
	struct vfile *f;

	must(vfile_open(p->nodes, dir, name, O_WRONLY | O_CREAT | O_TRUNC, getpid(), &f));
	if (vfile_pwrite(f, bytes, len, 0) != (ssize_t)len)
		give_up("a file cannot be written");
	must(vfile_flush(f, getpid()));
	vfile_release(f);
}

static void make_old(struct place *p, uint64_t dir, const char *name)
{
	const struct live_change change = {.set = LIVE_SET_MTIME, .mtime_ns = LONG_AGO_NS};
	struct live_attr attr;

	must(live_lookup(p->vol, dir, name, 0, &attr));
	must(live_setattr(p->vol, attr.ino, attr.body, &change, &attr));
}

uint64_t vplace_seal(struct on *on)
{
	struct epochs_seal how = {.trigger = "commit"};
	struct place *p = place_of(on);
	uint64_t epoch = 0;

	must(epochs_seal(p->vol, &how, &epoch));
	if (p->durable)
		must(epochs_wait(p->vol, epoch, -1, NULL, NULL));
	return epoch;
}

static void prepare(struct on *on, unsigned first, unsigned count)
{
	struct place *p = place_of(on);
	struct live_caller who = {.uid = getuid(), .gid = getgid(), .pid = getpid()};

	for (unsigned i = first; i < first + count; i++) {
		struct live_attr attr;
		char name[32];

		snprintf(name, sizeof(name), "d%u", i);
		must(live_mkdir(p->vol, 1, name, 0755, &who, &attr));
		vplace_save(p, attr.ino, "a", 'x', BASE_LETTERS);
		vplace_save(p, attr.ino, "b", 'y', BASE_LETTERS);
		make_old(p, attr.ino, "a");
		make_old(p, attr.ino, "b");
	}
	p->base = vplace_seal(on);
}

static void clean(struct on *on, unsigned first, unsigned count)
{
	struct place *p = place_of(on);

	for (unsigned i = first; i < first + count; i++) {
		struct live_attr attr;
		char name[32];

		snprintf(name, sizeof(name), "d%u", i);
		must(live_lookup(p->vol, 1, name, 0, &attr));
		live_unlink(p->vol, attr.ino, "a");
		live_unlink(p->vol, attr.ino, "b");
		must(live_rmdir(p->vol, 1, name));
	}
}

static void begin(struct on *on, unsigned number, bool rolls_back)
{
	struct place *p = place_of(on);
	struct live_attr attr;
	char name[32];

	snprintf(name, sizeof(name), "d%u", number);
	must(live_lookup(p->vol, 1, name, 0, &attr));
	p->number = number;
	p->dir = attr.ino;
	if (rolls_back)
		p->base = vplace_seal(on);
	memset(p->handle, 0, sizeof(p->handle));
}

static uint64_t base(struct on *on)
{
	return place_of(on)->base;
}

static void end(struct on *on)
{
	struct place *p = place_of(on);

	for (unsigned i = 0; i < HANDLES; i++) {
		if (!p->file[i])
			continue;
		p->handle[i].descriptors = 0;
		vplace_show(p, p->handle[i].who);
		vfile_flush(p->file[i], p->pid[p->handle[i].who]);
		vplace_close(p, i);
	}
	vplace_unmap(p);
}

struct on *on_volume(const char *dir, bool passthrough, bool durable, unsigned unit)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->passthrough = passthrough;
	p->durable = durable;
	p->on = (struct on){.contract = true,
			    .evicts = durable,
			    .waits_for_shared = true,
			    .unit = unit,
			    .prepare = prepare,
			    .clean = clean,
			    .begin = begin,
			    .act = vplace_act,
			    .stat_handle = vplace_stat_handle,
			    .stat_name = vplace_stat_name,
			    .read_handle = vplace_read_handle,
			    .read_name = vplace_read_name,
			    .end = end,
			    .base = base,
			    .next_epoch = vplace_next_epoch,
			    .read_epoch = vplace_read_epoch,
			    .seal = vplace_seal,
			    .remount = remount,
			    .close = close_place};
	if (asprintf(&p->dir_path, "%s/enumerate-XXXXXX", dir) < 0 || !mkdtemp(p->dir_path))
		give_up("%s: %s", dir, strerror(errno));
	if (asprintf(&p->cache, "%s/cache", p->dir_path) < 0 ||
	    asprintf(&p->weather, "%s/weather", p->dir_path) < 0 ||
	    asprintf(&p->memory, "memory:%s", p->dir_path + strlen(dir) + 1) < 0 ||
	    asprintf(&p->url, "fault+%s?control=%s", p->memory, p->weather) < 0)
		abort();
	must(remote_open(p->memory, &p->remote));
	log_set_level(LOG_LEVEL_ERROR);
	volume_up(p);
	if (!durable)
		weather(p, true);
	for (unsigned i = 0; i < PROCESSES; i++)
		process_start(p, i);
	return &p->on;
}
