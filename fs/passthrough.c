/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel passthrough: the handshake, backing ids, and the I/O mode of nodes. */
#include "fs/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include "fs/files.h"
#include "fs/handover.h"
#include "fs/loop.h"
#include "fs/ops.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

/* Of the protocol, where the system's linux/fuse.h is older than it. */
#define INIT_FLAG_EXT		 (1u << 30)
#define INIT_FLAG_KILLPRIV_V2	 (1u << 28)
#define INIT_FLAG2_DIRECT_MMAP	 (1u << (36 - 32))
#define INIT_FLAG2_PASSTHROUGH	 (1u << (37 - 32))
#define INIT_FLAG2_NO_EXPORT	 (1u << (38 - 32))
#define INIT_FLAG2_RESEND	 (1u << (39 - 32))
#define OPEN_FLAG_PASSTHROUGH	 (1u << 7)
#define INIT_OUT_SIZE		 64
#define INIT_OUT_FLAGS		 12
#define INIT_OUT_FLAGS2		 32
#define INIT_OUT_MAX_STACK_DEPTH 36

struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

struct open_reply {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};

struct passthrough {
	enum fs_passthrough wanted;
	/* The handshake: one thread. */
	bool shaken;
	bool asked; /* INIT was read */
	uint64_t init_unique;
	uint32_t kernel_flags, kernel_flags2;
	bool offered;
	bool again; /* the kernel made it with a worker before this one: it is played to libfuse */
	bool different; /* and this epochfs would have answered otherwise */
	/* After it. */
	_Atomic bool enabled;
	_Atomic(const char *) reason; /* why not; static */
	atomic_uint_least64_t opens, ordinary_opens;
};

int passthrough_new(const struct fs_mount *m, struct passthrough **ret_p)
{
	struct passthrough *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->wanted = m->options.passthrough;
	p->reason = p->wanted == FS_PASSTHROUGH_OFF ? "off" : "";
	p->again = m->handover && m->handover->fuse_fd >= 0;
	*ret_p = p;
	return 0;
}

void passthrough_free(struct passthrough *p)
{
	free(p);
}

/* ---- the handshake ---- */

/* The kernel's first request: from the kernel, or, where a worker before had it, as that kept it. */
static ssize_t read_init(const struct fs_mount *m, int fd, void *buf, size_t len)
{
	struct table_start *start = m->handover ? m->handover->table.start : NULL;
	ssize_t n;

	if (m->passthrough->again) {
		n = (ssize_t)(start->init_len < len ? start->init_len : len);
		memcpy(buf, start->init, (size_t)n);
		return n;
	}
	n = read(fd, buf, len);
	if (start && n > 0 && n <= TABLE_INIT_MAX) {
		memcpy(start->init, buf, (size_t)n);
		start->init_len = (uint32_t)n;
	}
	return n;
}

/* What an answer tells comes before the requests that follow from it. ThreadSanitizer knows that of a descriptor only if it
 * saw who opened it, not of the one that a worker inherits from its supervisor. */
#ifdef __SANITIZE_THREAD__
#define answer_goes(m)	__tsan_release(m)
#define request_came(m) __tsan_acquire(m)
#else
#define answer_goes(m)	((void)(m))
#define request_came(m) ((void)(m))
#endif

/*
 * Where a worker is killed while the kernel copies a request to memory that it would have to find first, it gives up, and who
 * asked gets EIO: nothing is sent again (fuse_dev_do_read). So the thread's buffer is there before it reads.
 */
static void populate(void *buf, size_t len)
{
	static _Thread_local void *populated;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)buf & ~(page - 1);

	if (populated == buf)
		return;
	populated = buf;
	madvise((void *)from, (uintptr_t)buf + len - from, MADV_POPULATE_WRITE);
}

