/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of a history on a volume: a child that waits. What it does is done by the handles of this process; the volume asks how it ended, and
 * looks into /proc for what it has open: that is shown by files of the same path elsewhere.
 */
#ifndef EPOCHFS_TESTS_VOLUME_PROCESS_H
#define EPOCHFS_TESTS_VOLUME_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

struct vprocess {
	pid_t pid;
	int orders, answers; /* pipes */
	bool has, maps;	     /* as shown */
};

/* 0 or -errno. */
int vprocess_start(struct vprocess *v);
/* By SIGKILL; it is not waited for. */
void vprocess_kill(struct vprocess *v);
/* Once that was waited for. */
void vprocess_gone(struct vprocess *v);
/* It has the files of this directory open for writing, or mapped, or not, from now on. The directory is made. */
void vprocess_show(struct vprocess *v, const char *dir, bool has, bool maps);

#endif
