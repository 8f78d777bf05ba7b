/* SPDX-License-Identifier: Apache-2.0 */
/* From a passphrase or a key file to what encrypts a volume. */
#include "lib/meta/volume_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util/log.h"
#include "lib/util/text.h"

/* ---- the file with the secret ---- */

struct secret {
	const char *path; /* borrowed */
	enum key_kind kind;
	uint8_t *bytes; /* SECRET_SIZE bytes of secret_alloc */
	size_t len;
};
#define SECRET_SIZE (KEY_FILE_MAX + 1)

static void secret_end(struct secret *s)
{
	secret_release(s->bytes, SECRET_SIZE);
}

bool volume_key_given(const struct remote_limits *limits)
{
	return limits && (limits->key_file || limits->passphrase_file);
}

/* To its end, or SECRET_SIZE bytes of it; also from a pipe. */
static int read_all(int fd, struct secret *s)
{
	while (s->len < SECRET_SIZE) {
		ssize_t n = read(fd, s->bytes + s->len, SECRET_SIZE - s->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		s->len += (size_t)n;
	}
	return 0;
}

/* Once of each file: making a volume reads it twice. */
static void warn_of_mode(int fd, const char *path)
{
	static _Atomic(ino_t) warned_of;
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & (S_IRWXG | S_IRWXO)) &&
	    atomic_exchange(&warned_of, st.st_ino) != st.st_ino)
		log_warn("%s can be opened by others than its owner: chmod 600 %s", path, path);
}

/* What was read is cut to what counts. */
static int check_secret(struct secret *s, struct opening_message *m)
{
	const uint8_t *newline;

	if (s->kind == KEY_FILE) {
		if (s->len >= KEY_FILE_MIN && s->len <= KEY_FILE_MAX)
			return 0;
		return opening_fail(
			m, -EINVAL,
			"%s is no key file: it should hold 32 to 65536 random bytes (head "
			"-c 32 /dev/urandom > %s)",
			s->path, s->path);
	}
	newline = memchr(s->bytes, '\n', s->len);
	if (newline)
		s->len = (size_t)(newline - s->bytes);
	if (s->len < 1 || s->len > PASSPHRASE_MAX)
		return opening_fail(m, -EINVAL,
				    "%s holds no passphrase: its first line should have 1 to 1024 "
				    "bytes",
				    s->path);
	return 0;
}

static int read_secret(const struct remote_limits *limits, struct secret *ret_secret,
		       struct opening_message *m)
{
	bool file = limits->key_file != NULL;
	struct secret s = {.path = file ? limits->key_file : limits->passphrase_file,
			   .kind = file ? KEY_FILE : KEY_PASSPHRASE,
			   .bytes = secret_alloc(SECRET_SIZE)};
	cleanup_close int fd = open(s.path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int error = fd < 0 ? -errno : 0;

	if (!s.bytes)
		return -ENOMEM;
	if (!error) {
		warn_of_mode(fd, s.path);
		error = read_all(fd, &s);
	}
	if (error)
		opening_fail(m, error, "the %s %s cannot be read: %s",
			     file ? "key file" : "passphrase file", s.path, strerror(-error));
	else
		error = check_secret(&s, m);
	if (error)
		secret_end(&s);
	else
		*ret_secret = s;
	return error;
}

/* ---- slots ---- */

struct slot_walk {
	struct remote *remote;
	const char *uuid;
	struct found_slots found;
};

static int read_slot(void *arg, const char *key, uint64_t size)
{
	struct slot_walk *w = arg;
	struct found_slot *f = &w->found.slots[w->found.count];
	cleanup_buf struct buf text = {0};
	int error;

	(void)size;
	if (w->found.count == KEY_SLOTS_MAX || slot_key_parse(key, f->id))
		return 0;
	error = remote_get(w->remote, key, 0, KEY_SLOT_ENCODED_MAX + 1, &text);
	if (error)
		return error == -ENOENT ? 0 : error;
	f->error = key_slot_decode(text.data, text.len, &f->slot);
	if (f->error == -ENOMEM)
		return f->error;
	/* An attempt to make a volume that did not end left it, or another's won. */
	if (!f->error && strcmp(f->slot.uuid, w->uuid) != 0)
		return 0;
	w->found.count++;
	return 0;
}

int volume_key_slots(struct remote *r, const char *uuid, struct found_slots *ret_slots,
		     struct opening_message *m)
{
	struct slot_walk w = {.remote = r, .uuid = uuid};
	int error;

