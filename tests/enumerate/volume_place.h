/* SPDX-License-Identifier: Apache-2.0 */
/* A volume in this process that histories are run on: what its parts share. */
#ifndef EPOCHFS_TESTS_VOLUME_PLACE_H
#define EPOCHFS_TESTS_VOLUME_PLACE_H

#include "lib/remote/remote.h"
#include "tests/enumerate/on.h"
#include "tests/enumerate/volume_files.h"
#include "tests/enumerate/volume_process.h"

struct place {
	struct on on;
	char *dir_path, *cache, *memory, *url, *weather;
	bool passthrough, durable;
	struct remote *remote; /* a memory remote is there as long as somebody has it open */
	struct volume *vol;
	struct vnodes *nodes;
	struct vprocess process[PROCESSES];
	pid_t pid[PROCESSES];
	unsigned number; /* of the history */
	uint64_t dir, base;
	struct vfile *file[HANDLES];
	struct vmapping *mapping;
	unsigned mapper;		     /* whose it is */
	bool maps;			     /* through the volume: it is to be seen */
	bool shared[HANDLES];		     /* it was duplicated */
	struct model_handle handle[HANDLES]; /* descriptors, who, op; at: in letters */
};

static inline struct place *place_of(struct on *on)
{
	return (struct place *)on;
}

/* ---- on_volume.c ---- */

/* A whole file, closed, by somebody else. */
void vplace_save(struct place *p, uint64_t dir, const char *name, char letter, unsigned letters);
/* Seals an epoch, and waits until it is durable where the place is; gives its number. */
uint64_t vplace_seal(struct on *on);
/* What this process has open, of what keeps a release away, is to be seen. */
void vplace_show(struct place *p, unsigned who);
/* The last descriptor is gone. */
void vplace_close(struct place *p, unsigned handle);
/* The mapping goes, where there is one. */
void vplace_unmap(struct place *p);
/* The process dies, and as it does its descriptors are closed; it is gone after that, and another takes its place. */
void vplace_kill(struct place *p, unsigned who);

/* ---- volume_steps.c ---- */

const char *vplace_name(unsigned name);
/* All of it; 0 or -errno. */
int vplace_read(struct place *p, struct vfile *f, struct seen *ret_seen);
/* As `act` of struct on. */
void vplace_act(struct on *on, const struct step *s, unsigned k, struct seen *ret_seen);

/* ---- volume_looks.c: as those of struct on ---- */

void vplace_stat_handle(struct on *on, unsigned handle, struct seen *ret_seen);
void vplace_stat_name(struct on *on, unsigned who, unsigned name, struct seen *ret_seen);
void vplace_read_handle(struct on *on, unsigned handle, struct seen *ret_seen);
void vplace_read_name(struct on *on, unsigned number, unsigned name, struct seen *ret_seen);
uint64_t vplace_next_epoch(struct on *on, uint64_t after);
void vplace_read_epoch(struct on *on, uint64_t epoch, unsigned number, unsigned name,
		       struct seen *ret_seen);

#endif
