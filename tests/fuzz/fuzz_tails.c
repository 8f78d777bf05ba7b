/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the tails of zips, safetensors, HDF5 files, arrays and pickles. */
#include "lib/format/tails.h"
#include "tests/fuzz/fuzz.h"

struct input {
	const uint8_t *data;
	size_t len;
};

static ssize_t read_input(void *arg, void *data, size_t len, uint64_t offset)
{
	const struct input *in = arg;

	if (offset >= in->len)
		return 0;
	if (len > in->len - offset)
		len = (size_t)(in->len - offset);
	memcpy(data, in->data + offset, len);
	return (ssize_t)len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const char *const names[] = {"model.pt", "model.safetensors", "model.h5",
					    "model.keras", "model.pkl"};
	struct input in = {data, len};
	const struct tail_source source = {.read = read_input, .arg = &in};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *why = NULL;
		int result = tail_check_source(&source, len, names[i], &why);

		fuzz_assert(result == 0 || result == 1);
		fuzz_assert((why != NULL) == (result == 1));
		/* Content that is shorter than was said is no reason to read on for ever. */
		fuzz_assert(tail_check_source(&source, (uint64_t)len + (UINT64_C(1) << 40),
					      names[i], &why) <= 1);
	}
	return 0;
}
