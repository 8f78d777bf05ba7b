/* SPDX-License-Identifier: Apache-2.0 */
/* The epochs' records in a remote. */
#include "lib/meta/records.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "lib/format/names.h"
#include "lib/format/record.h"
#include "lib/remote/remote.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

#define READERS_MAX 8
#define TAG_LOOKS   3

int records_get(struct remote *remote, uint64_t number, struct epoch_record *ret_record,
		char **ret_text)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	struct tombstone dropped;
	size_t len;
	int error;

	epoch_key(number, key);
	error = remote_get(remote, key, 0, RECORD_ENCODED_MAX + 1, &text);
	if (error)
		return error;
	error = tombstone_decode(text.data, text.len, &dropped);
	if (!error)
		return dropped.number == number ? -ENOENT : -EBADMSG;
	/* Of a tombstone a record's decoder would say that it is damaged. */
	if (error == -ENOMEM)
		return error;
	error = record_decode(text.data, text.len, ret_record);
	if (!error && ret_record->number != number) {
		record_free(ret_record);
		error = -EBADMSG;
	}
	if (error || !ret_text)
		return error;
	buf_str(&text);
	error = buf_error(&text);
	if (error)
		record_free(ret_record);
	else
		*ret_text = buf_steal(&text, &len);
	return error;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

bool records_same_epoch(const struct epoch_record *a, const struct epoch_record *b)
{
	return a->sealed_ns == b->sealed_ns && same_text(a->host, b->host) &&
	       same_text(a->run_id, b->run_id);
}

/* 0: what the remote has under this number may become a tombstone, which is to keep *ret_text (NULL: it is damaged); -ENOENT: it is one already. */
static int may_drop(struct remote *remote, uint64_t number, const char *ours, char **ret_text)
{
	cleanup_record struct epoch_record here = {0}, there = {0};
	int error = records_get(remote, number, &there, ret_text);

	/* What is damaged is nobody's. */
	if (error || !ours)
		return error == -EBADMSG ? 0 : error;
	error = record_decode(ours, strlen(ours), &here);
	if (error)
		return error;
	return records_same_epoch(&here, &there) ? 0 : -EEXIST;
}

/* Without it, what it was put together of would make it once more. */
static int drop_parts(struct remote *remote, uint64_t number)
{
	cleanup_record struct epoch_record there = {0};
	struct remote_keys keys = {0};
	int error = records_get(remote, number, &there, NULL);

	if (error)
		return error == -EBADMSG || error == -ENOENT ? 0 : error;
	for (size_t i = 0; !error && i < there.part_count; i++) {
		char key[KEY_MAX];

		part_key(there.generation, there.parts[i].sequence, there.parts[i].node, key);
		error = remote_keys_add(&keys, key);
	}
	if (!error)
		error = remote_keys_delete(remote, &keys);
	remote_keys_free(&keys);
	return error;
}

/* `was`: the record of what is dropped, which the tombstone keeps if it is to, and where that is not too long. */
static int encode_tombstone(uint64_t number, const char *was, bool keep, struct buf *out)
{
	cleanup_record struct epoch_record record = {0};
	struct tombstone t = {.number = number, .dropped_ns = clock_wall_ns()};
	int error;

	if (was && record_decode(was, strlen(was), &record) == -ENOMEM)
		return -ENOMEM;
	t.continues = record.continues;
	t.continues_from = record.continues_from;
	buf_reset(out);
	error = tombstone_encode(&t, keep ? was : NULL, out);
	return error == -EFBIG ? tombstone_encode(&t, NULL, out) : error;
}

int records_drop(struct remote *remote, uint64_t number, const char *ours)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	cleanup_free char *record = NULL;
	/* Where it never was in the remote, it cannot be brought back. */
	int error = encode_tombstone(number, ours, false, &text);

	if (error)
		return error;
	epoch_key(number, key);
	error = remote_put_if_absent(remote, key, text.data, text.len);
	if (error != -EEXIST)
		return error;
	error = may_drop(remote, number, ours, &record);
	if (!error)
		error = encode_tombstone(number, record, true, &text);
	if (!error)
		error = drop_parts(remote, number);
	if (!error)
		error = summary_forget(remote, number);
	if (error)
		return error == -ENOENT ? 0 : error;
	return remote_put(remote, key, text.data, text.len);
}

