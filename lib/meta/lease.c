/* SPDX-License-Identifier: Apache-2.0 */
/* One writer at a time: the lease of a volume, in its remote, and the process that holds it. */
#include "lib/meta/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/format/names.h"
#include "lib/util/cleanup.h"
#include "lib/util/hash.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

void lease_free(struct lease *l)
{
	if (!l)
		return;
	mutex_destroy(&l->lock);
	free(l);
}

/* ---- holding ---- */

void lease_get(struct lease *l, struct lease_view *ret_view)
{
	SCOPED_LOCK(&l->lock);
	*ret_view = l->view;
}

static int lose(struct lease *l, const struct lease_info *winner)
{
	SCOPED_LOCK(&l->lock);
	if (!l->view.lost) {
		l->view.lost = true;
		l->view.winner = winner ? *winner : (struct lease_info){0};
	}
	return -ESTALE;
}

/* A higher generation is there: our own run's, or another's; who it is is worth a look, no more. */
static int go_on_or_lose(struct lease *l, struct remote *remote, uint64_t generation,
			 int64_t asked_ns)
{
	cleanup_seen struct seen seen = {0};
	struct lease_info winner = {0};
	struct lease_view view;
	char key[KEY_MAX];
	int error;

	lease_get(l, &view);
	if (!view.own.nodes) {
		lease_key(generation, key);
		error = lease_read(remote, key, generation, &seen);
		return lose(l, error || seen.damaged ? NULL : &seen.info);
	}
	error = lease_set_follow(remote, generation, &view.own, &winner);
	if (error)
		return error == -ESTALE ? lose(l, &winner) : error;
	SCOPED_LOCK(&l->lock);
	if (l->view.own.generation < generation)
		l->view.own = view.own;
	l->view.confirmed_ns = asked_ns;
	return 0;
}

int lease_confirm(struct lease *l, struct remote *remote, int64_t max_age_ns)
{
	cleanup_seen struct seen seen = {0};
	int64_t asked_ns = clock_mono_ns();
	uint64_t highest = 0;
	struct lease_view view;
	char key[KEY_MAX];
	int error;

	lease_get(l, &view);
	if (view.lost)
		return -ESTALE;
	if (asked_ns - view.confirmed_ns < max_age_ns)
		return 0;
	error = remote_list(remote, PREFIX_LEASE, lease_note_highest, &highest);
	if (error)
		return error;
	if (highest > view.own.generation)
		return go_on_or_lose(l, remote, highest, asked_ns);
	lease_own_key(&view.own, key);
	error = lease_read(remote, key, view.own.generation, &seen);
	if (error == -ENOENT)
		return lose(l, NULL);
	if (error)
		return error;
	if (seen.damaged || strcmp(seen.info.holder, view.own.holder) != 0)
		return lose(l, seen.damaged ? NULL : &seen.info);
	SCOPED_LOCK(&l->lock);
	l->view.confirmed_ns = asked_ns;
	return 0;
}

/* Writes the own object again. */
static int write_own(struct lease *l, struct remote *remote, bool released, uint64_t pending)
{
	cleanup_buf struct buf text = {0};
	struct lease_view view;
	char key[KEY_MAX];
	int error = lease_confirm(l, remote, 0);

	lease_get(l, &view);
	view.own.renewed += !released;
	view.own.released = released;
	view.own.pending = pending;
	if (!error)
		error = lease_encode(&view.own, &text);
	if (error)
		return error;
	lease_own_key(&view.own, key);
	error = remote_put(remote, key, text.data, text.len);
	if (error)
		return error;
	SCOPED_LOCK(&l->lock);
	/* Unless it went on to another generation meanwhile. */
	if (l->view.own.generation == view.own.generation)
		l->view.own = view.own;
	return 0;
}

int lease_renew(struct lease *l, struct remote *remote)
{
	return write_own(l, remote, false, 0);
}

int lease_release(struct lease *l, struct remote *remote, uint64_t pending)
{
	return write_own(l, remote, true, pending);
}

