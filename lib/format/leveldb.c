/* SPDX-License-Identifier: Apache-2.0 */
/* Is a LevelDB whole? The manifest that CURRENT names, and the tables that it names. */
#include "lib/format/databases.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "lib/util/hash.h"
#include "lib/util/text.h"

#define READ_LEN    ((size_t)1 << 20) /* whole blocks */
#define CURRENT_MAX 64u
#define MAGIC_LEN   8u

/* ---- the manifest: blocks, records, and what they say of tables ---- */

/*
 * databases.h has the format of the file; a record is a row of
 *
 *   1 text                              the comparator's name
 *   2 varint                            the number of the first log that counts
 *   3 varint                            the next number of a file
 *   4 varint                            the last sequence number
 *   5 level text                        where compaction of that level stands
 *   6 level varint                      a table that is no longer of that level
 *   7 level varint varint text text     a table of that level: number, size, least and greatest key
 *   9 varint                            the log before
 *
 * with texts as a varint length and the bytes, and levels 0 to 6.
 */
#define BLOCK_LEN     32768u
#define RECORD_HEADER 7u
#define CRC_DELTA     0xa282ead8u
#define LEVELS	      7u

enum { PART_NONE, PART_FULL, PART_FIRST, PART_MIDDLE, PART_LAST };

struct leveldb_table {
	uint64_t number, size;
	uint8_t levels; /* a bit each; 0: dropped */
	bool used;
};

struct manifest {
	uint64_t log_number; /* 0: none */

	/* What is not decoded yet: less than a block, and a record's parts. */
	struct buf block, record;
	struct leveldb_table *tables;
	size_t count, slots;
	bool in_record, has_log, has_next, has_sequence;
	const char *torn;
};

static void manifest_free(struct manifest *m)
{
	buf_free(&m->block);
	buf_free(&m->record);
	free(m->tables);
	m->tables = NULL;
}

/* ---- tables, by number ---- */

static struct leveldb_table *slot_of(struct leveldb_table *tables, size_t slots, uint64_t number)
{
	/* Any numbers, so they are scattered: untrusted ones as well as consecutive ones. */
	size_t at = (size_t)((number * 0x9e3779b97f4a7c15u) >> 32) & (slots - 1);

	while (tables[at].used && tables[at].number != number)
		at = (at + 1) & (slots - 1);
	return &tables[at];
}

static int grow(struct manifest *m)
{
	size_t slots = m->slots ? m->slots * 2 : 64;
	struct leveldb_table *tables = calloc(slots, sizeof(*tables));

	if (!tables)
		return -ENOMEM;
	for (size_t i = 0; i < m->slots; i++)
		if (m->tables[i].used)
			*slot_of(tables, slots, m->tables[i].number) = m->tables[i];
	free(m->tables);
	m->tables = tables;
	m->slots = slots;
	return 0;
}

static int table_of(struct manifest *m, uint64_t number, struct leveldb_table **ret_table)
{
	struct leveldb_table *t;
	int error;

	if (m->count * 2 >= m->slots) {
		error = m->count >= LEVELDB_TABLES_MAX ? -EPROTONOSUPPORT : grow(m);
		if (error)
			return error;
	}
	t = slot_of(m->tables, m->slots, number);
	if (!t->used) {
		*t = (struct leveldb_table){.number = number, .used = true};
		m->count++;
	}
	*ret_table = t;
	return 0;
}

static int set_table(struct manifest *m, uint64_t level, uint64_t number, const uint64_t *size)
{
	struct leveldb_table *t;
	int error = table_of(m, number, &t);

	if (error)
		return error;
	if (size) {
		t->levels |= (uint8_t)(1u << level);
		t->size = *size;
	} else {
		t->levels &= (uint8_t) ~(1u << level);
	}
	return 0;
}

/* ---- a record ---- */

static void skip_text(struct reader *r)
{
	reader_skip(r, reader_varint(r));
}

