/* SPDX-License-Identifier: Apache-2.0 */
/* What each thread holds, in builds that check the order of locks. */
#include "lib/util/lock.h"

#ifdef LOCK_CHECKS

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lib/util/log.h"

#ifdef LOCK_CHECKS_STACK
#include <sanitizer/common_interface_defs.h>
#endif

/* No path of the program comes near it. */
#define HELD_MAX 16

struct held {
	const void *lock;
	enum lock_rank rank;
	const char *file;
	int line;
};

static _Thread_local struct held held[HELD_MAX];
static _Thread_local size_t held_count;

static const char *rank_name(enum lock_rank rank)
{
	static const char *const names[] = {
#define LOCK_NAME_OF_(name) #name,
		LOCK_ORDER(LOCK_NAME_OF_)
#undef LOCK_NAME_OF_
	};

	return rank < LOCK_RANKS ? names[rank] : "a lock without a rank";
}

/* To the log and to the terminal, because a daemon has only one of them; a sanitizer adds the stack
 * to its report. */
__attribute__((noreturn)) static void ends(const char *line)
{
	log_error("%s", line);
	fprintf(stderr, "%s\n", line);
#ifdef LOCK_CHECKS_STACK
	__sanitizer_print_stack_trace();
#endif
	abort();
}

__attribute__((noreturn)) static void ends_over(const struct held *h, const char *doing,
						const char *what, const char *file, int line)
{
	char text[512];

	snprintf(text, sizeof(text), "lock order: %s %s (%s:%d) while %s is held (%s:%d)", doing,
		 what, file, line, rank_name(h->rank), h->file, h->line);
	ends(text);
}

void lock_check_take(const void *lock, enum lock_rank rank, const char *file, int line)
{
	for (size_t i = held_count; i-- > 0;) {
		const struct held *h = &held[i];
		/* curl's own, which it orders. */
		bool together = rank == LOCK_HTTP_SHARE && h->rank == rank && h->lock != lock;

		if (h->rank >= rank && !together)
			ends_over(h, "taking", rank_name(rank), file, line);
	}
	if (held_count == HELD_MAX)
		ends_over(&held[0], "too many: taking", rank_name(rank), file, line);
	held[held_count++] = (struct held){lock, rank, file, line};
}

void lock_check_drop(const void *lock, enum lock_rank rank, const char *file, int line)
{
	char text[512];

	for (size_t i = held_count; i-- > 0;) {
		if (held[i].lock != lock)
			continue;
		for (held_count--; i < held_count; i++)
			held[i] = held[i + 1];
		return;
	}
	snprintf(text, sizeof(text), "lock order: %s is given back (%s:%d) and was not taken",
		 rank_name(rank), file, line);
	ends(text);
}

void lock_check_wait(const void *lock, enum lock_rank rank, const char *file, int line)
{
	bool mine = false;

	for (size_t i = 0; i < held_count; i++) {
		mine = mine || held[i].lock == lock;
		if (held[i].lock != lock)
			ends_over(&held[i], "waiting with", rank_name(rank), file, line);
	}
	if (!mine)
		lock_check_drop(lock, rank, file, line);
}

void lock_check_none(enum lock_rank below, const char *what, const char *file, int line)
{
	for (size_t i = 0; i < held_count; i++)
		if (held[i].rank < below)
			ends_over(&held[i], "coming to", what, file, line);
}

#endif
