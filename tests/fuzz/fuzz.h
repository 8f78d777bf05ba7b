/* SPDX-License-Identifier: Apache-2.0 */
/* The one function that a fuzz target is. */
#ifndef EPOCHFS_TESTS_FUZZ_H
#define EPOCHFS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/*
 * A fuzz target, tests/fuzz/fuzz_<subject>.c, defines this: it gives the bytes to a decoder, and
 * returns 0 whatever they are. `make fuzz` links it with libFuzzer, to search:
 *
 *	build-fuzz/fuzz/fuzz_<subject> -max_total_time=60 tests/fuzz/corpus/<subject>
 *
 * `make check-unit` links it with replay.c and runs it on each file of tests/fuzz/corpus/<subject>/,
 * which must have some.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#endif
