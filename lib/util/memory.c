/* SPDX-License-Identifier: Apache-2.0 */
/* malloc in a daemon of many threads: glibc's settings. */
#include "lib/util/memory.h"

#include <malloc.h>

#define ARENAS 4
/* Larger than the buffers of one chunk, which come and go all the time; smaller than packs and large
 * trees. */
#define MAPPED_MIN (4 << 20)
#define KEPT_MAX   (8 << 20)

void memory_set_up(void)
{
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, ARENAS);
	mallopt(M_MMAP_THRESHOLD, MAPPED_MIN);
	mallopt(M_TRIM_THRESHOLD, KEPT_MAX);
#endif
}

void memory_give_back(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
