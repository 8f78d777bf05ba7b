/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: events of saves as lines, and what the rules make of any of them. */
#include "lib/saves/event.h"

#include <errno.h>

#include "tests/fuzz/fuzz.h"
#include "tests/saves/driver.h"

#define NS_A_SECOND INT64_C(1000000000)

/* What is read is printed as it was. */
static bool read_line(const char *line, char *copy, struct save_event *ret_event)
{
	cleanup_buf struct buf printed = {0};

	strcpy(copy, line);
	if (save_event_parse(copy, ret_event) != 0)
		return false;
	fuzz_assert(save_event_valid(ret_event));
	save_event_print(&printed, ret_event);
	fuzz_same(&printed, line, strlen(line));
	return true;
}

static void check_answers(struct driver *d)
{
	fuzz_assert(saves_next_ns(d->saves) >= 0);
	saves_back(d->saves);
	saves_path_is_output(d->saves, "a");
	buf_reset(&d->out);
}

/* Of what a record says, which may be anything, what is understood is put down again as it is. */
static void check_known(struct driver *d)
{
	cleanup_buf struct buf before = {0}, after = {0};

	saves_put_known(d->saves, &before);
	fuzz_assert(before.len <= SAVES_KNOWN_MAX && driver_remount(d, false) == 0);
	saves_put_known(d->saves, &after);
	fuzz_same(&after, buf_str(&before), before.len);
}

static bool is_known(const char *line)
{
	return !strncmp(line, "shape ", 6) || !strncmp(line, "broken ", 7) ||
	       !strncmp(line, "newest ", 7) || !strncmp(line, "torn ", 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct saves_options o = {
		.settle_ns = NS_A_SECOND, .patience_ns = 9 * NS_A_SECOND, .resume = RESUME_ALWAYS};
	cleanup_buf struct buf text = {0};
	char *rest = NULL, *copy = malloc(len + 1);
	struct driver d = {0};

	fuzz_assert(copy && driver_begin(&d, o, NULL) == 0);
	buf_put(&text, data, len);
	buf_put_u8(&text, '\0');
	for (char *line = strtok_r((char *)text.data, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		struct save_event e;
		int r;

		if (is_known(line)) {
			r = saves_take_known(d.saves, line);
			fuzz_assert(r == 0 || r == -EINVAL);
			continue;
		}
		if (!read_line(line, copy, &e))
			continue;
		driver_before(&d, &e);
		r = driver_tell(&d, &e);
		fuzz_assert(r == 0 || r == -EINVAL);
		check_answers(&d);
	}
	check_known(&d);
	driver_end(&d);
	free(copy);
	return 0;
}
