/* SPDX-License-Identifier: Apache-2.0 */
/* Doubts of a record or a status as text for people. */
#ifndef EPOCHFS_TOOLS_DOUBTS_H
#define EPOCHFS_TOOLS_DOUBTS_H

#include <jansson.h>
#include "lib/util/buf.h"

/* "model.pt: its writer was killed, in doubt since epoch 2 (3m ago); saving or removing it settles it". */
void doubt_text(const json_t *doubt, struct buf *out);
/* The same of a list, as a list of texts; NULL: there are none. */
json_t *doubts_texts(const json_t *doubts);

#endif
