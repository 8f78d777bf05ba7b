/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes: those of files, and user.epochfs.*, which say what became of them.
 *
 * user.epochfs.* are listed, so that getfattr -d shows them. Tools that copy attributes therefore
 * try to set and remove them, also on copies that come back from elsewhere: both succeed and
 * change nothing.
 */
#include "fs/ops.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "fs/epoch_files.h"
#include "fs/invalidate.h"
#include "fs/resent.h"
#include "lib/util/buf.h"
#include "lib/epochs/epochs.h"

#define OWN_PREFIX "user.epochfs."
#define LABEL	   "security.selinux"

static bool is_own(const char *name)
{
	return strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0;
}

/* No ACLs (system.*): tools then ask no more. */
static bool is_supported(const char *name)
{
	static const char *const prefixes[] = {"user.", "trusted.", "security."};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
		size_t len = strlen(prefixes[i]);

		if (strncmp(name, prefixes[i], len) == 0 && name[len])
			return true;
	}
	return false;
}

/* Where user.epochfs.* go: into a list of names, or the value of one of them. */
struct own_sink {
	const char *wanted; /* after the prefix; NULL: list all names */
	struct buf *out;
	bool found;
};

static void own(struct own_sink *s, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void own(struct own_sink *s, const char *name, const char *fmt, ...)
{
	char value[256];
	va_list args;
	int len;

	if (!s->wanted) {
		buf_printf(s->out, OWN_PREFIX "%s", name);
		buf_put_u8(s->out, 0);
		return;
	}
	if (strcmp(s->wanted, name))
		return;
	va_start(args, fmt);
	len = vsnprintf(value, sizeof(value), fmt, args);
	va_end(args);
	buf_put(s->out, value, (size_t)len < sizeof(value) ? (size_t)len : sizeof(value) - 1);
	s->found = true;
}

static const char *state_name(enum epoch_state state)
{
	switch (state) {
	case EPOCH_UPLOADING:
		return "uploading";
	case EPOCH_DURABLE:
		return "durable";
	case EPOCH_FAILED:
		return "failed";
	default:
		return "sealed";
	}
}

static const char *complete_name(const struct epoch_info *e)
{
	if (e->complete)
		return "true";
	return e->record.complete == RECORD_UNKNOWN ? "unknown" : "false";
}

static void own_of_node_names(struct own_sink *s, const struct epoch_record *r)
{
	cleanup_buf struct buf names = {0};

	for (size_t i = 0; i < r->node_count; i++)
		buf_printf(&names, "%s%s", i ? "," : "", r->node_names[i]);
	if (!names.len && r->host) /* of one node: it */
		buf_printf(&names, "%s", r->host);
	if (names.len)
		own(s, "nodes", "%s", buf_str(&names));
}

static int own_of_epoch(struct fs_mount *m, const struct node *n, struct own_sink *s)
{
	struct epoch_info e;
	int r = epochs_get(m->vol, n->a, &e);

	if (r < 0)
		return r;
	own(s, "state", "%s", state_name(e.state));
	own(s, "epoch", "%llu", (unsigned long long)e.number);
	if (e.record.has_step)
		own(s, "step", "%llu", (unsigned long long)e.record.step);
	if (n->b == 0) {
		own(s, "complete", "%s", complete_name(&e));
		own_of_node_names(s, &e.record);
		own(s, "bytes", "%llu", (unsigned long long)e.record.bytes);
		own(s, "bytes_new", "%llu", (unsigned long long)e.record.bytes_new);
		if (e.error)
			own(s, "error", "%s", e.error);
	}
	epoch_info_free(&e);
	return 0;
}

static int own_of_live(struct fs_mount *m, const struct node *n, struct own_sink *s)
{
	struct file_epoch info;
	int r;

	if (n->b == 0) /* no regular file */
		return 0;
	r = node_error(epochs_of_file(m->vol, n->a, &info));
	if (r < 0)
		return r;
	own(s, "state", "%s", info.state);
	if (info.epoch)
		own(s, "epoch", "%llu", (unsigned long long)info.epoch);
	if (info.has_step)
		own(s, "step", "%llu", (unsigned long long)info.step);
	return 0;
}

static int own_of(struct fs_mount *m, const struct node *n, struct own_sink *s)
{
	if (n->kind == NODE_LIVE)
		return own_of_live(m, n, s);
	return n->kind == NODE_EPOCH ? own_of_epoch(m, n, s) : 0;
}

static int get_xattr(struct fs_mount *m, struct node *n, const char *name, struct buf *out)
{
	struct own_sink s = {.wanted = name + strlen(OWN_PREFIX), .out = out};
	int r = -ENODATA;

	if (!is_supported(name))
		return -EOPNOTSUPP;
	if (is_own(name)) {
		r = own_of(m, n, &s);
		return r < 0 ? r : s.found ? 0 : -ENODATA;
	}
	if (n->kind == NODE_LIVE)
		r = node_error(live_getxattr(m->vol, n->a, name, out));
	else if (n->kind == NODE_EPOCH)
		r = epoch_file_getxattr(m, n, name, out);
	/* ls -l asks for it once a file, unless it hears that there are no labels here at all. */
	return r == -ENODATA && strcmp(name, LABEL) == 0 ? -EOPNOTSUPP : r;
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	cleanup_buf struct buf value = {0};
	int r = n ? get_xattr(m, n, name, &value) : -ESTALE;

	if (r == 0)
		r = buf_error(&value);
	if (r < 0)
		reply_error(req, r);
	else
		reply_xattr(req, value.data, value.len, size);
}

/* As on a local disk: what only root may read, others do not see. */
static void hide_trusted(struct buf *names)
{
	static const char prefix[] = "trusted.";
	size_t kept = 0;

	for (size_t at = 0, len; at < names->len; at += len) {
		const char *name = (const char *)names->data + at;

		len = strnlen(name, names->len - at) + 1;
		if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
			continue;
		memmove(names->data + kept, name, len);
		kept += len;
	}
	names->len = kept;
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	cleanup_buf struct buf names = {0};
	struct own_sink s = {.out = &names};
	int r = -ESTALE;

	if (n && n->kind == NODE_LIVE)
		r = node_error(live_listxattr(m->vol, n->a, &names));
	else if (n)
		r = n->kind == NODE_EPOCH ? epoch_file_listxattr(m, n, &names) : 0;
	if (r == 0)
		r = own_of(m, n, &s);
	if (r == 0)
		r = buf_error(&names);
	if (r == 0 && fuse_req_ctx(req)->uid)
		hide_trusted(&names);
	if (r < 0)
		reply_error(req, r);
	else
		reply_xattr(req, names.data, names.len, size);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct fs_mount *m = fs_of(req);
	const struct node *n = nodes_find(m->nodes, ino);
	int r = node_writable(m, n);

	if (r == 0 && !is_supported(name))
		r = -EOPNOTSUPP;
	if (r == 0 && !is_own(name))
		r = resent_xattr(req,
				 node_error(live_setxattr(m->vol, n->a, name, value, size, flags)),
				 n->a, name, value, size);
	if (r == 0)
		invalidate_others(m, n, false);
	reply_error(req, r);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs_mount *m = fs_of(req);
	const struct node *n = nodes_find(m->nodes, ino);
	int r = node_writable(m, n);

	if (r == 0 && !is_supported(name))
		r = -EOPNOTSUPP;
	if (r == 0 && !is_own(name))
		r = resent_removed(node_error(live_removexattr(m->vol, n->a, name)), -ENODATA);
	if (r == 0)
		invalidate_others(m, n, false);
	reply_error(req, r);
}
