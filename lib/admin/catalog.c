/* SPDX-License-Identifier: Apache-2.0 */
/* A volume's remote without a mount: opening, epochs, trees, tags, its lease, what it takes. */
#include "lib/admin/catalog_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/epochs/usage.h"
#include "lib/format/names.h"
#include "lib/meta/lease.h"
#include "lib/meta/listing.h"
#include "lib/meta/records.h"
#include "lib/meta/volume_key.h"
#include "lib/net/open.h"
#include "lib/store/store.h"
#include "lib/upload/nodes.h"
#include "lib/util/array.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"

/* ---- opening ---- */

int catalog_connect_any(const char *url, const struct remote_limits *limits,
			struct remote **ret_remote, struct opening_message *m)
{
	const struct remote_retry_policy policy = {.max_total_ns = CATALOG_PATIENCE};
	char text[REMOTE_TEXT_MAX];
	struct remote *plain;
	int error = remote_open_with(url, limits, &plain);

	if (error)
		return opening_fail(m, contact_open_errno(error), "%s",
				    remote_open_strerror(url, error, text));
	if (remote_is_none(plain)) {
		remote_close(plain);
		return opening_fail(m, -ENOENT, "none holds nothing: name the mount point instead");
	}
	error = remote_retry_new(plain, &policy, ret_remote);
	if (error) {
		opening_fail(m, error, "%s: %s", remote_name(plain), strerror(-error));
		remote_close(plain);
	}
	return error;
}

int catalog_unlock(struct remote **r, const struct volume_info *info,
		   const struct remote_limits *limits, struct opening_message *m)
{
	cleanup_encryption struct encryption *encryption = NULL;
	int error = volume_key_open(*r, info, limits, VOLUME_KEY_OF_COMMANDS, &encryption, m);

	return error ? error : contact_encrypt(r, encryption);
}

/* The remote behind `url`, with retries, that holds a volume: the errors of catalog_open, and its line in `m`. */
static int catalog_connect(const char *url, const struct remote_limits *limits,
			   struct remote **ret_remote, struct volume_info *ret_info,
			   struct opening_message *m)
{
	struct remote *r;
	int error = catalog_connect_any(url, limits, &r, m);

	if (error)
		return error;
	error = contact_read(r, ret_info, m);
	if (error == -ENOENT) {
		error = contact_check_empty(r, "name the remote of a mount, or a mount point", m);
		if (!error)
			error = opening_fail(m, -ENOENT,
					     "%s holds no volume: name the remote of a mount, or a "
					     "mount point",
					     remote_name(r));
	}
	if (!error)
		error = catalog_unlock(&r, ret_info, limits, m);
	if (error) {
		remote_close(r);
		return error;
	}
	*ret_remote = r;
	return 0;
}

int catalog_open(const char *url, const struct remote_limits *limits, struct catalog **ret_catalog,
		 char **ret_message)
{
	struct opening_message m = {0};
	struct volume_info info;
	struct catalog *c = calloc(1, sizeof(*c));
	int error = c ? catalog_connect(url, limits, &c->remote, &info, &m) : -ENOMEM;

	if (error) {
		free(c);
		*ret_message = m.text;
		return error;
	}
	memcpy(c->uuid, info.uuid, sizeof(c->uuid));
	c->connections = limits && limits->connections ? limits->connections : REMOTE_CONNECTIONS;
	*ret_catalog = c;
	return 0;
}

int catalog_collect(const char *url, const struct gc *how, struct gc_totals *ret_totals,
		    char **ret_message)
{
	struct opening_message m = {0};
	struct volume_info info;
	struct remote *remote;
	int error = catalog_connect(url, how->limits, &remote, &info, &m);

	if (error) {
		*ret_message = m.text;
		return error;
	}
	error = gc_collect(remote, how, ret_totals, ret_message);
	remote_close(remote);
	return error;
}

void catalog_forget(struct catalog *c)
{
	for (size_t i = 0; i < c->count; i++)
		record_free(&c->records[i]);
	free(c->records);
	c->records = NULL;
	c->count = c->cap = 0;
	epoch_index_free(&c->epochs);
	c->listed = false;
}

