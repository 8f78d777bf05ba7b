/* SPDX-License-Identifier: Apache-2.0 */
/* The first contact with a remote: what is said of it where a volume cannot be opened. */
#include "lib/meta/opening.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "lib/format/names.h"
#include "lib/util/text.h"

int opening_fail(struct opening_message *m, int error, const char *fmt, ...)
{
	va_list ap;

	if (m->text)
		return error;
	va_start(ap, fmt);
	text_vprint(&m->text, fmt, ap);
	va_end(ap);
	return error;
}

int contact_errno(int error)
{
	switch (error) {
	case -EPERM:
	case -EROFS:
		return -EACCES;
	case -EIO:
	case -ETIMEDOUT:
	case -ECONNREFUSED:
		return -EHOSTUNREACH;
	default:
		return error;
	}
}

int contact_open_errno(int error)
{
	/* What was typed names no remote. */
	return error == -EPROTONOSUPPORT || error == -ENOTDIR ? -EINVAL : contact_errno(error);
}

int contact_fail(struct remote *r, int error, struct opening_message *m)
{
	char text[REMOTE_TEXT_MAX];

	opening_fail(m, error, "%s", remote_strerror(r, error, text));
	return contact_errno(error);
}

static int any_object(void *arg, const char *key, uint64_t size)
{
	(void)size;
	/* What a broken check of writability left says nothing, nor does the key of a volume whose making was broken off. */
	if (!strncmp(key, "epochfs.probe-", strlen("epochfs.probe-")) ||
	    !strncmp(key, PREFIX_KEYS, strlen(PREFIX_KEYS)))
		return 0;
	snprintf(arg, REMOTE_KEY_MAX + 1, "%s", key);
	return 1;
}

int contact_check_empty(struct remote *r, const char *advice, struct opening_message *m)
{
	char found[REMOTE_KEY_MAX + 1] = "";
	int error = remote_list(r, "", any_object, found);

	if (error < 0)
		return contact_fail(r, error, m);
	if (error)
		return opening_fail(m, -EBADMSG,
				    "%s is not an epochfs volume: it has no %s, but holds %s; %s",
				    remote_name(r), KEY_VOLUME, found, advice);
	return 0;
}

int contact_encrypt(struct remote **r, struct encryption *encryption)
{
	return encryption ? remote_encrypt_new(*r, encryption, r) : 0;
}

int contact_read(struct remote *r, struct volume_info *ret_info, struct opening_message *m)
{
	cleanup_buf struct buf text = {0};
	int error = remote_get(r, KEY_VOLUME, 0, VOLUME_INFO_ENCODED_MAX + 1, &text);

	if (error == -ENOENT)
		return error;
	if (error)
		return contact_fail(r, error, m);
	error = volume_info_decode(text.data, text.len, ret_info);
	if (error == -EPROTONOSUPPORT)
		return opening_fail(
			m, error,
			"%s was created by a newer version of epochfs: upgrade this one (%s)",
			remote_name(r), EPOCHFS_VERSION);
	if (error)
		return opening_fail(m, error,
				    "%s/%s is damaged: restore it from a copy, or see "
				    "epochfs fsck",
				    remote_name(r), KEY_VOLUME);
	return 0;
}
