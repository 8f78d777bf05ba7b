/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/metrics/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include "lib/cache/context.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"
#include "lib/remote/remote.h"
#include "lib/upload/upload.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"

/* ---- what is copied under the lock ---- */

enum verdict_count { COUNT_COMPLETE, COUNT_INCOMPLETE, COUNT_CONTINUED, COUNT_UNKNOWN, COUNTS };

struct whole_epoch {
	uint64_t number; /* 0: there is none */
	int64_t sealed_ns;
};

struct numbers {
	uint64_t epochs[COUNTS];
	struct whole_epoch latest, durable;
	int64_t newer_ns; /* wall clock: the first epoch was sealed that is newer than `latest`; 0: none is */
	uint64_t pending, oldest; /* epochs that are not durable, and the first of them */
	char *oldest_record;	  /* its record, owned; NULL: it has none yet */
	int64_t opened_ns;     /* wall clock: the first change that no record tells of; 0: none */
	uint64_t local, dirty; /* bytes in the cache; of them not durable */
};

static enum verdict_count verdict_of(const struct epoch_brief *e)
{
	if (e->superseded)
		return COUNT_CONTINUED;
	if (e->complete)
		return COUNT_COMPLETE;
	return e->unknown ? COUNT_UNKNOWN : COUNT_INCOMPLETE;
}

/* Epochs become durable in their order: those below the first that waits are. */
static void count_epochs(const struct epoch_index *x, struct numbers *n)
{
	for (size_t i = 0; i < x->count; i++) {
		const struct epoch_brief *e = &x->epochs[i];
		const struct whole_epoch whole = {e->number, e->sealed_ns};

		n->epochs[verdict_of(e)]++;
		if (!epoch_brief_complete(e)) {
			n->newer_ns = n->newer_ns ? n->newer_ns : e->sealed_ns;
			continue;
		}
		n->latest = whole;
		n->newer_ns = 0;
		if (!n->oldest || e->number < n->oldest)
			n->durable = whole;
	}
}

/* What is sealed and has no record yet. */
static void look_at_sealer_locked(const struct sealer *s, struct numbers *n)
{
	n->opened_ns = s->first ? s->first->pending.opened_ns : s->pending.opened_ns;
	if (s->first && !n->newer_ns)
		n->newer_ns = s->first->sealed_ns;
}

static int copy_locked(struct volume *vol, struct numbers *n)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	struct state_epoch row;
	uint64_t deletes;
	int error = state_version_totals(vol->state, &n->local, &n->dirty);

	if (!error)
		error = state_epoch_count_waiting(vol->state, &n->pending, &n->oldest, &deletes);
	if (error)
		return error;
	if (x)
		count_epochs(x, n);
	look_at_sealer_locked(vol->sealer, n);
	if (n->oldest && state_epoch_get(vol->state, n->oldest, &row) == 0) {
		n->oldest_record = steal_ptr(row.record);
		state_epoch_free(&row);
	}
	return 0;
}

static void numbers_free(struct numbers *n)
{
	free(n->oldest_record);
}

/* The oldest change that is not durable; 0: there is none. */
static int64_t at_risk_since(const struct numbers *n)
{
	cleanup_record struct epoch_record record = {0};

	if (!n->oldest_record)
		return n->opened_ns;
	if (record_decode(n->oldest_record, strlen(n->oldest_record), &record))
		return 0;
	return record.opened_ns ? record.opened_ns : record.sealed_ns;
}

/* ---- as text, without the lock ---- */

#define FAMILY(name_, type_, unit_, help_)                                                         \
	(&(const struct metrics_family){                                                           \
		.name = (name_), .type = (type_), .unit = (unit_), .help = (help_)})

static void put_number(struct metrics_text *m, const struct metrics_family *family, uint64_t value)
{
	metrics_begin(m, family);
	metrics_number(m, "", value);
}

static void put_counter(struct metrics_text *m, const struct metrics_family *family,
			const _Atomic uint64_t *value)
{
	put_number(m, family, atomic_load(value));
}

static void put_time(struct metrics_text *m, const struct metrics_family *family, int64_t ns)
{
	metrics_begin(m, family);
	metrics_time(m, ns);
}

/* A sample for each of several values of one label. */
static void put_labelled(struct metrics_text *m, const char *label, const char *value,
			 uint64_t number)
{
	cleanup_buf struct buf labels = {0};

	metrics_put_label(&labels, label, value);
	metrics_number(m, buf_str(&labels), number);
}