	w.found.slots = calloc(KEY_SLOTS_MAX + 1, sizeof(*w.found.slots));
	if (!w.found.slots)
		return -ENOMEM;
	error = remote_list(r, PREFIX_KEYS, read_slot, &w);
	if (error) {
		free(w.found.slots);
		return contact_fail(r, error, m);
	}
	*ret_slots = w.found;
	return 0;
}

static int put_slot(struct remote *r, const char *uuid, const struct secret *s,
		    const uint8_t master[CRYPTO_KEY_SIZE], char ret_id[KEY_ID_MAX],
		    struct opening_message *m)
{
	cleanup_buf struct buf text = {0};
	uint8_t random[(KEY_ID_MAX - 1) / 2];
	struct key_slot slot;
	char id[KEY_ID_MAX], key[KEY_MAX];
	int error = random_bytes(random, sizeof(random));

	hex_encode(random, sizeof(random), id);
	if (!error)
		error = key_slot_wrap(id, uuid, s->kind, s->bytes, s->len, master, &slot);
	if (!error)
		error = key_slot_encode(&slot, &text);
	if (error)
		return opening_fail(m, error, "making a key slot: %s", strerror(-error));
	slot_key(id, key);
	error = remote_put_if_absent(r, key, text.data, text.len);
	if (error)
		return contact_fail(r, error, m);
	memcpy(ret_id, id, sizeof(id));
	return 0;
}

int volume_key_put(struct remote *r, const char *uuid, const struct remote_limits *limits,
		   const uint8_t master[CRYPTO_KEY_SIZE], char ret_id[KEY_ID_MAX],
		   struct opening_message *m)
{
	CLEANUP(secret_end) struct secret s = {0};
	int error = read_secret(limits, &s, m);

	return error ? error : put_slot(r, uuid, &s, master, ret_id, m);
}

/* ---- opening ---- */

/* 1: none of them is opened by this secret; *ret_tried is how many there were of its kind. */
static int try_slots(const struct found_slots *found, const struct secret *s,
		     uint8_t master[CRYPTO_KEY_SIZE], char ret_id[KEY_ID_MAX], unsigned *ret_tried)
{
	*ret_tried = 0;
	for (size_t i = 0; i < found->count; i++) {
		const struct found_slot *f = &found->slots[i];
		int error;

		if (f->error || f->slot.kind != s->kind)
			continue;
		++*ret_tried;
		error = key_slot_unwrap(&f->slot, f->id, s->bytes, s->len, master);
		if (!error)
			memcpy(ret_id, f->id, KEY_ID_MAX);
		if (error != -EBADMSG)
			return error;
	}
	return 1;
}

static int open_slots(struct remote *r, const struct volume_info *info, const struct secret *s,
		      uint8_t master[CRYPTO_KEY_SIZE], char ret_id[KEY_ID_MAX],
		      struct opening_message *m)
{
	struct found_slots found;
	unsigned tried;
	int error = volume_key_slots(r, info->uuid, &found, m);

	if (error)
		return error;
	error = try_slots(&found, s, master, ret_id, &tried);
	free(found.slots);
	if (error < 0)
		return opening_fail(m, error, "the key of %s: %s", remote_name(r),
				    strerror(-error));
	if (error && tried)
		return opening_fail(
			m, -EACCES,
			"%s does not open %s: it is not the %s of any of its %u key%s of "
			"that kind (epochfs key list shows them)",
			s->path, remote_name(r), s->kind == KEY_FILE ? "key file" : "passphrase",
			tried, plural(tried));
	if (error)
		return opening_fail(
			m, -EACCES,
			"%s does not open %s: none of its keys is a %s (epochfs key list "
			"shows them)",
			s->path, remote_name(r), s->kind == KEY_FILE ? "key file" : "passphrase");
	return 0;
}

/* The value that epochfs.json should have. */
static int make_check(const struct encryption *encryption, const struct volume_info *info,
		      struct hash *ret_check)
{
	cleanup_buf struct buf text = {0};
	int error = volume_info_unchecked(info, &text);

