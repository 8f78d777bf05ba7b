/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a volume. */
#include "lib/volume/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "lib/cache/cache_dir.h"
#include "lib/cache/contents.h"
#include "lib/cache/evict.h"
#include "lib/cache/grant.h"
#include "lib/cache/store_index.h"
#include "lib/cache/torn.h"
#include "lib/cache/trees.h"
#include "lib/epochs/adopt.h"
#include "lib/epochs/announce.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/follow.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/retention.h"
#include "lib/epochs/sealer.h"
#include "lib/epochs/usage.h"
#include "lib/format/names.h"
#include "lib/live/bodies.h"
#include "lib/live/cramped.h"
#include "lib/live/live_internal.h"
#include "lib/meta/rules.h"
#include "lib/meta/volume_key.h"
#include "lib/net/open.h"
#include "lib/store/store.h"
#include "lib/upload/nodes.h"
#include "lib/upload/upload.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/volume/open_steps.h"
#include "lib/volume/recovery.h"

/* ---- the remote ---- */

/* A mount waits this long for a remote that does not answer; later readers for `patience`. */
#define FIRST_TRIES 4
#define FIRST_TOTAL (15 * NS_PER_S)
/* Readers wait at least this long, however short the patience. */
#define READER_MIN (10 * NS_PER_S)

#define UUID_LEN  36
#define LOCAL_MAX 4096

static int put_info(struct volume *vol, struct remote *r, struct opening_message *m)
{
	bool encrypted = volume_key_given(&vol->options.limits);
	cleanup_buf struct buf text = {0};
	char slot[KEY_MAX];
	struct volume_info info;
	int error = volume_info_make(&info);

	if (!error && encrypted)
		error = volume_key_make(r, &vol->options.limits, &info, slot, m);
	if (!error)
		error = volume_info_encode(&info, &text);
	if (error)
		return opening_fail(m, error, "making a volume: %s", strerror(-error));
	error = remote_put_if_absent(r, KEY_VOLUME, text.data, text.len);
	if (error == -EEXIST && encrypted)
		remote_delete(r, slot);
	return error && error != -EEXIST ? contact_fail(r, error, m) : 0;
}

/* Nothing says that this is a volume: make one where nothing else is. */
static int volume_make(struct volume *vol, struct remote *r, struct opening_message *m)
{
	int error = contact_check_empty(r, "give an empty place for a new volume", m);

	if (error)
		return error;
	if (vol->options.read_only)
		return opening_fail(m, -ENOENT,
				    "%s holds no volume yet: mount it without -o ro to make one",
				    remote_name(r));
	return put_info(vol, r, m);
}

/* Several nodes begin at once: where the place is not empty any more, another may have made the volume since it was looked for. */
static int volume_make_or_take(struct volume *vol, struct remote *r, struct volume_info *ret_info,
			       struct opening_message *m)
{
	struct opening_message of_making = {0};
	int error = volume_make(vol, r, &of_making), there;

	if (!error || error == -EBADMSG) {
		there = contact_read(r, ret_info, m);
		error = !error || there != -ENOENT ? there : error;
	}
	if (error && !m->text)
		m->text = steal_ptr(of_making.text);
	free(of_making.text);
	return error;
}

static int volume_find(struct volume *vol, struct remote *r, struct opening_message *m)
{
	struct volume_info info;
	int error = contact_read(r, &info, m);

	if (error == -ENOENT)
		error = volume_make_or_take(vol, r, &info, m);
	if (error)
		return error == -ENOENT ? contact_fail(r, error, m) : error;
	memcpy(vol->uuid, info.uuid, sizeof(vol->uuid));
	vol->info = info;
	return volume_key_open(r, &info, &vol->options.limits, VOLUME_KEY_OF_MOUNTS,
			       &vol->encryption, m);
}

static int open_existing(struct volume *vol, struct remote *plain, struct opening_message *m)
{
	struct remote_retry_policy policy = {.max_tries = FIRST_TRIES, .max_total_ns = FIRST_TOTAL};
	struct remote *first;
	int error = remote_retry_new(remote_ref(plain), &policy, &first);

	if (error) {
		remote_close(plain);
		return opening_fail(m, error, "%s: %s", remote_name(plain), strerror(-error));
	}
	error = volume_find(vol, first, m);
	if (!error && !vol->options.read_only) {
		error = remote_check_writable(first);
		if (error)
			error = contact_fail(first, error, m);
	}
	remote_close(first);
	return error;
}

