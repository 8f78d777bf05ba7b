/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies: the table of content lineages that are open, and what they say of themselves. */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "lib/cache/reclaim.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

/* ---- the table ---- */

static bool uses_version_locked(struct volume *vol, uint64_t version)
{
	struct state_version v;
	int error = state_version_get(vol->state, version, &v);

	if (error)
		return error != -ENOENT;
	for (struct body *b = body_of_ino_locked(vol, v.ino); b; b = body_next_of_ino_locked(b))
		if (b->version == version || b->base == version)
			return true;
	return false;
}

int bodies_new(struct volume *vol)
{
	struct bodies *bodies = calloc(1, sizeof(*bodies));
	int error;

	if (!bodies)
		return -ENOMEM;
	error = cond_init_mono(&bodies->deferred_wake);
	if (error) {
		free(bodies);
		return error;
	}
	vol->bodies = bodies;
	vol->uses_version_locked = uses_version_locked;
	return 0;
}

void bodies_free(struct bodies *b)
{
	if (!b)
		return;
	map_free(&b->by_id);
	map_free(&b->by_ino);
	map_free(&b->savers);
	pthread_cond_destroy(&b->deferred_wake);
	free(b);
}

struct body *body_find_locked(struct volume *vol, uint64_t id)
{
	return body_by_id(map_find(&vol->bodies->by_id, id));
}

struct body *body_of_file_locked(struct volume *vol, const struct state_file *f)
{
	struct body *b = body_find_locked(vol, f->body);

	return b && b->ino == f->ino && !b->pending ? b : NULL;
}

struct body *body_pending_locked(struct volume *vol, uint64_t ino)
{
	if (!vol->bodies->pending)
		return NULL;
	for (struct body *b = body_of_ino_locked(vol, ino); b; b = body_next_of_ino_locked(b))
		if (b->pending)
			return b;
	return NULL;
}

struct body *body_pending_for_locked(struct volume *vol, uint64_t ino, pid_t pid)
{
	struct body *b = body_pending_locked(vol, ino);
	pid_t tgid;

	if (!b || !pid)
		return NULL;
	tgid = process_of(pid);
	for (; b && tgid; b = body_next_of_ino_locked(b))
		if (b->pending && body_member_locked(b, tgid, false))
			return b;
	return NULL;
}

struct member *body_member_locked(struct body *b, pid_t tgid, bool add)
{
	struct member *m = b->members;

	while (m && m->tgid != tgid)
		m = m->next;
	if (m || !add)
		return m;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->tgid = tgid;
	m->next = b->members;
	b->members = m;
	return m;
}

/* ---- descriptors ---- */

struct backing *backing_ref(struct backing *b)
{
	atomic_fetch_add(&b->refs, 1);
	return b;
}

void backing_put(struct backing *b)
{
	if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
		return;
	close(b->fd);
	free(b);
}

int64_t stat_mtime(const struct stat *st)
{
	return clock_ns(st->st_mtim);
}

int64_t stat_ctime(const struct stat *st)
{
	return clock_ns(st->st_ctim);
}

uint64_t stat_holes(const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size, allocated = (uint64_t)st->st_blocks * SECTOR;

	return allocated < size ? size - allocated : 0;
}

int body_set_backing(struct body *b, int read_fd)
{
	struct backing *backing = malloc(sizeof(*backing));

	if (!backing) {
		close(read_fd);
		return -ENOMEM;
	}
	atomic_init(&backing->refs, 1);
	backing->fd = read_fd;
	backing_put(b->backing);
	b->backing = backing;
	b->fd = read_fd;
	b->staged = true;
	return 0;
}

int body_open_write_locked(struct body *b)
{
	int fd;

	if (b->write_fd >= 0)
		return 0;
	fd = io_reopen(b->fd, O_RDWR);
	if (fd < 0)
		return fd;
	b->write_fd = fd;
	return 0;
}

