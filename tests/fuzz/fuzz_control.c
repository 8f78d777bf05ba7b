/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: requests that anybody who may open .epochs/.control writes there, on one volume without a remote. */
#include <ftw.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/admin/control.h"
#include "lib/util/log.h"
#include "lib/volume/volume.h"
#include "tests/fuzz/fuzz.h"

static struct volume *vol;
static char cache[4096];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st, (void)flag, (void)ftw;
	return remove(path);
}

static void stop(void)
{
	volume_close(vol);
	nftw(cache, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void start(void)
{
	const char *tmp = getenv("TMPDIR");
	struct volume_options o;
	char *message = NULL;

	log_set_level(LOG_LEVEL_ERROR);
	snprintf(cache, sizeof(cache), "%s/fuzz-control-XXXXXX", tmp ? tmp : "/tmp");
	fuzz_assert(mkdtemp(cache));
	volume_options_init(&o);
	o.cache_dir = cache;
	o.settle_ns = INT64_MAX / 4;
	o.min_free_percent = 0;
	fuzz_assert(volume_open(&o, &vol, &message) == 0);
	atexit(stop);
}

/* Nobody waits here. */
static bool interrupted(void *arg)
{
	(void)arg;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t *copy = fuzz_copy(data, len);
	cleanup_buf struct buf answer = {0};
	json_t *json;

	if (!vol)
		start();
	fuzz_assert(volume_control(vol, (const char *)copy, len, interrupted, NULL, &answer) == 0);
	json = json_loadb((const char *)answer.data, answer.len, 0, NULL);
	fuzz_assert(json_is_object(json));
	json_decref(json);
	free(copy);
	return 0;
}
