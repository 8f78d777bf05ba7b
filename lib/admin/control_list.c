/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that list: log, show, diff. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "lib/admin/control_request.h"
#include "lib/epochs/epochs.h"
#include "lib/meta/listing.h"
#include "lib/upload/nodes.h"

static int add_tag(void *arg, const char *name, uint64_t number)
{
	return json_object_set_new(arg, name, json_integer((json_int_t)number)) ? -ENOMEM : 0;
}

int request_tags(struct volume *vol, json_t **ret_tags)
{
	json_t *tags = json_object();
	int error = tags ? epochs_tag_each(vol, add_tag, tags) : -ENOMEM;

	if (error)
		json_decref(tags);
	else
		*ret_tags = tags;
	return error;
}

struct log_list {
	json_t *epochs, *tags;
};

/* The epoch with the tags that name it. */
static json_t *epoch_json(const struct epoch_info *e, json_t *tags)
{
	cleanup_json json_t *list = json_array();
	json_t *epoch = listing_epoch(e), *number;
	const char *name;
	int error = 0;

	json_object_foreach(tags, name, number)
	{
		if ((uint64_t)json_integer_value(number) == e->number)
			error |= json_array_append_new(list, json_string(name));
	}
	if (error || json_object_set(epoch, "tags", list)) {
		json_decref(epoch);
		return NULL;
	}
	return epoch;
}

static int add_epoch(void *arg, const struct epoch_info *e)
{
	struct log_list *list = arg;

	return json_array_append_new(list->epochs, epoch_json(e, list->tags)) ? -ENOMEM : 0;
}

int request_log(struct request *r)
{
	cleanup_json json_t *tags = NULL;
	struct log_list list = {0};
	int error = request_tags(r->vol, &tags);

	if (error)
		return error;
	list.tags = tags;
	list.epochs = json_array();
	error = list.epochs ? epochs_each(r->vol, add_epoch, &list) : -ENOMEM;
	if (error) {
		json_decref(list.epochs);
		return error;
	}
	r->answer = json_pack("{s:o}", "epochs", list.epochs);
	return r->answer ? 0 : -ENOMEM;
}

int request_show(struct request *r)
{
	cleanup_tree struct tree *tree = NULL;
	cleanup_json json_t *tags = NULL;
	struct epoch_info info = {0};
	uint64_t number;
	int error = request_epoch(r, "epoch", &number);

	if (!error)
		error = request_tags(r->vol, &tags);
	if (!error)
		error = epochs_tree(r->vol, number, &tree);
	if (!error)
		error = epochs_get(r->vol, number, &info);
	if (error)
		return error;
	r->answer = json_pack("{s:o, s:o}", "epoch", epoch_json(&info, tags), "files",
			      listing_files(tree));
	epoch_info_free(&info);
	return r->answer ? 0 : -ENOMEM;
}

/* The epoch before this one that is still there: of its record, else by number; 0: none. */
static int epoch_before(struct request *r, uint64_t number, uint64_t *ret_before)
{
	struct epoch_info info = {0};
	int64_t sealed_ns;
	uint64_t before;
	int error = epochs_get(r->vol, number, &info);

	if (error)
		return error;
	before = info.record.parent;
	epoch_info_free(&info);
	while (before && epochs_sealed_ns(r->vol, before, &sealed_ns) == -ENOENT)
		before--;
	*ret_before = before;
	return 0;
}

int request_diff(struct request *r)
{
	cleanup_tree struct tree *from = NULL, *to = NULL;
	uint64_t from_number = 0, to_number;
	int error = request_epoch(r, "to", &to_number);

	if (!error)
		error = json_object_get(r->json, "from") ? request_epoch(r, "from", &from_number)
							 : epoch_before(r, to_number, &from_number);
	if (!error && from_number)
		error = epochs_tree(r->vol, from_number, &from);
	if (!error)
		error = epochs_tree(r->vol, to_number, &to);
	if (!error)
		error = listing_diff(from, to, &r->answer);
	return error;
}
