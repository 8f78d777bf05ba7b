/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's remote without a mount: tags. */
#include "lib/admin/catalog_internal.h"

#include <errno.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/meta/records.h"

struct tag_walk {
	int (*fn)(void *arg, const char *name, uint64_t number);
	void *arg;
	int result; /* of fn */
};

/* An error of fn is told from one of the remote by where it is. */
static int give_tag(void *arg, const char *name, uint64_t number)
{
	struct tag_walk *walk = arg;

	if (!number)
		return 0;
	walk->result = walk->fn(walk->arg, name, number);
	return walk->result ? -ECANCELED : 0;
}

int catalog_tag_each(struct catalog *c, int (*fn)(void *arg, const char *name, uint64_t number),
		     void *arg)
{
	struct tag_walk walk = {.fn = fn, .arg = arg};
	int error = records_tags(c->remote, give_tag, &walk);

	return walk.result ? walk.result : catalog_errno(c, error);
}

int catalog_tag(struct catalog *c, const char *name, uint64_t number, bool replace)
{
	char key[KEY_MAX], text[TAG_TEXT_MAX];
	const struct epoch_record *record;
	int error = tag_name_is_step(name) ? -EINVAL : tag_key(name, key);

	if (!error)
		error = catalog_record(c, number, &record);
	if (error)
		return error;
	tag_text(number, text);
	error = replace ? remote_put(c->remote, key, text, strlen(text))
			: remote_put_if_absent(c->remote, key, text, strlen(text));
	return catalog_errno(c, error);
}

int catalog_untag(struct catalog *c, const char *name)
{
	char key[KEY_MAX];
	uint64_t size;
	int error = tag_key(name, key);

	/* What cannot be a tag's name is the name of none. */
	if (error)
		return -ENOENT;
	error = remote_size(c->remote, key, &size);
	if (!error)
		error = remote_delete(c->remote, key);
	return catalog_errno(c, error);
}
