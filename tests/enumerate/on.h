/* SPDX-License-Identifier: Apache-2.0 */
/* Where histories are run: a volume in this process, a mount, or an ordinary directory. */
#ifndef EPOCHFS_TESTS_ON_H
#define EPOCHFS_TESTS_ON_H

#include "tests/enumerate/model.h"

/* Bytes that a letter stands for. */
#define UNIT_MAX 4096

/* What came of a step or a look. */
struct seen {
	int error;    /* errno, 0 */
	bool skipped; /* this place would take too long: the history ends here */
	uint64_t size, links;
	struct letters content;
	uint64_t epoch; /* that a commit gave */
};

struct on {
	bool contract; /* else POSIX alone: without contract 1.2.1, 1.2.4 and epochs */
	bool evicts, asynchronous;
	/* Some hundredths of a second where a writer has a descriptor left, or a mapping through the daemon; `patient`, the caller's:
	 * it may. */
	bool waits_for_shared, patient;
	unsigned unit;
	/* Directories and files of the histories `first` to `first` + `count` - 1, and the epoch that
	 * they begin with. The functions without a result end the program where they cannot do it. */
	void (*prepare)(struct on *on, unsigned first, unsigned count);
	/* Their directories go. */
	void (*clean)(struct on *on, unsigned first, unsigned count);
	/* History number `number` begins; `rolls_back`: in an epoch of its own. */
	void (*begin)(struct on *on, unsigned number, bool rolls_back);
	void (*act)(struct on *on, const struct step *s, unsigned k, struct seen *ret_seen);
	void (*stat_handle)(struct on *on, unsigned handle, struct seen *ret_seen);
	void (*stat_name)(struct on *on, unsigned who, unsigned name, struct seen *ret_seen);
	void (*read_handle)(struct on *on, unsigned handle, struct seen *ret_seen);
	/* What an outsider finds under the name of this history. */
	void (*read_name)(struct on *on, unsigned number, unsigned name, struct seen *ret_seen);
	/* Closes what is open. */
	void (*end)(struct on *on);
	/* The epoch that the history began with. */
	uint64_t (*base)(struct on *on);
	/* The epoch after this one: 0: none. */
	uint64_t (*next_epoch)(struct on *on, uint64_t after);
	void (*read_epoch)(struct on *on, uint64_t epoch, unsigned number, unsigned name,
			   struct seen *ret_seen);
	uint64_t (*seal)(struct on *on);
	/* Ends the mount and mounts again, with an empty cache where `cold`. NULL: somebody else does. */
	void (*remount)(struct on *on, bool cold);
	void (*close)(struct on *on);
};

/* Passthrough as fs/ does it; `durable`: what is sealed is in the remote at once, and can be evicted;
 * else it never gets there before a cold mount. */
struct on *on_volume(const char *dir, bool passthrough, bool durable, unsigned unit);
/* By real processes; `remounts`: "remount warm" or "remount cold" is printed, and a line awaited; `evicts`: "evict"
 * likewise, by a step. dir is absolute and stays the caller's. */
struct on *on_directory(const char *dir, bool mount, bool remounts, bool evicts, unsigned unit);

/* Bytes as letters: '~' where a letter is no whole one. */
void seen_letters(struct seen *seen, const char *data, size_t len, unsigned unit);
/* The bytes of so many letters. */
const char *letter_bytes(char letter, unsigned letters, unsigned unit);

/* Ends the program: what could not be done has nothing to do with a history. */
__attribute__((noreturn, format(printf, 1, 2))) void give_up(const char *format, ...);

#endif
