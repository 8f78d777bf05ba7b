/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of .epochs. While `sync .epochs` waits, the kernel holds the lock of that directory's inode,
 * and whoever lists it or looks up a name there would wait too, for as long as an upload takes. So
 * whoever comes meanwhile is given the same directory as another node, with its directories as
 * other nodes (a directory has one place in the kernel's tree of names). Once nobody waits, all are
 * given the first view again. While nobody waits the kernel keeps which view it was given, for each
 * path below .epochs asks; it is told that this has expired when somebody begins to wait, and in the
 * instant between, a name is looked up behind his lock. Private to fs/.
 */
#ifndef EPOCHFS_FS_EPOCHS_VIEWS_H
#define EPOCHFS_FS_EPOCHS_VIEWS_H

#include <stdbool.h>
#include <stdint.h>

struct epochs_views;

int epochs_views_new(struct epochs_views **ret_views);
void epochs_views_free(struct epochs_views *v);
/* The first view that nobody waits in (with very many, one that somebody does). */
uint32_t epochs_views_free_one(struct epochs_views *v);
/* Whether somebody waits in any. */
bool epochs_views_any_busy(struct epochs_views *v);
/* Whether somebody waits in it. */
bool epochs_views_busy(struct epochs_views *v, uint32_t view);
/* How many there may be: 0 to this less one. */
uint32_t epochs_views_max(void);
void epochs_views_wait_begin(struct epochs_views *v, uint32_t view);
void epochs_views_wait_end(struct epochs_views *v, uint32_t view);

#endif
