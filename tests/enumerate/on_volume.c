/* SPDX-License-Identifier: Apache-2.0 */
/* Histories on a volume in this process. Its two processes are children that only wait: the volume asks
 * what became of them. */
#include "tests/enumerate/on.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/volume/epochs.h"
#include "lib/volume/evict.h"
#include "tests/enumerate/volume_files.h"

/* An edit is told from none by the file's time, where that is older than a tick of the clock. */
#define LONG_AGO_NS (1000000 * NS_PER_S)

struct place {
	struct on on;
	char *dir_path, *cache, *memory, *url, *weather;
	bool passthrough, durable;
	struct remote *remote; /* a memory remote is there as long as somebody has it open */
	struct volume *vol;
	struct vnodes *nodes;
	pid_t pid[PROCESSES];
	unsigned number; /* of the history */
	uint64_t dir, base;
	struct vfile *file[HANDLES];
	struct vmapping *mapping;
	unsigned mapper;		     /* whose it is */
	struct model_handle handle[HANDLES]; /* descriptors, who, op; at: in letters */
};

static struct place *place_of(struct on *on)
{
	return (struct place *)on;
}

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
		kill(p->pid[i], SIGKILL);
		waitpid(p->pid[i], NULL, 0);
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
	pid_t parent = getpid();

	p->pid[who] = fork();
	if (p->pid[who] < 0)
		give_up("fork: %s", strerror(errno));
	if (p->pid[who])
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Nothing of the volume is kept open, its lock least of all. */
	close_range(0, ~0u, 0);
	if (getppid() != parent)
		_exit(0);
	for (;;)
		pause();
}

static void close_one(struct place *p, unsigned handle)
{
	vfile_release(p->file[handle]);
	p->file[handle] = NULL;
	p->handle[handle].descriptors = 0;
}

static void unmap(struct place *p)
{
	if (p->mapping)
		vmapping_free(p->mapping);
	p->mapping = NULL;
}

/* It dies, and as it does its descriptors are closed; it is gone after that. */
static void process_kill(struct place *p, unsigned who)
{
	siginfo_t info;

	kill(p->pid[who], SIGKILL);
	waitid(P_PID, (id_t)p->pid[who], &info, WEXITED | WNOWAIT);
	for (unsigned i = 0; i < HANDLES; i++) {
		struct model_handle *h = &p->handle[i];

		if (!h->descriptors || h->who != who)
			continue;
		while (h->descriptors--)
			vfile_flush(p->file[i], p->pid[who]);
		close_one(p, i);
	}
	if (p->mapper == who)
		unmap(p);
	waitpid(p->pid[who], NULL, 0);
	process_start(p, who);
}

/* ---- histories ---- */

static void save(struct place *p, uint64_t dir, const char *name, char letter, unsigned letters)
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

static uint64_t seal(struct on *on)
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
		save(p, attr.ino, "a", 'x', BASE_LETTERS);
		save(p, attr.ino, "b", 'y', BASE_LETTERS);
		make_old(p, attr.ino, "a");
		make_old(p, attr.ino, "b");
	}
	p->base = seal(on);
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
		p->base = seal(on);
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
		vfile_flush(p->file[i], p->pid[p->handle[i].who]);
		close_one(p, i);
	}
	unmap(p);
}

/* ---- steps ---- */

static const char *name_text(unsigned name)
{
	static const char *const names[NAMES] = {"a", "b"};

	return names[name];
}

static int open_flags(uint8_t op)
{
	switch (op) {
	case OP_OPEN_READ:
		return O_RDONLY;
	case OP_OPEN_WRITE:
		return O_RDWR | O_CREAT;
	case OP_OPEN_DIRECT:
		return O_RDWR | O_CREAT | O_DIRECT;
	case OP_OPEN_APPEND:
		return O_WRONLY | O_APPEND | O_CREAT;
	default:
		return O_WRONLY | O_TRUNC | O_CREAT;
	}
}

static int act_open(struct place *p, const struct step *s)
{
	unsigned i = 0;
	int r;

	while (p->file[i])
		i++;
	r = vfile_open(p->nodes, p->dir, name_text(s->name), open_flags(s->op), p->pid[s->who],
		       &p->file[i]);
	if (!r)
		p->handle[i] = (struct model_handle){.descriptors = 1, .who = s->who, .op = s->op};
	return r;
}

static int read_file(struct place *p, struct vfile *f, struct seen *ret_seen)
{
	static char data[LETTERS_MAX * UNIT_MAX] __attribute__((aligned(UNIT_MAX)));
	ssize_t n = vfile_pread(f, data, sizeof(data), 0);

	if (n >= 0)
		seen_letters(ret_seen, data, (size_t)n, p->on.unit);
	return n < 0 ? (int)n : 0;
}

