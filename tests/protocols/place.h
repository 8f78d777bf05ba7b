/* SPDX-License-Identifier: Apache-2.0 */
/* A volume in this process, and processes that use it: what a mount makes of system calls (tests/enumerate/volume_files.h). */
#ifndef EPOCHFS_TESTS_PLACE_H
#define EPOCHFS_TESTS_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct place;

/* In a new folder of `dir`, with a remote in memory; passthrough as fs/ would have it. */
struct place *place_new(const char *dir, bool passthrough);
void place_free(struct place *p);

struct place_options {
	int64_t settle_ns, patience_ns;
	bool resume; /* also where nobody knows how a writer ended */
};
/* Opens the volume. place_down ends it: `in_order` as an unmount does, else as where the machine is lost. `cold`: the cache is gone then. */
void place_up(struct place *p, const struct place_options *o);
void place_down(struct place *p, bool in_order, bool cold);
/* All that is sealed is in the remote. */
void place_upload(struct place *p);

/* Each gives 0 or -errno. `who` names a process: it is made where there is none. */
int place_open(struct place *p, const char *who, unsigned fd, const char *path, int flags);
/* Offset UINT64_MAX: where the descriptor stands. */
int place_write(struct place *p, const char *who, unsigned fd, const void *data, size_t len,
		uint64_t offset);
int place_truncate(struct place *p, const char *who, unsigned fd, uint64_t size);
int place_fsync(struct place *p, const char *who, unsigned fd);
int place_close(struct place *p, const char *who, unsigned fd);
int place_fork(struct place *p, const char *who, const char *child);
int place_exit(struct place *p, const char *who, int status);
int place_kill(struct place *p, const char *who);
/* Its process id; it is made where there is none. */
pid_t place_pid(struct place *p, const char *who);
void place_kill_all(struct place *p);
int place_mkdir(struct place *p, const char *who, const char *path);
int place_remove(struct place *p, const char *who, const char *path, bool directory);
int place_rename(struct place *p, const char *who, const char *from, const char *to, bool exchange);
int place_link(struct place *p, const char *who, const char *from, const char *to);
int place_symlink(struct place *p, const char *who, const char *target, const char *path);
/* fsync of a directory. */
int place_sync(struct place *p);
int place_touch(struct place *p, const char *who, const char *path, bool mode);

/*
 * One JSON object in a line: "epochs": [[number, verdict, trigger], ...] with verdict "whole", "part", "not whole" or "unknown"; "latest": number;
 * "stored": bytes in the remote. Of `what`: with "tree" "tree": {path: [size, SHA-1]} of latest, with "trees" "trees": {number: the same} of all
 * epochs, with "live" "live": the same of the live tree, as a process that was just started sees it. A symbolic link is a file with its target in it.
 * With "facts" "facts": what happened, as fact_log_json has it.
 */
void place_look(struct place *p, const char *what, FILE *out);
/* 0: there is none. */
uint64_t place_latest(struct place *p);

#endif
