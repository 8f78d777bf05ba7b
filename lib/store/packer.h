/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the frames of one batch into packs, and puts these while more frames come. Private to
 * lib/store. */
#ifndef EPOCHFS_STORE_PACKER_H
#define EPOCHFS_STORE_PACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/remote/remote.h"
#include "lib/store/pool.h"
#include "lib/store/trust.h"
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/* So many packs of 32 MiB are in memory at once, the one being filled with them: the daemon is to stay
 * below 200 MiB. */
#define PACKER_PACKS 4

/*
 * The frames' order alone decides what the packs are: the same frames in the same order make the
 * same packs under the same ids. So whoever begins again after an interruption puts again only what
 * is not there yet: a pack that is there with its length and its table is not put.
 *
 * That is so within one generation of garbage collection: from generation 1 on, each pack ends with a frame that says
 * the generation (`trust` knows it when the packer is made), which no index object names. So a pack never comes again
 * under an id that an earlier generation has condemned, and that somebody may be about to delete.
 */
struct packer;

/* `putters` runs the puts; `trust` learns which packs are there; a pack is closed by the frame with
 * which it reaches pack_len. 0 or -ENOMEM. */
int packer_new(struct remote *remote, struct pool *putters, struct trust *trust, size_t pack_len,
	       struct packer **ret_packer);
/* Waits for the puts under way. NULL is allowed. */
void packer_free(struct packer *p);

/* A frame in two pieces, so that a payload which is the chunk itself need not be copied first. */
struct frame_parts {
	const void *head;
	size_t head_len;
	const void *rest; /* NULL where rest_len is 0 */
	size_t rest_len;
};

/* Whether the chunk came before. Any thread. */
bool packer_has(struct packer *p, const struct hash *chunk);
/*
 * Adds a chunk that did not come before. Blocks while PACKER_PACKS are under way. The first error
 * of a put comes back here and from packer_flush, and ends the packer. One thread at a time.
 */
int packer_add(struct packer *p, const struct hash *chunk, const struct frame_parts *frame,
	       uint32_t plain_len);
/* Puts what is there and waits for all of it. The same thread as packer_add. */
int packer_flush(struct packer *p);
/* packer_add and packer_flush fail with this error (at once where they wait). Any thread. */
void packer_fail(struct packer *p, int error);

/* Bytes of packs put so far. Any thread. */
uint64_t packer_stored(struct packer *p);

/* After packer_flush: where a chunk lies; false where it did not come. */
struct store_place;
bool packer_place(struct packer *p, const struct hash *chunk, struct store_place *ret_place);
/* After packer_flush: the number of chunks, and all of them, room for `count` of each. */
size_t packer_count(const struct packer *p);
void packer_chunks(const struct packer *p, struct hash *ret_chunks, struct store_place *ret_places);
/* After packer_flush: appends the index object of all packs. -EINVAL where there is none. */
int packer_index(const struct packer *p, struct buf *out);

#endif
