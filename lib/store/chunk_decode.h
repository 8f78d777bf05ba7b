/* SPDX-License-Identifier: Apache-2.0 */
/* From a range of a pack to the chunks in it, checked. Private to lib/store. */
#ifndef EPOCHFS_STORE_CHUNK_DECODE_H
#define EPOCHFS_STORE_CHUNK_DECODE_H

#include "lib/store/store_impl.h"

/*
 * The chunks of one range, in the order of their places. DECODER_LANES of them are decoded together,
 * since two are hashed together in little more than the time of one; and what is stored raw is
 * checked and given where it lies in the range. One thread at a time.
 */
struct decoder {
	struct store *s;
	const struct buf *data; /* the range; shorter than asked for where the pack ends */
	uint32_t offset;	/* of the range in its pack */
	struct buf *plain;	/* DECODER_LANES of them: memory, which is the caller's */
	/* Zero these. */
	struct lane {
		const struct wanted *w; /* whose bytes it has; NULL: none */
		const uint8_t *bytes;
	} lanes[DECODER_LANES];
};

/*
 * The plain bytes of wanted[0], whose hash they have, until the next call; of those after it, count - 1 more of the
 * range, some may be decoded with it. A frame that came damaged is fetched again: the damage may be of the way
 * here. 0; -EBADMSG where it is damaged in the remote, -ENOENT where its pack is gone by now, other errors of the
 * remote, -ENOMEM.
 */
int decoder_get(struct decoder *d, struct wanted *const *wanted, size_t count,
		const uint8_t **ret_plain);

/* Whether its place has a chunk of the length that is wanted. */
bool wanted_length_fits(const struct wanted *w);

#endif
