/* SPDX-License-Identifier: Apache-2.0 */
/* What a history has made of a volume in this process, as handles, names and epochs show it. */
#include "tests/enumerate/volume_place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "lib/cache/content.h"
#include "lib/epochs/epochs.h"
#include "lib/live/live.h"

void vplace_stat_handle(struct on *on, unsigned handle, struct seen *ret_seen)
{
	int64_t size = vfile_size(place_of(on)->file[handle]);

	*ret_seen = (struct seen){.error = size < 0 ? (int)-size : 0,
				  .size = size < 0 ? 0 : (uint64_t)size};
}

void vplace_stat_name(struct on *on, unsigned who, unsigned name, struct seen *ret_seen)
{
	struct place *p = place_of(on);
	struct live_attr attr = {0};
	int r = live_lookup(p->vol, p->dir, vplace_name(name),
			    who < PROCESSES ? p->pid[who] : getpid(), &attr);

	*ret_seen = (struct seen){.error = -r, .size = attr.size, .links = attr.nlink};
}

void vplace_read_handle(struct on *on, unsigned handle, struct seen *ret_seen)
{
	struct place *p = place_of(on);

	*ret_seen = (struct seen){0};
	ret_seen->error = -vplace_read(p, p->file[handle], ret_seen);
}

void vplace_read_name(struct on *on, unsigned number, unsigned name, struct seen *ret_seen)
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
		r = vfile_open(p->nodes, attr.ino, vplace_name(name), O_RDONLY, getpid(), &f);
	if (!r) {
		r = vplace_read(p, f, ret_seen);
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

uint64_t vplace_next_epoch(struct on *on, uint64_t after)
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

void vplace_read_epoch(struct on *on, uint64_t epoch, unsigned number, unsigned name,
		       struct seen *ret_seen)
{
	struct place *p = place_of(on);
	cleanup_tree struct tree *t = NULL;
	struct tree_entry e;
	char path[64];
	uint32_t id;
	int r = epochs_tree(p->vol, epoch, &t);

	*ret_seen = (struct seen){0};
	snprintf(path, sizeof(path), "d%u/%s", number, vplace_name(name));
	if (!r)
		r = tree_resolve(t, path, &id);
	if (!r) {
		tree_get(t, id, &e);
		r = read_entry(p, &e, ret_seen);
	}
	ret_seen->error = -r;
}