/* Without a remote the volume is what lies in the cache directory. */
static int local_uuid(struct volume *vol, struct opening_message *m)
{
	cleanup_buf struct buf root = {0}, text = {0};
	cleanup_free char *path = NULL;
	int error;

	if (!vol->options.cache_dir)
		return opening_fail(m, -EINVAL,
				    "remote none keeps all data in the cache directory: say where "
				    "with -o cache-dir=DIR");
	error = cache_root(&vol->options, &root, m);
	if (error)
		return error;
	if (text_print(&path, "%s/local", buf_str(&root)) < 0)
		return -ENOMEM;
	error = io_read_file(AT_FDCWD, path, LOCAL_MAX, &text);
	if (error == -ENOENT && !vol->options.read_only) {
		error = uuid_make(vol->uuid);
		if (!error)
			error = io_replace_file(AT_FDCWD, path, vol->uuid, UUID_LEN);
		if (error)
			return opening_fail(m, error, "%s: %s", path, strerror(-error));
		return 0;
	}
	if (error)
		return opening_fail(m, error, "%s: %s", path, strerror(-error));
	if (text.len != UUID_LEN || strspn(buf_str(&text), "0123456789abcdef-") != UUID_LEN)
		return opening_fail(m, -EBADMSG, "%s is damaged: it should hold a volume's UUID",
				    path);
	memcpy(vol->uuid, text.data, UUID_LEN);
	vol->uuid[UUID_LEN] = '\0';
	return 0;
}

int connect_volume(struct volume *vol, struct opening_message *m)
{
	const struct remote_retry_policy policy = {
		.max_total_ns = vol->options.patience_ns > READER_MIN ? vol->options.patience_ns
								      : READER_MIN};
	char text[REMOTE_TEXT_MAX];
	struct remote *plain;
	int error = remote_open_with(vol->options.remote, &vol->options.limits, &plain);

	if (error)
		return opening_fail(m, contact_open_errno(error), "%s",
				    remote_open_strerror(vol->options.remote, error, text));
	vol->local_only = remote_is_none(plain);
	if (vol->local_only && volume_key_given(&vol->options.limits))
		error = opening_fail(
			m, -EINVAL,
			"remote none keeps all in the cache directory, where nothing is "
			"encrypted: give no passphrase or key file");
	else
		error = vol->local_only ? local_uuid(vol, m) : open_existing(vol, plain, m);
	if (!error)
		error = contact_encrypt(&plain, vol->encryption);
	if (!error)
		error = remote_retry_new(plain, &policy, &vol->remote);
	if (error)
		remote_close(plain);
	else
		vol->plain = remote_ref(plain);
	return error;
}

#define PERCENT_ALL 100

static struct volume *volume_alloc(const struct volume_options *options)
{
	struct volume *vol = calloc(1, sizeof(*vol));

	if (!vol)
		return NULL;
	if (options_copy(options, &vol->options)) {
		free(vol);
		return NULL;
	}
	/* Nanoseconds since 1970 rise faster than ids are taken, so no mount gives one that an earlier one gave, and
	 * none is written down. */
	vol->next_id = (uint64_t)clock_wall_ns();
	atomic_init(&vol->durable_until_ns, options->durable_close ? INT64_MAX : 0);
	vol->cache_fd = vol->lock_fd = vol->objects_fd = vol->trees_fd = vol->torn_fd = -1;
	mutex_init(&vol->lock, LOCK_VOLUME);
	rwlock_init(&vol->events_lock, LOCK_VOLUME_EVENTS);
	if (cond_init_mono(&vol->changed)) {
		options_free(&vol->options);
		free(vol);
		return NULL;
	}
	return vol;
}

static int make_parts(struct volume *vol)
{
	int error = rules_new(&vol->options, &vol->rules);

	vol->observer = &epochs_observer;
	vol->uploads = &uploader_ops;

	/* Bodies are closed with a round of the deferred-work thread, which looks at the grants. */
	if (!error)
		error = grants_new(&vol->grants);
	if (!error)
		error = bodies_new(vol);
	if (!error)
		error = cramped_new(vol);
	if (!error)
		error = contents_new(&vol->contents);
	if (!error)
		error = trees_new(&vol->trees);
	if (!error)
		error = torn_start(vol);
	if (!error)
		error = usage_cache_new(&vol->usage);
	if (!error)
		error = resume_new(vol);
	if (!error && vol->options.by_saves && vol->options.nodes < 2 && !vol->options.read_only) {
		vol->observer = &driver_observer;
		error = driver_new(vol);
	}
	return error;
}

