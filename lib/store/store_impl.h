/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the content store share. Private to lib/store. */
#ifndef EPOCHFS_STORE_STORE_IMPL_H
#define EPOCHFS_STORE_STORE_IMPL_H

#include <pthread.h>
#include "lib/store/filter.h"
#include "lib/store/pool.h"
#include "lib/store/store.h"
#include "lib/store/trust.h"
#include "lib/util/lock.h"

#define STORE_THREADS_MAX 8
#define STORE_PACK_LEN	  ((size_t)32 << 20)
/* Puts of packs that run at once, over all batches. */
#define STORE_PUTTERS 4
/* Readers wait for the remote more than they compute: at least so many. Each may hold a range and
 * DECODER_LANES chunks in memory. */
#define STORE_READERS_MIN 4
#define STORE_READERS_MAX 16
#define DECODER_LANES	  2

/* A range that is read, and what is decoded of it. */
struct range_memory {
	struct buf data;
	struct buf plain[DECODER_LANES];
};

/*
 * Three pools, so that none waits for another: encoders hash, look up and compress; putters put
 * packs and may wait for a remote that is away; readers fetch, decode and check.
 */
struct store {
	struct remote *remote;
	struct store_index index;
	struct trust *trust;
	unsigned threads;
	size_t pack_len;   /* STORE_PACK_LEN; tests take less */
	bool check_frames; /* also their CRC, which the hash of what they hold makes needless */
	struct pool *encoders;
	struct pool *putters;
	struct pool *readers;

	/* Guards what follows; nothing is called under it. */
	struct mutex lock;
	pthread_cond_t scan_ended;
	struct filter *filters[2 * STORE_THREADS_MAX]; /* those not in use */
	unsigned filter_count;
	/* Of ranges that were read, for the next ones while somebody reads: fresh memory costs a
	 * page fault every 4 KiB. */
	struct range_memory spare_ranges[STORE_READERS_MAX];
	unsigned spare_range_count, readings;
	/* Reading the index objects, one reader at a time: see index_sync.c. */
	bool scanning;
	uint64_t refreshes; /* begun */
	int refresh_error;  /* of the last one that ended */
	int64_t scan_ended_ns, scan_took_ns;
	int64_t refresh_began_ns, search_began_ns; /* the last ones; monotonic */
};

/* A filter for this thread until store_filter_give: 0 or -ENOMEM. */
int store_filter_take(struct store *s, struct filter **ret_filter);
void store_filter_give(struct store *s, struct filter *f);

/* ---- where chunks lie: index_sync.c ---- */

/* A row of an index object that was read and checked. */
struct index_row {
	struct hash chunk;
	struct store_place place;
};
typedef int (*index_rows_fn)(void *arg, const char *key, const struct index_row *rows,
			     size_t count);

/* ---- reading chunks: chunk_read.c ---- */

enum wanted_state {
	WANTED_NOWHERE, /* no place is known, or that one failed */
	WANTED_PLACED,
	WANTED_DONE,
};

#define WANTED_TRIES 4

/* A chunk that somebody wants. Fill hash, plain_len and number; zero the rest, or set a place. */
struct wanted {
	struct hash hash;
	uint32_t plain_len; /* 0: not known, any will do */
	enum wanted_state state;
	size_t number; /* the caller's, for the sink */
	struct store_place place;
	unsigned tried_count;
	struct store_place tried[WANTED_TRIES]; /* where it was not, or damaged */
	int64_t gone_ns; /* monotonic: a pack where it should be was first found gone then; or 0 */
};

/*
 * Gets the chunks, in any order, and gives each with its number to `sink` from the readers' threads:
 * each checked against its hash. A chunk that is missing or damaged where the index says is looked
 * for in all index objects. The others are given to the sink nevertheless; then -EIO and `failure`.
 * `waits` as store_get_segments_ahead has it.
 */
int store_chunks_read(struct store *s, struct wanted *wanted, size_t count, store_sink sink,
		      void *arg, const atomic_bool *waits, struct store_failure *failure);

/* Reads those that are WANTED_PLACED, and there only: each becomes WANTED_DONE, or WANTED_NOWHERE
 * where it is missing or damaged. Other errors of the remote, and those of the sink, end it. */
int store_chunks_read_placed(struct store *s, struct wanted *wanted, size_t count, store_sink sink,
			     void *arg);

bool store_place_equal(const struct store_place *a, const struct store_place *b);
/* Whether w was already looked for there. */
bool wanted_tried(const struct wanted *w, const struct store_place *place);

/*
 * Finds places other than those tried for the chunks that are WANTED_NOWHERE, in all index objects
 * of the remote; what is found becomes WANTED_PLACED. Reading all is dear, so on a large volume it is not
 * repeated too soon; but always where none has begun since `gone_ns` (0: no pack was found gone).
 */
int store_chunks_search(struct store *s, struct wanted *wanted, size_t count, int64_t gone_ns);

/* The number of refreshes that have begun, and a refresh unless one has begun since; gone_ns as above. */
uint64_t store_index_refreshes(struct store *s);
int store_index_refresh_since(struct store *s, uint64_t refreshes, int64_t gone_ns);
/* Whether one was under way; it has ended. */
bool store_index_wait(struct store *s);

/* ---- recipes: recipes.c ---- */

/* Appends the encoding of one recipe, of any level, or a part of one, by way of the cache. Errors as store_get_recipe. */
int store_recipe_bytes(struct store *s, const struct hash *hash, uint32_t plain_len,
		       struct buf *out);

#endif
