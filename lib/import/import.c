/* SPDX-License-Identifier: Apache-2.0 */
/* An ordinary directory becomes an epoch. */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "lib/epochs/announce.h"
#include "lib/epochs/holder.h"
#include "lib/format/names.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"

#define PART_LEN (UINT64_C(1) << 30)
/* Listings until two are equal. */
#define ROUNDS		5
#define ROUND_PAUSE_NS	(200 * NS_PER_MS)
#define FIRST_SCANS_MAX 16

/* ---- opening ---- */

static void ignore_lease_signal(void)
{
	struct sigaction old;

	if (sigaction(SIGIO, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
		signal(SIGIO, SIG_IGN);
}

int import_open(const struct volume_options *options, struct import **ret_import,
		char **ret_message)
{
	struct import *imp = calloc(1, sizeof(*imp));
	int error;

	if (!imp)
		return -ENOMEM;
	mutex_init(&imp->lock, LOCK_IMPORT);
	ignore_lease_signal();
	error = volume_open_for_import(options, &imp->vol, ret_message);
	if (!error)
		error = rules_new(&imp->vol->options, &imp->rules);
	if (error) {
		import_close(imp);
		return error;
	}
	*ret_import = imp;
	return 0;
}

void import_close(struct import *imp)
{
	if (!imp)
		return;
	if (imp->vol) {
		announcer_drain(imp->vol, NULL, NULL);
		volume_close(imp->vol);
	}
	rules_free(imp->rules);
	mutex_destroy(&imp->lock);
	free(imp);
}

void import_cancel(struct import *imp)
{
	atomic_store(&imp->cancelled, true);
	remote_cancel(imp->vol->remote);
}

void import_resume(struct import *imp)
{
	atomic_store(&imp->cancelled, false);
	remote_resume(imp->vol->remote);
}

void import_get_progress(struct import *imp, struct import_progress *ret_progress)
{
	struct store_stats done = {0};

	SCOPED_LOCK(&imp->lock);
	*ret_progress = imp->progress;
	if (!imp->batch)
		return;
	store_batch_progress(imp->batch, &done);
	ret_progress->stored += done.stored;
	ret_progress->bytes += done.plain - imp->plain_before;
	if (ret_progress->bytes > ret_progress->bytes_total)
		ret_progress->bytes = ret_progress->bytes_total;
}

const char *import_remote_name(const struct import *imp)
{
	return remote_name(imp->vol->remote);
}

const char *import_cache_path(const struct import *imp)
{
	return imp->vol->cache_path;
}

/* ---- one import ---- */

bool import_stops(const struct import_job *j)
{
	return atomic_load(&j->imp->cancelled);
}

int import_note_changing(struct import_job *j, size_t number)
{
	cleanup_buf struct buf path = {0};

	if (j->changing++)
		return 0;
	if (scan_path(&j->scan, number, &path))
		return -ENOMEM;
	free(j->changing_path);
	j->changing_path = strdup(buf_str(&path));
	return j->changing_path ? 0 : -ENOMEM;
}

static int fail_at_path(struct import_job *j, const char *path, int error)
{
	return opening_fail(j->message, error, "%s/%s: %s; nothing was imported", j->how->directory,
			    path, error == -EFBIG ? "too large or too deep" : strerror(-error));
}

int import_fail_at(struct import_job *j, size_t number, int error)
{
	cleanup_buf struct buf path = {0};

	if (error == -ECANCELED || error == -ENOMEM || scan_path(&j->scan, number, &path))
		return error;
	fail_at_path(j, buf_str(&path), error);
	return -EIO;
}

static int list(struct import_job *j, struct scan *ret_scan)
{
	int error = scan_directory(j->root_fd, j->imp->rules, ret_scan);

	if (error && ret_scan->trouble)
		fail_at_path(j, ret_scan->trouble, error);
	return error && j->message->text ? -EIO : error;
}

static int pause_for(struct import_job *j, int64_t ns)
{
	struct timespec t = clock_timespec(ns);

	if (import_stops(j))
		return -ECANCELED;
	nanosleep(&t, NULL);
	return 0;
}

static int keeps_changing(struct import_job *j)
{
	return opening_fail(
		j->message, -EAGAIN,
		"%s: it keeps changing (%s%s); nothing was imported: try again when it is "
		"quiet, or take it as it is with --allow-changing",
		j->how->directory, j->changing_path ? j->changing_path : "names",
		j->changing > 1 ? " and others" : "");
}

/* What is about to be committed is not what was there at one time. */
static int take_changing(struct import_job *j, size_t first)
{
	const char *why = "the directory changed while it was imported";
	int error = 0;

	if (!j->changing && first < j->scan.count)
		error = import_note_changing(j, first);
	if (!error && !j->how->allow_changing)
		return keeps_changing(j);
	if (!error)
		reason_add(&j->reason, &j->named, j->changing_path ? j->changing_path : ".", why);
	return error ? error : buf_error(&j->reason);
}

/* The directory as it is now: read until two listings are equal. */
static int take_now(struct import_job *j)
{
	int error = list(j, &j->scan);

	for (int round = 1; !error; round++) {
		cleanup_scan struct scan next = {0};
		size_t first = 0;

		j->changing = 0;
		error = import_known_take(j);
		if (!error)
			error = import_contents(j);
		FAULT_POINT("import.read");
		if (!error)
			error = list(j, &next);
		if (error || (scan_equal(&j->scan, &next, &first) && !j->changing))
			break;
		if (round == ROUNDS)
			return take_changing(j, first);
		error = pause_for(j, round * ROUND_PAUSE_NS);
		if (!error)
			error = scan_carry(&j->scan, &next);
		if (error)
			break;
		scan_free(&j->scan);
		j->scan = next;
		next = (struct scan){0};
	}
	return error;
}

/* The directory as it was at a moment that has just been. */
static int take_as_of(struct import_job *j)
{
	int error = list(j, &j->scan);
	bool same = false;

	for (int i = 0; !error && !same && i < FIRST_SCANS_MAX; i++) {
		cleanup_scan struct scan next = {0};

		error = list(j, &next);
		if (error)
			break;
		same = scan_same_names(&j->scan, &next);
		scan_free(&j->scan);
		j->scan = next;
		next = (struct scan){0};
	}
	if (!error)
		error = import_known_take(j);
	if (!error)
		error = import_contents(j);
	FAULT_POINT("import.read");
	if (!error && (j->changing || !same))
		error = take_changing(j, j->scan.count);
	return error;
}

/* Local file systems that give each change of a file another ctime. */
static bool has_good_ctime(int fd)
{
	static const unsigned long good[] = {0xEF53 /* ext */,	       0x58465342 /* xfs */,
					     0x9123683E /* btrfs */,   0x01021994 /* tmpfs */,
					     0x794C7630 /* overlay */, 0xF2F52010 /* f2fs */,
					     0x2FC12FC1 /* zfs */,     0xCA451A4E /* bcachefs */};
	struct statfs st;

	if (fstatfs(fd, &st) < 0)
		return false;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		if ((unsigned long)st.f_type == good[i])
			return true;
	return false;
}

static int check_tag(struct import_job *j, char key[KEY_MAX])
{
	const char *tag = j->how->tag;
	uint64_t size;
	int error;

	if (tag_name_is_step(tag) || tag_key(tag, key))
		return opening_fail(j->message, -EINVAL, "'%s' cannot be a tag's name", tag);
	error = remote_size(j->imp->vol->remote, key, &size);
	if (!error)
		return opening_fail(
			j->message, -EEXIST,
			"the tag '%s' is taken: choose another, or move it with epochfs "
			"tag -f; nothing was imported",
			tag);
	return error == -ENOENT ? 0 : error;
}

static int set_tag(struct import_job *j, const char *key, uint64_t number)
{
	char text[TAG_TEXT_MAX];
	int error;

	tag_text(number, text);
	error = remote_put_if_absent(j->imp->vol->remote, key, text, strlen(text));
	if (!error)
		return 0;
	opening_fail(j->message, error, "epoch %" PRIu64 " was imported, but not tagged '%s': %s",
		     number, j->how->tag, strerror(-error));
	return -ENOTCONN;
}

/* What the epoch is to hold. */
static int take(struct import_job *j)
{
	struct stat st;

	if (j->how->remove)
		return import_take_parent(j);
	if (fstat(j->root_fd, &st) < 0)
		return -errno;
	j->root_dev = st.st_dev;
	j->root_ino = st.st_ino;
	j->believes = has_good_ctime(j->root_fd);
	import_parts_recall(j);
	return j->how->as_of_ns ? take_as_of(j) : take_now(j);
}

static int run(struct import_job *j, bool *ret_unchanged)
{
	char tag[KEY_MAX];
	int error = j->how->tag ? check_tag(j, tag) : 0;

	if (!error)
		error = import_find_parent(j);
	if (!error)
		error = import_known_load(j);
	if (error)
		return error;
	memcpy(j->record.volume, j->imp->vol->uuid, sizeof(j->record.volume));
	error = take(j);
	if (!error)
		error = import_commit(j, ret_unchanged);
	if (error)
		return error;
	if (!j->how->remove)
		import_known_forget(j);
	return j->how->tag ? set_tag(j, tag, *ret_unchanged ? j->parent.number : j->record.number)
			   : 0;
}

static void explain(struct import_job *j, int error)
{
	struct volume *vol = j->imp->vol;
	cleanup_buf struct buf why = {0};
	char text[REMOTE_TEXT_MAX];

	switch (error) {
	case -ESTALE:
		holder_lost_text(vol, &why);
		opening_fail(j->message, error, "%s: %s", remote_name(vol->remote), buf_str(&why));
		break;
	case -EEXIST:
		opening_fail(j->message, error,
			     "%s: another writer has put epoch %" PRIu64
			     " meanwhile; nothing was imported",
			     remote_name(vol->remote), j->record.number);
		break;
	case -ECANCELED:
		opening_fail(j->message, error,
			     "interrupted; nothing was imported, and the next import goes on where "
			     "this one ended");
		break;
	case -ENOMEM:
		opening_fail(j->message, error, "out of memory");
		break;
	default:
		opening_fail(j->message, error, "%s", remote_strerror(vol->remote, error, text));
	}
}

static void job_free(struct import_job *j)
{
	if (j->batch) {
		mutex_lock(&j->imp->lock);
		j->imp->batch = NULL;
		mutex_unlock(&j->imp->lock);
		store_batch_free(j->batch);
	}
	if (j->root_fd >= 0)
		close(j->root_fd);
	scan_free(&j->scan);
	tree_unref(j->parent_tree);
	record_free(&j->parent);
	record_free(&j->record);
	free(j->known);
	free(j->changing_path);
	doubts_free(j->doubts);
	import_moved_free(j);
	free(j->torn);
	buf_free(&j->reason);
}

static void give_result(struct import_job *j, bool unchanged, struct import_result *ret_result)
{
	struct epoch_record *r = unchanged ? &j->parent : &j->record;

	*ret_result = (struct import_result){
		.unchanged = unchanged,
		.record = *r,
		.files_read = j->files_read,
		.bytes_read = j->bytes_read,
	};
	*r = (struct epoch_record){0};
}

int import_run(struct import *imp, const struct import_how *how, struct import_result *ret_result,
	       char **ret_message)
{
	struct opening_message message = {0};
	struct import_job j = {
		.imp = imp,
		.how = how,
		.message = &message,
		.began_ns = clock_wall_ns(),
		.part_len = how->part_len ? how->part_len : PART_LEN,
		.root_fd =
			how->remove ? -1 : open(how->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	};
	bool unchanged = false, explained;
	int error;

	mutex_lock(&imp->lock);
	imp->progress = (struct import_progress){0};
	mutex_unlock(&imp->lock);
	if (j.root_fd < 0 && !how->remove)
		error = opening_fail(&message, errno == ENOENT ? -ENOENT : -EIO, "%s: %s",
				     how->directory, strerror(errno));
	else
		error = run(&j, &unchanged);
	explained = message.text != NULL;
	if (!error)
		give_result(&j, unchanged, ret_result);
	else
		explain(&j, error);
	job_free(&j);
	*ret_message = message.text;
	/* What has its line is not the remote's. */
	return explained ? error : contact_errno(error);
}
