/* SPDX-License-Identifier: Apache-2.0 */
/* Zips that a test makes, and what the check of tails says of them. */
#ifndef EPOCHFS_TESTS_ZIP_UNIT_H
#define EPOCHFS_TESTS_ZIP_UNIT_H

#include "tests/unit/tails_unit.h"

#define ENTRIES_MAX 16

struct entry {
	const char *name;
	const void *data;
	size_t len;
	uint16_t method, flags;
	bool zip64; /* the directory has its numbers in the ZIP64 field, after another one */
	uint64_t told_size, told_at; /* what the directory says instead of the truth */
};

/* An entry whose content is a string. */
#define MADE(of_name, text)                                                                        \
	{                                                                                          \
		.name = (of_name), .data = (text), .len = sizeof(text) - 1                         \
	}

static void put_numbers(struct buf *b, uint64_t size, uint64_t at)
{
	buf_put_u16(b, 0x5455);
	buf_put_u16(b, 5);
	buf_put(b, "\1\0\0\0\0", 5);
	buf_put_u16(b, 1);
	buf_put_u16(b, 24);
	buf_put_u64(b, size);
	buf_put_u64(b, size);
	buf_put_u64(b, at);
}

static void put_entry(struct buf *b, const struct entry *e, bool central, uint64_t at)
{
	uint64_t size = central && e->told_size ? e->told_size : e->len;
	bool zip64 = central && e->zip64;

	buf_put_u32(b, central ? 0x02014b50 : 0x04034b50);
	if (central)
		buf_put_u16(b, 0);
	buf_put_u16(b, 0);
	buf_put_u16(b, 0x0800 | e->flags);
	buf_put_u16(b, e->method);
	buf_put_u64(b, 0); /* time, date, sum */
	buf_put_u32(b, zip64 ? UINT32_MAX : (uint32_t)size);
	buf_put_u32(b, zip64 ? UINT32_MAX : (uint32_t)size);
	buf_put_u16(b, (uint16_t)strlen(e->name));
	buf_put_u16(b, zip64 ? 37 : 0);
	at = e->told_at ? e->told_at : at;
	if (central) {
		buf_put(b, "\0\0\0\0\0\0\0\0\0\0", 10);
		buf_put_u32(b, zip64 ? UINT32_MAX : (uint32_t)at);
	}
	buf_put(b, e->name, strlen(e->name));
	if (zip64)
		put_numbers(b, size, at);
	if (!central)
		buf_put(b, e->data, e->len);
}

static void make_archive(struct buf *b, const struct entry *entries, size_t count)
{
	uint64_t at[ENTRIES_MAX];
	size_t directory, end;

	for (size_t i = 0; i < count; i++) {
		at[i] = b->len;
		put_entry(b, &entries[i], false, 0);
	}
	directory = b->len;
	for (size_t i = 0; i < count; i++)
		put_entry(b, &entries[i], true, at[i]);
	end = b->len;
	buf_put_u32(b, 0x06064b50);
	buf_put_u64(b, 44);
	buf_put(b, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
	buf_put_u64(b, count);
	buf_put_u64(b, count);
	buf_put_u64(b, end - directory);
	buf_put_u64(b, directory);
	buf_put_u32(b, 0x07064b50);
	buf_put_u32(b, 0);
	buf_put_u64(b, end);
	buf_put_u32(b, 1);
	buf_put_u32(b, 0x06054b50);
	buf_put_u32(b, 0);
	buf_put_u16(b, (uint16_t)count);
	buf_put_u16(b, (uint16_t)count);
	buf_put_u32(b, (uint32_t)(end - directory));
	buf_put_u32(b, (uint32_t)directory);
	buf_put_u16(b, 0);
	unit_ok(buf_error(b));
}

static int check_zip(const struct entry *entries, size_t count, const char *name)
{
	cleanup_buf struct buf b = {0};

	make_archive(&b, entries, count);
	return check_bytes(b.data, b.len, name);
}

#endif
