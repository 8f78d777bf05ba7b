/* SPDX-License-Identifier: Apache-2.0 */
/* After a crash or a power loss: content that no fsync made safe, and epochs that were sealed and not durable, of which something is gone. */
#include "lib/volume/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cache/trees.h"
#include "lib/epochs/announce.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/seal.h"
#include "lib/format/record.h"
#include "lib/format/tails.h"
#include "lib/meta/doubts.h"
#include "lib/meta/records.h"
#include "lib/state/shutdown_mark.h"
#include "lib/upload/nodes.h"
#include "lib/util/array.h"
#include "lib/util/io.h"
#include "lib/util/log.h"

struct number_list {
	uint64_t *number;
	size_t count, cap;
};

static int collect_pending(void *arg, const struct state_epoch *e)
{
	struct number_list *l = arg;

	if (e->state == EPOCH_DURABLE || e->state == EPOCH_DROPPED || !e->record)
		return 0;
	if (array_reserve((void **)&l->number, &l->cap, l->count, sizeof(*l->number)))
		return -ENOMEM;
	l->number[l->count++] = e->number;
	return 0;
}

static const struct torn_version *find_torn(const struct recovery *r, uint64_t version)
{
	for (size_t i = 0; i < r->torn_count; i++)
		if (r->torn[i].version == version)
			return &r->torn[i];
	return NULL;
}

/* Tells the judge of a file. *ret_found: it was found torn just now; a log is valid at every length. */
static int judge_file_locked(struct volume *vol, const struct recovery *r, const char *path,
			     const struct tree_entry *e, struct doubts *doubts, bool *ret_found)
{
	bool local = e->content == TREE_LOCAL;
	const struct torn_version *torn =
		local && !(e->flags & TREE_TORN) ? find_torn(r, e->u.version) : NULL;
	struct state_version v = {0};
	int error = local ? state_version_get(vol->state, e->u.version, &v) : 0;

	*ret_found = torn != NULL;
	if (error && error != -ENOENT)
		return error;
	return doubts_add_file(doubts, &(const struct doubts_file){
					       .path = path,
					       .version = v.id,
					       .born = state_version_epoch(&v),
					       .mtime_ns = e->mtime_ns,
					       .torn = torn		      ? torn->why
						       : e->flags & TREE_TORN ? "it is torn inside"
									      : NULL,
				       });
}

/* What is in doubt in this tree, by what is torn in it now. `ret_found`: something of it was found just now. */
static int judge_tree_locked(struct volume *vol, const struct recovery *r, uint64_t number,
			     const struct tree *tree, struct doubts *doubts, bool *ret_found)
{
	int error = 0;

	*ret_found = false;
	for (uint32_t id = 0; !error && id < tree_count(tree); id++) {
		cleanup_buf struct buf path = {0};
		struct tree_entry e;
		bool found;

		tree_get(tree, id, &e);
		if (e.type != TREE_REGULAR || e.flags & TREE_LOG || tree_identity(tree, id) != id)
			continue;
		error = tree_path(tree, id, &path);
		if (!error)
			error = judge_file_locked(vol, r, buf_str(&path), &e, doubts, &found);
		if (error || !found)
			continue;
		*ret_found = true;
		log_error("epoch %" PRIu64 ": %s: %s since the machine last ran", number,
			  buf_str(&path), find_torn(r, e.u.version)->why);
	}
	return error ? error : doubts_decide(doubts);
}

