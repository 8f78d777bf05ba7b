/* SPDX-License-Identifier: Apache-2.0 */
/* Histories: what two processes do with three handles on two names, as a sequence of steps, and as
 * the text of a script. */
#ifndef EPOCHFS_TESTS_HISTORY_H
#define EPOCHFS_TESTS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_MAX 12
#define NAMES	    2
#define HANDLES	    3
#define PROCESSES   2
/* Whoever has nothing to do with the history. */
#define OUTSIDER PROCESSES

enum op {
	OP_OPEN_READ,	  /* O_RDONLY */
	OP_OPEN_WRITE,	  /* O_RDWR | O_CREAT */
	OP_OPEN_DIRECT,	  /* O_RDWR | O_CREAT | O_DIRECT */
	OP_OPEN_APPEND,	  /* O_WRONLY | O_APPEND | O_CREAT */
	OP_OPEN_TRUNCATE, /* O_WRONLY | O_TRUNC | O_CREAT */
	OP_DUP,
	OP_CLOSE,    /* one descriptor of the handle */
	OP_READ,     /* all of it */
	OP_WRITE,    /* three letters where the handle stands, or at the end */
	OP_TRUNCATE, /* to two letters */
	OP_MAP,	     /* a shared mapping, in which the first letter is changed; unmapped */
	OP_FSYNC,
	OP_ASYNC,	/* as OP_WRITE, by io_uring or the kernel's older AIO */
	OP_PREALLOCATE, /* fallocate: ten letters, of which those that were not there are zero */
	OP_PUNCH,	/* a hole for the second letter */
	OP_COPY, /* copy_file_range: the first two letters of "b", as the process sees it, at the third */
	OP_MAP_KEEP, /* a shared mapping that stays, one in a history */
	OP_STORE,    /* the first letter changes in it */
	OP_UNMAP,
	OP_RENAME, /* the name over the other one */
	OP_LINK,   /* the name as the other one */
	OP_UNLINK,
	OP_REPLACE, /* an outsider writes another file and renames it over the name */
	OP_COMMIT,
	OP_ROLLBACK, /* to the epoch that the history began with */
	OP_EVICT,    /* all that is durable and that nobody uses leaves the cache */
	OP_KILL,     /* the process, by a signal; another takes its place */
	OP_COUNT,
};

/* What a step does not say is 0. */
struct step {
	uint8_t op;
	uint8_t who;	/* opens and OP_KILL */
	uint8_t name;	/* opens, and what is done with names */
	uint8_t handle; /* what is done with handles */
};

struct history {
	unsigned length;
	struct step step[HISTORY_MAX];
};

static inline bool op_opens(uint8_t op)
{
	return op <= OP_OPEN_TRUNCATE;
}

static inline bool op_handles(uint8_t op)
{
	return op >= OP_DUP && op <= OP_MAP_KEEP;
}

static inline bool op_maps(uint8_t op)
{
	return op == OP_STORE || op == OP_UNMAP;
}

/* Steps that fewer programs make: histories that have one are longer in coming. */
#define EXTENDED_OPS                                                                               \
	(1u << OP_OPEN_DIRECT | 1u << OP_ASYNC | 1u << OP_PREALLOCATE | 1u << OP_PUNCH |           \
	 1u << OP_COPY | 1u << OP_MAP_KEEP | 1u << OP_STORE | 1u << OP_UNMAP)

static inline bool op_names(uint8_t op)
{
	return op >= OP_RENAME && op <= OP_REPLACE;
}

bool step_same(const struct step *a, const struct step *b);
/* All steps that there are, in the order in which they are tried: how many. */
#define STEPS_MAX 96
unsigned step_all(struct step steps[STEPS_MAX]);

/* "p0 open-read a; write h0; rename a b; kill p0". */
#define HISTORY_TEXT_MAX 512
void history_text(const struct history *h, char text[HISTORY_TEXT_MAX]);
/* Steps are separated by ';' or line ends: 0 or -EINVAL. */
int history_parse(const char *text, struct history *ret_history);
/* The bits of such steps, of a list "open-read,close"; 0 where one of them is none. */
uint32_t history_ops(const char *text);
/* Whether some steps of `h`, in their order, are `part`. */
bool history_contains(const struct history *h, const struct history *part);

#endif
