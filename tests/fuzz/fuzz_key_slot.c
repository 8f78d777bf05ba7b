/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: key slots. One that is accepted never asks for more than is allowed. */
#include "lib/format/key_slot.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf text = {0}, again = {0};
	struct key_slot s, second;
	uint8_t master[CRYPTO_KEY_SIZE];

	if (key_slot_decode(data, len, &s) < 0)
		return 0;
	fuzz_assert(s.kind == KEY_FILE || scrypt_cost_valid(&s.cost));
	fuzz_assert(key_slot_encode(&s, &text) == 0);
	fuzz_assert(key_slot_decode(text.data, text.len, &second) == 0);
	fuzz_assert(key_slot_encode(&second, &again) == 0);
	fuzz_same(&again, text.data, text.len);
	/* Only this kind is cheap to try. */
	if (s.kind == KEY_FILE)
		fuzz_assert(key_slot_unwrap(&s, "0123456789abcdef", data, len, master) < 0);
	return 0;
}
