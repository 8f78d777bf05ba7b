/* SPDX-License-Identifier: Apache-2.0 */
/* Of tails.h: arrays of NumPy and pickles. For lib/format alone. */
#ifndef EPOCHFS_FORMAT_TAILS_PYTHON_H
#define EPOCHFS_FORMAT_TAILS_PYTHON_H

#include "lib/format/tails.h"

/* The first bytes of an array that numpy.save writes (numpy.lib.format). */
#define NPY_MAGIC "\x93NUMPY"

/* Whether the file, which begins with the magic, is shorter than its header says: 1; 0: no, or it cannot be told; or -errno. */
int npy_check(const struct tail_source *in, uint64_t size);
/* Whether the file, which has the name of a pickle and is not empty, is one without its end: likewise. */
int pickle_check(const struct tail_source *in, uint64_t size);

#endif