/* The doubts of kills stay as the seal has judged them; those of torn files come again. */
static int renew_doubts(const struct doubts *doubts, struct epoch_record *record)
{
	struct epoch_record fresh = {.number = record->number, .sealed_ns = record->sealed_ns};
	int error = doubts_to_record(doubts, record, &fresh);
	size_t kept = 0;

	for (size_t i = 0; !error && i < record->doubt_count; i++) {
		struct record_doubt *grown, *d = &record->doubts[i];

		if (doubt_kind_parse(d->kind) == DOUBT_TORN)
			continue;
		grown = reallocarray(fresh.doubts, fresh.doubt_count + 1, sizeof(*grown));
		if (!grown) {
			error = -ENOMEM;
			break;
		}
		fresh.doubts = grown;
		/* In their place before the torn ones. */
		memmove(&grown[kept + 1], &grown[kept],
			(fresh.doubt_count - kept) * sizeof(*grown));
		fresh.doubt_count++;
		grown[kept++] = *d;
		*d = (struct record_doubt){0};
	}
	record_doubts_free(record->doubts, record->doubt_count);
	record->doubts = fresh.doubts;
	record->doubt_count = fresh.doubt_count;
	return error;
}

static bool is_known(const struct epoch_record *record, const char *path)
{
	for (size_t i = 0; i < record->doubt_count; i++)
		if (!strcmp(record->doubts[i].path, path) &&
		    doubt_kind_parse(record->doubts[i].kind) == DOUBT_TORN)
			return true;
	return false;
}

/* The record's reason, and after it what counts and is not in it. */
static int extend_reason(const struct doubts *doubts, struct epoch_record *record)
{
	cleanup_buf struct buf reason = {0};
	size_t count;
	const struct doubt *list = doubts_list(doubts, &count);
	unsigned named = 0;

	buf_printf(&reason, "%s", record->reason ? record->reason : "");
	for (size_t i = 0; i < count; i++)
		if (list[i].counts && !is_known(record, list[i].path))
			reason_add(&reason, &named, list[i].path, list[i].why);
	reason_end(&reason, named);
	if (!named)
		return 0;
	if (buf_error(&reason))
		return -ENOMEM;
	free(record->reason);
	record->reason = strdup(buf_str(&reason));
	record->doubted = record->doubted || record->complete != RECORD_INCOMPLETE;
	record->complete = RECORD_INCOMPLETE;
	return record->reason ? 0 : -ENOMEM;
}

/* The record names what is torn, and where that counts says that the epoch is not complete, and why. */
static int blame_locked(struct volume *vol, struct state_epoch *row, const struct doubts *doubts,
			struct epoch_record *record)
{
	cleanup_buf struct buf json = {0};
	int error = extend_reason(doubts, record);

	if (!error)
		error = renew_doubts(doubts, record);
	if (!error)
		error = record_encode(record, &json);
	if (error)
		return error;
	free(row->record);
	row->record = strdup(buf_str(&json));
	return row->record ? state_epoch_set(vol->state, row) : -ENOMEM;
}

static int check_tree_locked(struct volume *vol, struct recovery *r, struct state_epoch *row,
			     const struct tree *tree)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_doubts struct doubts *doubts = NULL;
	bool found = false;
	int error = record_decode(row->record, strlen(row->record), &record);

	if (!error)
		/* The newest unit is as it was when that was sealed. */
		error = doubts_new(vol->rules,
				   record.restores || record.newest ? UINT64_MAX : record.parent,
				   &doubts);
	if (!error && record.newest)
		error = doubts_set_before(doubts, record.newest);
	if (!error)
		error = judge_tree_locked(vol, r, row->number, tree, doubts, &found);
	return error || !found ? error : blame_locked(vol, row, doubts, &record);
}

/* An epoch whose listing is gone is none: its number becomes a tombstone, and what it held is in the
 * live tree, which the next epoch takes. */
static int give_up_locked(struct volume *vol, struct recovery *r, struct state_epoch *row)
{
	int error;

	log_error("epoch %" PRIu64 ": its listing was not written out when the machine ended: it "
		  "is dropped, and what the live tree has goes into the next one",
		  row->number);
	free(steal_ptr(row->record));
	row->state = EPOCH_DROPPED;
	row->remote_delete_pending = true;
	r->killed = true;
	error = state_epoch_set(vol->state, row);
	if (!error)
		error = announce_locked(vol, ANNOUNCE_DROPPED, row);
	return error ? error : state_set_meta_u64(vol->state, "unsealed", UNSEALED_OPENS);
}

