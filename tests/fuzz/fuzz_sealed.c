/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: sealed objects. What is sealed comes back; bytes that nobody sealed come as zeros. */
#include "lib/remote/sealed.h"
#include "tests/fuzz/fuzz.h"

#define KEY "epochs/00000000000000000001.json"

static struct seal *the_seal(void)
{
	static const uint8_t master[CRYPTO_KEY_SIZE] = {1, 2, 3};
	static struct seal *s;

	if (!s)
		fuzz_assert(!seal_new(master, "0f8fad5b-d9cb-469f-a165-70867728950e", &s));
	return s;
}

static void open_hostile(const uint8_t *data, size_t len, uint64_t first)
{
	uint8_t *copy = fuzz_copy(data, len);
	size_t plain = 0;
	bool ended, damaged = false;

	fuzz_assert(!seal_open(the_seal(), KEY, first, copy, len, &plain, &ended, &damaged));
	fuzz_assert(plain <= len && (!len || damaged));
	for (size_t i = 0; i < plain; i++)
		fuzz_assert(!copy[i]);
	free(copy);
}

/* Seals the bytes, changes one of what came of it where `at` says so, and opens that. */
static void seal_and_open(const uint8_t *data, size_t len, size_t at, uint8_t change)
{
	cleanup_buf struct buf sealed = {0};
	size_t plain = 0;
	bool ended, damaged;

	fuzz_assert(!seal_object(the_seal(), KEY, data, len, &sealed));
	fuzz_assert(sealed.len == sealed_len(len));
	sealed.data[at % sealed.len] ^= change;
	fuzz_assert(
		!seal_open(the_seal(), KEY, 0, sealed.data, sealed.len, &plain, &ended, &damaged));
	fuzz_assert(plain == len && ended && damaged == (change != 0));
	fuzz_assert(damaged || !len || !memcmp(sealed.data, data, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint64_t plain;

	open_hostile(data, len, 0);
	open_hostile(data, len, len ? data[0] : 1);
	seal_and_open(data, len, len > 1 ? data[0] | (size_t)data[1] << 8 : 0,
		      len ? data[len - 1] : 0);
	if (sealed_plain_len(len, &plain))
		fuzz_assert(sealed_len(plain) == len);
	return 0;
}
