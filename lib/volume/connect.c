/* SPDX-License-Identifier: Apache-2.0 */
/* The first contact with the remote: is a volume there, or room for a new one? */
#include "lib/volume/open_steps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "lib/cache/cache_dir.h"
#include "lib/format/names.h"
#include "lib/meta/volume_key.h"
#include "lib/net/open.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/text.h"

/* A mount waits this long for a remote that does not answer; later readers for `patience`. */
#define FIRST_TRIES 4
#define FIRST_TOTAL (15 * NS_PER_S)
/* Readers wait at least this long, however short the patience. */
#define READER_MIN (10 * NS_PER_S)

#define UUID_LEN  36
#define LOCAL_MAX 4096

static int put_info(struct volume *vol, struct remote *r, struct opening_message *m)
{
	bool encrypted = volume_key_given(&vol->options.limits);
	cleanup_buf struct buf text = {0};
	char slot[KEY_MAX];
	struct volume_info info;
	int error = volume_info_make(&info);

	if (!error && encrypted)
		error = volume_key_make(r, &vol->options.limits, &info, slot, m);
	if (!error)
		error = volume_info_encode(&info, &text);
	if (error)
		return opening_fail(m, error, "making a volume: %s", strerror(-error));
	error = remote_put_if_absent(r, KEY_VOLUME, text.data, text.len);
	if (error == -EEXIST && encrypted)
		remote_delete(r, slot);
	return error && error != -EEXIST ? contact_fail(r, error, m) : 0;
}

/* Nothing says that this is a volume: make one where nothing else is. */
static int volume_make(struct volume *vol, struct remote *r, struct opening_message *m)
{
	int error = contact_check_empty(r, "give an empty place for a new volume", m);

	if (error)
		return error;
	if (vol->options.read_only)
		return opening_fail(m, -ENOENT,
				    "%s holds no volume yet: mount it without -o ro to make one",
				    remote_name(r));
	return put_info(vol, r, m);
}

/* Several nodes begin at once: where the place is not empty any more, another may have made the volume since it was looked for. */
static int volume_make_or_take(struct volume *vol, struct remote *r, struct volume_info *ret_info,
			       struct opening_message *m)
{
	struct opening_message of_making = {0};
	int error = volume_make(vol, r, &of_making), there;

	if (!error || error == -EBADMSG) {
		there = contact_read(r, ret_info, m);
		error = !error || there != -ENOENT ? there : error;
	}
	if (error && !m->text)
		m->text = steal_ptr(of_making.text);
	free(of_making.text);
	return error;
}

static int volume_find(struct volume *vol, struct remote *r, struct opening_message *m)
{
	struct volume_info info;
	int error = contact_read(r, &info, m);

	if (error == -ENOENT)
		error = volume_make_or_take(vol, r, &info, m);
	if (error)
		return error == -ENOENT ? contact_fail(r, error, m) : error;
	memcpy(vol->uuid, info.uuid, sizeof(vol->uuid));
	vol->info = info;
	return volume_key_open(r, &info, &vol->options.limits, VOLUME_KEY_OF_MOUNTS,
			       &vol->encryption, m);
}

static int open_existing(struct volume *vol, struct remote *plain, struct opening_message *m)
{
	struct remote_retry_policy policy = {.max_tries = FIRST_TRIES, .max_total_ns = FIRST_TOTAL};
	struct remote *first;
	int error = remote_retry_new(remote_ref(plain), &policy, &first);

	if (error) {
		remote_close(plain);
		return opening_fail(m, error, "%s: %s", remote_name(plain), strerror(-error));
	}
	error = volume_find(vol, first, m);
	if (!error && !vol->options.read_only) {
		error = remote_check_writable(first);
		if (error)
			error = contact_fail(first, error, m);
	}
	remote_close(first);
	return error;
}

/* Without a remote the volume is what lies in the cache directory. */
static int local_uuid(struct volume *vol, struct opening_message *m)
{
	cleanup_buf struct buf root = {0}, text = {0};
	cleanup_free char *path = NULL;
	int error;

	if (!vol->options.cache_dir)
		return opening_fail(m, -EINVAL,
				    "remote none keeps all data in the cache directory: say where "
				    "with -o cache-dir=DIR");
	error = cache_root(&vol->options, &root, m);
	if (error)
		return error;
	if (text_print(&path, "%s/local", buf_str(&root)) < 0)
		return -ENOMEM;
	error = io_read_file(AT_FDCWD, path, LOCAL_MAX, &text);
	if (error == -ENOENT && !vol->options.read_only) {
		error = uuid_make(vol->uuid);
		if (!error)
			error = io_replace_file(AT_FDCWD, path, vol->uuid, UUID_LEN);
		if (error)
			return opening_fail(m, error, "%s: %s", path, strerror(-error));
		return 0;
	}
	if (error)
		return opening_fail(m, error, "%s: %s", path, strerror(-error));
	if (text.len != UUID_LEN || strspn(buf_str(&text), "0123456789abcdef-") != UUID_LEN)
		return opening_fail(m, -EBADMSG, "%s is damaged: it should hold a volume's UUID",
				    path);
	memcpy(vol->uuid, text.data, UUID_LEN);
	vol->uuid[UUID_LEN] = '\0';
	return 0;
}

int connect_volume(struct volume *vol, struct opening_message *m)
{
	const struct remote_retry_policy policy = {
		.max_total_ns = vol->options.patience_ns > READER_MIN ? vol->options.patience_ns
								      : READER_MIN};
	char text[REMOTE_TEXT_MAX];
	struct remote *plain;
	int error = remote_open_with(vol->options.remote, &vol->options.limits, &plain);

	if (error)
		return opening_fail(m, contact_open_errno(error), "%s",
				    remote_open_strerror(vol->options.remote, error, text));
	vol->local_only = remote_is_none(plain);
	if (vol->local_only && volume_key_given(&vol->options.limits))
		error = opening_fail(
			m, -EINVAL,
			"remote none keeps all in the cache directory, where nothing is "
			"encrypted: give no passphrase or key file");
	else
		error = vol->local_only ? local_uuid(vol, m) : open_existing(vol, plain, m);
	if (!error)
		error = contact_encrypt(&plain, vol->encryption);
	if (!error)
		error = remote_retry_new(plain, &policy, &vol->remote);
	if (error)
		remote_close(plain);
	else
		vol->plain = remote_ref(plain);
	return error;
}