static ssize_t hook_read(int fd, void *buf, size_t len, void *arg)
{
	struct fs_mount *m = arg;
	struct passthrough *p = m->passthrough;
	struct fuse_in_header head;
	struct fuse_init_in init = {0};
	ssize_t n;

	if (m->handover)
		populate(buf, len);
	n = p->shaken ? read(fd, buf, len) : read_init(m, fd, buf, len);
	request_came(m);
	if (p->shaken || n < (ssize_t)sizeof(head))
		return n;
	memcpy(&head, buf, sizeof(head));
	if (head.opcode != FUSE_INIT)
		return n;
	memcpy(&init, (const char *)buf + sizeof(head),
	       (size_t)n - sizeof(head) < sizeof(init) ? (size_t)n - sizeof(head) : sizeof(init));
	p->asked = true;
	p->init_unique = head.unique;
	p->kernel_flags = init.flags;
	p->kernel_flags2 = init.flags & INIT_FLAG_EXT ? init.flags2 : 0;
	return n;
}

/* Puts into the answer to INIT what libfuse does not know. */
static void patch_init(struct passthrough *p, char out[INIT_OUT_SIZE])
{
	uint32_t flags, flags2, depth = 0;

	memcpy(&flags, out + INIT_OUT_FLAGS, sizeof(flags));
	/* libfuse 3.17 and later have flags there, older ones zeros. */
	memcpy(&flags2, out + INIT_OUT_FLAGS2, sizeof(flags2));
	/* Without it the kernel asks for security.capability before every write. */
	flags |= p->kernel_flags & INIT_FLAG_KILLPRIV_V2;
	if (p->kernel_flags & INIT_FLAG_EXT) {
		flags |= INIT_FLAG_EXT;
		flags2 |= p->kernel_flags2 &
			  (INIT_FLAG2_NO_EXPORT | INIT_FLAG2_RESEND | INIT_FLAG2_DIRECT_MMAP);
		if (p->wanted != FS_PASSTHROUGH_OFF)
			flags2 |= p->kernel_flags2 & INIT_FLAG2_PASSTHROUGH;
	}
	p->offered = flags2 & INIT_FLAG2_PASSTHROUGH;
	if (p->offered)
		depth = 1; /* nothing that is stacked lies below us: its mappings are not told (mappings_are_told) */
	memcpy(out + INIT_OUT_FLAGS, &flags, sizeof(flags));
	memcpy(out + INIT_OUT_FLAGS2, &flags2, sizeof(flags2));
	memcpy(out + INIT_OUT_MAX_STACK_DEPTH, &depth, sizeof(depth));
}

/* The answer to INIT: to the kernel; where a worker before gave it, only whether it is the same. */
static ssize_t write_init(const struct fs_mount *m, int fd, struct iovec *head,
			  char out[INIT_OUT_SIZE])
{
	struct iovec whole[2] = {*head, {out, INIT_OUT_SIZE}};
	struct table_start *start = m->handover ? m->handover->table.start : NULL;
	struct passthrough *p = m->passthrough;

	p->shaken = true;
	if (p->again) {
		p->different = start->answer_len != INIT_OUT_SIZE ||
			       memcmp(start->answer, out, INIT_OUT_SIZE) != 0;
		return (ssize_t)(head->iov_len + INIT_OUT_SIZE);
	}
	if (start) {
		memcpy(start->answer, out, INIT_OUT_SIZE);
		start->answer_len = INIT_OUT_SIZE;
	}
	return writev(fd, whole, 2);
}

static ssize_t hook_writev(int fd, struct iovec *iov, int count, void *arg)
{
	struct passthrough *p = ((struct fs_mount *)arg)->passthrough;
	struct fuse_out_header head;
	char out[INIT_OUT_SIZE];

	answer_goes(arg);
	if (p->shaken || !p->asked || count != 2 || iov[0].iov_len != sizeof(head) ||
	    iov[1].iov_len != sizeof(out))
		return writev(fd, iov, count);
	memcpy(&head, iov[0].iov_base, sizeof(head));
	if (head.unique != p->init_unique || head.error)
		return writev(fd, iov, count);
	memcpy(out, iov[1].iov_base, sizeof(out));
	patch_init(p, out);
	return write_init(arg, fd, &iov[0], out);
}

