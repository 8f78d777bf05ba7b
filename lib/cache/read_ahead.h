/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far to fetch ahead of readers. Pure: it sees reads and says how far to fetch; content_fetch.c does it.
 *
 * What the daemon sees are the requests of the kernel, which come a little out of order (several are under way
 * at once, and page faults of a mapping read around them), and from several readers of one file. So a stream is
 * not "offset equals the last end": a read belongs to a stream where it lies no more than READ_SLACK from where
 * that one ends, and a few streams are remembered.
 *
 * A stream is fetched ahead by as much as it has read on end: so who reads a part (one tensor of a large file)
 * makes us fetch twice that part at most, random reads nothing but the chunks that they touch, and who reads on
 * soon has enough under way for all connections. Who has read a quarter of the file on end will read the rest.
 *
 * Threads: the caller's lock.
 */
#ifndef EPOCHFS_CACHE_READ_AHEAD_H
#define EPOCHFS_CACHE_READ_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#define READ_STREAMS 8
#define READ_SLACK   ((uint64_t)1 << 20)

struct read_stream {
	uint64_t start, next; /* it has read from the one to the other; next 0: none */
	uint64_t ahead;	      /* to where was asked to fetch */
	uint64_t used;	      /* the number of its last read */
};

struct read_ahead {
	struct read_stream streams[READ_STREAMS];
	uint64_t reads;
};

/* Of one read [offset, end), end > offset. */
struct read_advice {
	uint64_t until; /* to where to fetch; at least `end` */
	bool whole;	/* it is worth to fetch the whole file, from `until` on */
};

/* `size` is that of the file, `max` the most bytes to be ahead of a reader. */
struct read_advice read_ahead_note(struct read_ahead *r, uint64_t offset, uint64_t end,
				   uint64_t size, uint64_t max);
/* What was asked for may be gone: it is asked for again. */
void read_ahead_forget(struct read_ahead *r);

#endif
