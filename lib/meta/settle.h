/* SPDX-License-Identifier: Apache-2.0 */
/* The decision whether an epoch is sealed by quiet (contract 1.3.3): a pure function. */
#ifndef EPOCHFS_META_SETTLE_H
#define EPOCHFS_META_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

/* All times are nanoseconds of one clock; INT64_MAX is never. */

/* A version that somebody has open for writing. */
struct settle_writer {
	bool fresh;    /* opened since the last epoch */
	bool log;      /* contract 1.2.5 */
	bool in_place; /* an edit of closed content */
	int64_t changed_ns;
};

/* A temporary name made since the last epoch that is still there. */
struct settle_temporary {
	int64_t changed_ns; /* last change of it or of what is in it */
};

struct settle_view {
	int64_t now_ns;
	bool dirty;	     /* something that opens an epoch happened since the last one */
	int64_t activity_ns; /* last close, create, rename or removal */
	const struct settle_writer *writers;
	unsigned writer_count;
	const struct settle_temporary *temporaries;
	unsigned temporary_count;
	int64_t settle_ns, patience_ns;
};

enum settle_verdict {
	SETTLE_IDLE, /* nothing to seal */
	SETTLE_WAIT, /* look again at until_ns, or when something happens */
	SETTLE_SEAL,
};

/* What it waits for, the strongest reason first. */
enum settle_hold {
	SETTLE_HOLD_NOTHING,
	SETTLE_HOLD_WRITER,    /* writers[index] is unfinished */
	SETTLE_HOLD_TEMPORARY, /* temporaries[index] is */
	SETTLE_HOLD_QUIET,     /* the quiet has not lasted yet */
};

struct settle_answer {
	enum settle_verdict verdict;
	int64_t until_ns;
	enum settle_hold hold;
	unsigned index;
};

struct settle_answer settle_decide(const struct settle_view *v);

#endif