bool passthrough_can_resend(const struct fs_mount *m)
{
	return m->passthrough->kernel_flags2 & INIT_FLAG2_RESEND;
}

bool passthrough_same_terms(const struct fs_mount *m)
{
	return !m->passthrough->different;
}

static ssize_t hook_splice(int in, off_t *off_in, int out, off_t *off_out, size_t len,
			   unsigned int flags, void *arg)
{
	answer_goes(arg);
	return splice(in, off_in, out, off_out, len, flags);
}

const struct fuse_custom_io passthrough_io = {
	.writev = hook_writev,
	.read = hook_read,
	.splice_receive = hook_splice,
	.splice_send = hook_splice,
};

/* ---- backing ids ---- */

static int backing_open(const struct fs_mount *m, int fd, int32_t *ret_id)
{
	struct backing_map map = {.fd = fd};
	int id = ioctl(fuse_session_fd(m->se), BACKING_OPEN, &map);

	if (id < 0)
		return -errno;
	*ret_id = id;
	return 0;
}

static void backing_close(const struct fs_mount *m, int32_t id)
{
	uint32_t value = (uint32_t)id;

	/* It fails once the connection is gone, and then so is the id. */
	(void)ioctl(fuse_session_fd(m->se), BACKING_CLOSE, &value);
}

static const char *reason_of(int error)
{
	switch (error) {
	case -EPERM:
		return "it needs CAP_SYS_ADMIN in the initial user namespace";
	case -ELOOP:
		return "the cache directory's file system cannot be stacked upon";
	case -ENOTTY:
	case -EINVAL:
	case -EOPNOTSUPP:
		return "the kernel has no passthrough (it came with Linux 6.9)";
	default:
		return "the kernel does not take backing files";
	}
}

/* For good: EPERM and the like do not go away. */
static void disable(struct passthrough *p, const char *why)
{
	if (!atomic_exchange(&p->enabled, false))
		return;
	p->reason = why;
	/* `status` says it, too: no word for each mount of an ordinary user. */
	log_debug("kernel passthrough is off: %s; reads and writes go through the daemon", why);
}

/* A file where backing files will lie, of no name. */
static int probe_file(const struct fs_mount *m)
{
	const char *cache = volume_cache_path(m->vol);
	cleanup_free char *path = NULL;
	int fd;

	if (!cache)
		return memfd_create("epochfs-probe", MFD_CLOEXEC);
	fd = open(cache, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* Not every file system has such files. */
	if (fd >= 0 || text_print(&path, "%s/probe-XXXXXX", cache) < 0)
		return fd;
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		unlink(path);
	return fd;
}

/*
 * Whether a lease tells of a mapping whose descriptor is closed, on which all rests that is written past the daemon (grant.h, and the last
 * close). Not where leases are off (fs.leases-enable), nor on a file system without them, nor on one whose mappings are another's, as overlayfs.
 * 1: it does; 0: it does not; or -errno where that could not be tried, on a disk that is full or fails.
 */
static int mappings_are_told(const struct fs_mount *m)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	int fd = probe_file(m);
	cleanup_close int reader = fd < 0 ? -1 : io_reopen(fd, O_RDONLY);
	void *map = MAP_FAILED;
	bool told;

	if (reader >= 0 && ftruncate(fd, (off_t)size) == 0)
		map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		int error = -errno;

		if (fd >= 0)
			close(fd);
		return error;
	}
	close(fd);
	told = io_writers(reader) == IO_WRITERS_SOME;
	munmap(map, size);
	return told && io_writers(reader) == IO_WRITERS_NONE;
}

/* Where it cannot be tried, who asks for passthrough has it. */
static void need_mappings_told(struct fs_mount *m)
{
	int told = mappings_are_told(m);

	if (told == 0)
		disable(m->passthrough,
			"the cache directory's file system does not tell who has a file mapped");
	else if (told < 0 && m->passthrough->wanted != FS_PASSTHROUGH_ON)
		disable(m->passthrough,
			"whether the cache directory's file system tells who has a file mapped could not be tried");
}

