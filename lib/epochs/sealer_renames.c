/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renames that end no save. The first of several files that are renamed into place one by one seals (contract 1.3.2), and what it seals
 * is half until the rest has come. That it was is known then: the next rename of such a name seals nothing by itself.
 */
#include "lib/epochs/seal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "lib/util/cleanup.h"

#define META "renames_go_on"

/* Of the path, where runs of digits are all the same, as the step is another each time (FNV-1a); never 0. */
static uint64_t hash_path(const char *path)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *path; path++) {
		bool digit = isdigit((unsigned char)*path);

		if (digit && isdigit((unsigned char)path[1]))
			continue;
		h = (h ^ (digit ? '#' : (uint8_t)*path)) * UINT64_C(0x100000001b3);
	}
	return h ? h : 1;
}

static bool is_known(const struct seal_renames *r, uint64_t hash)
{
	for (unsigned i = 0; i < SEAL_RENAMES; i++)
		if (r->hash[i] == hash)
			return true;
	return false;
}

static void keep(struct volume *vol)
{
	const struct seal_renames *r = &vol->sealer->renames;
	char text[SEAL_RENAMES * 17 + 1] = "";
	size_t len = 0;

	for (unsigned i = 0; i < SEAL_RENAMES && r->hash[i]; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%016" PRIx64 " ",
					r->hash[i]);
	state_set_meta(vol->state, META, text);
}

void sealer_renames_load(struct volume *vol)
{
	struct seal_renames *r = &vol->sealer->renames;
	cleanup_buf struct buf text = {0};
	const char *at;
	char *end;

	if (state_get_meta(vol->state, META, &text) != 0)
		return;
	at = buf_str(&text);
	for (unsigned i = 0; i < SEAL_RENAMES; i++, at = end) {
		r->hash[i] = strtoull(at, &end, 16);
		if (end == at)
			break;
	}
}

void sealer_rename_goes_on_locked(struct volume *vol, uint64_t ino)
{
	struct seal_renames *r = &vol->sealer->renames;
	cleanup_buf struct buf path = {0};
	uint64_t hash;

	volume_path_locked(vol, ino, &path);
	hash = hash_path(buf_str(&path));
	if (!path.len || is_known(r, hash))
		return;
	/* The newest first; the oldest goes. */
	for (unsigned i = SEAL_RENAMES - 1; i > 0; i--)
		r->hash[i] = r->hash[i - 1];
	r->hash[0] = hash;
	keep(vol);
}

bool sealer_goes_on_locked(struct volume *vol, uint64_t parent, const char *name)
{
	cleanup_buf struct buf path = {0};

	return vol->sealer->renames.hash[0] && sealer_path_locked(vol, parent, name, &path) == 0 &&
	       is_known(&vol->sealer->renames, hash_path(buf_str(&path)));
}