void body_unstage_locked(struct volume *vol, struct body *b)
{
	(void)vol;
	b->staged = false;
	b->fragile = false;
	b->base = 0;
	b->base_compares = b->same = false;
	b->copied = false;
	b->half = false;
	b->kept_size = 0;
	atomic_store(&b->is_followed, false);
	spans_free(&b->written);
	cleanup_close_fn(&b->closer_hold);
	b->closer_hold = -1;
	if (b->write_fd >= 0)
		close(b->write_fd);
	b->write_fd = -1;
	b->fd = -1;
	backing_put(steal_ptr(b->backing));
}

/* ---- the table ---- */

static int add_to_table_locked(struct bodies *all, struct body *b)
{
	int error = map_add(&all->by_id, &b->by_id, b->id);

	if (error)
		return error;
	error = map_add(&all->by_ino, &b->by_ino, b->ino);
	if (error)
		map_remove(&all->by_id, &b->by_id);
	return error;
}

struct body *body_add_locked(struct volume *vol, uint64_t id, uint64_t ino)
{
	struct body *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->id = id;
	b->ino = ino;
	b->fd = -1;
	b->write_fd = -1;
	b->closer_hold = -1;
	b->made_ns = clock_mono_ns();
	b->is_output = file_is_log_locked(vol, ino);
	if (add_to_table_locked(vol->bodies, b)) {
		free(b);
		return NULL;
	}
	return b;
}

static void body_unlink_locked(struct volume *vol, struct body *b)
{
	map_remove(&vol->bodies->by_id, &b->by_id);
	map_remove(&vol->bodies->by_ino, &b->by_ino);
	body_set_pending_locked(vol, b, false);
	body_set_closing_locked(vol, b, 0, 0);
}

void body_set_pending_locked(struct volume *vol, struct body *b, bool pending)
{
	if (b->pending == pending)
		return;
	b->pending = pending;
	vol->bodies->pending += pending ? 1u : -1u;
}

int body_new_staged_locked(struct volume *vol, const struct state_version *v, int fd,
			   struct body **ret_body)
{
	int read_fd = io_reopen(fd, O_RDONLY), error;
	struct body *b;

	if (read_fd < 0)
		return read_fd;
	b = body_add_locked(vol, v->body, v->ino);
	if (!b) {
		close(read_fd);
		return -ENOMEM;
	}
	error = body_set_backing(b, read_fd);
	if (error) {
		body_unlink_locked(vol, b);
		free(b);
		return error;
	}
	b->version = v->id;
	b->fragile = v->fragile;
	b->is_output = b->is_output || v->output;
	/* What an edit of the process before has written is not known. */
	b->half = v->torn;
	b->kept_size = v->kind == VERSION_EDIT ? UINT64_MAX : 0;
	b->cut_size = UINT64_MAX;
	b->write_fd = fd;
	*ret_body = b;
	return 0;
}

int body_get_locked(struct volume *vol, const struct state_file *f, struct body **ret_body)
{
	struct body *b = body_of_file_locked(vol, f);

	if (!b) {
		b = body_add_locked(vol, f->body, f->ino);
		if (!b)
			return -ENOMEM;
		/* What is staged has a body as long as it is; but not in a read-only volume whose
		 * last mount crashed. */
		b->version = f->closed ? f->closed : f->live;
	}
	body_is_shown_locked(b, f);
	*ret_body = b;
	return 0;
}

void body_is_shown_locked(struct body *b, const struct state_file *f)
{
	if (b->orphan && !b->tear && !b->let_go && !b->discarded && !b->pending &&
	    f->body == b->id && f->nlink)
		b->orphan = false;
}