static int read_dropped(struct remote *remote, uint64_t number, char **ret_text)
{
	cleanup_buf struct buf text = {0};
	cleanup_record struct epoch_record record = {0};
	struct tombstone t;
	char key[KEY_MAX];
	int error;

	epoch_key(number, key);
	error = remote_get(remote, key, 0, RECORD_ENCODED_MAX + 1, &text);
	if (error)
		return error;
	error = tombstone_decode_record(text.data, text.len, &t, ret_text);
	if (error == -EBADMSG && record_decode(text.data, text.len, &record) == 0)
		return -EEXIST;
	return !error && t.number != number ? -EBADMSG : error;
}

int records_dropped(struct remote *remote, uint64_t number, struct epoch_record *ret_record,
		    char **ret_text)
{
	cleanup_free char *text = NULL;
	int error = read_dropped(remote, number, &text);

	if (error)
		return error;
	if (!text)
		return -ENODATA;
	error = record_decode(text, strlen(text), ret_record);
	if (!error && ret_record->number != number) {
		record_free(ret_record);
		error = -EBADMSG;
	}
	if (!error)
		*ret_text = steal_ptr(text);
	return error;
}

/* ---- reading all ---- */

struct record_slot {
	uint64_t number;
	char *text; /* from a summary or read by itself; NULL: not yet */
	int error;
};

struct record_list {
	struct remote *remote;
	uint64_t after;
	record_wanted_fn wanted; /* NULL: all */
	void *wanted_arg;
	struct record_slot *slots;
	size_t count, cap;
	uint64_t used;	    /* the highest number that is listed, or that a summary has */
	atomic_size_t next; /* slot that the next free reader takes */
};

static int list_epoch(void *arg, const char *key, uint64_t size)
{
	struct record_list *list = arg;
	uint64_t number;

	if (epoch_key_parse(key, &number) || number <= list->after)
		return 0;
	if (list->wanted && !list->wanted(list->wanted_arg, number, size))
		return 0;
	if (array_reserve((void **)&list->slots, &list->cap, list->count, sizeof(*list->slots)))
		return -ENOMEM;
	list->slots[list->count++] = (struct record_slot){.number = number};
	return 0;
}

static int compare_slots(const void *a, const void *b)
{
	const struct record_slot *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

/* A summary gave this text. What is damaged there may be whole in the epoch's own object. */
static int fill_slot(void *arg, uint64_t number, const char *text)
{
	cleanup_record struct epoch_record record = {0};
	struct record_list *list = arg;
	struct record_slot wanted = {.number = number};
	struct record_slot *slot = list->count ? bsearch(&wanted, list->slots, list->count,
							 sizeof(wanted), compare_slots)
					       : NULL;
	int error;

	if (number > list->used)
		list->used = number;
	if (!slot || slot->text)
		return 0;
	error = record_decode(text, strlen(text), &record);
	if (error)
		return error == -ENOMEM ? error : 0;
	slot->text = strdup(text);
	return slot->text ? 0 : -ENOMEM;
}

static void read_slot(struct record_list *list, struct record_slot *slot)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	size_t len;

	epoch_key(slot->number, key);
	slot->error = remote_get(list->remote, key, 0, RECORD_ENCODED_MAX + 1, &text);
	if (slot->error)
		return;
	/* An empty object has a text, too. */
	buf_put_u8(&text, '\0');
	slot->error = buf_error(&text);
	if (!slot->error)
		slot->text = buf_steal(&text, &len);
}

static void *read_slots(void *arg)
{
	struct record_list *list = arg;

	for (;;) {
		size_t i = atomic_fetch_add(&list->next, 1);

		if (i >= list->count)
			return NULL;
		if (!list->slots[i].text)
			read_slot(list, &list->slots[i]);
	}
}

static size_t slots_to_read(const struct record_list *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->count; i++)
		n += !list->slots[i].text;
	return n;
}

static void read_all(struct record_list *list)
{
	pthread_t readers[READERS_MAX];
	size_t started = 0, wanted = slots_to_read(list);

	while (wanted > 1 && started < READERS_MAX && started < wanted)
		if (thread_start(&readers[started], NULL, read_slots, list))
			break;
		else
			started++;
	read_slots(list);
	while (started)
		pthread_join(readers[--started], NULL);
}

