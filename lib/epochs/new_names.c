/* SPDX-License-Identifier: Apache-2.0 */
/* The names made since the last epoch: a map by file and name. */
#include "lib/epochs/new_names.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_of_name(uint64_t ino, const char *name)
{
	return map_hash_text(map_hash(ino), name);
}

static struct new_name *name_of(const struct map_link *l)
{
	return map_item(l, struct new_name, link);
}

void new_names_clear(struct new_names *set)
{
	for (struct map_link *l = map_next(&set->names, NULL), *next; l; l = next) {
		next = map_next(&set->names, l);
		free(name_of(l));
	}
	map_free(&set->names);
	*set = (struct new_names){0};
}

bool new_names_any(const struct new_names *set)
{
	return set->names.count > 0 || set->overflow;
}

struct new_name *new_names_find(const struct new_names *set, uint64_t parent, const char *name,
				uint64_t ino)
{
	for (struct map_link *l = map_find(&set->names, hash_of_name(ino, name)); l;
	     l = map_find_next(l)) {
		struct new_name *n = name_of(l);

		if (n->ino == ino && (!parent || n->parent == parent) && strcmp(n->name, name) == 0)
			return n;
	}
	return NULL;
}

void new_names_add(struct new_names *set, uint64_t parent, const char *name, uint64_t ino,
		   bool temporary, int64_t now_ns)
{
	struct new_name *n = new_names_find(set, parent, name, ino);
	size_t len = strlen(name);

	if (n) {
		n->changed_ns = now_ns;
		return;
	}
	n = set->names.count < NEW_NAMES_MAX ? malloc(sizeof(*n) + len + 1) : NULL;
	if (!n || map_add(&set->names, &n->link, hash_of_name(ino, name)) != 0) {
		set->overflow = true;
		free(n);
		return;
	}
	*n = (struct new_name){
		.link = n->link,
		.parent = parent,
		.ino = ino,
		.temporary = temporary,
		.changed_ns = now_ns,
	};
	memcpy(n->name, name, len + 1);
	if (temporary) {
		n->next_temporary = set->temporaries;
		set->temporaries = n;
	}
}

void new_names_remove(struct new_names *set, struct new_name *n)
{
	struct new_name **at = &set->temporaries;

	map_remove(&set->names, &n->link);
	if (n->temporary) {
		while (*at != n)
			at = &(*at)->next_temporary;
		*at = n->next_temporary;
	}
	free(n);
}
