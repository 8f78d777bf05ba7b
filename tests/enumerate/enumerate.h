/* SPDX-License-Identifier: Apache-2.0 */
/* All histories up to a length, the shortest first, and some of the longer ones. */
#ifndef EPOCHFS_TESTS_ENUMERATE_H
#define EPOCHFS_TESTS_ENUMERATE_H

#include "tests/enumerate/on.h"

struct enumerate_options {
	unsigned all;		/* all histories of up to so many steps */
	unsigned length;	/* and, while there is time, some of up to so many */
	double seconds;		/* 0: no limit, and none of the longer ones */
	uint64_t seed;		/* of these */
	unsigned shard, shards; /* of all beginnings of histories each `shards`-th from this one */
	bool count;		/* how many there are, and none is run */
	unsigned names;
	uint32_t ops;		      /* bits of enum op: no others; 0: all but EXTENDED_OPS */
	bool extended;		      /* all, and only histories that have one of EXTENDED_OPS */
	unsigned draw;		      /* so many of the longer ones; 0: as `seconds` says */
	unsigned batch;		      /* histories between two remounts */
	bool slow;		      /* on.h: waits_for_shared */
	bool keep_going;	      /* after the first that fails */
	const struct history *replay; /* only this one, `batch` times */
};

/* Bytes that a letter stands for; what O_DIRECT takes everywhere. */
#define UNIT_DEFAULT  1024
#define UNIT_EXTENDED 4096

#define ENUMERATE_DEFAULTS                                                                         \
	{                                                                                          \
		.all = 3, .batch = 30, .shards = 1, .names = NAMES                                 \
	}

/* Prints what fails, each as a script and what was wrong, but none that contains one that was printed
 * before; how many failed. */
uint64_t enumerate(struct on *on, const struct enumerate_options *want);

#endif
