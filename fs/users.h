/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who needs the mount to stay, besides whoever has something open in it. Private to fs/.
 *
 * A hold is an open .epochs/.control through which `epochfs run` asked for it: it ends when that is closed, so also when
 * the run is killed. A user is a process that opened a file of the live tree and has not ended: between two
 * saves training has nothing open, and its next save must not go to the directory below.
 */
#ifndef EPOCHFS_FS_USERS_H
#define EPOCHFS_FS_USERS_H

#include "fs/fs.h"

struct users;

int users_new(struct users **ret_users);
void users_free(struct users *users);

/* How a hold may end, beside by its being closed. */
enum hold {
	HOLD_NONE,
	HOLD_USES,    /* the run found the mount there, and leaves it there */
	HOLD_MOUNTED, /* the run mounted it: where it dies, nobody else unmounts */
};
void users_hold(struct users *users, enum hold hold);
/* `in_order`: the run said that it ends. Else it died, and a hold of HOLD_MOUNTED makes users_orphaned true. */
void users_let_go(struct users *users, enum hold hold, bool in_order);
/* Polls readable once a hold ended or users_end was called, until the next call of users_look. */
int users_fd(const struct users *users);
void users_look(struct users *users);
bool users_held(struct users *users);
bool users_orphaned(struct users *users);
/* The run that mounted it has ended in order, and asks for the unmount. */
void users_end(struct users *users);
bool users_ended(struct users *users);

/* This thread (as the kernel names it in a request; 0: unknown to us) opened a file of the live tree. */
void users_note(struct users *users, pid_t tid);
/* Whether one of them lives: its process, or -1 where that is not known; 0: none. */
pid_t users_alive(struct users *users);

#endif
