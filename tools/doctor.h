/* SPDX-License-Identifier: Apache-2.0 */
/* What epochfs doctor finds: the list of findings, and who adds to it. Private to doctor*.c, but for doctor_ask. */
#ifndef EPOCHFS_TOOLS_DOCTOR_H
#define EPOCHFS_TOOLS_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* One after the other, as they are printed; not thread-safe. */
struct doctor {
	json_t *findings;
	bool failed; /* memory ran out */
};

/* `check` is the name of what was looked at; what was found goes by the format. */
void doctor_ok(struct doctor *d, const char *check, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Not as it could be, and not to be called wrong: with what can be done. */
void doctor_note(struct doctor *d, const char *check, const char *what_to_do, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void doctor_wrong(struct doctor *d, const char *check, const char *what_to_do, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Whether something there that may be a mount answers. */
enum doctor_answer {
	DOCTOR_NO_MOUNT,
	DOCTOR_ANSWERS,
	DOCTOR_DEAD,  /* its process is gone */
	DOCTOR_HANGS, /* no answer within seconds */
};
/* Asks from another process, which may hang. */
enum doctor_answer doctor_ask(const char *path);
/* The finding of one that is dead or hangs. */
void doctor_no_answer(struct doctor *d, const char *mount, enum doctor_answer answer);

/* Of credentials that end: what is left of their time, and whether others follow by themselves. */
void doctor_credentials(struct doctor *d, const char *whose, int64_t left_ns, bool renewed);

void doctor_machine(struct doctor *d);
/* What the status of a mount tells; nothing else is asked. */
void doctor_status(struct doctor *d, const json_t *status);
/* Of a mount that answers: EXIT_DONE, or the exit code after a line. */
int doctor_mount(struct doctor *d, const char *mount);
/*
 * Of a remote, by its URL: likewise. `uuid` is that of the volume which is to be there; NULL: any or none, and who writes to it is told, too. Nothing
 * is put where that volume, or a directory, is not there.
 */
int doctor_remote(struct doctor *d, const char *url, const char *uuid);

#endif