static int give_slot(const struct record_slot *slot, record_fn fn, void *arg)
{
	cleanup_record struct epoch_record record = {0};
	struct record_found found = {.number = slot->number, .text = slot->text};
	struct tombstone t;
	int error;

	/* Gone since it was listed. */
	if (slot->error == -ENOENT)
		return 0;
	if (slot->error)
		return slot->error;
	error = tombstone_decode(slot->text, strlen(slot->text), &t);
	if (error == -ENOMEM)
		return error;
	if (!error && t.number == slot->number) {
		found.dropped = true;
		found.continues = t.continues;
		found.continues_from = t.continues_from;
		return fn(arg, &found);
	}
	error = record_decode(slot->text, strlen(slot->text), &record);
	if (error == -EPROTONOSUPPORT || error == -ENOMEM)
		return error;
	if (error || record.number != slot->number)
		log_error("epoch %" PRIu64 ": its record in the remote is damaged; it is left out",
			  slot->number);
	else
		found.record = &record;
	if (found.record) {
		found.continues = record.continues;
		found.continues_from = record.continues_from;
	}
	return fn(arg, &found);
}

static void list_free(struct record_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->slots[i].text);
	free(list->slots);
}

static int give_all(struct record_list *list, record_fn fn, void *arg)
{
	int error = remote_list(list->remote, PREFIX_EPOCHS, list_epoch, list);

	if (!error && list->count) {
		qsort(list->slots, list->count, sizeof(*list->slots), compare_slots);
		list->used = list->slots[list->count - 1].number;
		error = summary_each(list->remote, list->slots[0].number - 1, fill_slot, list);
	}
	if (!error)
		read_all(list);
	for (size_t i = 0; !error && i < list->count; i++)
		error = give_slot(&list->slots[i], fn, arg);
	list_free(list);
	return error;
}

int records_each(struct remote *remote, uint64_t after, record_fn fn, void *arg)
{
	struct record_list list = {.remote = remote, .after = after};

	return give_all(&list, fn, arg);
}

int records_each_used(struct remote *remote, uint64_t after, record_fn fn, void *arg,
		      uint64_t *ret_used)
{
	struct record_list list = {.remote = remote, .after = after};
	int error = give_all(&list, fn, arg);

	if (!error)
		*ret_used = list.used;
	return error;
}

int records_each_wanted(struct remote *remote, record_wanted_fn wanted, void *wanted_arg,
			record_fn fn, void *arg)
{
	struct record_list list = {.remote = remote, .wanted = wanted, .wanted_arg = wanted_arg};

	return give_all(&list, fn, arg);
}

struct summary_job {
	struct buf *out;
	uint64_t last;
};

static int add_to_summary(void *arg, const struct record_found *found)
{
	struct summary_job *job = arg;

	if (found->number > job->last || !found->record)
		return 0;
	return summary_add(job->out, found->text);
}

int records_summarize(struct remote *remote, uint64_t last)
{
	cleanup_buf struct buf out = {0};
	struct summary_job job = {.out = &out, .last = last};
	int error;

	if (last % SUMMARY_EVERY)
		return 0;
	error = records_each(remote, last - SUMMARY_EVERY, add_to_summary, &job);
	return error || !out.len ? error : summary_put(remote, last, &out);
}

/* ---- tags ---- */

struct tag_walk {
	struct remote *remote;
	int (*fn)(void *arg, const char *name, uint64_t number);
	void *arg;
};

int records_tag(struct remote *remote, const char *name, uint64_t *ret_number)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	int error = tag_key(name, key);

	/* What ends without its newline may be cut: a tag that is being moved, on a server that
	 * gives the new text at the old one's length (remote_put). */
	for (int i = 0; !error && i < TAG_LOOKS; i++) {
		buf_reset(&text);
		error = remote_get(remote, key, 0, TAG_TEXT_MAX, &text);
		if (!error && text.len && text.data[text.len - 1] == '\n')
			break;
	}
	return error ? error : tag_text_parse(text.data, text.len, ret_number);
}

static int read_tag(void *arg, const char *key, uint64_t size)
{
	struct tag_walk *walk = arg;
	char name[TAG_NAME_MAX + 1];
	uint64_t number;
	int error;

	if (tag_key_parse(key, name) || size >= TAG_TEXT_MAX)
		return 0;
	error = records_tag(walk->remote, name, &number);
	if (error == -ENOENT)
		return 0;
	if (error == -EBADMSG) {
		log_warn("tag '%s' in the remote is damaged; it is left out", name);
		number = 0;
	} else if (error) {
		return error;
	}
	return walk->fn(walk->arg, name, number);
}