/* Of tags 5, 6 and 7. */
static int decode_leveled(struct manifest *m, uint64_t tag, struct reader *r)
{
	uint64_t level = reader_varint(r), number, size;

	if (level >= LEVELS)
		return -EPROTONOSUPPORT;
	if (tag == 5) {
		skip_text(r);
		return 0;
	}
	number = reader_varint(r);
	if (tag == 6)
		return reader_error(r) ? 0 : set_table(m, level, number, NULL);
	size = reader_varint(r);
	skip_text(r);
	skip_text(r);
	return reader_error(r) ? 0 : set_table(m, level, number, &size);
}

static int decode_tag(struct manifest *m, struct reader *r)
{
	uint64_t tag = reader_varint(r);

	switch (tag) {
	case 1:
		skip_text(r);
		return 0;
	case 2:
		m->log_number = reader_varint(r);
		m->has_log = true;
		return 0;
	case 3:
		reader_varint(r);
		m->has_next = true;
		return 0;
	case 4:
		reader_varint(r);
		m->has_sequence = true;
		return 0;
	case 9:
		reader_varint(r);
		return 0;
	case 5:
	case 6:
	case 7:
		return decode_leveled(m, tag, r);
	default:
		return -EPROTONOSUPPORT;
	}
}

/* Its checksum was right: whatever it says was meant. */
static int decode_record(struct manifest *m, const uint8_t *data, size_t len)
{
	struct reader r = reader_of(data, len);
	int error = 0;

	while (!error && reader_left(&r) && !reader_error(&r))
		error = decode_tag(m, &r);
	return error ? error : reader_error(&r) ? -EPROTONOSUPPORT : 0;
}

/* ---- blocks ---- */

static int take_part(struct manifest *m, unsigned type, const uint8_t *data, size_t len)
{
	int error;

	if (type > PART_LAST)
		return -EPROTONOSUPPORT;
	if ((type == PART_FULL || type == PART_FIRST) == m->in_record) {
		m->torn = "LevelDB: the parts of a record in it do not follow one another";
		return 0;
	}
	if (type == PART_FULL)
		return decode_record(m, data, len);
	if (m->record.len + len > LEVELDB_RECORD_MAX)
		return -EPROTONOSUPPORT;
	buf_put(&m->record, data, len);
	if (buf_error(&m->record))
		return -ENOMEM;
	m->in_record = type != PART_LAST;
	if (m->in_record)
		return 0;
	error = decode_record(m, m->record.data, m->record.len);
	buf_reset(&m->record);
	return error;
}

/* The records of a block, which is the last one where it is shorter. */
static int take_block(struct manifest *m, const uint8_t *data, size_t len)
{
	struct reader r = reader_of(data, len);
	int error = 0;

	while (!error && !m->torn && reader_left(&r) >= RECORD_HEADER) {
		uint32_t masked = reader_u32(&r), sum = masked - CRC_DELTA;
		const uint8_t *body;
		unsigned size = reader_u16(&r);
		size_t room = reader_left(&r) - 1;

		if (!masked && !size && *r.p == PART_NONE)
			return 0;
		if (size > room) {
			m->torn = len < BLOCK_LEN
					  ? "LevelDB: its last record is cut off"
					  : "LevelDB: a record in it is longer than its block";
			return 0;
		}
		body = reader_skip(&r, 1 + (uint64_t)size);
		if (crc32c(0, body, 1 + (size_t)size) != (sum >> 17 | sum << 15))
			m->torn = "LevelDB: a record in it has another checksum";
		else
			error = take_part(m, body[0], body + 1, size);
	}
	if (!error && !m->torn && len < BLOCK_LEN && reader_left(&r))
		m->torn = "LevelDB: its last record is cut off";
	return error;
}

/* From the file's begin on, in any portions. 0; -EPROTONOSUPPORT: a record says what LevelDB's do not, or more than the limits of
 * databases.h; -ENOMEM. */
