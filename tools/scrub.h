/* SPDX-License-Identifier: Apache-2.0 */
/* Takes secrets out of text that is to be shown to strangers. */
#ifndef EPOCHFS_TOOLS_SCRUB_H
#define EPOCHFS_TOOLS_SCRUB_H

#include <stddef.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

/*
 * A secret is hidden where it is known here (scrub_add*), and where it looks like one: user and password of a URL, the value of a
 * parameter or an assignment whose name says so, what follows "Authorization:", and tokens that services mark by how they begin.
 * Who asks for text adds what he knows; the looks are for what nobody thought of. Zero-initialise; wiped by scrub_free.
 */
struct scrub {
	char **secrets;
	size_t count;
	bool failed; /* memory ran out: scrub_put puts nothing then */
};
void scrub_free(struct scrub *s);
#define cleanup_scrub CLEANUP(scrub_free)

/* Too short ones are words that stand everywhere, and are left alone. */
void scrub_add(struct scrub *s, const char *secret);
/* What the variables of an environment, NAME=VALUE with a NUL behind each, hold whose names say that they are secrets; of one that names a
 * file, its lines, too. */
void scrub_add_environment(struct scrub *s, const char *block, size_t len);
/* The lines of a file that holds a secret, and its name. */
void scrub_add_file(struct scrub *s, const char *path);
/* The password in a URL, as it stands and decoded. */
void scrub_add_url(struct scrub *s, const char *url);

/* Appends the text without what is secret. */
void scrub_put(const struct scrub *s, const char *text, size_t len, struct buf *out);

#endif
