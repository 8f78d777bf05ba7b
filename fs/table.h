/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel was told and will ask about, kept where it outlives this process: node ids, open
 * files, and how the session began. Only a mount under a supervisor has a table. Private to fs/.
 *
 * It is a file in memory (memfd) that supervisor and worker map. The worker writes it with plain stores,
 * each row published by its id, which is stored last, and taken away by storing 0 first: so
 * whenever a worker is killed each row is whole or not there. It is large and sparse: rows that were
 * never used take no memory. Rows are found by scanning, once, when a worker starts over; the worker keeps which
 * are free in memory of its own.
 *
 * Who writes what: rows of nodes node.c, with its lock; of files files.c; the beginning passthrough.c.
 */
#ifndef EPOCHFS_FS_TABLE_H
#define EPOCHFS_FS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/cache/torn.h"
#include "lib/live/survivors.h"

/* Raised when a row changes its meaning: a worker of another version does not take the table over. */
#define TABLE_VERSION 7

#define TABLE_NODES (8u << 20)
#define TABLE_FILES (256u << 10)

struct table_node {
	uint64_t id; /* 0: the row is free */
	uint64_t a, b;
	uint64_t root; /* of what is inside an epoch: node id of the epoch's directory */
	uint64_t lookups;
	uint64_t owner; /* as in struct node */
	int32_t backing_id;
	uint32_t view;
	uint16_t mode;
	uint8_t kind, io, unlisted, moved;
};

struct table_file {
	uint64_t fh; /* 0: the row is free */
	uint64_t node;
	/* The request that opened it, until it was answered; then 0. */
	uint64_t unique;
	uint8_t kind, passthrough, counted;
	/* The supervisor answered its opening request with EIO: nobody will close it. */
	uint8_t abandoned;
	uint8_t hold;		     /* of .control: an enum hold (users.h) */
	struct handle_record handle; /* of a live file */
};

#define TABLE_INIT_MAX 256
#define TABLE_TOLD     64

struct table_start {
	uint64_t magic;
	uint32_t version;
	uint32_t supervisor, restarts; /* its process, and how often it did; written by it */
	uint64_t last_id;	       /* of nodes */
	uint64_t last_open;	       /* how many files were opened */
	uint32_t nodes, files;	       /* rows that were ever used */
	uint32_t init_len;	       /* of init; 0: there was no handshake yet */
	uint32_t answer_len;
	struct stale_retry_record told[TABLE_TOLD]; /* of the volume */
	struct torn_record torn;		    /* likewise */
	unsigned char init[TABLE_INIT_MAX];	    /* the kernel's first request, whole */
	unsigned char answer[TABLE_INIT_MAX];	    /* and what it was told, without the header */
};

struct table {
	struct table_start *start;
	struct table_node *nodes;
	struct table_file *files;
	size_t size;
};

/* Makes an empty one: its descriptor, close-on-exec, or -errno. */
int table_make(void);
/* Maps it. -EPROTONOSUPPORT where it is of another version. */
int table_open(int fd, struct table *ret_table);
void table_close(struct table *t);

/* The free rows among those that are there. Each its owner's, guarded by its lock. */
struct table_rows {
	uint32_t *free;
	size_t count, cap;
	uint32_t used, max; /* rows from `used` on were never used */
};
/* A free row, or -ENFILE, -ENOMEM. */
int table_row_take(struct table_rows *rows, uint32_t *ret_row);
/* Without memory the row is lost until the next worker. */
void table_row_give(struct table_rows *rows, uint32_t row);
void table_rows_free(struct table_rows *rows);

/* Publishes a row by its id, or takes it away with 0: the id's store comes after all before it. */
static inline void table_publish(uint64_t *id, uint64_t value)
{
	__atomic_store_n(id, value, __ATOMIC_RELEASE);
}

/* A file whose opening request had this number, and was not answered: NULL if there is none. */
struct table_file *table_file_opened_by(const struct table *t, uint64_t unique);

#endif
