/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of saves (lib/saves) as a program: events on stdin, decisions on stdout. For tests/protocols/page.py, and by hand. */

/*
 * Lines, and what each is answered with, before a last line `due TIME` (when an event of time would say something, or `due never`):
 *
 *	new SETTLE PATIENCE off|known|always   nothing is known; seconds
 *	EVENT                                  it happened (event.h): decisions (driver.h)
 *	before EVENT                           it is about to happen: decisions
 *	output HANDLE, output /PATH            `yes` or `no`
 *	stays /PATH                            the same: where the live tree goes back
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "tests/saves/driver.h"

#define NS_A_SECOND INT64_C(1000000000)

static void fail(const char *line)
{
	fprintf(stderr, "saves: not understood: %s\n", line);
	exit(1);
}

static void begin(struct driver *d, const char *line)
{
	static const char *const resumes[] = {"off", "known", "always"};
	struct saves_options o = {.resume = RESUME_OFF};
	double settle, patience;
	char resume[8];

	if (sscanf(line, "new %lf %lf %7s", &settle, &patience, resume) != 3)
		fail(line);
	while (strcmp(resumes[o.resume], resume) != 0)
		if (++o.resume > RESUME_ALWAYS)
			fail(line);
	o.settle_ns = (int64_t)(settle * NS_A_SECOND);
	o.patience_ns = (int64_t)(patience * NS_A_SECOND);
	if (driver_begin(d, o, NULL) != 0)
		fail(line);
}

static void answer_output(const struct driver *d, const char *what)
{
	bool yes = *what == '/' ? saves_path_is_output(d->saves, what + 1)
				: saves_handle_is_output(d->saves, strtoull(what, NULL, 10));

	puts(yes ? "yes" : "no");
}

static void answer(struct driver *d, char *line)
{
	bool before = !strncmp(line, "before ", 7);
	cleanup_free char *copy = strdup(line);
	struct save_event e;

	if (!strncmp(line, "new ", 4))
		begin(d, line);
	else if (!d->saves)
		fail(line);
	else if (!strncmp(line, "output ", 7))
		answer_output(d, line + 7);
	else if (!strncmp(line, "stays /", 7))
		puts(saves_path_stays(d->saves, line + 7) ? "yes" : "no");
	else if (save_event_parse(line + (before ? 7 : 0), &e) != 0 ||
		 (before ? driver_before(d, &e) : driver_tell(d, &e)) != 0)
		fail(copy);
	fputs(buf_str(&d->out), stdout);
	buf_reset(&d->out);
}

static void answer_due(const struct driver *d)
{
	int64_t due = saves_next_ns(d->saves);

	if (due == INT64_MAX)
		puts("due never");
	else
		printf("due %" PRId64 ".%09" PRId64 "\n", due / NS_A_SECOND, due % NS_A_SECOND);
}

int main(void)
{
	struct driver d = {0};
	char *line = NULL;
	size_t cap = 0;

	while (getline(&line, &cap, stdin) > 0) {
		line[strcspn(line, "\n")] = '\0';
		answer(&d, line);
		answer_due(&d);
		fflush(stdout);
	}
	free(line);
	driver_end(&d);
	return 0;
}
