/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what a program that is a remote answers: its list, a size, what it can; and the line that names one. */
#include "lib/remote/exec.h"
#include "lib/remote/remote.h"
#include "tests/fuzz/fuzz.h"

static int see(void *arg, const char *key, uint64_t size)
{
	(void)size;
	fuzz_assert(remote_key_valid(key) && !strncmp(key, "epochs/", 7));
	++*(unsigned *)arg;
	return 0;
}

static void check_words(const char *text)
{
	size_t count = 0;
	char **words;

	if (exec_words_split(text, &words, &count))
		return;
	fuzz_assert(count > 0 && words[0][0] && !words[count]);
	exec_words_free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf list = {0}, size = {0}, can = {0}, text = {0};
	uint64_t number = 0;
	unsigned keys = 0;

	buf_put(&list, data, len);
	buf_put(&size, data, len);
	buf_put(&can, data, len);
	buf_put(&text, data, len);
	exec_list_parse(&list, "epochs/", see, &keys);
	fuzz_assert(keys <= len);
	exec_size_parse(&size, &number);
	exec_abilities_parse(&can);
	check_words(buf_str(&text));
	return 0;
}
