/* SPDX-License-Identifier: Apache-2.0 */
/* The names made since the last epoch: a map by file and name. */
#include "lib/epochs/fresh.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_of_name(uint64_t ino, const char *name)
{
	return map_hash_text(map_hash(ino), name);
}

static struct fresh_name *name_of(const struct map_link *l)
{
	return map_item(l, struct fresh_name, link);
}

void fresh_clear(struct fresh *f)
{
	for (struct map_link *l = map_next(&f->names, NULL), *next; l; l = next) {
		next = map_next(&f->names, l);
		free(name_of(l));
	}
	map_free(&f->names);
	*f = (struct fresh){0};
}

bool fresh_any(const struct fresh *f)
{
	return f->names.count > 0 || f->overflow;
}

struct fresh_name *fresh_find(const struct fresh *f, uint64_t parent, const char *name,
			      uint64_t ino)
{
	for (struct map_link *l = map_find(&f->names, hash_of_name(ino, name)); l;
	     l = map_find_next(l)) {
		struct fresh_name *n = name_of(l);

		if (n->ino == ino && (!parent || n->parent == parent) && strcmp(n->name, name) == 0)
			return n;
	}
	return NULL;
}

void fresh_add(struct fresh *f, uint64_t parent, const char *name, uint64_t ino, bool temporary,
	       int64_t now_ns)
{
	struct fresh_name *n = fresh_find(f, parent, name, ino);
	size_t len = strlen(name);

	if (n) {
		n->changed_ns = now_ns;
		return;
	}
	n = f->names.count < FRESH_MAX ? malloc(sizeof(*n) + len + 1) : NULL;
	if (!n || map_add(&f->names, &n->link, hash_of_name(ino, name)) != 0) {
		f->overflow = true;
		free(n);
		return;
	}
	*n = (struct fresh_name){
		.link = n->link,
		.parent = parent,
		.ino = ino,
		.temporary = temporary,
		.changed_ns = now_ns,
	};
	memcpy(n->name, name, len + 1);
	if (temporary) {
		n->next_temporary = f->temporaries;
		f->temporaries = n;
	}
}

void fresh_remove(struct fresh *f, struct fresh_name *n)
{
	struct fresh_name **at = &f->temporaries;

	map_remove(&f->names, &n->link);
	if (n->temporary) {
		while (*at != n)
			at = &(*at)->next_temporary;
		*at = n->next_temporary;
	}
	free(n);
}
