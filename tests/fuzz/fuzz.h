/* SPDX-License-Identifier: Apache-2.0 */
/* What every fuzz target needs. */
#ifndef EPOCHFS_TESTS_FUZZ_H
#define EPOCHFS_TESTS_FUZZ_H

/*
 * A target is one file, fuzz_<what>.c, which defines LLVMFuzzerTestOneInput. It decodes the bytes; where
 * the decoder accepts them, it encodes the result again and compares. A checksum would keep a fuzzer
 * from everything behind it, so targets also try the bytes with the checksum put right.
 *
 * `make fuzz` links the targets with libFuzzer; `build-fuzz/fuzz/fuzz_tree DIR tests/fuzz/corpus/tree`
 * searches on, with DIR for what it finds. As ordinary tests they replay tests/fuzz/corpus/<what>.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/buf.h"
#include "lib/util/hash.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Also where NDEBUG is defined. */
#define fuzz_assert(condition)                                                                     \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* The buffer holds exactly these bytes. */
#define fuzz_same(b, bytes, count)                                                                 \
	fuzz_assert(!(b)->failed && (b)->len == (count) &&                                         \
		    (!(count) || !memcmp((b)->data, (bytes), (count))))

/* A copy of exactly len bytes, so that the sanitizer sees a read past its end; at least one byte. */
static inline uint8_t *fuzz_copy(const uint8_t *data, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	fuzz_assert(copy);
	if (len)
		memcpy(copy, data, len);
	return copy;
}

static inline void fuzz_put_u32(uint8_t *at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

/* Makes the last four bytes the CRC-32C of those before. */
static inline void fuzz_repair_crc(uint8_t *data, size_t len)
{
	if (len >= 4)
		fuzz_put_u32(data + len - 4, crc32c(0, data, len - 4));
}

#endif
