/* SPDX-License-Identifier: Apache-2.0 */
/* When a save is over, and whether it is whole: a fold over what happened, and its questions. */
#ifndef EPOCHFS_SAVES_SAVES_H
#define EPOCHFS_SAVES_SAVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/meta/resume.h"
#include "lib/meta/rules.h"
#include "lib/saves/event.h"
#include "lib/util/buf.h"

/*
 * Two facts stand in for what a program means to do next: a save has what the saves of its kind before it had, and a program that goes on after a
 * save has saved what it meant to. The words for names are in facts.h, shape and core in shape.h. The others:
 *
 *   save        what was closed with other bytes than before, renamed or linked in one checkpoint since the last seal, and the processes that did
 *               it, its writers. It goes on where its epoch is pending, or where a file of it was open. It begins anew where a name of its core
 *               is saved more often than in the saves before. A file of the last save that is removed, or renamed to another, belongs to a save
 *               that has begun; a rename by which what an epoch has is only called otherwise is none.
 *   full, part  of a save: it has all of its core; it lacks some of it. Else it has no core yet.
 *   output      a file with the name of a log, or that stays open while its own process saves another name twice, or that only grew since an
 *               epoch had it. Valid at every length: no part of a save.
 *   unfinished  a file is being written, not in place, that was opened since the last seal, or a temporary name made since then stands;
 *               for `patience` each. Output is none.
 *   broken      of a save: the writer of a file of it was killed, or a write of it refused.
 *
 * No I/O, no locks and no clock: time comes with the events. One thread at a time. A driver, for each thing that happens:
 *
 *	1. asks saves_seal_before, and where that names a rule makes an epoch of what there is and tells SAVE_SEALED
 *	2. lets it happen, and tells it: saves_apply
 *	3. looks at saves_decided
 *	4. asks saves_seal_now as in 1, and saves_back
 *	5. at saves_next_ns tells SAVE_TIME, and goes on at 3
 *
 * An epoch is judged by saves_judge, asked right before SAVE_SEALED, which takes the same verdict.
 */
struct saves;

struct saves_options {
	const struct rules *rules; /* borrowed */
	bool no_last_files;	   /* the last files of frameworks are no sign */
	int64_t settle_ns, patience_ns;
	enum resume_when resume;
};

/* 0 or -ENOMEM. */
int saves_new(const struct saves_options *options, struct saves **ret_saves);
void saves_free(struct saves *s); /* NULL is allowed */

/*
 * It happened. An event of a time before the last one's is of that time. 0; -EINVAL for what cannot be (no valid event, a handle that is not
 * open or open already); -ENOMEM: then some of it may not be known, and all else holds.
 */
int saves_apply(struct saves *s, const struct save_event *e);

/* ---- when an epoch is sealed (seal_rules.h) ---- */

struct seal_rule;
/* Before this event, which has not happened; NULL: not. Also where there is no memory to know: quiet seals later then. */
const struct seal_rule *saves_seal_before(const struct saves *s, const struct save_event *e);
/* Now, after all that was told; NULL: not. */
const struct seal_rule *saves_seal_now(const struct saves *s);
/* When something may be due by time alone: a seal, or a decision. INT64_MAX: never. Not before the last event. */
int64_t saves_next_ns(const struct saves *s);
/* Whether anything would be in an epoch of now that is not in the last one. */
bool saves_dirty(const struct saves *s);

/* What an epoch waits for that nothing but time seals; or what is unfinished, where nothing is to be sealed yet. */
struct saves_hold {
	const char *
		path; /* what is unfinished the longest; holds until the next event; NULL: it is quiet that is waited for */
	bool open;    /* it is being written, else its name is temporary */
	uint64_t process; /* that opened it; 0: not known */
	int64_t until_ns; /* at the latest */
};
/* False: it waits for nothing. */
bool saves_held_up(const struct saves *s, struct saves_hold *ret_hold);

/* ---- what an epoch is (judge_rules.h) ---- */

enum verdict {
	VERDICT_WHOLE, /* never becomes anything else */
	VERDICT_PENDING,
	VERDICT_PART, /* of what was pending: a later epoch has the rest */
	VERDICT_NOT_WHOLE,
	VERDICT_UNKNOWN,
};
/* "whole", "pending", "part", "not whole", "unknown" */
const char *verdict_name(enum verdict v);

struct judge_rule;
/* What it says holds until the next event. */
struct judged {
	const struct judge_rule *rule;
	const char *checkpoint; /* that it is about; NULL: none */
	const char *path;	/* the file; NULL: none */
};

enum verdict judged_verdict(const struct judged *j);
/* An epoch that is made now, by this rule; `whole`: somebody vouches for it. */
struct judged saves_judge(const struct saves *s, const struct seal_rule *rule, bool whole);
/* Appends the evidence, one line: "checkpoint-2000 has no optimizer.bin, which the saves before it had". Nothing for what is whole. */
void saves_put_reason(const struct saves *s, const struct judged *j, struct buf *out);

/* The epoch whose verdict was pending until the last event; false: none was decided by it. */
bool saves_decided(const struct saves *s, uint64_t *ret_epoch, enum verdict *ret_verdict);

/* The mount is left in order, and nothing more is told: what is pending is whole where each of its writers has ended well (saves_decided). */
int saves_leave(struct saves *s);

/* ---- from one mount to the next (saves_known.c) ---- */

#define SAVES_KNOWN_MAX (12 << 10)

/*
 * Appends, as printable ASCII and ends of line, what the next mount is to know: what saves have in common, and which are broken. Where that is more
 * than SAVES_KNOWN_MAX bytes, what was saved longest ago is left out. A failed allocation shows in the buffer.
 */
void saves_put_known(const struct saves *s, struct buf *out);
/* Takes over what saves have in common, before any event: 0; -EINVAL: what is malformed was left out; -ENOMEM: likewise. */
int saves_take_known(struct saves *s, const char *text);
/* And which are broken, or torn, where what was told until then was so, too, when that was put down. Likewise. */
int saves_take_broken(struct saves *s, const char *text);
/* Whether any is. */
bool saves_any_broken(const struct saves *s);
/* As an epoch from before these rules says, this file was left half by a writer that was killed (or is `torn`). 0 or -ENOMEM. */
int saves_found_broken(struct saves *s, const char *path, bool torn);
/* Something of what is there is in no epoch, and no event tells it. */
void saves_found_changed(struct saves *s);
/* The live tree is that of an epoch that was pending when its mount ended: it is half. 0 or -ENOMEM. */
int saves_found_pending(struct saves *s);
/* After SAVE_BACK: somebody chose that epoch, which is not whole. So is what follows, until a full save, and the live tree stays. */
void saves_found_chosen(struct saves *s);

/* ---- going back ---- */

enum saves_back {
	BACK_NOT,
	BACK_LATER, /* a writer of the save lives, or something but output is open for writing */
	BACK_NOW, /* the live tree goes back to the newest whole epoch, if there is one; what is dirty is sealed first */
};

enum saves_back saves_back(const struct saves *s);
/* As if the options said so. */
enum saves_back saves_back_when(const struct saves *s, enum resume_when when);
/* BACK_LATER: for whose end it is; 0: for that of no process, or it is not BACK_LATER. */
uint64_t saves_back_waits(const struct saves *s);

/* Whether the file that this handle, or this path, names is output. */
bool saves_handle_is_output(const struct saves *s, uint64_t handle);
bool saves_path_is_output(const struct saves *s, const char *path);
/* Whether it stays as it is where the live tree goes back: output, and what only grew since an epoch had it. */
bool saves_path_stays(const struct saves *s, const char *path);

#endif
