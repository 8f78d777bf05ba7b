/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a garbage collection. */
#include "lib/format/gc_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/format/wire.h"
#include "lib/util/array.h"
#include "lib/util/parse.h"

void gc_list_free(struct gc_list *l)
{
	free(l->items);
	*l = (struct gc_list){0};
}

int gc_list_add(struct gc_list *l, const struct gc_item *item)
{
	if (l->count >= GC_LIST_ITEMS_MAX)
		return -EFBIG;
	if (array_reserve((void **)&l->items, &l->cap, l->count, sizeof(*l->items)))
		return -ENOMEM;
	l->items[l->count++] = *item;
	return 0;
}

/* ---- encoding ---- */

static int compare_items(const void *a, const void *b)
{
	const struct gc_item *x = a, *y = b;

	if (x->generation != y->generation)
		return x->generation < y->generation ? -1 : 1;
	if (x->since_ns != y->since_ns)
		return x->since_ns < y->since_ns ? -1 : 1;
	if (x->index != y->index)
		return x->index < y->index ? -1 : 1;
	return hash_compare(&x->id, &y->id);
}

static bool same_group(const struct gc_item *a, const struct gc_item *b)
{
	return a->generation == b->generation && a->since_ns == b->since_ns;
}

static void sort_items(struct gc_list *l)
{
	if (l->count)
		qsort(l->items, l->count, sizeof(*l->items), compare_items);
}

bool gc_list_same(struct gc_list *a, struct gc_list *b)
{
	if (a->count != b->count)
		return false;
	sort_items(a);
	sort_items(b);
	for (size_t i = 0; i < a->count; i++)
		if (compare_items(&a->items[i], &b->items[i]))
			return false;
	return true;
}

static bool valid(const struct gc_list *l)
{
	cleanup_json json_t *run = json_string(l->run);
	char uuid[37];

	if (l->generation < 1 || l->generation > INT64_MAX || l->condemning > l->generation ||
	    l->published_ns < 0 || json_wire_uuid(run, uuid) < 0)
		return false;
	for (size_t i = 0; i < l->count; i++)
		if (l->items[i].generation > l->condemning || l->items[i].since_ns < 0 ||
		    l->items[i].index > INT64_MAX)
			return false;
	return true;
}

static json_t *name_of(const struct gc_item *item)
{
	char key[KEY_MAX], hex[HASH_HEX];

	if (item->index) {
		index_key(item->index, &item->id, key);
		return json_string(key + strlen(PREFIX_INDEX));
	}
	hash_to_hex(&item->id, hex);
	return json_string(hex);
}

/* One group: the items from `first` on that belong to it; their number in *ret_count. */
static json_t *group_of(const struct gc_list *l, size_t first, size_t *ret_count)
{
	const struct gc_item *head = &l->items[first];
	cleanup_json json_t *packs = json_array(), *indexes = json_array();
	char since[FORMAT_MAX];
	size_t i;

	for (i = first; i < l->count && same_group(head, &l->items[i]); i++)
		if (json_array_append_new(l->items[i].index ? indexes : packs,
					  name_of(&l->items[i])))
			return NULL;
	*ret_count = i - first;
	format_time(head->since_ns, since);
	return json_pack("{s:I, s:s, s:O, s:O}", "generation", (json_int_t)head->generation,
			 "since", since, "packs", packs, "indexes", indexes);
}

int gc_list_encode(struct gc_list *l, struct buf *out)
{
	cleanup_json json_t *object = NULL, *groups = json_array();
	char published[FORMAT_MAX];
	size_t count = 0;

	if (!valid(l))
		return -EINVAL;
	sort_items(l);
	for (size_t i = 0; i < l->count; i += count)
		if (json_array_append_new(groups, group_of(l, i, &count)))
			return -ENOMEM;
	format_time(l->published_ns, published);
	object = json_pack("{s:i, s:I, s:s, s:o, s:s, s:I, s:O}", "format", GC_LIST_FORMAT,
			   "generation", (json_int_t)l->generation, "run", l->run, "host",
			   json_wire_text(l->host, GC_LIST_HOST_MAX), "published", published,
			   "condemning", (json_int_t)l->condemning, "groups", groups);
	return object ? json_wire_print(object, GC_LIST_ENCODED_MAX, out) : -ENOMEM;
}