void catalog_close(struct catalog *c)
{
	if (!c)
		return;
	catalog_release(c);
	if (c->store) {
		store_close(c->store);
		store_memory_index_free(&c->index);
	}
	catalog_forget(c);
	remote_close(c->remote);
	free(c);
}

const char *catalog_uuid(const struct catalog *c)
{
	return c->uuid;
}

int catalog_errno(const struct catalog *c, int error)
{
	struct remote_state state;

	if (error != -EIO)
		return contact_errno(error);
	/* The store says -EIO for what is damaged; the remote, once its retries are used up, for what did not work. */
	remote_get_state(c->remote, &state);
	return state.failing_since_ns ? -EHOSTUNREACH : -EBADMSG;
}

int catalog_store(struct catalog *c)
{
	struct store_index index;
	int error;

	if (c->store)
		return 0;
	error = store_memory_index_new(&index);
	if (error)
		return error;
	error = store_open(c->remote, &index, 0, &c->store);
	if (!error)
		error = store_set_readers(c->store, c->connections);
	if (error) {
		store_close(c->store);
		c->store = NULL;
		store_memory_index_free(&index);
		return error;
	}
	c->index = index;
	return 0;
}

/* ---- epochs ---- */

static int add_record(void *arg, const struct record_found *found)
{
	struct catalog *c = arg;
	int error;

	if (!found->record) {
		epoch_index_supersede(&c->epochs, found->continues, found->continues_from,
				      found->number);
		return 0;
	}
	if (array_reserve((void **)&c->records, &c->cap, c->count, sizeof(*c->records)))
		return -ENOMEM;
	error = record_copy(found->record, &c->records[c->count]);
	if (error)
		return error;
	c->count++;
	return epoch_index_add(&c->epochs, found->record, false);
}

static int list_epochs(struct catalog *c)
{
	int error;

	if (c->listed)
		return 0;
	error = records_each(c->remote, 0, add_record, c);
	if (error) {
		catalog_forget(c);
		return catalog_errno(c, error);
	}
	c->listed = true;
	return 0;
}

static int compare_records(const void *key, const void *element)
{
	const uint64_t *number = key;
	const struct epoch_record *record = element;

	return *number < record->number ? -1 : *number > record->number;
}

static struct epoch_record *find_record(const struct catalog *c, uint64_t number)
{
	return c->count ? bsearch(&number, c->records, c->count, sizeof(*c->records),
				  compare_records)
			: NULL;
}

void catalog_forget_epoch(struct catalog *c, uint64_t number)
{
	struct epoch_record *record = find_record(c, number);

	if (!record)
		return;
	record_free(record);
	c->count--;
	memmove(record, record + 1, (size_t)(c->records + c->count - record) * sizeof(*record));
	epoch_index_remove(&c->epochs, number);
}

int catalog_record(struct catalog *c, uint64_t number, const struct epoch_record **ret_record)
{
	const struct epoch_record *found;
	struct epoch_record late;
	int error = list_epochs(c);

	if (error)
		return error;
	found = find_record(c, number);
	if (found) {
		*ret_record = found;
		return 0;
	}
	/* Not among those that could be read: missing, or damaged? */
	error = records_get(c->remote, number, &late, NULL);
	if (error)
		return catalog_errno(c, error);
	record_free(&late); /* put since they were read */
	return -ENOENT;
}

/* Shares what the record owns. */
static struct epoch_info info_of(const struct catalog *c, const struct epoch_record *record)
{
	const struct epoch_brief *brief = epoch_index_find(&c->epochs, record->number);

	return (struct epoch_info){
		.number = record->number,
		.state = EPOCH_DURABLE,
		.record = *record,
		.complete = epoch_brief_complete(brief),
		.superseded = brief->superseded,
	};
}

int catalog_each(struct catalog *c, int (*fn)(void *arg, const struct epoch_info *e), void *arg)
{
	int result = list_epochs(c);

	for (size_t i = 0; !result && i < c->count; i++) {
		const struct epoch_info info = info_of(c, &c->records[i]);

		result = fn(arg, &info);
	}
	return result;
}

