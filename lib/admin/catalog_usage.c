/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's remote without a mount: what its epochs hold and take. */
#include "lib/admin/catalog_internal.h"

#include <errno.h>

#include "lib/store/chunk_usage.h"
#include "lib/epochs/usage.h"

static int add_epoch(struct catalog *c, const struct epoch_record *record, struct store_usage *set,
		     struct usage *u)
{
	cleanup_tree struct tree *tree = NULL;
	int error = 0;

	if (set)
		error = catalog_tree(c, record->number, &tree);
	if (!error && set)
		error = store_usage_add(set, record, tree);
	if (error)
		return error;
	usage_add(u, record, set);
	return 0;
}

static int count(struct catalog *c, struct store_usage *set,
		 void (*progress)(void *arg, const struct catalog_progress *p), void *arg,
		 struct usage *u)
{
	struct catalog_progress p = {0};
	int error = 0;

	for (size_t i = c->count; !error && i-- > 0;) {
		error = add_epoch(c, &c->records[i], set, u);
		p.files = u->epochs;
		p.files_total = c->count;
		if (progress)
			progress(arg, &p);
	}
	u->counted = set != NULL;
	u->stored = set ? store_usage_bytes(set) : 0;
	return error;
}

static int ignore(void *arg, const struct epoch_info *e)
{
	(void)arg;
	(void)e;
	return 0;
}

int catalog_usage(struct catalog *c, bool read,
		  void (*progress)(void *arg, const struct catalog_progress *p), void *arg,
		  json_t **ret_usage)
{
	struct store_usage *set = NULL;
	struct usage u = {0};
	int error = catalog_each(c, ignore, NULL);

	if (error)
		return error;
	if (read)
		error = catalog_store(c);
	if (!error && read)
		error = store_usage_new(&c->index, c->store, &set);
	if (!error)
		error = count(c, set, progress, arg, &u);
	store_usage_free(set);
	if (!error && read)
		error = usage_list_packs(c->remote, &u);
	if (error)
		return catalog_errno(c, error);
	*ret_usage = usage_json(&u);
	return *ret_usage ? 0 : -ENOMEM;
}
