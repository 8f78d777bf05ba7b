/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damage in the journal (the WAL). SQLite believes it up to the first frame whose checksum is wrong, and
 * takes what follows for the rest of a write that was cut off: a bit that flipped in the middle would
 * silently take the commits behind it away. The format is documented at sqlite.org/fileformat2.html,
 * section 4: a header of 32 bytes, then frames of 24 bytes and a page each, all numbers big-endian,
 * checksums running on from frame to frame.
 */
#include "lib/state/state_db.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "lib/util/io.h"
#include "lib/util/log.h"

#define HEADER	     32
#define FRAME	     24
#define MAGIC	     0x377f0682u /* the last bit: words of checksums are big-endian */
#define PAGE_MIN     512
#define PAGE_MAX     65536
#define HEADER_SALTS 16 /* where they begin */
#define FRAME_SALTS  8
#define SALTS	     8

struct journal {
	int fd;
	uint32_t page;
	bool big; /* of words in checksums */
	uint32_t sum[2];
	unsigned char salts[SALTS];
	unsigned char frame[FRAME + PAGE_MAX];
};

static uint32_t big32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint32_t little32(const unsigned char *p)
{
	return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static void add(struct journal *j, const unsigned char *p, size_t len)
{
	for (size_t i = 0; i + 8 <= len; i += 8) {
		j->sum[0] += (j->big ? big32(p + i) : little32(p + i)) + j->sum[1];
		j->sum[1] += (j->big ? big32(p + i + 4) : little32(p + i + 4)) + j->sum[0];
	}
}

static bool sum_is(const struct journal *j, const unsigned char *p)
{
	return big32(p) == j->sum[0] && big32(p + 4) == j->sum[1];
}

/* 1: a sound header; 0: none; -errno. */
static int read_header(struct journal *j)
{
	unsigned char head[HEADER];
	ssize_t n = io_pread_some(j->fd, head, sizeof(head), 0);

	if (n < (ssize_t)sizeof(head))
		return n < 0 ? (int)n : 0;
	j->page = big32(head + 8);
	j->big = big32(head) & 1;
	memcpy(j->salts, head + HEADER_SALTS, SALTS);
	add(j, head, HEADER - SALTS);
	if ((big32(head) & ~1u) != MAGIC || j->page < PAGE_MIN || j->page > PAGE_MAX ||
	    j->page & (j->page - 1) || !sum_is(j, head + HEADER - SALTS))
		return -EUCLEAN;
	return 1;
}

/* 1: read; 0: the end. */
static int read_frame(struct journal *j, uint64_t number)
{
	size_t len = FRAME + j->page;
	ssize_t n = io_pread_some(j->fd, j->frame, len, HEADER + number * len);

	return n < 0 ? (int)n : n == (ssize_t)len;
}

static bool of_this_round(const struct journal *j)
{
	return memcmp(j->frame + FRAME_SALTS, j->salts, SALTS) == 0;
}

static bool frame_is_sound(struct journal *j)
{
	if (!of_this_round(j))
		return false;
	add(j, j->frame, FRAME_SALTS);
	add(j, j->frame + FRAME, j->page);
	return sum_is(j, j->frame + FRAME_SALTS + SALTS);
}

static int check(struct journal *j)
{
	uint64_t number = 0, bad;
	int got = read_header(j);

	if (got <= 0)
		return got;
	while ((got = read_frame(j, number)) > 0 && frame_is_sound(j))
		number++;
	/* The first may be half written, by a transaction that was never committed. One that ends a
	 * transaction behind it says that the first had been there. */
	for (bad = number; got > 0; got = read_frame(j, ++number))
		if (number > bad && of_this_round(j) && big32(j->frame + 4))
			return -EUCLEAN;
	return got;
}

int state_check_journal(int cache_dirfd)
{
	cleanup_close int fd =
		openat(cache_dirfd, "state.db-wal", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct journal *j;
	int error;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	j->fd = fd;
	error = check(j);
	free(j);
	return error;
}
