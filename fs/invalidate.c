/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the kernel what changed though it did not ask for it: events of the volume. */
#include "fs/invalidate.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/epochs_dir.h"
#include "fs/loop.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"

/* More bodies of one file are not open at once in earnest; those beyond keep their second. */
#define NODES_OF_FILE_MAX 64

static void tell_entry(struct fs_mount *m, uint64_t parent, const char *name)
{
	struct node_key key = {.kind = NODE_LIVE, .a = parent};
	uint64_t id = nodes_id_of(m->nodes, &key);

	/* It fails where the kernel does not know the name: good. */
	if (id)
		(void)fuse_lowlevel_notify_inval_entry(m->se, id, name, strlen(name));
}

/* What the kernel has of the content by a node stays right: other content has another node (events.h). */
static void tell_file(struct fs_mount *m, uint64_t ino)
{
	uint64_t ids[NODES_OF_FILE_MAX];
	size_t count = nodes_of_file(m->nodes, ino, ids, NODES_OF_FILE_MAX);

	for (size_t i = 0; i < count; i++)
		(void)fuse_lowlevel_notify_inval_inode(m->se, ids[i], -1, 0);
}

/* A view that somebody waits in is locked by him; nobody else is sent there, and it forgets the name
 * within TIMEOUT_LIVE. */
static void tell_epoch(struct fs_mount *m, const char *name)
{
	struct node_key key = {.kind = NODE_SPECIAL, .a = SPECIAL_EPOCHS};
	uint64_t id;

	for (key.view = 0; key.view < epochs_views_max(); key.view++) {
		id = epochs_views_busy(m->views, key.view) ? 0 : nodes_id_of(m->nodes, &key);
		if (id)
			(void)fuse_lowlevel_notify_inval_entry(m->se, id, name, strlen(name));
	}
}

/* Of the protocol, where the system's linux/fuse.h is older than it. libfuse has had three forms of a
 * call for this. */
#define EPOCHS_NAME	".epochs"
#define NOTIFY_ENTRY	3
#define NOTIFY_EXPIRING 1

struct expiry {
	struct fuse_out_header head;
	uint64_t parent;
	uint32_t name_len, flags;
	char name[sizeof(EPOCHS_NAME)];
} __attribute__((packed));

void invalidate_view(struct fs_mount *m)
{
	const struct expiry notice = {
		.head = {.len = sizeof(notice), .error = NOTIFY_ENTRY},
		.parent = FUSE_ROOT_ID,
		.name_len = sizeof(EPOCHS_NAME) - 1,
		.flags = NOTIFY_EXPIRING,
		.name = EPOCHS_NAME,
	};

	/* -ENOENT where the kernel does not know the name: good. */
	if (m->expires && write(fuse_session_fd(m->se), &notice, sizeof(notice)) < 0 &&
	    errno != ENOENT)
		log_debug("a name in the kernel lasts for a second: %s", strerror(errno));
}

void invalidate_run(struct fs_mount *m, struct invalidation *list)
{
	loop_kernel_begin();
	while (list) {
		cleanup_free struct invalidation *i = list;

		list = i->next;
		if (i->node)
			(void)fuse_lowlevel_notify_inval_inode(m->se, i->node, i->offset, i->len);
		else if (i->epoch)
			tell_epoch(m, i->name);
		else if (i->name[0])
			tell_entry(m, i->ino, i->name);
		else
			tell_file(m, i->ino);
	}
	loop_kernel_end();
}

/* After the answer of the request that the calling thread answers. */
static void tell_later(uint64_t id, off_t offset, off_t len)
{
	struct invalidation *i = calloc(1, sizeof(*i) + 1);

	if (!i) {
		log_error("out of memory: the kernel may show old content of its inode %llu",
			  (unsigned long long)id);
		return;
	}
	i->node = id;
	i->offset = offset;
	i->len = len;
	if (!loop_defer(i))
		free(i);
}

static void tell_content(struct fs_mount *m, uint64_t id, off_t offset, off_t len, enum teller who)
{
	if (who == TELLER_AWAITED && atomic_exchange(&m->telling, true)) {
		tell_later(id, offset, len);
		return;
	}
	loop_kernel_begin();
	(void)fuse_lowlevel_notify_inval_inode(m->se, id, offset, len);
	loop_kernel_end();
	if (who == TELLER_AWAITED)
		atomic_store(&m->telling, false);
}

/* Only a node that lost its key to another has a twin (nodes_move). The kernel caches nothing of it but what is mapped:
 * contract 7.2. */
void invalidate_twin(struct fs_mount *m, const struct node *n, off_t offset, off_t len,
		     enum teller who)
{
	const struct node_key key = {.kind = NODE_LIVE, .a = n->a, .b = node_body(n)};
	uint64_t id = n->kind == NODE_LIVE && n->unlisted ? nodes_id_of(m->nodes, &key) : 0;

	if (id)
		tell_content(m, id, offset, len, who);
}

void invalidate_others(struct fs_mount *m, const struct node *n, bool content)
{
	uint64_t ids[NODES_OF_FILE_MAX];
	size_t count = nodes_of_file(m->nodes, n->a, ids, NODES_OF_FILE_MAX);

	/* Attributes alone, first: these are dropped without a wait. */
	for (size_t i = 0; i < count; i++)
		if (ids[i] != n->id)
			(void)fuse_lowlevel_notify_inval_inode(m->se, ids[i], -1, 0);
	for (size_t i = 0; content && i < count; i++)
		if (ids[i] != n->id)
			tell_content(m, ids[i], 0, 0, TELLER_AWAITED);
}

static void changed(struct fs_mount *m, uint64_t ino, uint64_t epoch, const char *name)
{
	size_t len = strlen(name) + 1;
	struct invalidation *i = calloc(1, sizeof(*i) + len);

	if (!i) {
		log_error("out of memory: the kernel may show a change of %s %llu a second late",
			  epoch ? "epoch" : "inode", (unsigned long long)(epoch ? epoch : ino));
		return;
	}
	i->ino = ino;
	i->epoch = epoch;
	memcpy(i->name, name, len);
	if (!loop_defer(i))
		invalidate_run(m, i);
}

static void on_entry_changed(void *arg, uint64_t parent, const char *name)
{
	changed(arg, parent, 0, name);
}

static void on_file_changed(void *arg, uint64_t ino)
{
	changed(arg, ino, 0, "");
}

static void on_epoch_dropped(void *arg, uint64_t number)
{
	char name[EPOCHS_NAME_MAX];

	epochs_dir_name(number, name);
	changed(arg, 0, number, name);
}

static bool is_known(void *arg, uint64_t ino, uint64_t body)
{
	struct fs_mount *m = arg;

	return nodes_hold(m->nodes, ino, body);
}

static void node_gone(void *arg, uint64_t ino, uint64_t body)
{
	struct fs_mount *m = arg;

	volume_node_gone(m->vol, ino, body);
}

void invalidate_start(struct fs_mount *m)
{
	const struct volume_known known = {.arg = m, .is_known = is_known};

	const struct volume_events events = {
		.arg = m,
		.entry_changed = on_entry_changed,
		.file_changed = on_file_changed,
		.epoch_dropped = on_epoch_dropped,
	};

	volume_set_events(m->vol, &events);
	nodes_set_gone(m->nodes, node_gone, m);
	volume_set_known(m->vol, &known);
}

void invalidate_stop(struct fs_mount *m)
{
	const struct volume_events none = {0};
	const struct volume_known nothing = {0};

	volume_set_events(m->vol, &none);
	volume_set_known(m->vol, &nothing);
}