int catalog_get(struct catalog *c, uint64_t number, struct epoch_info *ret_info)
{
	const struct epoch_record *record;
	struct epoch_info info;
	int error = catalog_record(c, number, &record);

	if (error)
		return error;
	info = info_of(c, record);
	error = record_copy(record, &info.record);
	if (!error)
		*ret_info = info;
	return error;
}

/* An epoch whose record is damaged is in no index, but its number names it. */
static int resolve_damaged(struct catalog *c, const char *name, uint64_t *ret_number)
{
	const struct epoch_record *record;
	uint64_t number;

	if (parse_u64(name, &number) || !number || number > INT64_MAX ||
	    catalog_record(c, number, &record) != -EBADMSG)
		return -ENOENT;
	*ret_number = number;
	return 0;
}

int catalog_resolve(struct catalog *c, const char *name, uint64_t *ret_number)
{
	uint64_t number;
	int error = list_epochs(c);

	if (!error)
		error = epoch_index_resolve(&c->epochs, name, clock_wall_ns(), ret_number);
	if (error == -ENOENT)
		return resolve_damaged(c, name, ret_number);
	if (error != -EAGAIN)
		return error;
	error = 0;
	if (strcmp(name, "current") == 0)
		number = epoch_index_newest(&c->epochs);
	else
		error = catalog_errno(c, records_tag(c->remote, name, &number));
	if (error)
		return error;
	if (!epoch_index_find(&c->epochs, number))
		return -ENOENT;
	*ret_number = number;
	return 0;
}

/* ---- trees ---- */

static int fetch_tree(struct catalog *c, const struct epoch_record *record, struct tree **ret_tree)
{
	cleanup_buf struct buf data = {0};
	size_t len;
	void *bytes;
	int error = catalog_store(c);

	if (!error)
		error = store_get_tree(c->store, record, &data);
	if (error)
		return catalog_errno(c, error);
	bytes = buf_steal(&data, &len);
	error = tree_decode(bytes, len, 0, ret_tree);
	if (error)
		free(bytes);
	return error;
}

int catalog_tree(struct catalog *c, uint64_t number, struct tree **ret_tree)
{
	const struct epoch_record *record;
	int error = catalog_record(c, number, &record);

	if (error)
		return error;
	return fetch_tree(c, record, ret_tree);
}

/* ---- A volume's remote without a mount: tags. ---- */

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

/* ---- A volume's remote without a mount: who writes to it, and what waits for whom. ---- */

int catalog_lease(struct catalog *c, json_t **ret_lease)
{
	struct lease_info l = {0};
	int error = lease_look(c->remote, &l);

	if (error == -ENOENT || (!error && l.released)) {
		*ret_lease = json_pack("{s:s}", "state", "free");
		return *ret_lease ? 0 : -ENOMEM;
	}
	if (error == -EBADMSG) {
		*ret_lease = json_pack("{s:s}", "state", "damaged");
		return *ret_lease ? 0 : -ENOMEM;
	}
	if (error)
		return catalog_errno(c, error);
	*ret_lease = json_pack("{s:s, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I}", "state", "held",
			       "generation", (json_int_t)l.generation, "host",
			       listing_string(l.host), "node", listing_string(l.node), "mountpoint",
			       listing_string(l.mountpoint), "pid", (json_int_t)l.pid, "since_ns",
			       (json_int_t)l.since_ns, "renewed", (json_int_t)l.renewed, "ttl_ns",
			       (json_int_t)l.ttl_ns);
	if (*ret_lease && l.nodes) {
		json_object_set_new(*ret_lease, "run", listing_string(l.run));
		json_object_set_new(*ret_lease, "nodes", json_integer(l.nodes));
	}
	return *ret_lease ? 0 : -ENOMEM;
}

int catalog_waiting(struct catalog *c, json_t **ret_waiting)
{
	int error = nodes_waiting(c->remote, ret_waiting);

	return error ? catalog_errno(c, error) : 0;
}

/* ---- A volume's remote without a mount: what its epochs hold and take. ---- */

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