static void put_mount(struct metrics_text *m, const struct volume *vol)
{
	cleanup_buf struct buf labels = {0};

	metrics_put_label(&labels, "version", EPOCHFS_VERSION);
	metrics_put_label(&labels, "mode", vol->options.read_only ? "ro" : "rw");
	metrics_put_label(&labels, "run", vol->run_id ? vol->run_id : "");
	metrics_begin(m, FAMILY("epochfs_mount", METRICS_INFO, NULL, "The mount."));
	metrics_number(m, buf_str(&labels), 1);
}

/* What is told of one epoch: number, time, age. */
static const struct metrics_family of_latest[] = {
	{"epochfs_latest_epoch", METRICS_GAUGE, NULL,
	 "Number of the newest complete epoch; 0: there is none."},
	{"epochfs_latest_epoch_timestamp_seconds", METRICS_GAUGE, "seconds",
	 "When the newest complete epoch was sealed, since 1970."},
	{"epochfs_latest_epoch_age_seconds", METRICS_GAUGE, "seconds",
	 "Time since the newest complete epoch was sealed."},
};
static const struct metrics_family of_durable[] = {
	{"epochfs_durable_epoch", METRICS_GAUGE, NULL,
	 "Number of the newest complete epoch that is in the remote; 0: there is none."},
	{"epochfs_durable_epoch_timestamp_seconds", METRICS_GAUGE, "seconds",
	 "When the newest complete epoch that is in the remote was sealed, since 1970."},
	{"epochfs_durable_epoch_age_seconds", METRICS_GAUGE, "seconds",
	 "Time since the newest complete epoch that is in the remote was sealed."},
};

static void put_epoch(struct metrics_text *m, const struct metrics_family families[3],
		      const struct whole_epoch *e, int64_t now_ns)
{
	put_number(m, &families[0], e->number);
	if (!e->number)
		return;
	put_time(m, &families[1], e->sealed_ns);
	put_time(m, &families[2], now_ns - e->sealed_ns);
}

static void put_epochs(struct metrics_text *m, const struct numbers *n, int64_t now_ns)
{
	static const char *const names[COUNTS] = {
		[COUNT_COMPLETE] = "complete",
		[COUNT_INCOMPLETE] = "incomplete",
		[COUNT_CONTINUED] = "continued",
		[COUNT_UNKNOWN] = "unknown",
	};

	put_epoch(m, of_latest, &n->latest, now_ns);
	put_time(m,
		 FAMILY("epochfs_latest_lag_seconds", METRICS_GAUGE, "seconds",
			"Time since the first epoch was sealed that is newer than the newest "
			"complete one; 0: none is."),
		 n->newer_ns ? now_ns - n->newer_ns : 0);
	metrics_begin(m, FAMILY("epochfs_epochs", METRICS_GAUGE, NULL,
				"Epochs that there are, by what is known of them."));
	for (unsigned i = 0; i < COUNTS; i++)
		put_labelled(m, "verdict", names[i], n->epochs[i]);
}

/* What only a mount that uploads has. */
static void put_upload(struct metrics_text *m, struct volume *vol, const struct numbers *n,
		       const struct uploader_health *health, int64_t now_ns)
{
	int64_t since_ns = n->oldest || n->dirty ? at_risk_since(n) : 0;

	put_epoch(m, of_durable, &n->durable, now_ns);
	put_number(m,
		   FAMILY("epochfs_pending_epochs", METRICS_GAUGE, NULL,
			  "Epochs that are sealed and not in the remote yet."),
		   n->pending);
	put_number(m,
		   FAMILY("epochfs_at_risk_bytes", METRICS_GAUGE, "bytes",
			  "Bytes in the cache that were closed and are not in the remote yet."),
		   n->dirty);
	put_time(m,
		 FAMILY("epochfs_at_risk_age_seconds", METRICS_GAUGE, "seconds",
			"Time since the oldest change that is not in the remote yet; 0: all is."),
		 since_ns ? now_ns - since_ns : 0);
	put_time(m,
		 FAMILY("epochfs_upload_failing_seconds", METRICS_GAUGE, "seconds",
			"Time since the first failure after the last success; 0: the upload goes "
			"well."),
		 health->failing_since_ns ? now_ns - health->failing_since_ns : 0);
	put_number(m,
		   FAMILY("epochfs_lease_held", METRICS_GAUGE, NULL,
			  "1: this mount holds the lease of the volume; 0: it has lapsed or is "
			  "another's."),
		   holder_holds(vol));
}

