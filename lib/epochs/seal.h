/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing an epoch, in two halves, and what the parts of the sealer share. */
#ifndef EPOCHFS_EPOCHS_SEAL_H
#define EPOCHFS_EPOCHS_SEAL_H

#include "lib/cache/context.h"
#include "lib/epochs/changed.h"
#include "lib/meta/epoch_index.h"
#include "lib/meta/rules.h"
#include "lib/meta/settle.h"
#include "lib/util/lock.h"

/*
 * Private to sealer*.c, seal*.c, freeze.c, epochs*.c, rollback*.c, control*.c and power.c.
 *
 * seal_begin_locked takes a number and a snapshot: writers wait for that only. The job then waits in
 * a queue, in the order of numbers; seal_finish_until freezes what is in it: walks the snapshot,
 * writes the tree, and stores the record. Both halves survive a crash between them (sealer.h).
 */

struct seal_rule;

/* The meta value "unsealed": what the last mount left that no epoch has. */
enum unsealed {
	UNSEALED_NOTHING,
	UNSEALED_RIDES,
	UNSEALED_NAMES, /* names were made; whether they are still there must be looked up */
	UNSEALED_OPENS,
};

/* The newest name with a step that was made since the last epoch: that of a save (sealer_saved.c). */
struct seal_step {
	uint64_t parent, ino, step; /* ino 0: none */
	uint64_t bytes;		    /* closed in it since */
	int64_t closed_ns;	    /* monotonic; the last close in it, or its renaming */
	int64_t before_ns; /* the same of the step before, where that was made since the last epoch, too; else 0 */
	uint64_t from; /* the epoch that the step before was made for; 0: not known */
	bool moved;    /* it is what has, or had, another final name: nothing was saved by that */
	bool led; /* it got the name as a directory with files in it, which `bytes` does not count */
	char name[256];
};

/* What happened in the live tree since the last epoch began. Guarded by the volume's lock. */
struct pending {
	struct new_names new_names; /* names made; each opens an epoch for as long as it is there */
	struct changed changed;	    /* files closed, logs apart */
	struct seal_step step;
	bool opens;  /* something else that opens an epoch: a rename, new content */
	bool rides;  /* removals, attributes, logs: sealed by commit and unmount only */
	bool times;  /* of files closed with the same bytes: sealed by commit only */
	bool closed; /* something was closed or renamed: with settle=0 that seals */
	/* Something was closed under a temporary name that is new, or was there, and its tail was not looked at yet. */
	bool temporary, rewritten;
	enum unsealed noted; /* what the meta value says */
	bool killed, recovered;
	uint64_t first_ino;	 /* of the first file that was closed or renamed; 0: none yet */
	bool several;		 /* another one was, too */
	bool unknown;		 /* complete=unknown */
	char *reason;		 /* complete=false, whatever the doubts are: why; owned */
	int64_t opened_ns;	 /* wall clock of the first change; 0: none yet */
	int64_t opened_mono_ns;	 /* the same, monotonic */
	int64_t content_ns;	 /* monotonic; last change of content */
	int64_t activity_ns;	 /* monotonic; last one that restarts the quiet */
	uint64_t activity_ino;	 /* of this file; 0: not known */
	int64_t others_ns;	 /* the same of all other files */
	uint64_t continues;	 /* the epoch that the next one continues; 0: none */
	bool continues_chain;	 /* ... by names in what an epoch made which that one continues */
	uint64_t continues_from; /* as in the record */
	uint64_t
		alone; /* of what this epoch has first nothing was saved together with what is in an epoch since; 0: not known */
	uint64_t kept; /* the same, whatever becomes of the names that say so; 0: by those alone */
	bool kept_chain;
	unsigned joined[JOINS_LAST + 1]; /* how many of `new_names` say what */
	/* A file whose saving told that the last epoch is continued (sealer_in_place.c), as long as nothing else does; and what was known
	 * before. ino 0: none. */
	struct {
		uint64_t ino, kept, from;
		bool chain;
		bool learned; /* that its rename seals nothing by itself any more */
		bool note;    /* it was none of that save after all */
	} in_place;
	uint64_t looked_at; /* a directory, and what a name says that is made there; 0: none */
	enum joins found;
	bool run_goes_on; /* as in seal_last */
};

