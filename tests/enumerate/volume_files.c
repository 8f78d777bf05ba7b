/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes with their I/O mode as in fs/passthrough.c, and files over handles. */
#include "tests/enumerate/volume_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "lib/live/handle.h"

enum io { IO_NONE, IO_PASSTHROUGH, IO_ORDINARY };

struct vnode {
	struct vnode *next;
	uint64_t ino, body;
	unsigned opens;
	enum io io;
	int backing; /* with IO_PASSTHROUGH */
	struct grant *grant;
};

struct vnodes {
	struct volume *vol;
	bool passthrough;
	struct vnode *open;
};

struct vfile {
	struct vnodes *nodes;
	struct vnode *node;
	struct handle *handle;
	int flags;
	int direct; /* the kernel's descriptor of the backing file; -1: through the volume */
	bool mapped, closed; /* through the volume: released with its mapping */
};

struct vmapping {
	struct vfile *file; /* NULL: of the backing file */
	char *map;
	size_t len;
};

struct vnodes *vnodes_new(struct volume *vol, bool passthrough)
{
	struct vnodes *nodes = calloc(1, sizeof(*nodes));

	if (!nodes)
		abort();
	nodes->vol = vol;
	nodes->passthrough = passthrough;
	return nodes;
}

void vnodes_free(struct vnodes *nodes)
{
	free(nodes);
}

/* ---- nodes ---- */

static struct vnode *node_get(struct vnodes *nodes, uint64_t ino, uint64_t body)
{
	struct vnode *n = nodes->open;

	while (n && (n->ino != ino || n->body != body))
		n = n->next;
	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n)
			abort();
		*n = (struct vnode){.next = nodes->open, .ino = ino, .body = body, .backing = -1};
		nodes->open = n;
	}
	n->opens++;
	return n;
}

static void node_put(struct vnodes *nodes, struct vnode *n)
{
	struct vnode **p = &nodes->open;

	if (--n->opens)
		return;
	while (*p != n)
		p = &(*p)->next;
	*p = n->next;
	if (n->backing >= 0)
		close(n->backing);
	grant_release(nodes->vol, n->grant);
	free(n);
}

/* The first open of a node. */
static void node_decide(const struct vnodes *nodes, struct vnode *n, struct handle *h)
{
	n->io = IO_ORDINARY;
	if (nodes->passthrough && !handle_grant(h, &n->grant, &n->backing))
		n->io = IO_PASSTHROUGH;
}

/* The kernel opens the backing file once more for each of its own. */
static int backing_open(const struct vnode *n, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", n->backing);
	return open(path, (flags & (O_ACCMODE | O_APPEND | O_DIRECT)) | O_CLOEXEC);
}

/* Makes a file of a handle, which it takes over. */
static int file_of(struct vnodes *nodes, uint64_t ino, uint64_t body, struct handle *h, int flags,
		   struct vfile **ret_file)
{
	struct vfile *f = calloc(1, sizeof(*f));
	int r = 0;

	if (!f)
		abort();
	*f = (struct vfile){.nodes = nodes, .handle = h, .flags = flags, .direct = -1};
	f->node = node_get(nodes, ino, body);
	if (f->node->io == IO_NONE)
		node_decide(nodes, f->node, h);
	else if (f->node->io == IO_PASSTHROUGH)
		r = handle_join_grant(h, NULL, NULL);
	if (!r && f->node->io == IO_PASSTHROUGH) {
		f->direct = backing_open(f->node, flags);
		if (f->direct < 0)
			abort();
	}
	if (r)
		vfile_release(f);
	else
		*ret_file = f;
	return r;
}

/* ---- files ---- */

static int open_once(struct vnodes *nodes, uint64_t dir, const char *name, int flags,
		     const struct live_caller *who, struct vfile **ret_file)
{
	struct live_attr attr;
	struct handle *h;
	int r = live_lookup(nodes->vol, dir, name, who->pid, &attr);

	if (r == -ENOENT && flags & O_CREAT)
		r = handle_create(nodes->vol, dir, name, 0644, flags, who, &attr, &h);
	else if (!r)
		r = handle_open(nodes->vol, attr.ino, attr.body, flags & ~O_CREAT, who, NULL, NULL,
				&h);
	return r ? r : file_of(nodes, attr.ino, handle_body(h), h, flags, ret_file);
}