int passthrough_probe(struct fs_mount *m, const char **ret_why)
{
	struct passthrough *p = m->passthrough;
	cleanup_close int fd = -1;
	int32_t id = 0;
	int r;

	if (p->wanted == FS_PASSTHROUGH_OFF)
		return 0;
	p->enabled = true;
	if (!p->offered) {
		disable(p, reason_of(-EOPNOTSUPP));
	} else {
		fd = probe_file(m);
		r = fd < 0 ? 0 : backing_open(m, fd, &id);
		if (r == 0 && fd >= 0)
			backing_close(m, id);
		else if (r < 0)
			disable(p, reason_of(r));
	}
	/* By another file: the kernel lets go of this one in its own time. */
	if (p->enabled)
		need_mappings_told(m);
	if (p->enabled || p->wanted != FS_PASSTHROUGH_ON)
		return 0;
	*ret_why = p->reason;
	return -EOPNOTSUPP;
}

/* ---- the I/O mode ---- */

static bool may_pass(const struct fs_mount *m, const struct node *n,
		     const struct passthrough_source *source)
{
	/* What is written through a second node of a body must be told of. */
	if (!m->passthrough->enabled || n->unlisted)
		return false;
	/* The kernel would not take setuid bits away at a write that we do not see. */
	if (source->writes && setid_may_drop(noted_mode(n)))
		return false;
	return !source->has_room_ahead || source->has_room_ahead(source->arg);
}

/* A node that is not open yet gets its mode. */
static void decide(struct fs_mount *m, struct node *n, const struct passthrough_source *source)
{
	struct grant *grant = NULL;
	cleanup_close int fd = -1;
	int32_t id = 0;
	int r;

	n->io = IO_ORDINARY;
	if (!may_pass(m, n, source) || source->grant(source->arg, &grant, &fd) < 0)
		return;
	r = backing_open(m, fd, &id);
	if (r == -EPERM || r == -ELOOP || r == -ENOTTY || r == -EINVAL || r == -EOPNOTSUPP)
		disable(m->passthrough, reason_of(r));
	if (r < 0) {
		grant_release(m->vol, grant);
		return;
	}
	n->io = IO_PASSTHROUGH;
	n->backing_id = id;
	n->grant = grant;
	n->cached = false;
}

/*
 * The kernel's pages of other content are dropped while nobody has the node open. At an open that does not keep them the kernel
 * would drop them itself, but only once the opening thread runs again: others may have opened the file, and write, by then. Where
 * a page is dropped after a write(2) has changed it, and before the daemon has written that, the next read brings the old bytes
 * back into the cache, and a store through a mapping brings them into the file.
 *
 * Others who open the node or close it wait for this. It waits for no request: each that there could be, of pages of the node, has an open file in
 * the kernel, whose close comes after it.
 */
static void drop_pages(const struct fs_mount *m, const struct node *n)
{
	loop_kernel_begin();
	/* It fails where the kernel knows no such inode yet: good. */
	(void)fuse_lowlevel_notify_inval_inode(m->se, n->id, 0, 0);
	loop_kernel_end();
}

int passthrough_open(struct fs_mount *m, struct file *f, const struct passthrough_source *source,
		     int32_t *ret_backing_id)
{
	struct node *n = f->node;
	int r = 0;

	nodes_io_begin(m->nodes, n);
	/* From here on the node does not move (nodes_move); it may have done so before. */
	if (f->kind == FILE_LIVE && node_body(n) != handle_body(f->handle))
		r = -EAGAIN;
	else if (n->io == IO_NONE)
		decide(m, n, source);
	else if (n->io == IO_PASSTHROUGH && source->writes && !n->grant)
		r = -EIO; /* of a worker before, and its backing file is not there as it was */
	else if (n->io == IO_PASSTHROUGH && source->join)
		r = source->join(source->arg);
	if (r == 0) {
		f->passthrough = n->io == IO_PASSTHROUGH;
		*ret_backing_id = n->backing_id;
		if (!f->passthrough && !n->cached)
			drop_pages(m, n);
		n->cached = !f->passthrough;
	}
	nodes_io_end(m->nodes, n);
	f->counted = true;
	if (r < 0)
		return r;
	atomic_fetch_add(f->passthrough ? &m->passthrough->opens : &m->passthrough->ordinary_opens,
			 1);
	return 0;
}

