/* SPDX-License-Identifier: Apache-2.0 */
/* What the fold over events knows, and the words that its rules are made of; of this room alone. */
#ifndef EPOCHFS_SAVES_SAVES_INTERNAL_H
#define EPOCHFS_SAVES_SAVES_INTERNAL_H

#include "lib/saves/facts.h"
#include "lib/saves/saves.h"
#include "lib/saves/shape.h"
#include "lib/util/map.h"

#define NEVER INT64_MAX
/* In the place of a process: whoever it was, it has ended. */
#define NOBODY UINT64_MAX

/* What is known of a path: made when something of it has to be, dropped at the seal where nothing more is. */
struct name {
	struct map_link link;			     /* by the path */
	struct name *next, **at;		     /* in its save's list */
	struct save *save;			     /* NULL: of none */
	struct name *next_temporary, **temporary_at; /* of those that are; else NULL */
	uint64_t size;
	uint64_t times;	       /* saved in this save; 0: is not of it */
	uint64_t times_in_all; /* saved since the last seal, also before the save began anew */
	uint64_t process;      /* who closed it last */
	int64_t temporary_ns;  /* a temporary name, made then; NEVER: none */
	bool changed : 1;      /* closed below a temporary name, with other bytes */
	bool gone : 1;	       /* taken away from its save */
	bool made : 1;	       /* a directory, made since the last seal */
	bool output : 1;       /* was taken for output once */
	bool grows : 1;	       /* only grew, each time that it was closed since an epoch had it */
	bool torn : 1;	       /* cut off, or with a write refused */
	bool left : 1;	       /* ... by a kill: that counts under a final name */
	bool fresh : 1;	       /* saved since the last seal, and there */
	char path[];
};

struct save {
	struct map_link link; /* by the checkpoint */
	struct save *next;    /* the one that began before it */
	char *checkpoint;
	struct name *names;
	size_t file_count;  /* of them, that it has */
	struct shape shape; /* of its names */
	struct shape gone;  /* of those that were taken away */
	uint64_t size;	    /* of its files together */
	int64_t changed_ns; /* its last change */
	uint64_t *writer;
	size_t writer_count, writer_cap;
	bool broken;
};

/* An open file description that writes. */
struct handle {
	struct map_link link; /* by its number */
	uint64_t number, process;
	int64_t opened_ns;
	uint64_t seals; /* that there were when it was opened */
	unsigned how;	/* SAVE_IS_NEW, SAVE_IS_REPLACE or SAVE_IS_EDIT */
	bool refused;
	bool output;	 /* its process saved another name twice */
	uint64_t *saved; /* other names that its process saved once, numbers aside, by their hash */
	size_t saved_count, saved_cap;
	char *path; /* as it is now; NULL: it has none any more */
};

/* So many names of a process are told apart for its handles. */
#define SAVED_NAMES_MAX 256

/* A process that ended, as long as something names it. */
struct ended {
	struct map_link link;
	uint64_t process;
	bool badly;   /* or nobody knows how */
	bool unknown; /* nobody knows how */
};

/* Of a broken save: a file that it had, beside the one that was killed, and that is there. */
struct beside {
	struct beside *next;
	char path[];
};

/* A save of which a file was killed, or that is half and whose writers are gone, until that is over. */
struct broken {
	struct broken *next;
	char *checkpoint, *path; /* the final name of the file; "" where it is half */
	bool half;
	struct beside *beside;
	bool in_place; /* the file is there, and changed */
	unsigned how;  /* SAVE_IS_KILLED, SAVE_IS_REFUSED or SAVE_IS_TORN */
	uint64_t process;
	uint64_t *writer; /* of the save */
	size_t writer_count;
};

struct saves {
	struct saves_options options;
	int64_t now_ns;
	struct map names, saves, handles, ended;
	struct save *newest_save; /* the list of all */
	struct broken *broken;
	bool chosen; /* somebody went back to what is not whole, and nothing was saved in full since */
	struct shapes shapes;
	char *newest; /* the checkpoint in which something was saved or killed last */
	size_t fresh_count;
	bool changed;	     /* otherwise than by names that are fresh */
	int64_t dirty_ns;    /* since when there is something to seal */
	int64_t activity_ns; /* when something happened to names or closed content last */
	int64_t sealed_ns;   /* far in the past where nothing was sealed */
	int64_t signed_ns;   /* likewise, by a sign */
	uint64_t seals;
	struct name *temporaries;
	size_t torn_count;
	bool asked;
	/* What got its final name by the last event. */
	bool final_marker, final_last_file, final_rename, final_directory;
	struct save *final_save;
	/* The save that its epoch has not ended. */
	struct {
		uint64_t epoch; /* that is pending; 0: none is */
		struct save *save;
		int64_t changed_ns;
	} pending;
	struct {
		uint64_t epoch; /* 0: none */
		enum verdict verdict;
	} decided;
	struct buf text[2]; /* for names that are made of others */
};

/* ---- finding (saves_names.c) ---- */

struct name *find_name(const struct saves *s, const char *path);
struct save *find_save(const struct saves *s, const struct checkpoint_place *c);
struct save *find_save_of(const struct saves *s, const char *checkpoint);
struct handle *find_handle(const struct saves *s, uint64_t number);
const struct ended *find_ended(const struct saves *s, uint64_t process);