struct log_size {
	uint64_t ino, size;
	int64_t mtime_ns;
};

/* An open log, taken as it stood when the epoch began. */
struct seal_log {
	uint64_t ino;
	uint64_t version; /* that its copy is; 0: there was no space for one */
	int fd;		  /* its backing file; the job's */
	bool copied;
	uint64_t size;
	int64_t mtime_ns;
};

/* An epoch whose snapshot has begun. */
struct seal_job {
	struct seal_job *next;
	uint64_t number;
	uint64_t parent; /* the epoch before it, 0: none; set when it is frozen */
	struct state *snapshot;
	bool early; /* an epoch before it was not frozen yet: what that finds torn is not in the snapshot */
	enum record_trigger trigger;
	char *tag, *message, *metadata; /* owned, or NULL */
	bool has_step;
	uint64_t step, restores;
	/* Of a volume with a driver: by which rule, and what the epoch is. */
	const struct seal_rule *rule; /* NULL: without one */
	bool is_pending;
	enum record_complete complete;
	const char *judge; /* "J2" */
	char *why;	   /* it is not whole; owned, or NULL */
	struct buf saves;  /* what the rules know then (saves_put_known) */
	bool whole;	   /* somebody knows that nothing in it is torn */
	bool certain;	   /* as in seal_how */
	uint64_t renamed;
	uint64_t generation, base; /* of a node of a set (nodes.h) */
	struct pending pending;	   /* taken over; its new names and changed files are empty */
	int64_t sealed_ns;
	struct seal_log *logs;
	struct log_size *sizes; /* of the same, for who asks later what has grown */
	unsigned log_count;
};

/* What seals, and what its record is to say. Strings are copied. */
struct seal_how {
	enum record_trigger trigger;
	const char *tag, *message, *metadata; /* or NULL */
	bool has_step;
	uint64_t step;
	uint64_t restores; /* of a rollback */
	bool whole;	   /* nothing is in doubt, by the word of who asks */
	bool certain;	   /* sealed by itself, at a sign that no more of the save follows */
	uint64_t renamed;  /* as in seal_last */
	const struct seal_rule *rule; /* driver.h; NULL: somebody asks */
};

/* Names of one directory that carry one step are one unit (doubt_units.h): the one in which a name was made last. Of an earlier mount
 * none is known. */
struct seal_unit {
	uint64_t parent, step; /* parent 0: none */
	uint64_t ino;	       /* what was the first of it, or has taken its name */
	uint64_t born;	       /* the epoch that was open then */
};

/* The epoch that began last: what the next may continue. */
struct seal_last {
	uint64_t number; /* 0: none */
	enum record_trigger trigger;
	bool certain;	  /* as in seal_how; after a mount, of a marker only */
	int64_t begun_ns; /* monotonic */
	uint64_t chain;	  /* the first of the epochs that continue one another up to `half` */
	uint64_t half; /* the epoch whose half it may have, too, as its record says; else itself */
	uint64_t
		run; /* the first of those that one save may have made, by one rename after the other */
	uint64_t
		renamed; /* the file whose rename, or which as the last of its save, sealed it; 0: none */
	pid_t by;	 /* the process that wrote that; 0: not known */
	uint64_t renamed_path; /* the hash of its path then; 0: none */
	bool again; /* the epoch before was sealed by a rename to the same path: nothing follows that in a save */
	bool went_on; /* more of its save followed at once, and that is noted (sealer_continues.c) */
	struct log_size *logs; /* the logs that it took while they were open; owned */
	unsigned log_count;
};

/* Hashes of names whose rename ended no save the last time (sealer_continues.c); 0: none. */
#define SEAL_RENAMES 16
struct seal_renames {
	uint64_t hash[SEAL_RENAMES];
};

/* The processes that saved what is in an epoch, and in those that it continues; more are not kept. Of an earlier mount none is known. */
#define SEAL_SAVERS 32
struct seal_savers {
	pid_t by[SEAL_SAVERS];
	unsigned count;
};