/* The file and the content of a body that just left the table may have waited only for it. */
static void body_gone_locked(struct volume *vol, uint64_t ino, uint64_t version)
{
	struct state_file f;
	int error = state_begin(vol->state);

	if (!error) {
		error = state_file_get(vol->state, ino, &f);
		if (!error && !f.nlink)
			error = body_file_unlinked_locked(vol, &f);
		else if (error == -ENOENT)
			error = 0;
		if (!error)
			error = version_reclaim_locked(vol, version);
		error = state_end(vol->state, error);
	}
	if (error)
		log_warn("inode %llu: cleaning up after the last close: %s",
			 (unsigned long long)ino, strerror(-error));
}

static void body_destroy(struct volume *vol, struct body *b)
{
	uint64_t ino = b->ino, version = b->version;
	bool waited_for = b->orphan;
	struct member *m;

	while ((m = b->members)) {
		b->members = m->next;
		free(m);
	}
	content_put(b->content);
	if (b->write_fd >= 0)
		close(b->write_fd);
	backing_put(b->backing);
	free(b->torn_name);
	spans_free(&b->written);
	cleanup_close_fn(&b->closer_hold);
	b->closer_hold = -1;
	free(b);
	if (waited_for) {
		SCOPED_LOCK(&vol->lock);
		body_gone_locked(vol, ino, version);
	}
}

void body_drop_locked(struct volume *vol, struct body *b, struct after *after)
{
	if (b->handles || b->pins || b->releasing || b->preparing || b->watched || b->known)
		return;
	/* A replacement whose open has not come yet waits for it: deferred.c drops it in time. */
	if (b->pending && b->staged && !b->discarded)
		return;
	if (b->let_go && body_discard_locked(vol, b))
		log_warn("content that nobody needs is left until the next mount");
	body_unlink_locked(vol, b);
	b->next_dead = after->dead;
	after->dead = b;
}

void body_unpin_locked(struct volume *vol, struct body *b, struct after *after)
{
	b->pins--;
	body_drop_locked(vol, b, after);
}

/* ---- content that is no longer the file's ---- */

/* Files that are no regular ones have no bodies of their own (0): such a one then only keeps the row. */
static struct body *find_of_locked(struct volume *vol, uint64_t ino, uint64_t id)
{
	struct body *b = body_of_ino_locked(vol, ino);

	while (b && b->id != id)
		b = body_next_of_ino_locked(b);
	return b;
}

static bool is_known_locked(struct volume *vol, const struct state_file *f)
{
	return vol->known.is_known && !S_ISDIR(f->mode) &&
	       vol->known.is_known(vol->known.arg, f->ino, f->body);
}

void body_replaced_locked(struct volume *vol, const struct state_file *f)
{
	struct body *b = find_of_locked(vol, f->ino, f->body);
	bool known = is_known_locked(vol, f);

	if (!b && known) {
		b = body_add_locked(vol, f->body, f->ino);
		/* Without memory the kernel looks the name up once more. */
		if (!b)
			return;
		b->version = f->closed ? f->closed : f->live;
	}
	if (!b)
		return;
	b->known |= known;
	b->mtime_ns = f->mtime_ns;
	b->ctime_ns = f->ctime_ns;
}

static void forget_locked(struct volume *vol, struct body *b, struct after *after)
{
	if (!b || !b->known)
		return;
	b->known = false;
	body_drop_locked(vol, b, after);
}

