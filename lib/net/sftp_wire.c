/* SPDX-License-Identifier: Apache-2.0 */
/* The packets of SFTP version 3. */
#include "lib/net/sftp_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define ATTR_SIZE	 0x01u
#define ATTR_UIDGID	 0x02u
#define ATTR_PERMISSIONS 0x04u
#define ATTR_ACMODTIME	 0x08u
#define ATTR_EXTENDED	 0x80000000u

void sftp_put_u32(struct buf *b, uint32_t v)
{
	buf_put_u32(b, __builtin_bswap32(v));
}

void sftp_put_u64(struct buf *b, uint64_t v)
{
	buf_put_u64(b, __builtin_bswap64(v));
}

void sftp_put_string(struct buf *b, const void *data, size_t len)
{
	sftp_put_u32(b, (uint32_t)len);
	buf_put(b, data, len);
}

void sftp_put_text(struct buf *b, const char *text)
{
	sftp_put_string(b, text, strlen(text));
}

void sftp_put_mode(struct buf *b, uint32_t mode)
{
	sftp_put_u32(b, ATTR_PERMISSIONS);
	sftp_put_u32(b, mode);
}

void sftp_put_no_attrs(struct buf *b)
{
	sftp_put_u32(b, 0);
}

uint32_t sftp_u32(struct reader *r)
{
	return __builtin_bswap32(reader_u32(r));
}

uint64_t sftp_u64(struct reader *r)
{
	return __builtin_bswap64(reader_u64(r));
}

const uint8_t *sftp_string(struct reader *r, size_t *ret_len)
{
	uint32_t len = sftp_u32(r);
	const uint8_t *data = reader_skip(r, len);

	*ret_len = data ? len : 0;
	return data;
}

void sftp_attrs(struct reader *r, struct sftp_attrs *ret_attrs)
{
	struct sftp_attrs a = {0};
	uint32_t flags = sftp_u32(r);
	size_t len;

	if (flags & ATTR_SIZE) {
		a.has_size = true;
		a.size = sftp_u64(r);
	}
	if (flags & ATTR_UIDGID)
		reader_skip(r, 8);
	if (flags & ATTR_PERMISSIONS) {
		a.has_mode = true;
		a.mode = sftp_u32(r);
	}
	if (flags & ATTR_ACMODTIME) {
		a.has_times = true;
		sftp_u32(r);
		a.mtime = sftp_u32(r);
	}
	if (flags & ATTR_EXTENDED) {
		uint32_t count = sftp_u32(r);

		for (uint32_t i = 0; i < 2 * (uint64_t)count && !r->failed; i++)
			sftp_string(r, &len);
	}
	*ret_attrs = a;
}

bool sftp_is_file(const struct sftp_attrs *a)
{
	return a->has_mode && S_ISREG(a->mode);
}

bool sftp_is_dir(const struct sftp_attrs *a)
{
	return a->has_mode && S_ISDIR(a->mode);
}

bool sftp_next_name(struct reader *r, const uint8_t **ret_name, size_t *ret_len,
		    struct sftp_attrs *ret_attrs)
{
	size_t len;

	*ret_name = sftp_string(r, ret_len);
	sftp_string(r, &len); /* as `ls -l` shows it */
	sftp_attrs(r, ret_attrs);
	return !r->failed;
}

static bool same(const uint8_t *data, size_t len, const char *text)
{
	return len == strlen(text) && memcmp(data, text, len) == 0;
}

int sftp_extensions(struct reader *r, struct sftp_extensions *ret_extensions)
{
	struct sftp_extensions e = {0};
	const struct {
		const char *name, *version;
		bool *offered;
	} known[] = {
		{"posix-rename@openssh.com", "1", &e.posix_rename},
		{"hardlink@openssh.com", "1", &e.hardlink},
		{"fsync@openssh.com", "1", &e.fsync},
		{"statvfs@openssh.com", "2", &e.statvfs},
		{"limits@openssh.com", "1", &e.limits},
	};

	while (reader_left(r) > 0 && !r->failed) {
		size_t name_len, version_len;
		const uint8_t *name = sftp_string(r, &name_len);
		const uint8_t *version = sftp_string(r, &version_len);

		if (!name || !version)
			return -EBADMSG;
		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			if (same(name, name_len, known[i].name) &&
			    same(version, version_len, known[i].version))
				*known[i].offered = true;
	}
	if (r->failed)
		return -EBADMSG;
	*ret_extensions = e;
	return 0;
}

int64_t sftp_packet_len(const uint8_t *data, size_t len)
{
	struct reader r = reader_of(data, len);
	uint32_t body = sftp_u32(&r);

	if (r.failed)
		return 0;
	/* A type and an id or version at least. */
	if (body < 5 || body > SFTP_PACKET_MAX)
		return -EBADMSG;
	return len - 4 >= body ? (int64_t)body + 4 : 0;
}