static int check_epoch(struct volume *vol, struct opening_message *m)
{
	uint64_t number = vol->options.at_epoch;
	int64_t sealed_ns;
	int error = number ? epochs_sealed_ns(vol, number, &sealed_ns) : 0;

	if (error == -ENOENT)
		return opening_fail(m, error,
				    "%s has no epoch %llu: epochfs log shows which it has",
				    remote_name(vol->remote), (unsigned long long)number);
	return error;
}

static int open_store(struct volume *vol, struct opening_message *m)
{
	struct store_index index = volume_store_index(vol);
	uint64_t current = vol->current_epoch;
	char text[REMOTE_TEXT_MAX];
	int error = store_open(vol->remote, &index, vol->options.threads, &vol->store);

	if (!error)
		error = store_set_readers(vol->store, vol->options.limits.connections
							      ? vol->options.limits.connections
							      : REMOTE_CONNECTIONS);
	if (error)
		return error;
	error = adopt_remote(vol, nodes_complete, m);
	if (!error && vol->current_epoch != current)
		contents_learn(vol);
	if (error && remote_may_retry(error))
		opening_fail(m, error, "%s", remote_strerror(vol->remote, error, text));
	return error;
}

/* No live tree, and of the threads only those of the lease and of announcements. */
static int start_import(struct volume *vol, struct opening_message *m)
{
	struct store_index index = volume_store_index(vol);
	int error;

	/* One writer, whatever the job around it is made of. */
	vol->options.nodes = 0;
	error = connect_volume(vol, m);
	if (!error && vol->local_only)
		error = opening_fail(m, -EINVAL, "none holds nothing: name a remote");
	if (!error)
		error = open_state(vol, m);
	if (!error)
		error = holder_start(vol, m);
	if (!error)
		error = store_open(vol->remote, &index, vol->options.threads, &vol->store);
	return error ? error : announcer_start(vol, m);
}

static int start(struct volume *vol, struct opening_message *m)
{
	bool killed = false;
	int error = connect_volume(vol, m);

	if (!error)
		error = open_state(vol, m);
	if (!error)
		error = nodes_open(vol, m);
	/* What is read of the remote from now on is what the last writer left. */
	if (!error)
		error = holder_start(vol, m);
	if (!error)
		error = make_parts(vol);
	if (!error)
		error = recover(vol, &killed);
	if (!error && !vol->local_only)
		error = open_store(vol, m);
	if (!error)
		error = announcer_start(vol, m);
	if (!error)
		error = retention_start(vol, m);
	if (!error)
		error = collector_start(vol);
	if (!error)
		error = sealer_start(vol, killed);
	if (!error)
		error = deferred_start(vol);
	if (!error)
		error = evictor_start(vol);
	if (!error)
		error = cramped_start(vol);
	if (!error)
		error = uploader_start(vol);
	if (!error && vol->rebuilt)
		error = rebuild_recover(vol);
	if (!error)
		error = sealer_run(vol);
	if (!error)
		error = check_epoch(vol, m);
	if (!error)
		error = nodes_begin(vol, m);
	if (!error)
		error = resume_at_open(vol, m);
	if (!error)
		error = follower_start(vol, nodes_pass);
	if (!error)
		error = collector_run(vol);
	if (!error)
		error = retention_run(vol);
	return error;
}

static int open_as(const struct volume_options *options, bool imports, bool again,
		   struct volume **ret_volume, char **ret_message)
{
	struct opening_message message = {0};
	struct volume *vol = volume_alloc(options);
	int error = -ENOMEM;

	if (vol) {
		vol->imports = imports;
		error = imports ? start_import(vol, &message) : start(vol, &message);
	}
	if (error) {
		bool damaged = vol && vol->state && state_is_damaged(vol->state);

		if (vol)
			volume_close(vol);
		/* Its note makes the next one rebuild it. */
		if (damaged && !again) {
			free(message.text);
			return open_as(options, imports, true, ret_volume, ret_message);
		}
		*ret_message = message.text ? message.text : NULL;
		if (!message.text)
			text_print(ret_message, "opening %s: %s", options->remote,
				   strerror(-error));
		return error;
	}
	*ret_volume = vol;
	return 0;
}

int volume_open(const struct volume_options *options, struct volume **ret_volume,
		char **ret_message)
{
	if (options->at_epoch && !options->read_only) {
		struct opening_message message = {0};
		int error = opening_fail(&message, -EINVAL,
					 "one epoch is mounted read-only: add -o ro");

		*ret_message = message.text;
		return error;
	}
	return open_as(options, false, false, ret_volume, ret_message);
}