static int manifest_add(struct manifest *m, const void *data, size_t len)
{
	const uint8_t *p = data;
	int error = 0;

	while (len && !error && !m->torn) {
		size_t part = BLOCK_LEN - m->block.len;

		if (part > len)
			part = len;
		buf_put(&m->block, p, part);
		if (buf_error(&m->block))
			return -ENOMEM;
		p += part;
		len -= part;
		if (m->block.len == BLOCK_LEN) {
			error = take_block(m, m->block.data, BLOCK_LEN);
			buf_reset(&m->block);
		}
	}
	return error;
}

/* The same, and what is wrong with the manifest, static text, or NULL. */
static int manifest_end(struct manifest *m, const char **ret_torn)
{
	int error = m->torn ? 0 : take_block(m, m->block.data, m->block.len);

	if (error)
		return error;
	if (!m->torn && m->in_record)
		m->torn = "LevelDB: its last record is cut off";
	if (!m->torn && !(m->has_log && m->has_next && m->has_sequence))
		m->torn = "LevelDB: it is empty, or lacks its begin";
	*ret_torn = m->torn;
	return 0;
}

/* Calls for each live table, in no order, until it gives an error, which it returns. */
static int manifest_each(const struct manifest *m,
			 int (*fn)(void *arg, uint64_t number, uint64_t size), void *arg)
{
	int error = 0;

	for (size_t i = 0; i < m->slots && !error; i++)
		if (m->tables[i].used && m->tables[i].levels)
			error = fn(arg, m->tables[i].number, m->tables[i].size);
	return error;
}

/* ---- the check ---- */

struct check {
	const struct database_dir *dir;
	char manifest[CURRENT_MAX]; /* its name */
	struct manifest m;
	unsigned missing; /* tables */
	char first_missing[32];
};

/* An error of reading that is told elsewhere ends the check of that file. */
static int damage_is_told(int error)
{
	return error == -EBADMSG || error == -EIO ? 0 : error;
}

static void tell(struct check *c, const char *name, const char *what)
{
	c->dir->problem(c->dir->arg, name, what);
}

/* ---- CURRENT ---- */

static bool is_manifest_name(const char *name, size_t len)
{
	static const char start[] = "MANIFEST-";
	size_t at = sizeof(start) - 1;

	return len > at && memcmp(name, start, at) == 0 &&
	       strspn(name + at, "0123456789") >= len - at;
}

/* 1: the name of the manifest is there; 0: this is no LevelDB, or it was told what is wrong. */
static int read_current(struct check *c)
{
	char text[CURRENT_MAX + 1] = {0};
	uint64_t size;
	ssize_t got;
	int error = c->dir->find(c->dir->arg, "CURRENT", &size);

	if (error)
		return error == -ENOENT ? 0 : error;
	got = c->dir->read(c->dir->arg, "CURRENT", text, CURRENT_MAX, 0);
	if (got < 0)
		return damage_is_told((int)got);
	if (got > 1 && text[got - 1] == '\n' && is_manifest_name(text, (size_t)got - 1)) {
		memcpy(c->manifest, text, (size_t)got - 1);
		return 1;
	}
	/* Many programs have a file of this name; fewer one that is locked beside it. */
	if (c->dir->find(c->dir->arg, "LOCK", &size) == 0)
		tell(c, "CURRENT", "LevelDB: it does not name a manifest");
	return 0;
}

/* ---- the manifest ---- */

/* Reads all of it through the decoder. `ret_what` is NULL where nothing is wrong with it. */
static int read_manifest(struct check *c, const char **ret_what)
{
	cleanup_free uint8_t *data = malloc(READ_LEN);
	uint64_t at = 0;
	int error = data ? 0 : -ENOMEM;

	*ret_what = NULL;
	while (!error) {
		ssize_t got = c->dir->read(c->dir->arg, c->manifest, data, READ_LEN, at);

		if (got < 0)
			return (int)got;
		at += (uint64_t)got;
		if (got)
			error = manifest_add(&c->m, data, (size_t)got);
		if ((size_t)got < READ_LEN)
			break;
	}
	return error ? error : manifest_end(&c->m, ret_what);
}

