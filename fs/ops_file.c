/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on open files: read, write, fsync, fallocate, lseek, copy_file_range. */
#include "fs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "fs/epochs_dir.h"
#include "fs/files.h"
#include "fs/invalidate.h"
#include "fs/loop.h"
#include "fs/passthrough.h"
#include "lib/util/cleanup.h"

/* Of one copy_file_range, so that it can be interrupted; the caller goes on. */
#define COPY_MAX (64u << 20)

/* ---- reading ---- */

static void reply_from_fd(fuse_req_t req, int fd, size_t len, off_t off)
{
	struct fuse_bufvec data = FUSE_BUFVEC_INIT(len);

	data.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	data.buf[0].fd = fd;
	data.buf[0].pos = off;
	fuse_reply_data(req, &data, 0);
}

/* Content that is not all in its backing file has no descriptor to read (-EAGAIN). */
static void read_live(fuse_req_t req, struct file *f, size_t size, off_t off)
{
	cleanup_free char *data = NULL;
	int fd = -1;
	ssize_t n = handle_read_fd(f->handle, size, (uint64_t)off, &fd);

	if (n > 0) {
		reply_from_fd(req, fd, (size_t)n, off);
		return;
	}
	if (n == -EAGAIN) {
		data = malloc(size);
		n = data ? handle_read(f->handle, data, size, (uint64_t)off, read_interrupted, req)
			 : -ENOMEM;
	}
	if (n < 0)
		reply_error(req, (int)n);
	else
		fuse_reply_buf(req, data, (size_t)n);
}

static void read_content(fuse_req_t req, struct content *c, size_t size, off_t off)
{
	cleanup_free char *data = NULL;
	ssize_t n = 0;

	if (c && size) {
		data = malloc(size);
		n = data ? content_read(c, data, size, (uint64_t)off, read_interrupted, req)
			 : -ENOMEM;
	}
	if (n < 0)
		reply_error(req, (int)n);
	else
		fuse_reply_buf(req, data, (size_t)n);
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct file *f = file_of(req, fi);
	int r = file_wake(fs_of(req), f);

	(void)ino;
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	switch (f->kind) {
	case FILE_LIVE:
		read_live(req, f, size, off);
		break;
	case FILE_EPOCH:
		read_content(req, f->content, size, off);
		break;
	case FILE_TORN:
		reply_from_fd(req, f->fd, size, off);
		break;
	case FILE_CONTROL:
		control_file_read(req, f, size);
		break;
	case FILE_DEAD:
		break;
	}
}

/* ---- writing ---- */

/* To the end, which the kernel does not know. */
static ssize_t append_live(fuse_req_t req, struct handle *h, int fd, struct fuse_bufvec *data)
{
	struct fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(data));
	cleanup_free void *mem = malloc(to.buf[0].size);
	ssize_t n;

	if (!mem)
		return -ENOMEM;
	to.buf[0].mem = mem;
	n = fuse_buf_copy(&to, data, 0);
	return n < 0 ? n
		     : handle_write_to(h, fd, mem, (size_t)n, UINT64_MAX, request_interrupted, req);
}

/* Data in memory, or from the kernel through a pipe. */
static ssize_t write_live(fuse_req_t req, struct handle *h, int fd, struct fuse_bufvec *data,
			  off_t off)
{
	const struct fuse_buf *first = &data->buf[0];
	struct fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(data));

	if (off < 0)
		return append_live(req, h, fd, data);
	if (data->count == 1 && !(first->flags & FUSE_BUF_IS_FD))
		return handle_write_to(h, fd, (const char *)first->mem + data->off,
				       first->size - data->off, (uint64_t)off, request_interrupted,
				       req);
	to.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK | FUSE_BUF_FD_RETRY;
	to.buf[0].fd = fd;
	to.buf[0].pos = off;
	return fuse_buf_copy(&to, data, 0);
}

/* Of what was just written. With passthrough the kernel has no page of it, and so asks for nothing. */
static int sync_written(const struct file *f, int flags)
{
	if (!(flags & O_DSYNC) || !passthrough_sends_all(f))
		return 0;
	return handle_fsync(f->handle, (flags & O_SYNC) != O_SYNC);
}

/* One "to the end" that a process which died may have done already. */
static bool is_repeated_append(off_t off)
{
	return off < 0 && loop_request_resent();
}

void op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *data, off_t off,
		  struct fuse_file_info *fi)
{
	struct file *f = file_of(req, fi);
	enum teller who = fi->writepage ? TELLER_AWAITED : TELLER_ANY;
	size_t len = fuse_buf_size(data);
	ssize_t n;
	int fd;

	(void)ino;
	if (f->kind == FILE_LIVE && (fi->flags & O_APPEND) && handle_is_blind(f->handle))
		off = -1;
	if (f->kind == FILE_CONTROL) {
		control_file_write(req, f, data);
		return;
	}
	if (f->kind != FILE_LIVE || is_repeated_append(off)) {
		reply_error(req, f->kind == FILE_EPOCH || f->kind == FILE_TORN ? -EBADF : -EIO);
		return;
	}
	n = setid_drop(req, f->node);
	if (n == 0)
		n = handle_begin_write(f->handle, request_interrupted, req, &fd);
	if (n == 0) {
		/* Before it what a mapping there has stored, after it what was read there meanwhile. */
		invalidate_twin(fs_of(req), f->node, off < 0 ? 0 : off, off < 0 ? 0 : (off_t)len,
				who);
		n = write_live(req, f->handle, fd, data, off);
	}
	handle_note_write(f->handle, (uint64_t)off, len, n);
	if (n > 0) {
		int r = sync_written(f, fi->flags);

		invalidate_twin(fs_of(req), f->node, off < 0 ? 0 : off, off < 0 ? 0 : (off_t)n,
				who);
		n = r < 0 ? r : n;
	}
	if (n < 0)
		reply_error(req, (int)n);
	else
		fuse_reply_write(req, (size_t)n);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	const struct file *f = file_of(req, fi);

