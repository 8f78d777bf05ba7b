/* SPDX-License-Identifier: Apache-2.0 */
/* The chunk index of a mounted volume: the store's questions, answered by the local state. For lib/ alone. */
#ifndef EPOCHFS_CACHE_STORE_INDEX_H
#define EPOCHFS_CACHE_STORE_INDEX_H

#include "lib/store/store.h"
#include "lib/cache/context.h"

/* Valid as long as the volume. Its functions take the volume's lock for each question. */
struct store_index volume_store_index(struct volume *vol);

#endif
