/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: lines of events, each with the decisions that are to follow it, as lines that begin with two spaces. */
#ifndef EPOCHFS_TESTS_SAVES_UNIT_H
#define EPOCHFS_TESTS_SAVES_UNIT_H

#include "lib/util/cleanup.h"
#include "tests/saves/driver.h"
#include "tests/unit/unit.h"

/* Appends the decisions. */
static inline void saves_unit_put(struct driver *d, struct buf *seen)
{
	cleanup_free char *decisions = strdup(buf_str(&d->out));
	char *rest = NULL;

	ck_assert_ptr_nonnull(decisions);
	for (char *line = strtok_r(decisions, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest))
		buf_printf(seen, "  %s\n", line);
	buf_reset(&d->out);
}

/* "remount", or "remount pending" (driver_remount). */
static inline bool saves_unit_remounts(struct driver *d, const char *line)
{
	if (strncmp(line, "remount", 7) != 0)
		return false;
	unit_ok(driver_remount(d, line[7]));
	return true;
}

/* Each event is asked about before it is told. */
static inline void saves_unit_play(struct driver *d, const char *line, struct buf *seen)
{
	cleanup_free char *copy = strdup(line);
	struct save_event e;

	if (saves_unit_remounts(d, line)) {
		buf_printf(seen, "%s\n", line);
		return;
	}
	ck_assert_msg(copy && save_event_parse(copy, &e) == 0, "not understood: %s", line);
	buf_printf(seen, "%s\n", line);
	unit_ok(driver_before(d, &e));
	unit_ok(driver_tell(d, &e));
	saves_unit_put(d, seen);
}

/* What is seen is what the trace says. settle is 5 s, patience 60 s. */
static inline void saves_unit_check_of(const char *trace, enum resume_when resume,
				       const char *marker)
{
	struct saves_options o = {
		.settle_ns = 5 * NS_PER_S, .patience_ns = 60 * NS_PER_S, .resume = resume};
	cleanup_free char *copy = strdup(trace);
	cleanup_buf struct buf seen = {0};
	struct driver d = {0};
	char *rest = NULL;

	ck_assert_ptr_nonnull(copy);
	unit_ok(driver_begin(&d, o, marker));
	for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		if (line[0] != ' ')
			saves_unit_play(&d, line, &seen);
	driver_end(&d);
	ck_assert_str_eq(buf_str(&seen), trace);
}

static inline void saves_unit_check_with(const char *trace, enum resume_when resume)
{
	saves_unit_check_of(trace, resume, NULL);
}

static inline void saves_unit_check(const char *trace)
{
	saves_unit_check_with(trace, RESUME_KNOWN);
}

/* A file that process P writes in place as handle H: opened at S.1, closed at S.2. */
#define TRACE_SAVE(s, p, h, how, size, path)                                                       \
#s ".1 opened process=" #p " handle=" #h " is=" how " path=" path "\n" #s                  \
	   ".2 closed handle=" #h " size=" #size " path=" path "\n"
/* A directory checkpoint of two files, which quiet seals as epoch N. */
#define TRACE_STEP(s, then, p, h1, h2, n, path)                                                    \
#s " made process=" #p " path=" path                                                       \
	   "\n" TRACE_SAVE(s, p, h1, "new", 4000, path "/model.bin")                               \
		   TRACE_SAVE(s, p, h2, "new", 8000, path "/optimizer.bin") #then ".2 time\n"      \
										  "  seal " #n     \
										  " S4 J7 whole\n"

#endif
