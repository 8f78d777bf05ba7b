/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes whose release is on its way. close() returns when FLUSH is answered; the kernel sends
 * RELEASE, by which the close is committed, in the background. Contract 1.2.3: from close() on,
 * any request by name, seal or look into .epochs takes it in; and so does the next close of the file.
 */
#include "lib/live/bodies.h"
#include "lib/live/observer.h"
#include "lib/util/lock.h"
#include "lib/util/process.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/util/io.h"
#include "lib/util/log.h"

/*
 * Usually the release is here within a millisecond. After the first wait we look who keeps it away: a process that has closed the file has
 * another descriptor (dup2 of a shell's redirection), or the file mapped; or another process inherited the descriptor. Where nobody is found the
 * release should come, however busy the machine is. These times decide only whether a copy is made for nothing, not what is
 * closed: what the openers have no descriptor of is.
 */
#define WAIT_FIRST (20 * NS_PER_MS)
#define WAIT_LAST  (500 * NS_PER_MS)
/* Where nobody asks. */
#define LATE (500 * NS_PER_MS)

void body_set_closing_locked(struct volume *vol, struct body *b, int64_t closing_ns,
			     unsigned releasing)
{
	bool was = b->closing_ns || b->releasing, is = closing_ns || releasing;

	b->closing_ns = closing_ns;
	b->releasing = releasing;
	if (was != is)
		vol->bodies->closing += is ? 1u : -1u;
	/* Whoever takes closes in that nobody asks for sleeps where there are none. */
	if (!was && is && vol->bodies->closing == 1)
		pthread_cond_signal(&vol->bodies->deferred_wake);
	if (was && !is)
		pthread_cond_broadcast(&vol->changed);
}

/* What keeps a file open that its openers have closed. */
enum kept { KEPT_BY_NOTHING, KEPT_OPEN, KEPT_MAPPED, KEPT_PERHAPS, KEPT_ELSEWHERE };

/* Each is looked for in all that a process has open. */
#define NAMES_MAX 16

/* Who may keep it, and the paths of its names, each with its NUL: a mapping shows the one that it was opened by. */
struct keepers {
	struct volume *vol;
	struct buf pids; /* pid_t, of processes */
	struct buf paths;
	unsigned names;
};

static int add_path(void *arg, const struct state_name *n, const char *name,
		    const struct state_file *f)
{
	struct keepers *k = arg;
	size_t before = k->paths.len;

	(void)f;
	volume_path_locked(k->vol, n->parent, &k->paths);
	buf_printf(&k->paths, "%s%s", k->paths.len > before ? "/" : "", name);
	buf_put_u8(&k->paths, 0);
	return ++k->names == NAMES_MAX;
}

static void add_pid(struct buf *pids, pid_t pid)
{
	for (size_t at = 0; at < pids->len; at += sizeof(pid))
		if (!memcmp(pids->data + at, &pid, sizeof(pid)))
			return;
	buf_put(pids, &pid, sizeof(pid));
}

static enum kept kept_by(pid_t pid, const struct buf *paths, uint64_t ino)
{
	enum kept kept = KEPT_BY_NOTHING;

	for (size_t at = 0; at < paths->len;) {
		const char *path = (const char *)paths->data + at;

		/* One that only reads is no close that is still to come, but a mapping may be of that. */
		if (process_has_open(pid, path, ino, true))
			return KEPT_OPEN;
		if (process_has_mapped(pid, path) && kept != KEPT_MAPPED)
			kept = process_has_open(pid, path, ino, false) ? KEPT_PERHAPS : KEPT_MAPPED;
		at += strlen(path) + 1;
	}
	return kept;
}

static enum kept kept_by_any(const struct buf *pids, const struct buf *paths, uint64_t ino)
{
	enum kept kept = KEPT_BY_NOTHING;
	pid_t pid;

	for (size_t at = 0; at < pids->len && kept != KEPT_OPEN; at += sizeof(pid)) {
		enum kept by;

		memcpy(&pid, pids->data + at, sizeof(pid));
		by = kept_by(pid, paths, ino);
		if (by == KEPT_OPEN || by == KEPT_MAPPED || !kept)
			kept = by;
	}
	return kept;
}

static bool is_kept_elsewhere(const struct buf *paths)
{
	for (size_t at = 0; at < paths->len;) {
		const char *path = (const char *)paths->data + at;

		if (process_with_open(path, true, 0))
			return true;
		at += strlen(path) + 1;
	}
	return false;
}

/*
 * KEPT_OPEN: an opener has another descriptor to write by; KEPT_MAPPED: mappings alone are left; KEPT_PERHAPS: a mapping, and a
 * descriptor to read by, of which the mapping may be: then the release is on its way. KEPT_ELSEWHERE: no opener has it, but another process
 * has, where that is asked for. Drops the lock.
 */
static enum kept kept_locked(struct volume *vol, struct body *b, bool elsewhere)
{
	struct keepers k = {.vol = vol};
	enum kept kept;