/* ---- words: predicates without effects (saves_words.c) ---- */

struct core core_of(const struct saves *s, const struct save *save);
bool is_full(const struct saves *s, const struct save *save);
bool is_part(const struct saves *s, const struct save *save);
bool is_note(const struct name *n);
/* Of those that ended, at least one badly, and none lives; `known`: badly for certain. */
bool ended_badly(const struct saves *s, const uint64_t *processes, size_t count, bool known);
/* One of them; NULL: all have ended. */
const uint64_t *one_that_lives(const struct saves *s, const uint64_t *processes, size_t count);
bool is_output(const struct saves *s, const struct handle *h);
/* A file is written that was opened since the last seal, and not in place. */
bool is_fresh(const struct saves *s, const struct handle *h);
/* Something but output is open for writing. */
bool is_written(const struct saves *s);
/* At that time. `but`: a temporary name that is about to become final; NULL: none. */
bool is_unfinished(const struct saves *s, int64_t now_ns, const char *but);
/* When the patience with an unfinished file ended, after something was there to seal; and when it ends with the first of those that are
 * unfinished now, NEVER where there is none. */
bool is_overdue(const struct saves *s);
int64_t patience_end(const struct saves *s);
/* J2, or J4, does not hold for it any more: the killed file turned out to be output, or a save of its kind is full. */
bool is_void(const struct saves *s, const struct broken *b);
/* Whose change of this file in place ends no kill in it: he has lived then, and goes on with what is half. */
bool lived_at_kill(const struct saves *s, const char *path, uint64_t process);
/* Whether a handle, a save, or a file that was killed or is cut off is of the process. */
bool is_process_named(const struct saves *s, uint64_t process);
/* By this rename what an epoch has is called otherwise, and nothing is replaced: no save. */
bool only_moves(const struct saves *s, const struct save_event *e);
/* Whether that is all that speaks against it: somebody chose what is there. */
bool is_chosen(const struct judged *j);
/* A save that is full, of which nothing was killed. */
bool any_full(const struct saves *s);
/* What is left of a half save of the checkpoint; NULL: nothing. */
const struct broken *half_of(const struct saves *s, const char *checkpoint);
/* The root, or the newest checkpoint. */
bool is_newest(const struct saves *s, const char *checkpoint);

/* ---- effects ---- */

/* saves_names.c: what is known of paths. */
struct name *make_name(struct saves *s, const char *path);
/* Drops it where nothing is known of it. */
void tidy_name(struct saves *s, struct name *n);
void free_name(struct saves *s, struct name *n);
void set_torn(struct saves *s, struct name *n, bool torn);
void set_fresh(struct saves *s, struct name *n, bool fresh);
/* A temporary name since then; NEVER: no more. */
void set_temporary(struct saves *s, struct name *n, int64_t since_ns);
/* What is known of the content of `n` is known of that of `to` now, which is returned; NULL: no memory. */
struct name *move_content(struct saves *s, struct name *n, const char *to);
/* Handles of the path, or of what is below it, are of the other one. */
int move_handles(struct saves *s, const char *from, const char *to);
/* There is no such file any more: its handles have no name, and it is no output. */
void forget_file(struct saves *s, const char *path);
bool is_below(const char *path, const char *directory);
void free_handle(struct saves *s, struct handle *h);

/* saves_save.c: what belongs to a save. */
int add_writer(struct save *save, uint64_t process);
/* A file got new content under a final name. */
int add_saved(struct saves *s, const char *path, uint64_t process, uint64_t size);
/* A directory has its final name: it is the newest checkpoint, if it is one. */
int put_newest(struct saves *s, const char *path);
/* Takes a name out of its save, which never had it. */
void take_out(struct saves *s, struct name *n);
/* A file of the last save is gone, by this process (0: not known): that name has to come back, for a save has begun. */
int take_away(struct saves *s, const char *path, uint64_t process);
/* The process saved this name: what it has open meanwhile may be output. */
int count_for_output(struct saves *s, uint64_t process, const char *path);
/* A file was killed, as the event says, which has its path. */
int break_save(struct saves *s, const struct handle *h, const struct save_event *e);
/* It was found to be half. */
int keep_half(struct saves *s, const struct save *save);
/* The file was left half, and nobody knows more. */
int note_broken(struct saves *s, const char *path, bool torn);
/* The tree of the checkpoint is half, and nobody knows more. */
int note_half(struct saves *s, const char *checkpoint);
/* A file of a broken save was saved again, or is gone: whether that ends it. */
bool mend(struct saves *s, const char *path, bool saved);
void free_save(struct saves *s, struct save *save);
void free_broken(struct saves *s, struct broken *b);
/* Something is to be sealed, beside names that are fresh. */
void set_changed(struct saves *s);

/* saves_apply.c: what each kind of event does. As saves_apply, of a valid event. */
int apply_event(struct saves *s, const struct save_event *e);

/* saves_seal.c: epochs, and what was pending. */
/* The epoch that was pending is this. 0, or -ENOMEM: then it is, and the shape of its save is not known. */
int decide(struct saves *s, enum verdict verdict);
int apply_sealed(struct saves *s, const struct save_event *e);
/* The live tree is another: nothing of a save is known any more. */
void apply_back(struct saves *s);
/* Nobody has anything open. */
void apply_lost(struct saves *s);

#endif
