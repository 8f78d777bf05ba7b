/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a volume. */
#include "lib/volume/volume.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "lib/cache/contents.h"
#include "lib/cache/evict.h"
#include "lib/cache/grants.h"
#include "lib/cache/store_index.h"
#include "lib/cache/torn.h"
#include "lib/cache/trees.h"
#include "lib/epochs/adopt.h"
#include "lib/epochs/announce.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/follow.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/retention.h"
#include "lib/epochs/sealer.h"
#include "lib/epochs/usage.h"
#include "lib/live/bodies.h"
#include "lib/live/cramped.h"
#include "lib/live/live_internal.h"
#include "lib/meta/rules.h"
#include "lib/store/store.h"
#include "lib/upload/collector.h"
#include "lib/upload/nodes.h"
#include "lib/upload/upload.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/volume/open_steps.h"
#include "lib/volume/recovery.h"

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
	if (!error && drain && !vol->options.read_only)
		error = epochs_wait(vol, number, -1, interrupted, arg);
	if (!error)
		announcer_drain(vol, interrupted, arg);
	if (!error)
		vol->in_order = true;
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
		torn_stop(vol, vol->in_order);
	nodes_close(vol);
	resume_free(vol);
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