	(void)state_names_of(vol->state, b->ino, add_path, &k);
	for (struct handle *h = b->open_handles; h; h = h->next)
		if (h->writes && h->closed && !h->held && h->tgid)
			add_pid(&k.pids, h->tgid);
	mutex_unlock(&vol->lock);
	if (buf_error(&k.paths) || buf_error(&k.pids))
		k.pids.len = 0;
	kept = kept_by_any(&k.pids, &k.paths, b->ino);
	if (!kept && elsewhere && k.pids.len && is_kept_elsewhere(&k.paths))
		kept = KEPT_ELSEWHERE;
	buf_free(&k.paths);
	buf_free(&k.pids);
	mutex_lock(&vol->lock);
	return kept;
}

/*
 * Without passthrough the kernel sends no release while a mapping is left. What was there at the close is committed
 * (contract 1.2.9), as a copy, unless something was stored since. Drops the lock.
 */
static void commit_mapped_locked(struct volume *vol, struct body *b)
{
	int error;

	if (!b->staged || body_is_stored_since_close(b))
		return;
	mutex_unlock(&vol->lock);
	error = body_commit_copy(vol, b->id, NULL, NULL);
	if (error && error != -ENOENT)
		log_warn("inode %" PRIu64
			 " has a mapping left, and is committed when that is gone: %s",
			 b->ino, strerror(-error));
	mutex_lock(&vol->lock);
}

/* Until its closes are committed, or it is known who keeps the release away. Drops the lock. */
static enum kept await_release_locked(struct volume *vol, struct body *b)
{
	enum kept kept = KEPT_BY_NOTHING;
	int64_t start = clock_mono_ns();
	bool asked = false;

	/* Closed by a writer that is gone, while those that are left were looked for already. */
	if (b->closing_ns && !b->releasing && !body_awaits_release_locked(b))
		return kept_locked(vol, b, false);
	while (b->closing_ns || b->releasing) {
		int64_t limit = start + (asked || b->releasing ? WAIT_LAST : WAIT_FIRST);

		if (cond_wait_until(&vol->changed, &vol->lock, limit) != -ETIMEDOUT)
			continue;
		if (!b->closing_ns && !b->releasing)
			break;
		if (asked || clock_mono_ns() >= start + WAIT_LAST)
			break;
		kept = kept_locked(vol, b, true);
		if (kept && kept != KEPT_PERHAPS && !b->releasing)
			break;
		asked = true;
	}
	return kept;
}

/* Once a close: those that are not there now come by their release. */
static void await_no_more_locked(struct volume *vol, struct body *b)
{
	for (struct handle *h = b->open_handles; h; h = h->next)
		h->awaited = false;
	body_set_closing_locked(vol, b, 0, b->releasing);
}

static void finish_one_locked(struct volume *vol, struct body *b)
{
	struct after after = {.vol = vol};
	enum kept kept;

	b->pins++;
	while (b->taking)
		cond_wait(&vol->changed, &vol->lock);
	kept = await_release_locked(vol, b);
	while (b->taking)
		cond_wait(&vol->changed, &vol->lock);
	if (!b->closing_ns || b->releasing)
		kept = KEPT_OPEN;
	if (kept == KEPT_MAPPED || kept == KEPT_PERHAPS)
		commit_mapped_locked(vol, b);
	else if (kept != KEPT_OPEN)
		body_take_held_locked(vol, b, &after);
	await_no_more_locked(vol, b);
	body_unpin_locked(vol, b, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	mutex_lock(&vol->lock);
}

static struct body *closing_body_locked(struct volume *vol, uint64_t ino, const struct body *but)
{
	struct body *b = ino ? body_of_ino_locked(vol, ino) : body_next_locked(vol, NULL);

	while (b && (b == but || !b->closing_ns))
		b = ino ? body_next_of_ino_locked(b) : body_next_locked(vol, b);
	return b;
}

bool body_finish_closes_locked(struct volume *vol, uint64_t ino)
{
	bool waited = false;
	struct body *b;

	while (vol->bodies->closing && (b = closing_body_locked(vol, ino, NULL))) {
		finish_one_locked(vol, b);
		waited = true;
	}
	return waited;
}

void body_finish_other_closes_locked(struct volume *vol, const struct body *but)
{
	struct body *b;

	while (vol->bodies->closing && (b = closing_body_locked(vol, but->ino, but)))
		finish_one_locked(vol, b);
}

static struct body *late_close_locked(struct volume *vol)
{
	int64_t late = clock_mono_ns() - LATE;
	struct body *b = vol->bodies->closing ? body_next_locked(vol, NULL) : NULL;

	while (b && (!b->closing_ns || b->closing_ns > late))
		b = body_next_locked(vol, b);
	return b;
}

void bodies_finish_late_closes_locked(struct volume *vol)
{
	struct body *b;

	while ((b = late_close_locked(vol)))
		finish_one_locked(vol, b);
}

int bodies_finish_closes(struct volume *vol)
{
	mutex_lock(&vol->lock);
	body_finish_closes_locked(vol, 0);
	bodies_finish_comparing_locked(vol);
	mutex_unlock(&vol->lock);
	return deferred_commit_left(vol);
}

/* Who asked for the epoch was refused (bodies_finish_closes); this is one that comes by itself. */
void bodies_tell_uncommitted_locked(struct volume *vol)
{
	const struct body *b = body_uncommitted_locked(vol);
	cleanup_buf struct buf reason = {0};

	if (!b)
		return;
	volume_path_locked(vol, b->ino, &reason);
	buf_printf(&reason, ": its close could not be recorded yet");
	vol->observer->incomplete_locked(vol, buf_str(&reason));
}