void lease_describe(const struct lease_info *l, struct buf *out)
{
	if (!l->generation || !l->holder[0]) {
		buf_printf(out, "an unknown host");
		return;
	}
	buf_printf(out, "%s (process %llu", l->host, (unsigned long long)l->pid);
	if (l->mountpoint[0])
		buf_printf(out, ", mounted at %s", l->mountpoint);
	buf_printf(out, ")");
}

void lease_describe_held(const struct lease_info *l, struct buf *out)
{
	char since[FORMAT_MAX];

	buf_printf(out, "held for writing by ");
	if (l->nodes)
		buf_printf(out, "run %s of %u node%s: %s on ", l->run, (unsigned)l->nodes,
			   plural(l->nodes), l->node);
	lease_describe(l, out);
	if (!l->holder[0])
		return;
	/* Whole seconds are what people read. */
	format_time(l->since_ns / NS_PER_S * NS_PER_S, since);
	buf_printf(out, " since %s (its clock)", since);
}

/* ---- Which process holds a lease, and whether it is still there. ---- */

#define BOOT_ID	      "/proc/sys/kernel/random/boot_id"
#define UUID_LEN      36
#define STAT_MAX      4096
#define FIELD_STATE   3 /* of /proc/PID/stat, proc(5) */
#define FIELD_STARTED 22

/* From field 3 on; the name in field 2 may hold anything. NULL: there is no such process, or it is hidden. */
static const char *stat_of(uint64_t pid, struct buf *text)
{
	char path[64];
	const char *end;

	snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
	if (io_read_file(AT_FDCWD, path, STAT_MAX, text))
		return NULL;
	end = strrchr(buf_str(text), ')');
	return end && end[1] == ' ' ? end + 2 : NULL;
}

static uint64_t started_of(const char *stat)
{
	for (int field = FIELD_STATE; stat && field < FIELD_STARTED; field++) {
		stat = strchr(stat, ' ');
		stat = stat ? stat + 1 : NULL;
	}
	return stat ? strtoull(stat, NULL, 10) : 0;
}

static int own_boot(char ret_boot[UUID_LEN + 1])
{
	cleanup_buf struct buf text = {0};

	if (io_read_file(AT_FDCWD, BOOT_ID, 2 * UUID_LEN, &text) || text.len < UUID_LEN)
		return uuid_make(ret_boot);
	memcpy(ret_boot, text.data, UUID_LEN);
	ret_boot[UUID_LEN] = '\0';
	return 0;
}

int lease_process_self(struct lease_info *ret_self)
{
	cleanup_buf struct buf text = {0};
	struct stat namespace;
	int error = own_boot(ret_self->boot_id);

	if (error)
		return error;
	ret_self->pid = (uint64_t)getpid();
	ret_self->pid_started = started_of(stat_of(ret_self->pid, &text));
	ret_self->pid_namespace =
		stat("/proc/self/ns/pid", &namespace) == 0 ? (uint64_t) namespace.st_ino : 0;
	if (gethostname(ret_self->host, sizeof(ret_self->host) - 1) < 0)
		snprintf(ret_self->host, sizeof(ret_self->host), "localhost");
	return 0;
}

bool lease_process_same_boot(const struct lease_info *holder, const struct lease_info *self)
{
	return !strcmp(holder->boot_id, self->boot_id);
}

enum lease_process lease_process_of(const struct lease_info *holder, const struct lease_info *self)
{
	cleanup_buf struct buf text = {0};
	const char *stat;

	if (!lease_process_same_boot(holder, self) || !holder->pid_namespace ||
	    holder->pid_namespace != self->pid_namespace || !holder->pid || !holder->pid_started)
		return LEASE_PROCESS_UNKNOWN;
	if (holder->pid > INT32_MAX || (kill((pid_t)holder->pid, 0) < 0 && errno == ESRCH))
		return LEASE_PROCESS_GONE;
	stat = stat_of(holder->pid, &text);
	if (!stat) /* hidden from us, or it ended just now: kill told which */
		return kill((pid_t)holder->pid, 0) < 0 && errno == ESRCH ? LEASE_PROCESS_GONE
									 : LEASE_PROCESS_THERE;
	if (*stat == 'Z' || *stat == 'X' || started_of(stat) != holder->pid_started)
		return LEASE_PROCESS_GONE;
	return LEASE_PROCESS_THERE;
}