static int check_epoch_locked(struct volume *vol, struct recovery *r, uint64_t number)
{
	cleanup_tree struct tree *tree = NULL;
	struct state_epoch row;
	int error = trees_load(vol, number, &tree);
	bool gone = error == -ENOENT || error == -EBADMSG;

	if (!error || gone)
		error = state_epoch_get(vol->state, number, &row);
	if (error)
		return error;
	error = gone ? give_up_locked(vol, r, &row) : check_tree_locked(vol, r, &row, tree);
	state_epoch_free(&row);
	return error;
}

/* ---- what the remote has ---- */

static int take_record_locked(struct volume *vol, struct state_epoch *row, const char *text)
{
	int error = state_begin(vol->state);

	if (error)
		return error;
	free(row->record);
	free(steal_ptr(row->error));
	row->record = strdup(text);
	row->state = EPOCH_DURABLE;
	error = row->record ? state_epoch_set(vol->state, row) : -ENOMEM;
	if (!error)
		error = announce_locked(vol, ANNOUNCE_DURABLE, row);
	error = state_end(vol->state, error);
	/* It may name what is gone here; the remote's is fetched when it is looked into. */
	if (!error)
		trees_remove(vol, row->number);
	return error;
}

/* Takes over the record that the remote has of this epoch, if that is the one which was sealed here. Drops the lock while
 * it asks. */
static int settle_epoch_locked(struct volume *vol, uint64_t number, bool *ret_durable)
{
	cleanup_record struct epoch_record here = {0}, there = {0};
	struct state_epoch row;
	char *text = NULL;
	int error;

	*ret_durable = false;
	mutex_unlock(&vol->lock);
	error = records_get(vol->remote, number, &there, &text);
	mutex_lock(&vol->lock);
	if (error) /* a tombstone, or damaged: the uploader says what to do */
		return error == -ENOENT || error == -EBADMSG ? 0 : error;
	error = state_epoch_get(vol->state, number, &row);
	if (!error) {
		error = record_decode(row.record, strlen(row.record), &here);
		if (!error && records_same_epoch(&here, &there)) {
			error = take_record_locked(vol, &row, text);
			*ret_durable = !error;
		}
		state_epoch_free(&row);
	}
	free(text);
	return error;
}

int settle_epochs_locked(struct volume *vol, struct recovery *r)
{
	struct number_list pending = {0};
	bool durable = true;
	int error = state_epoch_each(vol->state, collect_pending, &pending);

	/* They are uploaded in their order. */
	for (size_t i = 0; !error && durable && i < pending.count; i++)
		if (!nodes_is_part(pending.number[i])) {
			error = settle_epoch_locked(vol, pending.number[i], &durable);
			r->settled = r->settled || durable;
		}
	free(pending.number);
	return error;
}

int check_epochs_locked(struct volume *vol, struct recovery *r)
{
	struct number_list pending = {0};
	int error = 0;

	if (r->torn_count || r->rebooted)
		error = state_epoch_each(vol->state, collect_pending, &pending);
	for (size_t i = 0; !error && i < pending.count; i++)
		error = check_epoch_locked(vol, r, pending.number[i]);
	free(pending.number);
	/* The live tree is no longer what the remote has of it. */
	if (!error && r->settled && r->torn_count)
		error = state_set_meta_u64(vol->state, "unsealed", UNSEALED_OPENS);
	return error;
}

/* ---- After a power loss (a changed boot id): closed content that no fsync made safe. ---- */

int boot_changed_locked(struct volume *vol, bool *ret_changed)
{
	cleanup_buf struct buf now = {0}, then = {0};
	int error = state_get_meta(vol->state, "boot_id", &then);

	if (error == -ENOENT) { /* a new state */
		*ret_changed = false;
		return 0;
	}
	if (!error)
		error = shutdown_mark_boot_id(&now);
	if (!error)
		*ret_changed = strcmp(buf_str(&now), buf_str(&then)) != 0;
	return error;
}