/* The newest epoch whose save is over for certain (as in seal_how), or that one which only others have added to that; 0: none. */
struct seal_over {
	uint64_t number;
	struct seal_savers savers;
};

/* Doubts of files with temporary names since the last epoch, and whose they are; more are not kept. Of an earlier mount none is known. */
#define SEAL_KILLED 16
struct seal_killed {
	struct killed {
		uint64_t id;   /* of the doubt */
		pid_t parent;  /* of the process that was killed; 0: it was not, */
		pid_t by;      /* but this one has closed the file torn */
		int64_t at_ns; /* wall clock */
	} v[SEAL_KILLED];
	unsigned count;
};

/* When processes were started that have opened a file for writing while kills were to be judged: who ends at once is not there any more as
 * that is taken in. A ring: the oldest is forgotten. */
#define SEAL_WRITERS 64
struct seal_writers {
	struct {
		pid_t pid;
		int64_t started_ns; /* wall clock */
	} v[SEAL_WRITERS];
	unsigned next;
};

struct sealer {
	/* Guarded by the volume's lock. */
	struct pending pending;
	struct seal_last last;
	struct seal_savers savers; /* of the last epoch */
	struct seal_over over;
	struct seal_renames renames;
	uint64_t
		rest_of; /* the path, hashed, of what was renamed before the last rest of a save that came without a sign; 0: none came */
	struct seal_unit unit;
	struct seal_killed killed;
	struct seal_writers writers;
	struct seal_job *first, *newest; /* begun and not frozen, in the order of numbers */
	struct epoch_index index;
	bool index_loaded;
	uint64_t failed_number; /* the last epoch that could not be frozen, and why */
	int failed_error;
	int64_t retry_ns;   /* monotonic; no seal by quiet before, after a failure */
	int64_t before_ns;  /* monotonic; the last seal because the next save began */
	uint64_t told_held; /* the file that was last said to hold seals up; 0: none was */
	int64_t rest_ns; /* monotonic; the thread leaves what has begun alone until then, unless somebody waits for it */
	uint64_t step_epoch; /* the one that the last name with a step was made for; 0: not known */
	uint64_t tree_bytes; /* of the epoch that was frozen last */
	int64_t looking_ns;  /* monotonic; when the thread looks again by itself */
	bool stops, runs;
	pthread_cond_t wake; /* with the volume's lock; monotonic */

	struct mutex finishing; /* held by who freezes; taken before the volume's lock */
	pthread_t thread;
};

/* ---- seal.c ---- */

/* Begins an epoch of the live tree as it is now, whether or not something changed: its number. In no
 * transaction. 0 or -errno, and then nothing has changed. */
int seal_begin_locked(struct volume *vol, const struct seal_how *how, uint64_t *ret_number);
/* Freezes all epochs up to this number that have begun, and gives the error of that one. */
int seal_finish_until(struct volume *vol, uint64_t number);
/* Whether sealing now would make an epoch that differs from the last one (changes of attributes
 * count, but not the times that a close alone has changed). */
bool seal_needed_locked(struct volume *vol);
/* Waits until no epoch that has begun waits for a copy of this log, for at most a second. Drops the lock. */
void seal_await_log_locked(struct volume *vol, uint64_t ino);
void pending_clear(struct pending *p);
/* Sealed where nobody says by that whether a save that pauses is over: by itself, as the next save began, or at the end of a mount. */
bool record_trigger_says_nothing(enum record_trigger trigger);
/* Adds to why the next epoch is not complete. */
void pending_add_reason(struct pending *p, const char *reason);

/* ---- freeze.c ---- */

struct freeze_result {
	struct buf tree;
	uint64_t bytes_new;
	struct buf torn; /* uint64_t: versions that were found to be torn */
	struct buf
		whole; /* uint64_t: versions that were marked so, and are whole by somebody's word */
	struct buf reason;     /* text: which files could not be taken; empty: none */
	struct doubts *doubts; /* decided; owned */
};
void freeze_result_free(struct freeze_result *r);
#define cleanup_freeze CLEANUP(freeze_result_free)
/* Copies the logs, walks the snapshot, encodes the tree, checks tails. Without the lock. */
int freeze(struct volume *vol, struct seal_job *job, struct freeze_result *ret_result);

