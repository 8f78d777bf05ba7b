/* SPDX-License-Identifier: Apache-2.0 */
/* Listing, adding and removing keys. */
#include "lib/admin/keys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/admin/catalog_internal.h"
#include "lib/meta/volume_key.h"

/* The remote as it is, without what encrypts, of an encrypted volume. */
static int connect_plain(const char *url, const struct remote_limits *limits,
			 struct remote **ret_remote, struct volume_info *ret_info,
			 struct opening_message *m)
{
	struct remote *r;
	int error = catalog_connect_any(url, limits, &r, m);

	if (error)
		return error;
	error = contact_read(r, ret_info, m);
	if (error == -ENOENT)
		opening_fail(m, error, "%s holds no volume: name the remote of a mount",
			     remote_name(r));
	if (!error && !ret_info->encrypted)
		error = opening_fail(
			m, -EINVAL,
			"%s is not encrypted, so it has no keys: a volume is encrypted "
			"from its making, or not at all",
			remote_name(r));
	if (error)
		remote_close(r);
	else
		*ret_remote = r;
	return error;
}

static int give_message(struct opening_message *m, int error, char **ret_message)
{
	if (error)
		*ret_message = m->text;
	else
		free(m->text);
	return error;
}

/* ---- listing ---- */

static struct key_info info_of(const struct found_slot *f)
{
	struct key_info k = {0};

	memcpy(k.id, f->id, sizeof(k.id));
	if (!f->error) {
		k.kind = key_kind_name(f->slot.kind);
		k.created_ns = f->slot.created_ns;
	}
	return k;
}

static int compare_slots(const void *a, const void *b)
{
	const struct found_slot *x = a, *y = b;
	int64_t first = x->error ? 0 : x->slot.created_ns,
		second = y->error ? 0 : y->slot.created_ns;

	return first != second ? (first > second) - (first < second) : strcmp(x->id, y->id);
}

int keys_each(const char *url, const struct remote_limits *limits,
	      int (*fn)(void *arg, const struct key_info *key), void *arg, char **ret_message)
{
	struct opening_message m = {0};
	struct found_slots found = {0};
	struct volume_info info;
	struct remote *r = NULL;
	int error = connect_plain(url, limits, &r, &info, &m);

	if (!error)
		error = volume_key_slots(r, info.uuid, &found, &m);
	if (found.count)
		qsort(found.slots, found.count, sizeof(*found.slots), compare_slots);
	for (size_t i = 0; !error && i < found.count; i++) {
		struct key_info k = info_of(&found.slots[i]);

		error = fn(arg, &k);
	}
	free(found.slots);
	remote_close(r);
	return give_message(&m, error, ret_message);
}

/* ---- changing ---- */

/* Opens the volume with the key that is given; *ret_id is that key's. */
static int unlock(const char *url, const struct remote_limits *limits, struct remote **ret_remote,
		  struct volume_info *ret_info, uint8_t **ret_master, char ret_id[KEY_ID_MAX],
		  struct opening_message *m)
{
	cleanup_encryption struct encryption *none = NULL;
	struct remote *r;
	int error = connect_plain(url, limits, &r, ret_info, m);

	if (error)
		return error;
	/* Says what to give. */
	error = volume_key_given(limits)
			? 0
			: volume_key_open(r, ret_info, limits, VOLUME_KEY_OF_COMMANDS, &none, m);
	if (!error)
		error = volume_key_unwrap(r, ret_info, limits, ret_master, ret_id, m);
	if (error)
		remote_close(r);
	else
		*ret_remote = r;
	return error;
}

static int check_room(struct remote *r, const struct volume_info *info, struct opening_message *m)
{
	struct found_slots found = {0};
	int error = volume_key_slots(r, info->uuid, &found, m);

	free(found.slots);
	if (!error && found.count >= KEY_SLOTS_MAX)
		return opening_fail(m, -EBUSY,
				    "%s has %zu keys, as many as there may be: remove one first",
				    remote_name(r), found.count);
	return error;
}

int keys_add(const char *url, const struct remote_limits *limits, const struct remote_limits *added,
	     char ret_id[KEY_ID_MAX], char **ret_message)
{
	struct opening_message m = {0};
	struct volume_info info;
	struct remote *r = NULL;
	uint8_t *master = NULL;
	char opened[KEY_ID_MAX];
	int error = unlock(url, limits, &r, &info, &master, opened, &m);

	if (!error)
		error = check_room(r, &info, &m);
	if (!error)
		error = volume_key_put(r, info.uuid, added, master, ret_id, &m);
	secret_release(master, CRYPTO_KEY_SIZE);
	remote_close(r);
	return give_message(&m, error, ret_message);
}

static int remove_slot(struct remote *r, const struct volume_info *info, const char *opened,
		       const char *id, struct opening_message *m)
{
	struct found_slots found = {0};
	char key[KEY_MAX];
	bool there = false;
	int error = volume_key_slots(r, info->uuid, &found, m);

	for (size_t i = 0; i < found.count; i++)
		there |= strcmp(found.slots[i].id, id) == 0;
	free(found.slots);
	if (error)
		return error;
	if (!there)
		return opening_fail(m, -ENOENT, "%s has no key %s; epochfs key list shows its keys",
				    remote_name(r), id);
	if (strcmp(id, opened) == 0)
		return opening_fail(m, -EBUSY,
				    "key %s is the one that was given: %s; to remove it, open the "
				    "volume with another one",
				    id,
				    found.count == 1 ? "it is the last"
						     : "nothing shows that anyone has another");
	slot_key(id, key);
	error = remote_delete(r, key);
	return error ? contact_fail(r, error, m) : 0;
}

int keys_remove(const char *url, const struct remote_limits *limits, const char *id,
		char **ret_message)
{
	struct opening_message m = {0};
	struct volume_info info;
	struct remote *r = NULL;
	uint8_t *master = NULL;
	char opened[KEY_ID_MAX];
	int error = unlock(url, limits, &r, &info, &master, opened, &m);

	if (!error)
		error = remove_slot(r, &info, opened, id, &m);
	secret_release(master, CRYPTO_KEY_SIZE);
	remote_close(r);
	return give_message(&m, error, ret_message);
}