	(void)ino;
	reply_error(req, f->kind == FILE_LIVE	? handle_fsync(f->handle, datasync)
			 : f->kind == FILE_DEAD ? -EIO
						: 0);
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi)
{
	const struct file *f = file_of(req, fi);
	int fd, r = f->kind == FILE_DEAD ? -EIO : -EBADF;

	(void)ino;
	if (f->kind == FILE_LIVE)
		r = setid_drop(req, f->node);
	if (r == 0)
		r = handle_reserve(f->handle, mode, (uint64_t)offset, (uint64_t)length,
				   request_interrupted, req);
	if (r == 0)
		r = handle_begin_write(f->handle, request_interrupted, req, &fd);
	if (r == 0)
		invalidate_twin(fs_of(req), f->node, offset, 0, TELLER_ANY);
	if (r == 0)
		r = handle_fallocate(f->handle, mode, (uint64_t)offset, (uint64_t)length,
				     request_interrupted, req);
	if (r == 0)
		invalidate_twin(fs_of(req), f->node, offset, 0, TELLER_ANY);
	reply_error(req, r);
}

/* ---- holes ---- */

static int seek_fd(int fd, off_t off, int whence, uint64_t *ret_offset)
{
	off_t at = lseek(fd, off, whence);

	if (at < 0)
		return -errno;
	*ret_offset = (uint64_t)at;
	return 0;
}

void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct file *f = file_of(req, fi);
	uint64_t at = 0;
	int r = file_wake(fs_of(req), f);

	(void)ino;
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	r = -EINVAL;
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		r = -EINVAL;
	else if (f->kind == FILE_LIVE)
		r = handle_lseek(f->handle, (uint64_t)off, whence, request_interrupted, req, &at);
	else if (f->kind == FILE_EPOCH)
		r = off < 0 || !f->content ? -ENXIO
					   : content_seek(f->content, (uint64_t)off, whence,
							  request_interrupted, req, &at);
	else if (f->kind == FILE_TORN)
		r = seek_fd(f->fd, off, whence, &at);
	if (r < 0)
		reply_error(req, r);
	else
		fuse_reply_lseek(req, (off_t)at);
}

/* ---- copying ---- */

/* From a live file's backing file: the count. */
static ssize_t copy_live(struct file *from, off_t off_in, int out, off_t off_out, size_t len)
{
	int in = -1;
	ssize_t n = handle_read_fd(from->handle, len, (uint64_t)off_in, &in);

	if (n <= 0)
		return n;
	n = copy_file_range(in, &off_in, out, &off_out, (size_t)n, 0);
	return n < 0 ? -errno : n;
}

static ssize_t copy_once(struct file *from, off_t off_in, int out, off_t off_out, size_t len)
{
	if (from->kind == FILE_LIVE)
		return copy_live(from, off_in, out, off_out, len);
	if (from->kind != FILE_EPOCH)
		return -EOPNOTSUPP;
	if (!from->content)
		return 0;
	return content_copy(from->content, (uint64_t)off_in, out, (uint64_t)off_out, len);
}

/* Copies between backing files: the count, or -EOPNOTSUPP where the kernel must read and write. */
static ssize_t copy_range(fuse_req_t req, struct file *from, off_t off_in, struct file *to,
			  off_t off_out, size_t len)
{
	ssize_t n = 0, done = 0;
	int out = -1;
	int r = to->kind == FILE_LIVE ? setid_drop(req, to->node) : -EBADF;

	/* The edit first: it may change what is read. */
	if (r == 0)
		r = handle_begin_write(to->handle, request_interrupted, req, &out);
	if (r < 0)
		return r;
	if (len > COPY_MAX)
		len = COPY_MAX;
	while ((size_t)done < len) {
		n = copy_once(from, off_in + done, out, off_out + done, len - (size_t)done);
		if (n <= 0)
			break;
		done += n;
	}
	if (done)
		handle_note_write(to->handle, (uint64_t)off_out, (size_t)done, done);
	if (done || n == 0)
		return done;
	return n == -EXDEV || n == -EINVAL || n == -ENOSYS || n == -EAGAIN ? -EOPNOTSUPP : n;
}

void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags)
{
	ssize_t n;

	(void)ino_in;
	(void)ino_out;
	n = file_wake(fs_of(req), file_of(req, fi_in));
	if (n == 0 && file_of(req, fi_out)->kind == FILE_DEAD)
		n = -EIO;
	if (n == 0)
		invalidate_twin(fs_of(req), file_of(req, fi_out)->node, off_out, (off_t)len,
				TELLER_ANY);
	if (n == 0)
		n = flags ? -EINVAL
			  : copy_range(req, file_of(req, fi_in), off_in, file_of(req, fi_out),
				       off_out, len);
	if (n > 0)
		invalidate_twin(fs_of(req), file_of(req, fi_out)->node, off_out, (off_t)n,
				TELLER_ANY);
	if (n < 0)
		reply_error(req, (int)n);
	else
		fuse_reply_write(req, (size_t)n);
}
