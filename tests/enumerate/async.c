/* SPDX-License-Identifier: Apache-2.0 */
/* One request at a time. */
#include "tests/enumerate/async.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- io_uring ---- */

struct ring {
	int fd;
	size_t size; /* of the rings, which are one mapping */
	char *rings;
	struct io_uring_sqe *sqe;
	struct io_uring_params params;
};

static void ring_close(struct ring *r)
{
	if (r->sqe != MAP_FAILED)
		munmap(r->sqe, sizeof(*r->sqe));
	if (r->rings != MAP_FAILED)
		munmap(r->rings, r->size);
	close(r->fd);
	r->fd = -1;
}

static void *ring_map(const struct ring *r, size_t size, off_t what)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, what);
}

static int ring_open(struct ring *r)
{
	const struct io_cqring_offsets *cq = &r->params.cq_off;

	*r = (struct ring){0};
	r->fd = (int)syscall(SYS_io_uring_setup, 1, &r->params);
	if (r->fd < 0)
		return -errno;
	r->size = cq->cqes + r->params.cq_entries * sizeof(struct io_uring_cqe);
	if (r->size < r->params.sq_off.array + sizeof(uint32_t))
		r->size = r->params.sq_off.array + sizeof(uint32_t);
	r->rings = ring_map(r, r->size, IORING_OFF_SQ_RING);
	r->sqe = ring_map(r, sizeof(*r->sqe), IORING_OFF_SQES);
	if (r->rings != MAP_FAILED && r->sqe != MAP_FAILED &&
	    r->params.features & IORING_FEAT_SINGLE_MMAP)
		return 0;
	ring_close(r);
	return -ENOSYS;
}

static uint32_t *ring_word(const struct ring *r, uint32_t offset)
{
	return (uint32_t *)(void *)(r->rings + offset);
}

static ssize_t ring_write(struct ring *r, int fd, const void *data, size_t len, off_t at)
{
	const struct io_uring_cqe *cqes;
	_Atomic uint32_t *tail = (_Atomic uint32_t *)ring_word(r, r->params.sq_off.tail);
	_Atomic uint32_t *head = (_Atomic uint32_t *)ring_word(r, r->params.cq_off.head);
	ssize_t result;
	uint32_t done = atomic_load(head), mask = *ring_word(r, r->params.cq_off.ring_mask);

	*r->sqe = (struct io_uring_sqe){.opcode = IORING_OP_WRITE,
					.fd = fd,
					.off = (uint64_t)at,
					.addr = (uint64_t)(uintptr_t)data,
					.len = (uint32_t)len};
	*ring_word(r, r->params.sq_off.array) = 0;
	atomic_fetch_add(tail, 1);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		return -errno;
	if (atomic_load((_Atomic uint32_t *)ring_word(r, r->params.cq_off.tail)) == done)
		return -EIO;
	cqes = (const void *)(r->rings + r->params.cq_off.cqes);
	result = cqes[done & mask].res;
	atomic_store(head, done + 1);
	return result;
}

/* ---- AIO ---- */

static ssize_t older_write(int fd, const void *data, size_t len, off_t at)
{
	struct iocb request = {.aio_lio_opcode = IOCB_CMD_PWRITE,
			       .aio_fildes = (uint32_t)fd,
			       .aio_buf = (uint64_t)(uintptr_t)data,
			       .aio_nbytes = len,
			       .aio_offset = at};
	struct iocb *requests[] = {&request};
	struct io_event event = {0};
	aio_context_t context = 0;
	ssize_t r = 0;

	if (syscall(SYS_io_setup, 1, &context) < 0)
		return -errno;
	if (syscall(SYS_io_submit, context, 1, requests) != 1)
		r = -errno;
	else if (syscall(SYS_io_getevents, context, 1, 1, &event, NULL) != 1)
		r = -errno;
	syscall(SYS_io_destroy, context);
	return r ? r : (ssize_t)event.res;
}

ssize_t async_write(int fd, const void *data, size_t len, off_t at, bool older)
{
	/* It ends with the process, as in a program that uses one: the end of a ring interrupts what its process waits
	 * for then. */
	static struct ring ring = {.fd = -1};

	if (older || (ring.fd < 0 && ring_open(&ring)))
		return older_write(fd, data, len, at);
	return ring_write(&ring, fd, data, len, at);
}