/* 1: it was read, and what it names can be looked at. */
static int check_manifest(struct check *c)
{
	char text[CURRENT_MAX + 64];
	const char *what;
	uint64_t size;
	int error = c->dir->find(c->dir->arg, c->manifest, &size);

	if (error == -ENOENT) {
		snprintf(text, sizeof(text), "LevelDB: it names %s, which is not there",
			 c->manifest);
		tell(c, "CURRENT", text);
		return 0;
	}
	if (!error)
		error = read_manifest(c, &what);
	if (error == -EPROTONOSUPPORT)
		return 0;
	if (error)
		return damage_is_told(error);
	if (what) {
		tell(c, c->manifest, what);
		return 0;
	}
	return 1;
}

/* ---- what it names ---- */

static int check_table_end(struct check *c, const char *name, uint64_t size)
{
	static const uint8_t magic[MAGIC_LEN] = {0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb};
	uint8_t end[MAGIC_LEN];
	ssize_t got;

	if (size < MAGIC_LEN)
		return 0;
	got = c->dir->read(c->dir->arg, name, end, MAGIC_LEN, size - MAGIC_LEN);
	if (got < 0)
		return damage_is_told((int)got);
	if (got != MAGIC_LEN || memcmp(end, magic, MAGIC_LEN) != 0)
		tell(c, name, "LevelDB: it does not end as a table does");
	return 0;
}

static int check_table(void *arg, uint64_t number, uint64_t size)
{
	struct check *c = arg;
	char name[32], text[128];
	uint64_t is;
	int error;

	snprintf(name, sizeof(name), "%06" PRIu64 ".ldb", number);
	error = c->dir->find(c->dir->arg, name, &is);
	if (error == -ENOENT) {
		char old[32];

		snprintf(old, sizeof(old), "%06" PRIu64 ".sst", number);
		error = c->dir->find(c->dir->arg, old, &is);
		if (error == -ENOENT) {
			if (!c->missing++)
				memcpy(c->first_missing, name, sizeof(name));
			return 0;
		}
		memcpy(name, old, sizeof(old));
	}
	if (error)
		return error;
	if (is == size)
		return check_table_end(c, name, size);
	snprintf(text, sizeof(text),
		 "LevelDB: it has %" PRIu64 " byte%s, and its manifest says %" PRIu64, is,
		 plural(is), size);
	tell(c, name, text);
	return 0;
}

static int check_named(struct check *c)
{
	char text[160], log[32];
	uint64_t size;
	int error = manifest_each(&c->m, check_table, c);

	if (error)
		return error;
	if (c->missing == 1)
		snprintf(text, sizeof(text), "LevelDB: it names %s, which is not there",
			 c->first_missing);
	else if (c->missing)
		snprintf(text, sizeof(text), "LevelDB: it names %s and %u more that are not there",
			 c->first_missing, c->missing - 1);
	if (c->missing) {
		tell(c, c->manifest, text);
		return 0;
	}
	/* 0: all that there was is in tables. */
	if (!c->m.log_number)
		return 0;
	snprintf(log, sizeof(log), "%06" PRIu64 ".log", c->m.log_number);
	error = c->dir->find(c->dir->arg, log, &size);
	if (error != -ENOENT)
		return error;
	snprintf(text, sizeof(text),
		 "LevelDB: it names %s, which is not there: what was written last is lost", log);
	tell(c, c->manifest, text);
	return 0;
}

int leveldb_check(const struct database_dir *dir)
{
	struct check c = {.dir = dir};
	int result = read_current(&c);

	if (result == 1)
		result = check_manifest(&c);
	if (result == 1)
		result = check_named(&c);
	manifest_free(&c.m);
	return result;
}