int volume_open_for_import(const struct volume_options *options, struct volume **ret_volume,
			   char **ret_message)
{
	return open_as(options, true, false, ret_volume, ret_message);
}

int volume_finish(struct volume *vol, bool drain, bool (*interrupted)(void *), void *arg)
{
	struct epochs_seal how = {.trigger = "umount"};
	uint64_t number;
	int error = 0;

	if (!vol->options.read_only)
		error = epochs_seal(vol, &how, &number);
	if (!error && vol->driver) {
		driver_leave(vol);
		/* What it made once more. */
		error = epochs_seal(vol, &how, &number);
	}
	if (!error && drain && !vol->options.read_only)
		error = epochs_wait(vol, number, -1, interrupted, arg);
	if (!error)
		announcer_drain(vol, interrupted, arg);
	return error;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void volume_close(struct volume *vol)
{
	if (vol->follower)
		follower_stop(vol);
	cramped_stop(vol);
	/* What the deferred-work thread still commits, the sealer must see; what the uploader lets go, that thread
	 * removes: so it comes twice. */
	if (vol->bodies)
		deferred_stop(vol);
	if (vol->sealer)
		sealer_stop(vol);
	retention_stop(vol);
	collector_stop(vol);
	if (vol->uploader)
		uploader_stop(vol);
	retention_free(vol);
	collector_free(vol);
	announcer_stop(vol);
	if (vol->holder)
		holder_stop(vol);
	/* The uploader looks into its index, and may make the live tree another one. */
	if (vol->sealer)
		sealer_free(vol);
	/* Readers are gone; what still comes for them need not. */
	if (vol->remote)
		remote_cancel(vol->remote);
	if (vol->contents)
		contents_drain(vol->contents);
	if (vol->evictor)
		evictor_stop(vol);
	if (vol->bodies)
		deferred_stop(vol);
	if (vol->store)
		store_close(vol->store);
	if (vol->torn)
		torn_stop(vol);
	nodes_close(vol);
	resume_free(vol);
	driver_free(vol);
	trees_free(vol->trees);
	bodies_free(vol->bodies);
	cramped_free(vol);
	grants_free(vol->grants);
	contents_free(vol->contents);
	usage_cache_free(vol->usage);
	doubts_survey_free(vol);
	buf_free(&vol->tombstones);
	leave_state(vol);
	close_fd(vol->torn_fd);
	close_fd(vol->trees_fd);
	close_fd(vol->objects_fd);
	close_fd(vol->cache_fd);
	close_fd(vol->lock_fd);
	remote_close(vol->remote);
	remote_close(vol->plain);
	encryption_unref(vol->encryption);
	rules_free(vol->rules);
	pthread_cond_destroy(&vol->changed);
	rwlock_destroy(&vol->events_lock);
	mutex_destroy(&vol->lock);
	options_free(&vol->options);
	free(vol->run_id);
	free(vol->node_name);
	free(vol->cache_path);
	free(vol);
}

const char *volume_uuid(const struct volume *vol)
{
	return vol->uuid;
}

const char *volume_remote_name(const struct volume *vol)
{
	return remote_name(vol->remote);
}

const char *volume_cache_path(const struct volume *vol)
{
	return vol->cache_path;
}

bool volume_read_only(const struct volume *vol)
{
	return vol->options.read_only;
}

const struct volume_options *volume_options(const struct volume *vol)
{
	return &vol->options;
}

int volume_statfs(struct volume *vol, struct volume_space *ret_space)
{
	uint64_t local = 0, dirty = 0, reserved, clean, available;
	struct statvfs st;
	int error;

	if (fstatvfs(vol->cache_fd, &st) < 0)
		return -errno;
	mutex_lock(&vol->lock);
	error = state_version_totals(vol->state, &local, &dirty);
	uint64_t files = state_file_count(vol->state);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	clean = local > dirty ? (local - dirty) / st.f_frsize : 0;
	reserved = st.f_blocks / PERCENT_ALL * vol->options.min_free_percent;
	available = st.f_bavail + clean;
	*ret_space = (struct volume_space){
		.block_size = st.f_frsize,
		.blocks = st.f_blocks,
		.free_blocks = st.f_bfree + clean < st.f_blocks ? st.f_bfree + clean : st.f_blocks,
		.available_blocks = available > reserved ? available - reserved : 0,
		.files = files + st.f_favail,
		.free_files = st.f_favail,
	};
	return 0;
}

bool volume_is_ending(const char *cache, pid_t pid)
{
	return shutdown_mark_is_ending(cache, pid);
}