/* The kernel looks up and opens once more where it is told ESTALE. */
int vfile_open(struct vnodes *nodes, uint64_t dir, const char *name, int flags, pid_t pid,
	       struct vfile **ret_file)
{
	struct live_caller who = {.uid = getuid(), .gid = getgid(), .pid = pid};
	int r = open_once(nodes, dir, name, flags, &who, ret_file);

	return r == -ESTALE ? open_once(nodes, dir, name, flags, &who, ret_file) : r;
}

bool vfile_is_direct(const struct vfile *f)
{
	return f->direct >= 0;
}

ssize_t vfile_pread(struct vfile *f, void *data, size_t len, uint64_t offset)
{
	ssize_t n;

	if (f->direct < 0)
		return handle_read(f->handle, data, len, offset, NULL, NULL);
	n = pread(f->direct, data, len, (off_t)offset);
	return n < 0 ? -errno : n;
}

ssize_t vfile_pwrite(struct vfile *f, const void *data, size_t len, uint64_t offset)
{
	int64_t size = vfile_size(f);
	ssize_t n;
	int fd;

	if (f->direct >= 0) {
		n = pwrite(f->direct, data, len, (off_t)offset);
		return n < 0 ? -errno : n;
	}
	n = handle_begin_write(f->handle, NULL, NULL, &fd);
	if (n)
		return n;
	return handle_write_to(f->handle, fd, data, len,
			       f->flags & O_APPEND ? (uint64_t)size : offset, NULL, NULL);
}

int vfile_truncate(struct vfile *f, uint64_t size)
{
	return handle_truncate(f->handle, size, NULL, NULL);
}

int vmapping_new(struct vfile *f, size_t len, struct vmapping **ret_mapping)
{
	struct vmapping *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->len = len;
	if (f->direct < 0) {
		m->file = f;
		f->mapped = true;
	} else {
		m->map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, f->direct, 0);
		if (m->map == MAP_FAILED)
			abort();
	}
	*ret_mapping = m;
	return 0;
}

int vmapping_store(struct vmapping *m, const void *data)
{
	if (m->file)
		return vfile_pwrite(m->file, data, m->len, 0) == (ssize_t)m->len ? 0 : -EIO;
	memcpy(m->map, data, m->len);
	return msync(m->map, m->len, MS_SYNC) < 0 ? -errno : 0;
}

void vmapping_free(struct vmapping *m)
{
	if (m->map)
		munmap(m->map, m->len);
	if (m->file)
		m->file->mapped = false;
	if (m->file && m->file->closed)
		vfile_release(m->file);
	free(m);
}

int vfile_map_write(struct vfile *f, const void *data, size_t len)
{
	struct vmapping *m;
	int r = vmapping_new(f, len, &m);

	if (!r) {
		r = vmapping_store(m, data);
		vmapping_free(m);
	}
	return r;
}

int vfile_fallocate(struct vfile *f, int mode, uint64_t offset, uint64_t len)
{
	int r = handle_reserve(f->handle, mode, offset, len, NULL, NULL);

	return r ? r : handle_fallocate(f->handle, mode, offset, len, NULL, NULL);
}

int vfile_fsync(struct vfile *f)
{
	return handle_fsync(f->handle, false);
}

int64_t vfile_size(const struct vfile *f)
{
	struct live_attr attr;
	int r = live_getattr(f->nodes->vol, f->node->ino, f->node->body, &attr);

	return r ? r : (int64_t)attr.size;
}

int vfile_flush(struct vfile *f, pid_t pid)
{
	return handle_flush(f->handle, pid, NULL, NULL);
}

void vfile_release(struct vfile *f)
{
	struct vnodes *nodes = f->nodes;
	bool direct = f->direct >= 0;

	if (f->mapped) {
		f->closed = true;
		return;
	}
	if (direct)
		close(f->direct);
	handle_release(f->handle, direct);
	node_put(nodes, f->node);
	free(f);
}
