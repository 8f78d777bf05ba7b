/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a history must lead to: POSIX, and where they are asked for the rules of the contract (1.2).
 * It shares nothing with lib/volume.
 *
 * Content is a string of letters; each stands for as many bytes as whoever runs the history likes.
 * '.' is a hole. A history begins with two files, "a" of eight 'x' and "b" of eight 'y', closed and
 * in an epoch. Step number k writes 'A' + k, stores '0' + k in a mapping, and replaces by 'a' + k.
 */
#ifndef EPOCHFS_TESTS_MODEL_H
#define EPOCHFS_TESTS_MODEL_H

#include "tests/enumerate/history.h"

#define LETTERS_MAX	 64
#define BASE_LETTERS	 8
#define WRITE_LETTERS	 3
#define TRUNCATE_LETTERS 2
#define REPLACE_LETTERS	 5
#define ALLOCATE_LETTERS 10
#define PUNCH_AT	 1
#define COPY_LETTERS	 2
#define COPY_AT		 2
#define COPY_NAME	 1 /* "b" */
/* Several closed contents that an epoch may have are right. */
#define MAYBES 8

struct letters {
	uint8_t len;
	char letter[LETTERS_MAX];
};

/* A lineage of content: what a descriptor has open. */
struct model_body {
	struct letters now;
	uint8_t file;
	uint8_t writers; /* handles */
	uint8_t members; /* bits of the processes that see it, while it is pending */
	bool pending;	 /* a replacement by O_TRUNC that is not closed yet */
	bool fragile;	 /* undone where its writer is killed */
	bool gone;	 /* what becomes of it does not show under any name */
	bool dirty;	 /* differs from what was closed last */
	bool mapped;	 /* by a mapping that outlives descriptors */
	bool killed, well;
	uint8_t changes; /* writes: who writes nothing vouches for nothing */
};

/*
 * A mapping that is left when the last descriptor of a writer is closed: the kernel counts it as an open
 * file, or not (with passthrough). So until the next close an epoch has what was closed before, or the content
 * as it was when a descriptor was closed (`maybe`), and after the mapping's end in the end what was stored.
 */
struct model_file {
	struct letters closed;
	struct letters maybe[MAYBES];
	uint8_t maybes;
	bool has_closed;
	uint8_t version; /* of the closed content */
	uint8_t shown;	 /* the body that all see */
};

/* Numbers of files; -1: none. */
struct model_name {
	int8_t file;
	int8_t covered; /* what comes back where the rename of a new file is undone */
};

struct model_handle {
	uint8_t descriptors; /* 0: not open */
	uint8_t who, op;
	uint8_t body, at;
	bool made;     /* the file */
	uint8_t found; /* the changes of the body when it was opened */
};

/* The mapping that outlives descriptors. */
struct model_mapping {
	bool there;
	uint8_t who, body;
};

struct model {
	bool contract;
	struct model_body body[HISTORY_MAX + 8];
	struct model_file file[HISTORY_MAX * 2 + 4];
	struct model_name name[NAMES];
	struct model_handle handle[HANDLES];
	struct model_mapping mapping;
	uint8_t bodies, files, versions;
	uint8_t used_processes, used_names; /* bits */
	bool shared;			    /* a writer has a descriptor duplicated */
	bool vague; /* the contract leaves open what some of the next steps do */
	struct step last;
	bool has_last;
};

/* What the closed files of the names are. */
struct model_tree {
	bool there[NAMES];
	struct letters content[NAMES];
	/* What it may be instead. */
	uint8_t maybes[NAMES];
	struct letters maybe[NAMES][MAYBES];
};

/* What a step gives. */
struct model_result {
	int error; /* errno, 0 */
	struct letters read;
	/* A writer opened what another writes and a kill would undo: whether it writes then tells whether it vouches. */
	bool joins;
};

void model_start(struct model *m, bool contract);
/* Whether this is a step here, and none that is the same as another but for the numbers of handles
 * and processes. */
bool model_offers(const struct model *m, const struct step *s);
/* The `number`-th step of the history. */
void model_do(struct model *m, const struct step *s, unsigned number,
	      struct model_result *ret_result);

/* What a process sees under a name: NULL where there is none. `ret_links`: st_nlink. */
const struct letters *model_sees(const struct model *m, unsigned who, unsigned name,
				 unsigned *ret_links);
/* What a seal would take. */
void model_closed(const struct model *m, struct model_tree *ret_tree);
bool model_tree_same(const struct model_tree *a, const struct model_tree *b);
bool letters_same(const struct letters *a, const struct letters *b);

#endif
