/* SPDX-License-Identifier: Apache-2.0 */
/* What `epochfs status`, log, show and diff say of a mounted volume. */
#include "lib/admin/control.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "lib/cache/evict.h"
#include "lib/cache/torn.h"
#include "lib/epochs/announce.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/follow.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/retention.h"
#include "lib/epochs/seal.h"
#include "lib/live/bodies.h"
#include "lib/meta/listing.h"
#include "lib/upload/nodes.h"
#include "lib/upload/upload.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/process.h"
#include "lib/volume/volume.h"

static void set_number(json_t *o, const char *key, uint64_t value)
{
	json_object_set_new(o, key,
			    json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

/* ---- what holds a seal up ---- */

/* "NAME (pid N)" or "pid N". */
static void put_process(struct buf *out, pid_t pid)
{
	cleanup_buf struct buf name = {0};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	if (io_read_file(AT_FDCWD, path, 256, &name) == 0 && name.len > 1) {
		name.len--; /* the newline */
		buf_printf(out, "%s (pid %d)", buf_str(&name), (int)pid);
	} else {
		buf_printf(out, "pid %d", (int)pid);
	}
}

/* What the sealer waits for, copied under the lock and put in words without it. */
struct hold {
	struct settle_answer answer;
	struct buf path;
	pid_t pid;
	int64_t now_ns;
};

/* The same by the rules of saves. */
static void look_at_view(const struct driver_view *v, struct hold *hold)
{
	hold->now_ns = clock_mono_ns();
	if (!v->held_up)
		return;
	hold->answer = (struct settle_answer){
		.verdict = SETTLE_WAIT,
		.until_ns = v->hold.until_ns,
		.hold = !v->path       ? SETTLE_HOLD_QUIET
			: v->hold.open ? SETTLE_HOLD_WRITER
				       : SETTLE_HOLD_TEMPORARY,
	};
	hold->pid = (pid_t)save_process_pid(v->hold.process);
	if (v->path)
		buf_printf(&hold->path, "%s", v->path);
}

/* Who has the file open: the process that opened it, or one that inherited the descriptor and keeps it. */
static void put_holder(struct buf *text, const char *path, pid_t opener)
{
	pid_t pid = process_with_open(path, false, opener);

	/* None to be found: it has another name by now, or is none that we may look into. */
	if (!pid)
		pid = opener;
	if (pid)
		put_process(text, pid);
	else
		buf_printf(text, "an unknown process");
}

static void look_at_hold_locked(struct volume *vol, struct hold *hold)
{
	cleanup_free struct seal_view_writer *writers = NULL;
	const struct new_name *n = vol->sealer->pending.new_names.temporaries;

	hold->now_ns = clock_mono_ns();
	if (sealer_look_locked(vol, &hold->answer, &writers) != 0)
		return;
	if (hold->answer.verdict != SETTLE_WAIT)
		return;
	if (hold->answer.hold == SETTLE_HOLD_WRITER) {
		volume_path_locked(vol, writers[hold->answer.index].ino, &hold->path);
		hold->pid = writers[hold->answer.index].pid;
	} else if (hold->answer.hold == SETTLE_HOLD_TEMPORARY && n) {
		/* The newest is as good an example as the one that holds longest. */
		sealer_path_locked(vol, n->parent, n->name, &hold->path);
	}
}

static json_t *hold_json(struct hold *hold)
{
	cleanup_buf struct buf text = {0};
	const char *path = buf_str(&hold->path);
	int64_t left = hold->answer.until_ns - hold->now_ns;

	if (hold->answer.verdict != SETTLE_WAIT)
		return NULL;
	switch (hold->answer.hold) {
	case SETTLE_HOLD_WRITER:
		buf_printf(&text, "open: %s by ", path);
		put_holder(&text, path, hold->pid);
		break;
	case SETTLE_HOLD_TEMPORARY:
		buf_printf(&text, "temporary name: %s", path);
		break;
	case SETTLE_HOLD_QUIET:
	case SETTLE_HOLD_NOTHING:
		buf_printf(&text, "waiting for quiet");
		break;
	}
	return json_pack("{s:o, s:I}", "by", listing_string(buf_str(&text)), "for_ns",
			 (json_int_t)(left > 0 ? left : 0));
}

/* ---- files that are open for writing ---- */

#define OPEN_MAX 20

struct open_file {
	uint64_t ino;
	pid_t pid;
	bool log, held;
};

struct open_list {
	struct open_file file[OPEN_MAX];
	struct buf path[OPEN_MAX];
	unsigned count, all;
	struct volume *vol;
};

static int collect_open(void *arg, struct body *b)
{
	struct open_list *list = arg;

	if (!b->staged || b->orphan)
		return 0;
	if (list->all++ >= OPEN_MAX)
		return 0;
	list->file[list->count] =
		(struct open_file){b->ino, body_opener_locked(b), b->is_output, body_is_held(b)};
	volume_path_locked(list->vol, b->ino, &list->path[list->count]);
	list->count++;
	return 0;
}

static json_t *open_json(struct open_list *list)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < list->count; i++) {
		cleanup_buf struct buf text = {0};

		buf_printf(&text, "%s by ", buf_str(&list->path[i]));
		put_holder(&text, buf_str(&list->path[i]), list->file[i].pid);
		if (list->file[i].log)
			buf_printf(&text, " (a log)");
		if (list->file[i].held)
			buf_printf(&text, " (closed by the process that it inherited it from)");
		json_array_append_new(array, listing_string(buf_str(&text)));
		buf_free(&list->path[i]);
	}
	return array;
}