int boot_remember_locked(struct volume *vol)
{
	cleanup_buf struct buf now = {0};
	int error = shutdown_mark_boot_id(&now);

	return error ? error : state_set_meta(vol->state, "boot_id", buf_str(&now));
}

bool recovery_finds_hole(int fd, const struct stat *st)
{
	return st->st_size && lseek(fd, 0, SEEK_HOLE) < st->st_size;
}

/* A size may be on the disk before what was written below it (ftruncate, fallocate). What had all its
 * blocks when it was closed has them still. */
static bool lacks_blocks(int fd, const struct state_version *v, const struct stat *st)
{
	return v->local_bytes >= v->size && recovery_finds_hole(fd, st);
}

/* Why the content is not what was closed: NULL where nothing is wrong. */
static const char *what_is_wrong(struct volume *vol, const struct recovery *r,
				 const struct state_version *v, const char *name)
{
	cleanup_close int fd = -1;
	const char *why = NULL;
	struct stat st;

	if (!v->size)
		return NULL;
	if (!recovery_has_object(r, v->id))
		return "its bytes are gone";
	if (!r->rebooted || v->fsynced)
		return NULL;
	fd = object_open(vol, v->id, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return "its bytes cannot be read";
	if ((uint64_t)st.st_size != v->size)
		return "it is shorter than it was closed";
	if (lacks_blocks(fd, v, &st))
		return "it lacks bytes that it was closed with";
	return tail_check(fd, v->size, name, &why) == 1 ? why : NULL;
}

/* Reads give what is there, and zeros for what is not; epochs that hold it keep their sizes. */
static int fill(struct volume *vol, const struct state_version *v)
{
	cleanup_close int fd = object_open(vol, v->id, O_RDWR | O_CREAT);

	if (fd < 0)
		return fd;
	return ftruncate(fd, (off_t)v->size) < 0 ? -errno : 0;
}

static int note_torn(struct recovery *r, uint64_t version, const char *why)
{
	struct torn_version *grown = reallocarray(r->torn, r->torn_count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	r->torn = grown;
	r->torn[r->torn_count++] = (struct torn_version){version, why};
	return 0;
}

int check_closed_locked(struct volume *vol, struct recovery *r)
{
	for (size_t i = 0; i < r->closed.count; i++) {
		struct state_version row, *v = &row;
		char name[256];
		const char *why;
		int error = state_version_get(vol->state, r->closed.v[i].id, v);

		/* What was open replaced it just now, and nothing needs it any more. */
		if (error == -ENOENT)
			continue;
		if (error)
			return error;
		/* The copy of an open log, or what was replaced since: for an epoch that is none. */
		if (r->unfinished && v->died && v->born >= r->unfinished)
			continue;
		first_name_locked(vol, v->ino, name, NULL);
		why = v->torn ? NULL : what_is_wrong(vol, r, v, name);
		if (!why)
			continue;
		log_error("inode %" PRIu64 " (%s): %s since the machine last ran", v->ino,
			  name[0] ? name : "no name", why);
		v->torn = v->lost = true;
		r->killed = true;
		error = fill(vol, v);
		if (!error)
			error = state_version_set(vol->state, v);
		if (!error)
			error = note_torn(r, v->id, why);
		if (error)
			return error;
	}
	return 0;
}

static int doubt_copy(void *arg, const struct state_version *v)
{
	struct volume *vol = arg;
	struct state_version doubted = *v;

	if (v->fsynced || !v->size)
		return 0;
	doubted.local_whole = false;
	if (!v->has_recipe) { /* the database has its bytes */
		doubted.local_bytes = 0;
		object_remove(vol, v->id);
	}
	return state_version_set(vol->state, &doubted);
}

int doubt_copies_locked(struct volume *vol)
{
	int error = state_begin(vol->state);

	return error ? error
		     : state_end(vol->state,
				 state_version_each_evictable(vol->state, doubt_copy, vol));
}
