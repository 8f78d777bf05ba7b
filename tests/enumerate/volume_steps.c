/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a history on a volume in this process. */
#include "tests/enumerate/volume_place.h"

#include <errno.h>
#include <fcntl.h>
#include "lib/epochs/epochs.h"
#include "lib/cache/evict.h"
#include "lib/live/live.h"

const char *vplace_name(unsigned name)
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
	r = vfile_open(p->nodes, p->dir, vplace_name(s->name), open_flags(s->op), p->pid[s->who],
		       &p->file[i]);
	if (!r)
		p->handle[i] = (struct model_handle){.descriptors = 1, .who = s->who, .op = s->op};
	return r;
}

int vplace_read(struct place *p, struct vfile *f, struct seen *ret_seen)
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
	int r;

	/* As the kernel does: no process has it any more when its close is told. */
	h->descriptors--;
	vplace_show(p, h->who);
	r = vfile_flush(p->file[handle], p->pid[h->who]);
	if (!h->descriptors)
		vplace_close(p, handle);
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
	int r = vfile_open(p->nodes, p->dir, vplace_name(COPY_NAME), O_RDONLY,
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
		p->maps = !vfile_is_direct(f);
		vplace_show(p, p->mapper);
		return vmapping_new(f, unit, &p->mapping);
	}
}

static int act_map(struct place *p, const struct step *s, unsigned k)
{
	if (s->op == OP_STORE)
		return vmapping_store(p->mapping, letter_bytes((char)('0' + k), 1, p->on.unit));
	vplace_unmap(p);
	return 0;
}

static int act_handle(struct place *p, const struct step *s, unsigned k, struct seen *ret_seen)
{
	struct vfile *f = p->file[s->handle];
	unsigned unit = p->on.unit;

	switch (s->op) {
	case OP_DUP:
		p->handle[s->handle].descriptors++;
		p->shared[s->handle] = true;
		vplace_show(p, p->handle[s->handle].who);
		return 0;
	case OP_CLOSE:
		return act_close(p, s->handle);
	case OP_READ:
		return vplace_read(p, f, ret_seen);
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
	vplace_save(p, p->dir, "other", (char)('a' + k), REPLACE_LETTERS);
	return live_rename(p->vol, p->dir, "other", p->dir, vplace_name(name), 0, NULL);
}

static int act_name(struct place *p, const struct step *s, unsigned k)
{
	const char *name = vplace_name(s->name), *other = vplace_name(1u - s->name);
	struct live_attr attr;
	int r;

	switch (s->op) {
	case OP_RENAME:
		return live_rename(p->vol, p->dir, name, p->dir, other, 0, NULL);
	case OP_LINK:
		r = live_lookup(p->vol, p->dir, name, p->pid[0], &attr);
		return r ? r : live_link(p->vol, attr.ino, p->dir, other, NULL, &attr);
	case OP_UNLINK:
		return live_unlink(p->vol, p->dir, name);
	default:
		return act_replace(p, s->name, k);
	}
}

/* All that may go, as for a file that is larger than the disk: the options are the evictor's thread's, too. */
static int act_evict(struct place *p)
{
	evictor_make_room(p->vol, UINT64_MAX / 2);
	return 0;
}

static int act_rollback(struct place *p)
{
	uint64_t epoch;
	int r = epochs_rollback(p->vol, p->base, &epoch);

	return r || !p->durable ? r : epochs_wait(p->vol, epoch, -1, NULL, NULL);
}

void vplace_act(struct on *on, const struct step *s, unsigned k, struct seen *ret_seen)
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
		ret_seen->epoch = vplace_seal(on);
	else if (s->op == OP_ROLLBACK)
		r = act_rollback(p);
	else if (s->op == OP_EVICT)
		r = act_evict(p);
	else
		vplace_kill(p, s->who);
	ret_seen->skipped = s->op == OP_MAP_KEEP && r == -EAGAIN;
	ret_seen->error = -r;
}
