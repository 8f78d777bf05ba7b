/* SPDX-License-Identifier: Apache-2.0 */
/* Steps, and their text. */
#include "tests/enumerate/history.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const op_text[OP_COUNT] = {
	[OP_OPEN_READ] = "open-read",
	[OP_OPEN_WRITE] = "open-write",
	[OP_OPEN_DIRECT] = "open-direct",
	[OP_OPEN_APPEND] = "open-append",
	[OP_OPEN_TRUNCATE] = "open-trunc",
	[OP_DUP] = "dup",
	[OP_CLOSE] = "close",
	[OP_READ] = "read",
	[OP_WRITE] = "write",
	[OP_TRUNCATE] = "truncate",
	[OP_MAP] = "map",
	[OP_FSYNC] = "fsync",
	[OP_ASYNC] = "async-write",
	[OP_PREALLOCATE] = "preallocate",
	[OP_PUNCH] = "punch",
	[OP_COPY] = "copy",
	[OP_MAP_KEEP] = "map-keep",
	[OP_STORE] = "store",
	[OP_UNMAP] = "unmap",
	[OP_RENAME] = "rename",
	[OP_LINK] = "link",
	[OP_UNLINK] = "unlink",
	[OP_REPLACE] = "replace",
	[OP_COMMIT] = "commit",
	[OP_ROLLBACK] = "rollback",
	[OP_EVICT] = "evict",
	[OP_KILL] = "kill",
};

bool step_same(const struct step *a, const struct step *b)
{
	return a->op == b->op && a->who == b->who && a->name == b->name && a->handle == b->handle;
}

unsigned step_all(struct step steps[STEPS_MAX])
{
	unsigned n = 0;

	for (uint8_t op = 0; op < OP_COUNT; op++) {
		uint8_t whos = op_opens(op) || op == OP_KILL ? PROCESSES : 1;
		uint8_t names = op_opens(op) || op_names(op) ? NAMES : 1;
		uint8_t handles = op_handles(op) ? HANDLES : 1;

		for (uint8_t who = 0; who < whos; who++)
			for (uint8_t name = 0; name < names; name++)
				for (uint8_t handle = 0; handle < handles; handle++)
					steps[n++] = (struct step){op, who, name, handle};
	}
	return n;
}

static int step_text(const struct step *s, char *text, size_t size)
{
	const char *op = op_text[s->op];

	if (op_opens(s->op))
		return snprintf(text, size, "p%d %s %c", s->who, op, 'a' + s->name);
	if (op_handles(s->op))
		return snprintf(text, size, "%s h%d", op, s->handle);
	if (s->op == OP_RENAME || s->op == OP_LINK)
		return snprintf(text, size, "%s %c %c", op, 'a' + s->name, 'b' - s->name);
	if (op_names(s->op))
		return snprintf(text, size, "%s %c", op, 'a' + s->name);
	if (s->op == OP_KILL)
		return snprintf(text, size, "%s p%d", op, s->who);
	return snprintf(text, size, "%s", op);
}

void history_text(const struct history *h, char text[HISTORY_TEXT_MAX])
{
	size_t at = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < h->length; i++) {
		at += (size_t)snprintf(text + at, HISTORY_TEXT_MAX - at, i ? "; " : "");
		at += (size_t)step_text(&h->step[i], text + at, HISTORY_TEXT_MAX - at);
	}
}

/* Compares the text of each step that there is. */
static int parse_step(const char *text, size_t len, struct step *ret_step)
{
	struct step all[STEPS_MAX];
	unsigned n = step_all(all);

	for (unsigned i = 0; i < n; i++) {
		char known[64];

		step_text(&all[i], known, sizeof(known));
		if (strlen(known) == len && !memcmp(known, text, len)) {
			*ret_step = all[i];
			return 0;
		}
	}
	return -EINVAL;
}

int history_parse(const char *text, struct history *ret_history)
{
	struct history h = {0};

	while (*(text += strspn(text, " \t;\n"))) {
		size_t len = strcspn(text, ";\n");
		size_t trimmed = len;

		while (trimmed && strchr(" \t", text[trimmed - 1]))
			trimmed--;
		if (h.length == HISTORY_MAX || parse_step(text, trimmed, &h.step[h.length++]))
			return -EINVAL;
		text += len;
	}
	*ret_history = h;
	return 0;
}

bool history_contains(const struct history *h, const struct history *part)
{
	unsigned found = 0;

	for (unsigned i = 0; i < h->length && found < part->length; i++)
		found += step_same(&h->step[i], &part->step[found]);
	return found == part->length;
}

uint32_t history_ops(const char *text)
{
	uint32_t ops = 0;

	while (*text) {
		size_t len = strcspn(text, ",");
		unsigned op = 0;

		while (op < OP_COUNT &&
		       (strlen(op_text[op]) != len || memcmp(op_text[op], text, len)))
			op++;
		if (op == OP_COUNT)
			return 0;
		ops |= 1u << op;
		text += len + (text[len] == ',');
	}
	return ops;
}
