/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request's kind, its opcode in <linux/fuse.h>, says of how the loop handles it. Private to
 * fs/. Pure functions; an opcode that is not known waits for nothing, and is judged by its node.
 */
#ifndef EPOCHFS_FS_OPCODES_H
#define EPOCHFS_FS_OPCODES_H

#include <stdbool.h>
#include <stdint.h>

/* How long an answer is likely to take. */
enum pace {
	PACE_QUICK,   /* a moment: nothing is asked of the volume, or little of its memory */
	PACE_SLOW,    /* it may move file data, or wait for a disk or a remote */
	PACE_BY_NODE, /* a moment for the live tree, longer in an epoch */
};

/* Whether it looks at names, attributes or .epochs: then closes before it come first. */
bool opcode_waits_for_closes(uint32_t opcode);
enum pace opcode_pace(uint32_t opcode);

#endif