/* ---- the whole ---- */

struct numbers {
	uint64_t files;
	uint64_t epochs, complete, latest, current, recent_from;
	const char *pending;
	int64_t pending_since_ns;
	char *reason;
	uint64_t failed;
	int failed_error;
};

static const char *pending_text(const struct pending *p)
{
	if (p->opens || new_names_any(&p->new_names))
		return "changes that open an epoch";
	return p->rides ? "changes that ride in the next epoch" : "none";
}

static void count_locked(struct volume *vol, struct numbers *n)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	const struct sealer *s = vol->sealer;

	n->files = state_file_count(vol->state);
	n->current = epochs_current_locked(vol);
	n->recent_from = retention_recent_from_locked(vol);
	n->pending = pending_text(&s->pending);
	n->pending_since_ns = s->pending.opened_ns;
	n->reason = s->pending.reason ? strdup(s->pending.reason) : NULL;
	n->failed = s->failed_number;
	n->failed_error = s->failed_error;
	for (size_t i = 0; x && i < x->count; i++)
		n->complete += epoch_brief_complete(&x->epochs[i]);
	n->epochs = x ? x->count : 0;
	n->latest = x ? epoch_index_latest(x) : 0;
}

/* The epoch whose save has more to come. */
static json_t *pending_epoch_json(struct volume *vol, uint64_t number)
{
	struct epoch_info info;
	json_t *o;

	if (!number || epochs_get(vol, number, &info) != 0)
		return NULL;
	o = json_pack("{s:I, s:o}", "number", (json_int_t)number, "why",
		      listing_string(info.record.reason ? info.record.reason : ""));
	epoch_info_free(&info);
	return o;
}

/* By which rule an epoch of now would not be whole, and what becomes of that. */
static void add_verdict(struct driver_view *v, json_t *o)
{
	if (!v->rule)
		return;
	json_object_set_new(o, "verdict", json_string(verdict_name(VERDICT_NOT_WHOLE)));
	json_object_set_new(o, "rule", json_string(v->rule));
	json_object_set_new(o, "why", listing_string(buf_str(&v->why)));
	if (v->waits_for)
		json_object_set_new(o, "resume_waits",
				    json_pack("{s:I}", "for_pid", (json_int_t)v->waits_for));
	else if (v->goes_back)
		json_object_set_new(o, "resume_waits", json_object());
}

static json_t *pending_json(const struct numbers *n, struct hold *hold, struct open_list *list)
{
	json_t *o = json_pack("{s:s}", "changes", n->pending), *held = hold_json(hold);

	if (n->pending_since_ns && strcmp(n->pending, "none") != 0)
		json_object_set_new(o, "since_ns", json_integer(n->pending_since_ns));
	if (held)
		json_object_set_new(o, "held_up", held);
	if (n->reason)
		json_object_set_new(o, "not_complete", listing_string(n->reason));
	json_object_set_new(o, "open", open_json(list));
	if (list->all > list->count)
		set_number(o, "open_not_shown", list->all - list->count);
	return o;
}