void volume_node_gone(struct volume *vol, uint64_t ino, uint64_t body)
{
	struct after after = {.vol = vol};

	mutex_lock(&vol->lock);
	forget_locked(vol, find_of_locked(vol, ino, body), &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
}

void volume_node_came(struct volume *vol, uint64_t ino, uint64_t body)
{
	struct state_file f;
	struct body *b;
	SCOPED_LOCK(&vol->lock);

	b = find_of_locked(vol, ino, body);
	if (!b || b->discarded || b->pending || state_file_get(vol->state, ino, &f) != 0 ||
	    (f.body == body && f.nlink))
		return;
	f.body = body;
	b->known |= is_known_locked(vol, &f);
}

/* Those that were kept for the one before are given up. */
void volume_set_known(struct volume *vol, const struct volume_known *known)
{
	struct after after = {.vol = vol};

	mutex_lock(&vol->lock);
	vol->known = *known;
	for (struct body *b = body_next_locked(vol, NULL), *next; b; b = next) {
		next = body_next_locked(vol, b);
		forget_locked(vol, b, &after);
	}
	mutex_unlock(&vol->lock);
	after_run(&after);
}

void body_orphan_locked(struct volume *vol, uint64_t ino)
{
	for (struct body *b = body_of_ino_locked(vol, ino); b; b = body_next_of_ino_locked(b)) {
		b->orphan = true;
		body_note_locked(b);
		/* One that nobody opened yet stays on the deferred-work list: it goes with its time. */
		if (b->handles || b->pins)
			body_set_pending_locked(vol, b, false);
	}
}

int body_replacements_end_locked(struct volume *vol, uint64_t ino)
{
	int error = 0;

	for (struct body *b = body_of_ino_locked(vol, ino); b && !error;
	     b = body_next_of_ino_locked(b))
		if (b->staged && !b->discarded)
			error = body_replaces_nothing_locked(vol, b);
	return error;
}

void bodies_keep_names_locked(struct volume *vol, bool keep_logs)
{
	for (struct body *b = body_next_locked(vol, NULL); b; b = body_next_locked(vol, b)) {
		char name[256];

		if (b->discarded || b->tear || (!b->staged && !b->writers))
			continue;
		b->shown = !b->orphan && !(keep_logs && body_is_output_locked(vol, b));
		first_name_locked(vol, b->ino, name, NULL);
		free(b->torn_name);
		b->torn_name = strdup(name); /* without memory it is "unnamed" */
	}
}

void bodies_tear_writers_locked(struct volume *vol)
{
	for (struct body *b = body_next_locked(vol, NULL); b; b = body_next_locked(vol, b)) {
		if (b->discarded || (!b->staged && !b->writers))
			continue;
		/* Its close would have gone nowhere anyway. */
		if (!b->shown && !b->tear)
			continue;
		/* What others have inherited is closed already. */
		b->tear = !body_is_held(b) || body_is_stored_since_close(b);
		/* What is not changed yet goes with the file, if the rollback left it. */
		b->orphan = b->orphan || b->staged;
		body_note_locked(b);
		if (!b->staged)
			continue;
		body_set_pending_locked(vol, b, false);
	}
}

/* ---- what is left to do after the lock is dropped ---- */

void after_entry(struct after *a, uint64_t parent, const char *name)
{
	struct after_entry *e = malloc(sizeof(*e));

	if (!e) /* the kernel's entry times out by itself */
		return;
	e->parent = parent;
	snprintf(e->name, sizeof(e->name), "%s", name);
	e->next = a->entries;
	a->entries = e;
}

static int add_entry(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	(void)f;
	after_entry(arg, n->parent, name);
	return 0;
}

void after_names_locked(struct after *a, uint64_t ino)
{
	state_names_of(a->vol->state, ino, add_entry, a);
}

void after_run(struct after *a)
{
	struct after_entry *e;
	struct body *b;

	while ((b = a->dead)) {
		a->dead = b->next_dead;
		body_destroy(a->vol, b);
	}
	while ((e = a->entries)) {
		a->entries = e->next;
		volume_entry_changed(a->vol, e->parent, e->name);
		free(e);
	}
}

/* What bodies say of themselves, and to whom they say it together: sizes, names, who writes. */

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
	char *name;
	uint64_t parent;
};

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
	int result = 0;

	for (struct body *b = body_next_locked(vol, NULL), *next; b && !result; b = next) {
		next = body_next_locked(vol, b);
		if (b->discarded || (!b->staged && !b->writers))
			continue;
		body_is_output_locked(vol, b);
		result = fn(arg, b);
	}
	return result;
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