static int act_close(struct place *p, unsigned handle)
{
	struct model_handle *h = &p->handle[handle];
	int r = vfile_flush(p->file[handle], p->pid[h->who]);

	if (!--h->descriptors)
		close_one(p, handle);
	return r;
}

static int act_write(struct place *p, unsigned handle, unsigned k)
{
	const char *bytes = letter_bytes((char)('A' + k), WRITE_LETTERS, p->on.unit);
	struct model_handle *h = &p->handle[handle];
	size_t len = (size_t)WRITE_LETTERS * p->on.unit;
	ssize_t n = vfile_pwrite(p->file[handle], bytes, len, (uint64_t)h->at * p->on.unit);

	h->at += WRITE_LETTERS;
	return n < 0 ? (int)n : (size_t)n == len ? 0 : -EIO;
}

/* What the kernel and fs/ make of copy_file_range: a read, and a write. */
static int act_copy(struct place *p, unsigned handle)
{
	static char data[COPY_LETTERS * UNIT_MAX] __attribute__((aligned(UNIT_MAX)));
	unsigned unit = p->on.unit;
	struct vfile *from;
	ssize_t n;
	int r = vfile_open(p->nodes, p->dir, name_text(COPY_NAME), O_RDONLY,
			   p->pid[p->handle[handle].who], &from);

	if (r)
		return r;
	n = vfile_pread(from, data, (size_t)COPY_LETTERS * unit, 0);
	if (n > 0)
		n = vfile_pwrite(p->file[handle], data, (size_t)n, (uint64_t)COPY_AT * unit);
	vfile_flush(from, p->pid[p->handle[handle].who]);
	vfile_release(from);
	return n < 0 ? (int)n : 0;
}

static int act_extended(struct place *p, const struct step *s)
{
	struct vfile *f = p->file[s->handle];
	unsigned unit = p->on.unit;

	switch (s->op) {
	case OP_PREALLOCATE:
		return vfile_fallocate(f, 0, 0, (uint64_t)ALLOCATE_LETTERS * unit);
	case OP_PUNCH:
		return vfile_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				       (uint64_t)PUNCH_AT * unit, unit);
	case OP_COPY:
		return act_copy(p, s->handle);
	default: /* OP_MAP_KEEP */
		if (!p->on.patient && !vfile_is_direct(f))
			return -EAGAIN;
		p->mapper = p->handle[s->handle].who;
		return vmapping_new(f, unit, &p->mapping);
	}
}

static int act_map(struct place *p, const struct step *s, unsigned k)
{
	if (s->op == OP_STORE)
		return vmapping_store(p->mapping, letter_bytes((char)('0' + k), 1, p->on.unit));
	unmap(p);
	return 0;
}

static int act_handle(struct place *p, const struct step *s, unsigned k, struct seen *ret_seen)
{
	struct vfile *f = p->file[s->handle];
	unsigned unit = p->on.unit;

	switch (s->op) {
	case OP_DUP:
		p->handle[s->handle].descriptors++;
		return 0;
	case OP_CLOSE:
		return act_close(p, s->handle);
	case OP_READ:
		return read_file(p, f, ret_seen);
	case OP_WRITE:
		return act_write(p, s->handle, k);
	case OP_TRUNCATE:
		return vfile_truncate(f, (uint64_t)TRUNCATE_LETTERS * unit);
	case OP_MAP:
		return vfile_map_write(f, letter_bytes((char)('0' + k), 1, unit), unit);
	case OP_FSYNC:
		return vfile_fsync(f);
	default:
		return act_extended(p, s);
	}
}

static int act_replace(struct place *p, unsigned name, unsigned k)
{
	save(p, p->dir, "other", (char)('a' + k), REPLACE_LETTERS);
	return live_rename(p->vol, p->dir, "other", p->dir, name_text(name), 0);
}

static int act_name(struct place *p, const struct step *s, unsigned k)
{
	const char *name = name_text(s->name), *other = name_text(1u - s->name);
	struct live_attr attr;
	int r;

	switch (s->op) {
	case OP_RENAME:
		return live_rename(p->vol, p->dir, name, p->dir, other, 0);
	case OP_LINK:
		r = live_lookup(p->vol, p->dir, name, p->pid[0], &attr);
		return r ? r : live_link(p->vol, attr.ino, p->dir, other, &attr);
	case OP_UNLINK:
		return live_unlink(p->vol, p->dir, name);
	default:
		return act_replace(p, s->name, k);
	}
}

static int act_evict(struct place *p)
{
	uint64_t size = p->vol->options.cache_size;

	p->vol->options.cache_size = 1;
	evictor_make_room(p->vol, 0);
	p->vol->options.cache_size = size;
	return 0;
}