static void add_live(struct volume *vol, json_t *o)
{
	struct open_list list = {.vol = vol};
	struct driver_view view = {0};
	struct numbers n = {0};
	struct hold hold = {0};
	json_t *epochs, *doubts, *resumed, *waits, *epoch;

	doubts = vol->driver ? NULL : doubts_status(vol);
	resumed = vol->driver ? driver_back_status(vol) : resume_status(vol);
	waits = vol->driver ? NULL : resume_waits_status(vol);
	mutex_lock(&vol->lock);
	count_locked(vol, &n);
	/* Without memory nothing of it is told. */
	if (vol->driver && driver_look_locked(vol, &view) == 0)
		look_at_view(&view, &hold);
	else if (!vol->driver)
		look_at_hold_locked(vol, &hold);
	bodies_each_writing_locked(vol, collect_open, &list);
	mutex_unlock(&vol->lock);

	epochs = json_object();
	set_number(epochs, "count", n.epochs);
	set_number(epochs, "complete", n.complete);
	set_number(epochs, "latest", n.latest);
	set_number(epochs, "current", n.current);
	set_number(epochs, "recent_from", n.recent_from);
	json_object_set_new(o, "epochs", epochs);
	set_number(o, "files", n.files);
	json_object_set_new(o, "pending", pending_json(&n, &hold, &list));
	epoch = pending_epoch_json(vol, view.pending);
	if (epoch)
		json_object_set_new(json_object_get(o, "pending"), "epoch", epoch);
	add_verdict(&view, o);
	if (doubts)
		json_object_set_new(o, "doubts", doubts);
	if (resumed)
		json_object_set_new(o, "resumed", resumed);
	if (waits)
		json_object_set_new(o, "resume_waits", waits);
	if (n.failed)
		json_object_set_new(
			o, "seal_failure",
			json_sprintf("epoch %" PRIu64 ": %s", n.failed, strerror(-n.failed_error)));
	free(n.reason);
	buf_free(&hold.path);
	driver_view_free(&view);
}

/* The newest complete one, in brief; nothing where there is none. */
static int add_latest(struct volume *vol, json_t *o)
{
	struct epoch_info info;
	uint64_t number = epochs_latest(vol);
	json_t *epoch;
	int error = number ? epochs_get(vol, number, &info) : -ENOENT;

	/* It may be dropped in this moment. */
	if (error)
		return error == -ENOENT ? 0 : error;
	epoch = listing_epoch(&info);
	epoch_info_free(&info);
	error = epoch && !json_object_set_new(o, "latest", listing_brief(epoch)) ? 0 : -ENOMEM;
	json_decref(epoch);
	return error;
}

static int add_torn(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns)
{
	(void)mtime_ns;
	return json_array_append_new(arg,
				     json_pack("{s:I, s:o, s:I}", "id", (json_int_t)id, "name",
					       listing_string(name), "bytes", (json_int_t)size))
		       ? -ENOMEM
		       : 0;
}

/* What killed writers left: what lies there, which id the next one gets, and which the first of this mount. */
static int torn_status(struct volume *vol, json_t *o)
{
	json_t *files = json_array();
	uint64_t next, mounted;
	int error = files ? torn_each(vol, add_torn, files) : -ENOMEM;

	if (error) {
		json_decref(files);
		return error;
	}
	torn_ids(vol, &next, &mounted);
	return json_object_set_new(o, "torn",
				   json_pack("{s:I, s:I, s:o}", "next", (json_int_t)next, "mounted",
					     (json_int_t)mounted, "files", files))
		       ? -ENOMEM
		       : 0;
}

json_t *control_torn_left(const char *cache)
{
	json_t *files = json_array();
	const json_t *newest;

	if (!files || torn_each_left(cache, add_torn, files) != 0) {
		json_decref(files);
		return NULL;
	}
	newest = json_array_get(files, json_array_size(files) - 1);
	return json_pack("{s:I, s:o}", "next",
			 json_integer_value(json_object_get(newest, "id")) + 1, "files", files);
}

/* With where its key lies, for commands on the remote; what is in that file is not told. */
static void add_encryption(const struct volume *vol, json_t *o)
{
	const struct remote_limits *l = &vol->options.limits;

	json_object_set_new(o, "encrypted", json_boolean(vol->encryption != NULL));
	if (vol->encryption && l->key_file)
		json_object_set_new(o, "key_file", listing_string(l->key_file));
	else if (vol->encryption)
		json_object_set_new(o, "passphrase_file", listing_string(l->passphrase_file));
}

/* How long those of the remote are good for, where they say so. */
static void add_credentials(const struct volume *vol, json_t *o)
{
	struct remote_expiry e;

	if (vol->remote && remote_expiry(vol->remote, &e))
		json_object_set_new(o, "credentials",
				    json_pack("{s:I, s:b}", "left_ns",
					      (json_int_t)(e.at_ns - clock_wall_ns()), "renewed",
					      e.renewed));
}

