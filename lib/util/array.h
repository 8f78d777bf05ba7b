/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow. */
#ifndef EPOCHFS_UTIL_ARRAY_H
#define EPOCHFS_UTIL_ARRAY_H

#include <stddef.h>

/*
 * Room for one more behind `count` items of `size` bytes at *items, which has room for *cap and is
 * freed with free(3): 0, or -ENOMEM with nothing changed. What is new is not initialised. Items may
 * move. Not thread-safe.
 */
int array_reserve(void **items, size_t *cap, size_t count, size_t size);

#endif
