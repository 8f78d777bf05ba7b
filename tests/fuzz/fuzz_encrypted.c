/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: encrypted objects. What is encrypted comes back; bytes that nobody encrypted come as zeros. */
#include "lib/remote/encrypt.h"
#include "tests/fuzz/fuzz.h"

#define KEY "epochs/00000000000000000001.json"

static struct encryption *the_encryption(void)
{
	static const uint8_t master[CRYPTO_KEY_SIZE] = {1, 2, 3};
	static struct encryption *s;

	if (!s)
		fuzz_assert(!encryption_new(master, "0f8fad5b-d9cb-469f-a165-70867728950e", &s));
	return s;
}

static void open_hostile(const uint8_t *data, size_t len, uint64_t first)
{
	uint8_t *copy = fuzz_copy(data, len);
	size_t plain = 0;
	bool ended, damaged = false;

	fuzz_assert(!decrypt_segments(the_encryption(), KEY, first, copy, len, &plain, &ended,
				      &damaged));
	fuzz_assert(plain <= len && (!len || damaged));
	for (size_t i = 0; i < plain; i++)
		fuzz_assert(!copy[i]);
	free(copy);
}

/* Encrypts the bytes, changes one of what came of it where `at` says so, and opens that. */
static void encrypt_and_decrypt(const uint8_t *data, size_t len, size_t at, uint8_t change)
{
	cleanup_buf struct buf encrypted = {0};
	size_t plain = 0;
	bool ended, damaged;

	fuzz_assert(!encrypt_object(the_encryption(), KEY, data, len, &encrypted));
	fuzz_assert(encrypted.len == encrypted_len(len));
	encrypted.data[at % encrypted.len] ^= change;
	fuzz_assert(!decrypt_segments(the_encryption(), KEY, 0, encrypted.data, encrypted.len,
				      &plain, &ended, &damaged));
	fuzz_assert(plain == len && ended && damaged == (change != 0));
	fuzz_assert(damaged || !len || !memcmp(encrypted.data, data, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint64_t plain;

	open_hostile(data, len, 0);
	open_hostile(data, len, len ? data[0] : 1);
	encrypt_and_decrypt(data, len, len > 1 ? data[0] | (size_t)data[1] << 8 : 0,
			    len ? data[len - 1] : 0);
	if (encrypted_plain_len(len, &plain))
		fuzz_assert(encrypted_len(plain) == len);
	return 0;
}