static int act_rollback(struct place *p)
{
	uint64_t epoch;
	int r = epochs_rollback(p->vol, p->base, &epoch);

	return r || !p->durable ? r : epochs_wait(p->vol, epoch, -1, NULL, NULL);
}

static void act(struct on *on, const struct step *s, unsigned k, struct seen *ret_seen)
{
	struct place *p = place_of(on);
	int r = 0;

	*ret_seen = (struct seen){0};
	if (op_opens(s->op))
		r = act_open(p, s);
	else if (op_handles(s->op))
		r = act_handle(p, s, k, ret_seen);
	else if (op_maps(s->op))
		r = act_map(p, s, k);
	else if (op_names(s->op))
		r = act_name(p, s, k);
	else if (s->op == OP_COMMIT)
		ret_seen->epoch = seal(on);
	else if (s->op == OP_ROLLBACK)
		r = act_rollback(p);
	else if (s->op == OP_EVICT)
		r = act_evict(p);
	else
		process_kill(p, s->who);
	ret_seen->skipped = s->op == OP_MAP_KEEP && r == -EAGAIN;
	ret_seen->error = -r;
}

/* ---- looks ---- */

static void stat_handle(struct on *on, unsigned handle, struct seen *ret_seen)
{
	int64_t size = vfile_size(place_of(on)->file[handle]);

	*ret_seen = (struct seen){.error = size < 0 ? (int)-size : 0,
				  .size = size < 0 ? 0 : (uint64_t)size};
}

static void stat_name(struct on *on, unsigned who, unsigned name, struct seen *ret_seen)
{
	struct place *p = place_of(on);
	struct live_attr attr = {0};
	int r = live_lookup(p->vol, p->dir, name_text(name),
			    who < PROCESSES ? p->pid[who] : getpid(), &attr);

	*ret_seen = (struct seen){.error = -r, .size = attr.size, .links = attr.nlink};
}

static void read_handle(struct on *on, unsigned handle, struct seen *ret_seen)
{
	struct place *p = place_of(on);

	*ret_seen = (struct seen){0};
	ret_seen->error = -read_file(p, p->file[handle], ret_seen);
}

static void read_name(struct on *on, unsigned number, unsigned name, struct seen *ret_seen)
{
	struct place *p = place_of(on);
	struct live_attr attr;
	struct vfile *f;
	char dir[32];
	int r;

	*ret_seen = (struct seen){0};
	snprintf(dir, sizeof(dir), "d%u", number);
	r = live_lookup(p->vol, 1, dir, 0, &attr);
	if (!r)
		r = vfile_open(p->nodes, attr.ino, name_text(name), O_RDONLY, getpid(), &f);
	if (!r) {
		r = read_file(p, f, ret_seen);
		vfile_release(f);
	}
	ret_seen->error = -r;
}

static int take_number(void *arg, uint64_t number, int64_t sealed_ns)
{
	(void)sealed_ns;
	*(uint64_t *)arg = number;
	return 1;
}

static uint64_t next_epoch(struct on *on, uint64_t after)
{
	uint64_t number = 0;

	epochs_numbers(place_of(on)->vol, after, take_number, &number);
	return number;
}

static int read_entry(struct place *p, const struct tree_entry *e, struct seen *ret_seen)
{
	static char data[LETTERS_MAX * UNIT_MAX];
	struct content *c = NULL;
	ssize_t n = 0;
	int r = e->size ? content_get_entry(p->vol, e, "a history", &c) : 0;

	if (r)
		return r;
	while (c && (uint64_t)n < e->size) {
		ssize_t more = content_read(c, data + n, sizeof(data) - (size_t)n, (uint64_t)n,
					    NULL, NULL);

		if (more <= 0) {
			r = more < 0 ? (int)more : -EIO;
			break;
		}
		n += more;
	}
	content_put(c);
	if (!r)
		seen_letters(ret_seen, data, (size_t)n, p->on.unit);
	return r;
}

static void read_epoch(struct on *on, uint64_t epoch, unsigned number, unsigned name,
		       struct seen *ret_seen)
{
	struct place *p = place_of(on);
	cleanup_tree struct tree *t = NULL;
	struct tree_entry e;
	char path[64];
	uint32_t id;
	int r = epochs_tree(p->vol, epoch, &t);

	*ret_seen = (struct seen){0};
	snprintf(path, sizeof(path), "d%u/%s", number, name_text(name));
	if (!r)
		r = tree_resolve(t, path, &id);
	if (!r) {
		tree_get(t, id, &e);
		r = read_entry(p, &e, ret_seen);
	}
	ret_seen->error = -r;
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