/* ---- record_fill.c ---- */

/* Fills the record of a frozen epoch, but for `continues`; `tree` is its tree. Without the lock. */
int seal_record(struct volume *vol, const struct seal_job *job, const struct freeze_result *frozen,
		struct tree *tree, struct epoch_record *ret_record);

/* ---- sealer.c ---- */

/* What the thread would decide now. `writers` (malloc; may be NULL) gets the bodies behind
 * settle_hold's index. */
struct seal_view_writer {
	uint64_t ino;
	pid_t pid;
	int64_t opened_ns; /* monotonic */
};
int sealer_look_locked(struct volume *vol, struct settle_answer *ret_answer,
		       struct seal_view_writer **ret_writers);
/* The path of a name: ancestors' names and '/', without a leading one. Empty where one has none. */
int sealer_path_locked(struct volume *vol, uint64_t parent, const char *name, struct buf *out);
void sealer_wake_locked(struct volume *vol);
/* Somebody waits for an epoch that has begun: the thread freezes it at once. */
void sealer_hurry_locked(struct volume *vol);

/* ---- sealer_note.c ---- */

/* Whether a rule, such as rules_temporary, holds for this name. */
typedef bool (*name_rule)(const struct rules *r, const char *name, const char *path);
bool sealer_rule_locked(struct volume *vol, name_rule rule, uint64_t parent, const char *name);

/* Something changed that opens an epoch, or only rides in the next. */
void sealer_opens_locked(struct volume *vol);
void sealer_rides_locked(struct volume *vol);
/* Whether a directory, or one above it, has a temporary name. */
bool sealer_inside_temporary_locked(struct volume *vol, uint64_t dir);

/* ---- sealer_continues.c ---- */

/* The next epoch continues this one, 0: none, whatever becomes of the names that were made; noted for a crash, too. */
void sealer_continue_locked(struct volume *vol, uint64_t number, bool chain);
/* Writes down for a crash what the next epoch continues. */
void sealer_note_continues_locked(struct volume *vol);
/*
 * What sealer_note_locked tells it of new names (NULL: not kept). One was made. A rename led to one, and no epoch had that; `before`
 * is what the old name said. One is removed: what it said.
 */
void sealer_made_locked(struct volume *vol, uint64_t dir, const char *name, uint64_t ino,
			struct new_name *n);
void sealer_led_locked(struct volume *vol, uint64_t dir, struct new_name *n, enum joins before);
/* The same of a rename over a file: where that was the first of its unit, this is. */
void sealer_unit_renamed_locked(struct volume *vol, uint64_t dir, const char *name, uint64_t ino);
enum joins sealer_gone_locked(struct volume *vol, const struct new_name *n);
/* Whether what this temporary name is for is there. (sealer_note.c) */
bool sealer_has_final_locked(struct volume *vol, uint64_t parent, const char *name);
/* A name is about to lead to this file instead of a temporary one that does not tell it: what could only be guessed is known then. */
void sealer_before_final_locked(struct volume *vol, const struct state_name *from,
				const char *temporary, uint64_t dir, const char *name);

/* ---- sealer_continues.c ---- */

/* At the start: what was known in an earlier mount. */
void sealer_renames_load(struct volume *vol);
/* What is known now, for the record of an epoch. */
#define SEAL_RENAMES_TEXT (SEAL_RENAMES * 17 + 1)
void sealer_renames_text_locked(struct volume *vol, char ret_text[SEAL_RENAMES_TEXT]);
/* Before the start: what the record of an epoch of another mount says is known here, too. NULL or damaged: nothing. */
void sealer_renames_adopt_locked(struct volume *vol, const char *text);
/* Whether the file of this path, or that such a temporary name is that of, is, or would be, of the unit of the one that was renamed last. */
bool sealer_is_beside_renamed_locked(struct volume *vol, const char *path);
/* The rename of this file sealed, and the save went on. */
void sealer_rename_goes_on_locked(struct volume *vol, uint64_t ino);
/* Whether nothing was saved since the last epoch but this file, which was there before, and is too small for a save: a status file, whose rename
 * says nothing. */
