/* SPDX-License-Identifier: Apache-2.0 */
/* What bodies say of themselves, and to whom they say it together: sizes, names, who writes. */
#include "lib/live/bodies.h"
#include "lib/meta/rules.h"
#include "lib/util/io.h"

#include <stdio.h>
#include <string.h>

void body_attr_locked(const struct body *b, struct live_attr *attr)
{
	struct stat st;

	if (!b->staged || fstat(b->fd, &st) < 0)
		return;
	attr->size = (uint64_t)st.st_size;
	attr->blocks = (uint64_t)st.st_blocks;
	attr->mtime_ns = stat_mtime(&st);
	if (stat_ctime(&st) > attr->ctime_ns)
		attr->ctime_ns = stat_ctime(&st);
}

struct name_search {
	struct volume *vol;
	char *name;
	uint64_t parent;
};

static int found_log(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	struct name_search *s = arg;

	(void)n;
	(void)f;
	return rules_log(s->vol->rules, name, NULL) ? 1 : 0;
}

bool file_is_log_locked(struct volume *vol, uint64_t ino)
{
	struct name_search s = {.vol = vol};

	return state_names_of(vol->state, ino, found_log, &s) == 1;
}

bool body_is_log_locked(struct volume *vol, struct body *b)
{
	if (!b->is_log && b->writers && b->append_only &&
	    clock_mono_ns() - b->opened_ns > vol->options.patience_ns)
		b->is_log = true;
	return b->is_log;
}

static int found_name(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	struct name_search *s = arg;

	(void)f;
	snprintf(s->name, 256, "%s", name);
	s->parent = n->parent;
	return 1;
}

void first_name_locked(struct volume *vol, uint64_t ino, char ret_name[256], uint64_t *ret_parent)
{
	struct name_search s = {.name = ret_name};

	ret_name[0] = '\0';
	state_names_of(vol->state, ino, found_name, &s);
	if (ret_parent)
		*ret_parent = s.parent;
}

int bodies_each_writing_locked(struct volume *vol, int (*fn)(void *arg, struct body *b), void *arg)
{
	for (size_t i = 0; i < BODY_BUCKETS; i++) {
		for (struct body *b = vol->bodies->by_id[i], *next; b; b = next) {
			int result;

			next = b->next_by_id;
			if (b->discarded || (!b->staged && !b->writers))
				continue;
			body_is_log_locked(vol, b);
			result = fn(arg, b);
			if (result)
				return result;
		}
	}
	return 0;
}

pid_t body_opener_locked(const struct body *b)
{
	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (h->writes && h->tgid)
			return h->tgid;
	return 0;
}

bool body_is_fragile_new_locked(struct volume *vol, const struct state_file *f)
{
	struct body *b = body_of_file_locked(vol, f);

	return b && b->staged && b->fragile && !f->closed && !b->orphan;
}

static bool ends_with(const char *name, const char *end)
{
	size_t len = strlen(name), end_len = strlen(end);

	return len > end_len && !strcmp(name + len - end_len, end);
}

bool file_endures_kill(int fd, const char *name)
{
	static const char *const endings[] = {"-wal", "-journal", "-shm", ".ldb", ".sst", NULL};
	static const char *const names[] = {"lock.mdb", "CURRENT", "LOCK", "LOG", NULL};
	static const char sqlite[] = "SQLite format 3";
	static const uint8_t lmdb[] = {0xde, 0xc0, 0xef, 0xbe};
	uint8_t head[20] = {0};

	for (unsigned i = 0; endings[i]; i++)
		if (ends_with(name, endings[i]))
			return true;
	for (unsigned i = 0; names[i]; i++)
		if (!strcmp(name, names[i]))
			return true;
	if (!strncmp(name, "MANIFEST-", 9))
		return true;
	return io_pread_some(fd, head, sizeof(head), 0) == sizeof(head) &&
	       (!memcmp(head, sqlite, sizeof(sqlite)) || !memcmp(head + 16, lmdb, sizeof(lmdb)));
}
