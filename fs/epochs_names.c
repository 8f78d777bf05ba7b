/* SPDX-License-Identifier: Apache-2.0 */
/* Names in .epochs: what they mean, and the numbers of those that people choose. */
#include "fs/epochs_names.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "lib/format/names.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/parse.h"

struct name {
	struct name *next;
	uint64_t id;
	uint64_t epoch; /* of a temporary symlink; 0: a tag */
	char text[];
};

struct epoch_names {
	struct mutex lock;
	uint64_t last_id; /* guarded by lock */
	struct name *first;
};

int epochs_names_new(struct epoch_names **ret_names)
{
	struct epoch_names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	mutex_init(&names->lock, LOCK_FS_EPOCH_NAMES);
	*ret_names = names;
	return 0;
}

void epochs_names_free(struct epoch_names *names)
{
	if (!names)
		return;
	while (names->first) {
		cleanup_free struct name *n = names->first;

		names->first = n->next;
	}
	mutex_destroy(&names->lock);
	free(names);
}

/* ---- what a name means ---- */

static enum epochs_name step_name(const char *digits, uint64_t *ret_step)
{
	if (!*digits || digits[strspn(digits, "0123456789")] || (digits[0] == '0' && digits[1]) ||
	    parse_u64(digits, ret_step) < 0)
		*ret_step = UINT64_MAX;
	return EPOCHS_NAME_STEP;
}

enum epochs_name epochs_name_kind(const char *name, uint64_t *ret_number)
{
	char canonical[24];
	uint64_t number;

	*ret_number = 0;
	if (strcmp(name, "latest") == 0)
		return EPOCHS_NAME_LATEST;
	if (strcmp(name, "current") == 0)
		return EPOCHS_NAME_CURRENT;
	if (strcmp(name, "torn") == 0)
		return EPOCHS_NAME_TORN;
	if (strcmp(name, ".control") == 0)
		return EPOCHS_NAME_CONTROL;
	if (tag_name_is_step(name))
		return step_name(name + strlen(TAG_STEP_PREFIX), ret_number);
	if (!*name || name[strspn(name, "0123456789")])
		return EPOCHS_NAME_OTHER;
	if (parse_u64(name, &number) < 0)
		return EPOCHS_NAME_NUMBER;
	snprintf(canonical, sizeof(canonical), "%06llu", (unsigned long long)number);
	if (strcmp(name, canonical) == 0) {
		*ret_number = number;
		return EPOCHS_NAME_EPOCH;
	}
	if (name[0] != '0')
		*ret_number = number;
	return EPOCHS_NAME_NUMBER;
}

bool epochs_name_temporary(const char *name)
{
	if (!tag_name_valid(name))
		return true;
	if (strlen(name) != 8 || strncmp(name, "Cu", 2))
		return false;
	for (const char *p = name + 2; *p; p++) {
		if (!isalnum((unsigned char)*p))
			return false;
	}
	return true;
}

/* ---- the table ---- */

static struct name **find_locked(struct epoch_names *names, const char *text)
{
	struct name **p = &names->first;

	while (*p && strcmp((*p)->text, text))
		p = &(*p)->next;
	return p;
}

static struct name *add_locked(struct epoch_names *names, const char *text, uint64_t epoch)
{
	size_t len = strlen(text) + 1;
	struct name *n = calloc(1, sizeof(*n) + len);

	if (!n)
		return NULL;
	n->id = ++names->last_id;
	n->epoch = epoch;
	memcpy(n->text, text, len);
	n->next = names->first;
	names->first = n;
	return n;
}

uint64_t epochs_names_id(struct epoch_names *names, const char *name)
{
	SCOPED_LOCK(&names->lock);
	struct name *n = *find_locked(names, name);

	if (!n)
		n = add_locked(names, name, 0);
	return n ? n->id : 0;
}

int epochs_names_get(struct epoch_names *names, uint64_t id, struct buf *out)
{
	SCOPED_LOCK(&names->lock);
	const struct name *n = names->first;

	while (n && n->id != id)
		n = n->next;
	if (!n)
		return -ENOENT;
	buf_put(out, n->text, strlen(n->text));
	return buf_error(out);
}

int epochs_names_add_temporary(struct epoch_names *names, const char *name, uint64_t epoch)
{
	SCOPED_LOCK(&names->lock);
	struct name *n = *find_locked(names, name);

	if (n && n->epoch)
		return -EEXIST;
	if (n)
		n->epoch = epoch;
	else
		n = add_locked(names, name, epoch);
	return n ? 0 : -ENOMEM;
}

int epochs_names_get_temporary(struct epoch_names *names, const char *name, uint64_t *ret_epoch)
{
	SCOPED_LOCK(&names->lock);
	const struct name *n = *find_locked(names, name);

	if (!n || !n->epoch)
		return -ENOENT;
	*ret_epoch = n->epoch;
	return 0;
}

int epochs_names_remove_temporary(struct epoch_names *names, const char *name)
{
	SCOPED_LOCK(&names->lock);
	struct name **p = find_locked(names, name);
	cleanup_free struct name *n = *p;

	if (!n || !n->epoch) {
		n = NULL;
		return -ENOENT;
	}
	*p = n->next;
	return 0;
}
