/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's remote without a mount: bringing dropped epochs back, as its only writer for the while. */
#include "lib/admin/catalog_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/util/faultpoint.h"
#include "lib/upload/undrop.h"

static int confirm(void *arg)
{
	return catalog_confirm(arg);
}

static int no_local(void *arg, const struct hash *recipe, uint64_t size)
{
	(void)arg, (void)recipe, (void)size;
	return -ENOENT;
}

/* -EEXIST: it is another epoch's. */
static int check_tag(struct catalog *c, const char *tag, uint64_t number)
{
	uint64_t tagged;
	int error = records_tag(c->remote, tag, &tagged);

	if (error == -ENOENT)
		return 0;
	return error ? error : tagged == number ? 0 : -EEXIST;
}

static int bring_back(struct catalog *c, uint64_t number, const char *tag)
{
	char key[KEY_MAX], text[TAG_TEXT_MAX];
	cleanup_buf struct buf json = {0};
	struct undrop u = {.remote = c->remote,
			   .store = c->store,
			   .newest = epoch_index_newest(&c->epochs),
			   .confirm = confirm,
			   .local = no_local,
			   .arg = c};
	int error = undrop_run(&u, number, &json);

	FAULT_POINT("undrop.rows");
	if (!error)
		error = tag_key(tag, key);
	if (error)
		return error;
	tag_text(number, text);
	return remote_put(c->remote, key, text, strlen(text));
}

int catalog_undrop(struct catalog *c, uint64_t number, const char *tag)
{
	const struct epoch_record *record;
	int error = catalog_record(c, number, &record);

	if (error && error != -ENOENT)
		return error;
	if (!tag_name_valid(tag) || tag_name_is_step(tag))
		return -EINVAL;
	error = number ? check_tag(c, tag, number) : -ENOENT;
	if (!error)
		error = catalog_store(c);
	if (!error)
		error = bring_back(c, number, tag);
	if (error)
		return error == -ESTALE || error == -EEXIST || error == -ENODATA
			       ? error
			       : catalog_errno(c, error);
	catalog_forget(c);
	return 0;
}

/* ---- as text ---- */

void undrop_tag(uint64_t number, char ret_name[UNDROP_TAG_MAX])
{
	snprintf(ret_name, UNDROP_TAG_MAX, "undropped-%" PRIu64, number);
}

void undrop_refusal(uint64_t number, struct buf *out)
{
	buf_printf(
		out,
		"epoch %" PRIu64
		" cannot be brought back: garbage collection has deleted what it needs, or it was "
		"dropped before it was in the remote",
		number);
}