static void put_saves(struct metrics_text *m, const struct counters *c)
{
	metrics_begin(m, FAMILY("epochfs_save_duration_seconds", METRICS_HISTOGRAM, "seconds",
				"From the open to the close of each file that was saved."));
	metrics_histogram(m, &c->save);
	metrics_begin(m, FAMILY("epochfs_close_duration_seconds", METRICS_HISTOGRAM, "seconds",
				"What epochfs added to each close of a file open for writing."));
	metrics_histogram(m, &c->close);
	metrics_begin(m, FAMILY("epochfs_failed_saves", METRICS_COUNTER, NULL,
				"Files whose save failed: the writer was killed, a write was "
				"refused, or the file is cut off."));
	put_labelled(m, "reason", "killed", atomic_load(&c->killed));
	put_labelled(m, "reason", "refused", atomic_load(&c->refused));
	put_labelled(m, "reason", "torn", atomic_load(&c->torn));
}

static void put_remote(struct metrics_text *m, struct volume *vol,
		       const struct uploader_health *health)
{
	struct remote_traffic traffic;
	struct remote_state readers;

	remote_get_traffic(vol->plain, &traffic);
	remote_get_state(vol->remote, &readers);
	put_number(m,
		   FAMILY("epochfs_remote_sent_bytes", METRICS_COUNTER, "bytes",
			  "Bytes of objects that were put into the remote."),
		   traffic.sent);
	put_number(m,
		   FAMILY("epochfs_remote_received_bytes", METRICS_COUNTER, "bytes",
			  "Bytes of objects that were got from the remote."),
		   traffic.received);
	put_number(m,
		   FAMILY("epochfs_remote_retries", METRICS_COUNTER, NULL,
			  "Operations on the remote that were tried again."),
		   health->retries + readers.retries);
	metrics_begin(m, FAMILY("epochfs_remote_errors", METRICS_COUNTER, NULL,
				"Operations on the remote that failed, each attempt."));
	for (unsigned i = 0; i < REMOTE_FAILURES; i++)
		put_labelled(m, "kind", remote_failure_name(i), traffic.failures[i]);
}

static void put_cache(struct metrics_text *m, const struct volume *vol, const struct numbers *n)
{
	const struct counters *c = &vol->counters;
	struct statvfs fs;

	put_number(m,
		   FAMILY("epochfs_cache_bytes", METRICS_GAUGE, "bytes",
			  "Bytes of content in the cache."),
		   n->local);
	if (fstatvfs(vol->cache_fd, &fs) == 0)
		put_number(m,
			   FAMILY("epochfs_cache_free_bytes", METRICS_GAUGE, "bytes",
				  "Bytes free on the file system of the cache."),
			   (uint64_t)fs.f_bavail * fs.f_frsize);
	put_counter(m,
		    FAMILY("epochfs_cache_hits", METRICS_COUNTER, NULL,
			   "Opens of closed content that was all in the cache."),
		    &c->cache_hits);
	put_counter(m,
		    FAMILY("epochfs_cache_misses", METRICS_COUNTER, NULL,
			   "Opens of closed content of which some must come from the remote."),
		    &c->cache_misses);
}

static void put_store(struct metrics_text *m, const struct counters *c)
{
	put_counter(m,
		    FAMILY("epochfs_store_input_bytes", METRICS_COUNTER, "bytes",
			   "Bytes of contents that were to be stored."),
		    &c->store_input);
	put_counter(m,
		    FAMILY("epochfs_store_new_bytes", METRICS_COUNTER, "bytes",
			   "Bytes of them that the remote did not have."),
		    &c->store_new);
	put_counter(m,
		    FAMILY("epochfs_store_output_bytes", METRICS_COUNTER, "bytes",
			   "Bytes that these took in the remote, compressed."),
		    &c->store_output);
}

static void put_all(struct metrics_text *m, struct volume *vol, const struct numbers *n)
{
	bool writes = !vol->options.read_only;
	struct uploader_health health;

	uploader_get_health(vol, &health);
	put_mount(m, vol);
	put_epochs(m, n, clock_wall_ns());
	if (writes && !vol->local_only)
		put_upload(m, vol, n, &health, clock_wall_ns());
	if (writes)
		put_saves(m, &vol->counters);
	put_cache(m, vol, n);
	if (!vol->local_only)
		put_remote(m, vol, &health);
	if (writes && !vol->local_only)
		put_store(m, &vol->counters);
	metrics_end(m);
}

int metrics_put(struct volume *vol, enum metrics_format format, struct buf *out)
{
	cleanup_buf struct buf common = {0};
	CLEANUP(numbers_free) struct numbers n = {0};
	struct metrics_text m = {.out = out, .format = format};
	int error;

	mutex_lock(&vol->lock);
	error = copy_locked(vol, &n);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	metrics_put_label(&common, "volume", vol->uuid);
	metrics_put_label(&common, "node", vol->node_name ? vol->node_name : "");
	m.common = buf_str(&common);
	put_all(&m, vol, &n);
	return buf_error(&common) ? -ENOMEM : buf_error(out);
}
