/* SPDX-License-Identifier: Apache-2.0 */
/* struct content, and how its missing bytes come from the remote. Private to content.c and content_fetch.c. */
#ifndef EPOCHFS_VOLUME_CONTENT_PRIVATE_H
#define EPOCHFS_VOLUME_CONTENT_PRIVATE_H

#include <stdatomic.h>
#include "lib/format/recipe.h"
#include "lib/volume/contents.h"

/*
 * Lock order: volume.lock > contents.lock > fetch.lock > content.io. `io` is held for reading over each read of the backing file, and for
 * writing while the descriptor changes, so that whoever changes the file below knows when nobody reads it any more.
 */

/* Where a segment of the recipe is. */
enum segment_state {
	SEGMENT_MISSING,
	SEGMENT_COMING, /* a fetch is under way */
	SEGMENT_HERE,
	SEGMENT_FAILED, /* the last fetch failed with `error`; the next request tries again */
};

/*
 * Bytes that are in the remote. The backing file is sparse; it has the segments that are HERE. While nobody has the content open, objects/<version>.have
 * says which these are; it is removed when the content is opened, so that a crash forgets them.
 */
struct fetch {
	atomic_bool needed; /* false: all bytes are in the backing file */
	struct hash recipe_hash;
	pthread_mutex_t lock; /* guards the rest */
	pthread_cond_t changed;
	bool loading, loaded; /* the recipe */
	struct recipe recipe;
	uint8_t *state; /* enum segment_state of each segment */
	uint8_t *kept;	/* what .have said, until the recipe is loaded */
	size_t kept_count;
	size_t missing; /* segments that are not HERE */
	uint64_t here_bytes;
	int error;
	uint64_t next_offset; /* where a sequential reader reads next */
	uint64_t window;      /* read-ahead */
};

struct content {
	struct volume *vol;
	struct content *next;
	uint64_t version, size;
	unsigned refs; /* guarded by contents.lock */
	bool detached; /* no longer in the table */
	bool lent;
	int fd; /* backing file, for reading (and writing, while bytes are missing); -1: none */
	uint8_t *bytes; /* inline content; NULL: in the backing file */
	char *what;	/* "epoch 41: model/a.pt", for log lines; NULL: a live file */
	pthread_rwlock_t io;
	struct fetch fetch;
};

struct contents {
	pthread_mutex_t lock;
	pthread_cond_t idle;
	unsigned fetches; /* threads under way */
	struct content *first;
};

/* Makes the sparse backing file, or takes the one that an earlier reader left. With the volume's lock. */
int fetch_open_locked(struct content *c, const struct state_version *v);
/* Notes in the row and in .have what is there. With the volume's and the contents' lock. */
void fetch_close_locked(struct content *c);
void fetch_free(struct fetch *f);
bool fetch_whole(const struct fetch *f);

#endif