json_t *control_status(struct volume *vol)
{
	json_t *o = json_pack("{s:s, s:s, s:o, s:b, s:b}", "uuid", vol->uuid, "remote",
			      volume_remote_name(vol), "remote_url",
			      listing_string(vol->options.remote), "local_only", vol->local_only,
			      "read_only", vol->options.read_only);

	if (!o)
		return NULL;
	add_encryption(vol, o);
	json_object_set_new(o, "settle_ns", json_integer(vol->options.settle_ns));
	if (vol->sealer)
		add_live(vol, o);
	add_credentials(vol, o);
	if (add_latest(vol, o) != 0 || torn_status(vol, o) != 0 || evictor_status(vol, o) != 0 ||
	    uploader_status(vol, o) != 0 || holder_status(vol, o) != 0 ||
	    follower_status(vol, o) != 0 || nodes_status(vol, o) != 0 ||
	    announcer_status(vol, o) != 0 || retention_status(vol, o) != 0 ||
	    collector_status(vol, o) != 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

/* ---- Requests that list: log, show, diff. ---- */

static int add_tag(void *arg, const char *name, uint64_t number)
{
	return json_object_set_new(arg, name, json_integer((json_int_t)number)) ? -ENOMEM : 0;
}

int request_tags(struct volume *vol, json_t **ret_tags)
{
	json_t *tags = json_object();
	int error = tags ? epochs_tag_each(vol, add_tag, tags) : -ENOMEM;

	if (error)
		json_decref(tags);
	else
		*ret_tags = tags;
	return error;
}

struct log_list {
	json_t *epochs, *tags;
};

/* The epoch with the tags that name it. */
static json_t *epoch_json(const struct epoch_info *e, json_t *tags)
{
	cleanup_json json_t *list = json_array();
	json_t *epoch = listing_epoch(e), *number;
	const char *name;
	int error = 0;

	json_object_foreach(tags, name, number)
	{
		if ((uint64_t)json_integer_value(number) == e->number)
			error |= json_array_append_new(list, json_string(name));
	}
	if (error || json_object_set(epoch, "tags", list)) {
		json_decref(epoch);
		return NULL;
	}
	return epoch;
}

static int add_epoch(void *arg, const struct epoch_info *e)
{
	struct log_list *list = arg;

	return json_array_append_new(list->epochs, epoch_json(e, list->tags)) ? -ENOMEM : 0;
}

int request_log(struct request *r)
{
	cleanup_json json_t *tags = NULL;
	struct log_list list = {0};
	int error = request_tags(r->vol, &tags);

	if (error)
		return error;
	list.tags = tags;
	list.epochs = json_array();
	error = list.epochs ? epochs_each(r->vol, add_epoch, &list) : -ENOMEM;
	if (error) {
		json_decref(list.epochs);
		return error;
	}
	r->answer = json_pack("{s:o}", "epochs", list.epochs);
	return r->answer ? 0 : -ENOMEM;
}

int request_show(struct request *r)
{
	cleanup_tree struct tree *tree = NULL;
	cleanup_json json_t *tags = NULL;
	struct epoch_info info = {0};
	uint64_t number;
	int error = request_epoch(r, "epoch", &number);

	if (!error)
		error = request_tags(r->vol, &tags);
	if (!error)
		error = epochs_tree(r->vol, number, &tree);
	if (!error)
		error = epochs_get(r->vol, number, &info);
	if (error)
		return error;
	r->answer = json_pack("{s:o, s:o}", "epoch", epoch_json(&info, tags), "files",
			      listing_files(tree));
	epoch_info_free(&info);
	return r->answer ? 0 : -ENOMEM;
}

/* The epoch before this one that is still there: of its record, else by number; 0: none. */
static int epoch_before(struct request *r, uint64_t number, uint64_t *ret_before)
{
	struct epoch_info info = {0};
	int64_t sealed_ns;
	uint64_t before;
	int error = epochs_get(r->vol, number, &info);

	if (error)
		return error;
	before = info.record.parent;
	epoch_info_free(&info);
	while (before && epochs_sealed_ns(r->vol, before, &sealed_ns) == -ENOENT)
		before--;
	*ret_before = before;
	return 0;
}

int request_diff(struct request *r)
{
	cleanup_tree struct tree *from = NULL, *to = NULL;
	uint64_t from_number = 0, to_number;
	int error = request_epoch(r, "to", &to_number);

	if (!error)
		error = json_object_get(r->json, "from") ? request_epoch(r, "from", &from_number)
							 : epoch_before(r, to_number, &from_number);
	if (!error && from_number)
		error = epochs_tree(r->vol, from_number, &from);
	if (!error)
		error = epochs_tree(r->vol, to_number, &to);
	if (!error)
		error = listing_diff(from, to, &r->answer);
	return error;
}
