/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs as a graph of text, the newest first: what each was made from, so that what a rollback left is a branch beside the line that goes on. */
#ifndef EPOCHFS_TOOLS_GRAPH_H
#define EPOCHFS_TOOLS_GRAPH_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Branches side by side; more are not drawn as such. */
#define GRAPH_LANES_MAX 16
#define GRAPH_TEXT_MAX	(2 * GRAPH_LANES_MAX + 4)

/* Zero-initialise, with the epochs as target_epochs gives them. Each lane waits for the epoch that its last one was made from. */
struct graph {
	const json_t *epochs;
	uint64_t lanes[GRAPH_LANES_MAX];
	size_t count;
};

/* What stands before an epoch, and in a line of its own below it ("": none is needed). */
void graph_next(struct graph *g, const json_t *epoch, char ret_text[GRAPH_TEXT_MAX],
		char ret_below[GRAPH_TEXT_MAX]);

#endif
