/* SPDX-License-Identifier: Apache-2.0 */
/* Does a zip that torch.save closed in good order hold all storages that its pickle names? */
#ifndef EPOCHFS_FORMAT_TORCH_ZIP_H
#define EPOCHFS_FORMAT_TORCH_ZIP_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/tails.h"

/*
 * torch.save writes <name>/data.pkl, one entry <name>/data/<key> for each
 * storage, and <name>/version. It closes the archive after an exception too (Ctrl-C): that is then
 * a sound zip that lacks what was still to come. The pickle tells it: its persistent ids are
 * ('storage', type, key, location, elements).
 */
struct zip_directory {
	uint64_t at, size; /* of the directory, in the file */
	uint64_t base;	   /* where the archive begins: offsets of entries count from there */
	uint64_t entries;
	bool zip64; /* its records are there, as PyTorch always writes them */
};

/*
 * Reads the directory and the pickle in pieces, at most 32 MiB of each (long strings are passed
 * over), with some 400 KiB of memory. 0: an archive that is whole, not torch.save's, too large, or
 * not understood; 1: torn, and *ret_why is static text; or -errno of a read. The directory must lie
 * inside the source. Any thread.
 */
int torch_zip_check(const struct tail_source *in, const struct zip_directory *directory,
		    const char **ret_why);

#endif