	if (!error)
		encryption_check(encryption, text.data, text.len, ret_check);
	return error;
}

static int check_info(struct remote *r, const struct volume_info *info,
		      const struct encryption *encryption, struct opening_message *m)
{
	struct hash check;
	int error = make_check(encryption, info, &check);

	if (!error && !secret_equal(check.bytes, info->check.bytes, HASH_SIZE))
		error = -EBADMSG;
	if (error)
		return opening_fail(m, error,
				    "%s/%s is not what was written with this volume's key: it was "
				    "damaged or changed; restore it from a copy",
				    remote_name(r), KEY_VOLUME);
	return 0;
}

static int unwrap(struct remote *r, const struct volume_info *info,
		  const struct remote_limits *limits, uint8_t *master,
		  struct encryption **ret_encryption, char ret_id[KEY_ID_MAX],
		  struct opening_message *m)
{
	CLEANUP(secret_end) struct secret s = {0};
	cleanup_encryption struct encryption *encryption = NULL;
	int error = read_secret(limits, &s, m);

	if (!error)
		error = open_slots(r, info, &s, master, ret_id, m);
	if (!error)
		error = encryption_new(master, info->uuid, &encryption);
	if (!error)
		error = check_info(r, info, encryption, m);
	if (error)
		return error;
	*ret_encryption = steal_ptr(encryption);
	return 0;
}

int volume_key_unwrap(struct remote *r, const struct volume_info *info,
		      const struct remote_limits *limits, uint8_t **ret_master,
		      char ret_id[KEY_ID_MAX], struct opening_message *m)
{
	uint8_t *master = secret_alloc(CRYPTO_KEY_SIZE);
	struct encryption *encryption;
	int error = master ? unwrap(r, info, limits, master, &encryption, ret_id, m) : -ENOMEM;

	if (error) {
		secret_release(master, CRYPTO_KEY_SIZE);
		return error;
	}
	encryption_unref(encryption);
	*ret_master = master;
	return 0;
}

int volume_key_open(struct remote *r, const struct volume_info *info,
		    const struct remote_limits *limits, const char *how,
		    struct encryption **ret_encryption, struct opening_message *m)
{
	bool given = volume_key_given(limits);
	char id[KEY_ID_MAX];
	uint8_t *master;
	int error;

	if (!info->encrypted && given)
		return opening_fail(
			m, -EACCES,
			"%s is not encrypted, and what is written there would not be: give "
			"no passphrase or key file, or an empty place for a new volume",
			remote_name(r));
	if (info->encrypted && !given)
		return opening_fail(m, -EACCES, "%s is encrypted: give %s", remote_name(r), how);
	if (!given) {
		*ret_encryption = NULL;
		return 0;
	}
	master = secret_alloc(CRYPTO_KEY_SIZE);
	error = master ? unwrap(r, info, limits, master, ret_encryption, id, m) : -ENOMEM;
	secret_release(master, CRYPTO_KEY_SIZE);
	return error;
}

/* ---- making ---- */

static int make(struct remote *r, const struct remote_limits *limits, uint8_t *master,
		struct volume_info *info, char ret_slot[KEY_MAX], struct opening_message *m)
{
	cleanup_encryption struct encryption *encryption = NULL;
	char id[KEY_ID_MAX];
	int error = random_bytes(master, CRYPTO_KEY_SIZE);

	info->encrypted = true;
	if (!error)
		error = encryption_new(master, info->uuid, &encryption);
	if (!error)
		error = make_check(encryption, info, &info->check);
	if (!error)
		error = volume_key_put(r, info->uuid, limits, master, id, m);
	if (!error)
		slot_key(id, ret_slot);
	return error;
}

int volume_key_make(struct remote *r, const struct remote_limits *limits, struct volume_info *info,
		    char ret_slot[KEY_MAX], struct opening_message *m)
{
	uint8_t *master = secret_alloc(CRYPTO_KEY_SIZE);
	int error = master ? make(r, limits, master, info, ret_slot, m) : -ENOMEM;

	secret_release(master, CRYPTO_KEY_SIZE);
	return error ? opening_fail(m, error, "making an encrypted volume: %s", strerror(-error))
		     : 0;
}