int records_tags(struct remote *remote, int (*fn)(void *arg, const char *name, uint64_t number),
		 void *arg)
{
	struct tag_walk walk = {.remote = remote, .fn = fn, .arg = arg};

	return remote_list(remote, PREFIX_TAGS, read_tag, &walk);
}

/* ---- summaries: the texts of many records in one object ---- */

int summary_add(struct buf *out, const char *text)
{
	buf_printf(out, "%s%s", out->len ? ",\n" : "{\"format\":1,\"records\":[\n", text);
	return buf_error(out);
}

int summary_put(struct remote *remote, uint64_t last, struct buf *out)
{
	char key[KEY_MAX];

	buf_printf(out, "]}\n");
	if (buf_error(out))
		return -ENOMEM;
	if (out->len > SUMMARY_ENCODED_MAX)
		return 0;
	summary_key(last, key);
	return remote_put(remote, key, out->data, out->len);
}

struct summary_walk {
	struct remote *remote;
	uint64_t number; /* after this one */
	int (*fn)(void *arg, uint64_t number, const char *text);
	void *arg;
};

/* A summary may hold the epochs of its own hundred only, so that a drop knows which hold one. */
static bool may_hold(uint64_t last, uint64_t number)
{
	return number && number <= last && last - number < SUMMARY_EVERY;
}

static int give_records(uint64_t last, const json_t *records,
			int (*fn)(void *arg, uint64_t number, const char *text), void *arg)
{
	json_t *record;
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)records, i, record)
	{
		json_int_t number = json_integer_value(json_object_get(record, "epoch"));
		cleanup_free char *text = json_dumps(record, JSON_COMPACT);
		int result;

		if (number <= 0 || !text || !may_hold(last, (uint64_t)number))
			continue;
		result = fn(arg, (uint64_t)number, text);
		if (result)
			return result;
	}
	return 0;
}

int summary_read(struct remote *remote, uint64_t last,
		 int (*fn)(void *arg, uint64_t number, const char *text), void *arg)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	json_t *object;
	int error;

	summary_key(last, key);
	error = remote_get(remote, key, 0, SUMMARY_ENCODED_MAX + 1, &text);
	if (error)
		return error;
	object = text.len > SUMMARY_ENCODED_MAX ? NULL
						: json_loadb((const char *)text.data, text.len,
							     JSON_REJECT_DUPLICATES, NULL);
	if (json_is_array(json_object_get(object, "records")))
		error = give_records(last, json_object_get(object, "records"), fn, arg);
	else
		error = -EBADMSG;
	json_decref(object);
	return error;
}

static int read_listed(void *arg, const char *key, uint64_t size)
{
	struct summary_walk *walk = arg;
	uint64_t last;
	int error;

	if (summary_key_parse(key, &last) || last <= walk->number || size > SUMMARY_ENCODED_MAX)
		return 0;
	error = summary_read(walk->remote, last, walk->fn, walk->arg);
	if (error == -EBADMSG) {
		log_warn("%s is damaged; the epochs are read one by one", key);
		error = 0;
	}
	return error == -ENOENT ? 0 : error;
}

int summary_each(struct remote *remote, uint64_t after,
		 int (*fn)(void *arg, uint64_t number, const char *text), void *arg)
{
	struct summary_walk walk = {.remote = remote, .number = after, .fn = fn, .arg = arg};

	return remote_list(remote, PREFIX_SUMMARIES, read_listed, &walk);
}

struct forgetting {
	uint64_t number;
	struct remote_keys keys;
};

static int collect_one(void *arg, const char *key, uint64_t size)
{
	struct forgetting *f = arg;
	uint64_t last;

	(void)size;
	if (summary_key_parse(key, &last) || !may_hold(last, f->number))
		return 0;
	return remote_keys_add(&f->keys, key);
}

int summary_forget(struct remote *remote, uint64_t number)
{
	struct forgetting f = {.number = number};
	int error = remote_list(remote, PREFIX_SUMMARIES, collect_one, &f);

	if (!error)
		error = remote_keys_delete(remote, &f.keys);
	remote_keys_free(&f.keys);
	return error;
}
