/* SPDX-License-Identifier: Apache-2.0 */
/* The last files of the frameworks. */
#include "lib/meta/last_file.h"

#include <fnmatch.h>
#include <stddef.h>

static const struct {
	const char *glob;
	enum last_file kind;
} last_files[] = {
	{"latest_checkpointed_iteration.txt", LAST_FILE_ANY},
	{"checkpoint", LAST_FILE_ANY},
	{".metadata", LAST_FILE_ANY},
	{"training_metadata.json", LAST_FILE_ANY},
	{"latest", LAST_FILE_DEEPSPEED},
	{"*.ckpt", LAST_FILE_RENAMED},
	{"*.keras", LAST_FILE_RENAMED},
	{"*.weights.h5", LAST_FILE_RENAMED},
	{"trainer_state.json", LAST_FILE_STATE},
	{"rng_state.pth", LAST_FILE_RNG},
};

enum last_file last_file_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(last_files) / sizeof(*last_files); i++)
		if (fnmatch(last_files[i].glob, name, 0) == 0)
			return last_files[i].kind;
	return LAST_FILE_NONE;
}

const char *const *last_file_partners(enum last_file kind)
{
	static const char *const none[] = {NULL};
	static const char *const of_state[] = {"rng_state.pth", "rng_state_0.pth", NULL};
	static const char *const of_rng[] = {"trainer_state.json", NULL};

	switch (kind) {
	case LAST_FILE_STATE:
		return of_state;
	case LAST_FILE_RNG:
		return of_rng;
	default:
		return none;
	}
}