bool sealer_is_status_again_locked(struct volume *vol, uint64_t ino);
/* A save of this file alone is over. */
void sealer_rename_ends_locked(struct volume *vol, uint64_t ino);
/* The hash of the file's path; 0: it has none. */
uint64_t sealer_path_hash_locked(struct volume *vol, uint64_t ino);
/* Whether it did so once after a file was renamed to this name. */
bool sealer_goes_on_locked(struct volume *vol, uint64_t parent, const char *name);

/* ---- sealer_over.c ---- */

/* An epoch begins, of what is pending still: who saved it, and whether that save is over. */
void sealer_over_begun_locked(struct volume *vol, const struct seal_job *job);
/* Whether the save that the next epoch continues was over for certain before this file was made, which is new, and whose writer (`by`;
 * 0: not known) was killed: then it is no part of that save. */
bool sealer_is_over_locked(struct volume *vol, uint64_t dir, const char *name, pid_t by);

/* ---- sealer_saved.c ---- */

/* What is smaller than this part of the last epoch is no save. */
#define SEAL_TREE_PART 256
/* What is larger than this part of what is saved beside it is no log. */
#define SEAL_LOG_PART 16

/* What sealer_note_locked tells it: new content was closed; a name was made, or led to by a rename (`moved`: to what had a name
 * before that is not temporary); a name is gone. */
void sealer_saved_closed_locked(struct volume *vol, uint64_t parent, uint64_t ino);
void sealer_saved_named_locked(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
			       bool moved);
void sealer_saved_removed_locked(struct volume *vol, uint64_t ino);
/*
 * Whether nothing is saved but this file and the next one of it (`by`), be it since the last epoch or beside them in this directory, notes
 * and files with names like the last step's apart; what came after this file is of the next save. False where there is much to look at, or
 * another directory.
 */
bool sealer_saved_alone_locked(struct volume *vol, uint64_t parent, const struct changed_file *f,
			       uint64_t by);
/* Something of this size was saved again; the first of two such saves ended then (monotonic). */
void sealer_saved_twice_locked(struct volume *vol, uint64_t size, int64_t before_ns);
/* The size of a file's newest closed content. False: it has none. */
bool sealer_closed_size_locked(struct volume *vol, uint64_t ino, uint64_t *ret_size);
/* The step of a name that stands for a save: not of one that may number parts of it (model_1.pt, 0/). */
bool sealer_step_of_name_locked(struct volume *vol, uint64_t parent, const char *name,
				uint64_t *ret_step);
/* Whether a file in directory `parent` is below directory `top`, or is that itself. */
bool sealer_is_in_locked(struct volume *vol, uint64_t ino, uint64_t parent, uint64_t top);
/* For state_names_of: the directory of the first name; arg: uint64_t *. */
int sealer_parent_of(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f);

/* ---- sealer_before.c ---- */

/* Whether the file is in a temporary directory with files that an epoch has: a scratch directory, as what is saved in one is renamed out of
 * it, or with it. */
bool sealer_is_scratch_locked(struct volume *vol, uint64_t ino);
/* Whether so many bytes, closed since the last epoch, are most of those, and not next to nothing. */
bool sealer_is_most_locked(struct volume *vol, uint64_t bytes);

/* ---- epochs.c ---- */

/* Loads the index if it is not yet: it, or NULL where that fails (logged). */
struct epoch_index *epochs_index_locked(struct volume *vol);
/* What `current` names. */
uint64_t epochs_current_locked(const struct volume *vol);
/* The same from the rows alone, for who has no sealer yet; x is empty before. 0 or -errno. */
int epochs_index_load_locked(struct volume *vol, struct epoch_index *x);
/* Marks the rows of the epoch that `by` continues, and of those that have the same half, or, from `from` on (0: `continued`), lie in the
 * same save. In a transaction. 0 or -errno. */
int epochs_supersede_locked(struct volume *vol, uint64_t continued, uint64_t from, uint64_t by);
/* After its row was stored. Where memory runs out, the index is loaded again at the next use. */
void epochs_index_put_locked(struct volume *vol, const struct epoch_record *record,
			     bool superseded);

#endif
