/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: LMDB's meta pages and its list of free pages. */
#include "lib/format/databases.h"
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

static int check(const uint8_t *data, size_t len)
{
	struct input in = {data, len};
	const struct tail_source source = {.read = read_input, .arg = &in};
	const char *why = NULL;
	int result = lmdb_check(&source, len, &why);

	fuzz_assert(result == 0 || result == 1);
	fuzz_assert((why != NULL) == (result == 1));
	return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* What is torn is so at half its length, too, unless it is no longer LMDB's. */
	if (check(data, len) == 1 && len >= 512)
		fuzz_assert(check(data, 256) == 1);
	return 0;
}