/* ---- decoding ---- */

static int decode_pack(const char *text, struct gc_item *item)
{
	item->index = 0;
	return hash_from_hex(text, &item->id);
}

static int decode_index(const char *text, struct gc_item *item)
{
	char key[KEY_MAX];

	if (strlen(text) >= sizeof(key) - strlen(PREFIX_INDEX))
		return -EBADMSG;
	strcpy(key, PREFIX_INDEX);
	strcat(key, text);
	return index_key_parse(key, &item->index, &item->id);
}

static int decode_names(const json_t *names, int (*decode)(const char *, struct gc_item *),
			const struct gc_item *like, struct gc_list *l)
{
	if (!json_is_array(names))
		return -EBADMSG;
	for (size_t i = 0; i < json_array_size(names); i++) {
		const json_t *name = json_array_get(names, i);
		const char *text = json_string_value(name);
		struct gc_item item = *like;
		int error;

		if (!text || strlen(text) != json_string_length(name) || decode(text, &item) < 0)
			return -EBADMSG;
		error = gc_list_add(l, &item);
		if (error)
			return error == -EFBIG ? -EBADMSG : error;
	}
	return 0;
}

static int decode_group(const json_t *group, struct gc_list *l)
{
	struct gc_item like = {0};
	int error;

	if (!json_is_object(group) ||
	    json_wire_u64(json_object_get(group, "generation"), &like.generation) < 0 ||
	    json_wire_time(json_object_get(group, "since"), &like.since_ns) < 0 ||
	    like.generation > l->condemning)
		return -EBADMSG;
	error = decode_names(json_object_get(group, "packs"), decode_pack, &like, l);
	if (!error)
		error = decode_names(json_object_get(group, "indexes"), decode_index, &like, l);
	return error;
}

static int decode_host(const json_t *value, char ret_host[GC_LIST_HOST_MAX + 1])
{
	const char *text = json_string_value(value);
	size_t len = json_string_length(value);

	if (!text || len > GC_LIST_HOST_MAX || strlen(text) != len)
		return -EBADMSG;
	/* It goes to terminals. */
	for (size_t i = 0; i <= len; i++)
		ret_host[i] = text[i] && (text[i] <= ' ' || text[i] > '~') ? '?' : text[i];
	return 0;
}

static int decode_head(const json_t *o, struct gc_list *l)
{
	if (json_wire_u64(json_object_get(o, "generation"), &l->generation) < 0 ||
	    json_wire_u64(json_object_get(o, "condemning"), &l->condemning) < 0 ||
	    json_wire_uuid(json_object_get(o, "run"), l->run) < 0 ||
	    json_wire_time(json_object_get(o, "published"), &l->published_ns) < 0 ||
	    decode_host(json_object_get(o, "host"), l->host) < 0 || !l->generation ||
	    l->condemning > l->generation)
		return -EBADMSG;
	return 0;
}

int gc_list_decode(const void *data, size_t len, struct gc_list *ret_list)
{
	cleanup_json json_t *object = NULL;
	cleanup_gc_list struct gc_list l = {0};
	const json_t *groups;
	int error = json_wire_parse(data, len, GC_LIST_ENCODED_MAX, GC_LIST_FORMAT, &object);

	if (!error)
		error = decode_head(object, &l);
	if (error)
		return error;
	groups = json_object_get(object, "groups");
	if (!json_is_array(groups))
		return -EBADMSG;
	for (size_t i = 0; i < json_array_size(groups) && !error; i++)
		error = decode_group(json_array_get(groups, i), &l);
	if (error)
		return error;
	*ret_list = l;
	l = (struct gc_list){0};
	return 0;
}