uint32_t passthrough_open_flags(int flags)
{
	bool syncs = (flags & O_ACCMODE) != O_RDONLY && flags & O_DSYNC;

	return flags & O_DIRECT || syncs ? FOPEN_DIRECT_IO : 0;
}

bool passthrough_sends_all(const struct file *f)
{
	return f->passthrough || f->node->unlisted || handle_is_blind(f->handle);
}

/* The kernel gives the file up before the volume may take it for given up. */
static void give_back(struct fs_mount *m, int32_t backing_id, struct grant *grant)
{
	backing_close(m, backing_id);
	grant_release(m->vol, grant);
}

void passthrough_close(struct fs_mount *m, struct file *f)
{
	struct grant *grant;
	int32_t id;

	f->counted = false;
	nodes_io_close(m->nodes, f->node, &id, &grant);
	if (id)
		give_back(m, id, grant);
}

static void close_unused(void *arg, int32_t backing_id)
{
	backing_close(arg, backing_id);
}

void passthrough_revived(struct fs_mount *m)
{
	nodes_io_revived(m->nodes, close_unused, m);
}

json_t *passthrough_status(const struct fs_mount *m)
{
	struct passthrough *p = m->passthrough;

	return json_pack("{s:s, s:I, s:I, s:s}", "mode", p->enabled ? "on" : "off", "opens",
			 (json_int_t)atomic_load(&p->opens), "ordinary_opens",
			 (json_int_t)atomic_load(&p->ordinary_opens), "reason",
			 atomic_load(&p->reason));
}

/* ---- answers made by hand ---- */

static uint32_t nanoseconds(double seconds)
{
	return (uint32_t)((seconds - (double)(uint64_t)seconds) * 1e9);
}

static void entry_out(const struct fuse_entry_param *e, struct fuse_entry_out *ret_out)
{
	const struct stat *st = &e->attr;

	*ret_out = (struct fuse_entry_out){
		.nodeid = e->ino,
		.generation = e->generation,
		.entry_valid = (uint64_t)e->entry_timeout,
		.entry_valid_nsec = nanoseconds(e->entry_timeout),
		.attr_valid = (uint64_t)e->attr_timeout,
		.attr_valid_nsec = nanoseconds(e->attr_timeout),
		.attr =
			{
				.ino = st->st_ino,
				.size = (uint64_t)st->st_size,
				.blocks = (uint64_t)st->st_blocks,
				.atime = (uint64_t)st->st_atim.tv_sec,
				.mtime = (uint64_t)st->st_mtim.tv_sec,
				.ctime = (uint64_t)st->st_ctim.tv_sec,
				.atimensec = (uint32_t)st->st_atim.tv_nsec,
				.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
				.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
				.mode = st->st_mode,
				.nlink = (uint32_t)st->st_nlink,
				.uid = st->st_uid,
				.gid = st->st_gid,
				.rdev = (uint32_t)st->st_rdev,
				.blksize = (uint32_t)st->st_blksize,
			},
	};
}

int reply_open(fuse_req_t req, const struct fuse_entry_param *created, struct file *f,
	       uint32_t flags, int32_t backing_id)
{
	struct {
		struct fuse_entry_out entry;
		struct open_reply open;
	} out = {
		.open = {.fh = f->fh, .open_flags = flags},
	};
	struct table_file *row;
	int r;

	if (f->passthrough) {
		out.open.open_flags |= OPEN_FLAG_PASSTHROUGH;
		out.open.backing_id = backing_id;
	}
	row = file_publish(fs_of(req), f);
	if (!created) {
		r = fuse_reply_buf(req, (const char *)&out.open, sizeof(out.open));
	} else {
		entry_out(created, &out.entry);
		r = fuse_reply_buf(req, (const char *)&out, sizeof(out));
	}
	if (r == 0)
		file_answered(row);
	return r;
}
