/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding LevelDB's manifest: blocks, records, and what they say of tables. */
#include "lib/format/leveldb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/databases.h"
#include "lib/util/hash.h"

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

void leveldb_manifest_free(struct leveldb_manifest *m)
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

static int grow(struct leveldb_manifest *m)
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

static int table_of(struct leveldb_manifest *m, uint64_t number, struct leveldb_table **ret_table)
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

static int set_table(struct leveldb_manifest *m, uint64_t level, uint64_t number,
		     const uint64_t *size)
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
static int decode_leveled(struct leveldb_manifest *m, uint64_t tag, struct reader *r)
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

static int decode_tag(struct leveldb_manifest *m, struct reader *r)
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
static int decode_record(struct leveldb_manifest *m, const uint8_t *data, size_t len)
{
	struct reader r = reader_of(data, len);
	int error = 0;

	while (!error && reader_left(&r) && !reader_error(&r))
		error = decode_tag(m, &r);
	return error ? error : reader_error(&r) ? -EPROTONOSUPPORT : 0;
}

/* ---- blocks ---- */

static int take_part(struct leveldb_manifest *m, unsigned type, const uint8_t *data, size_t len)
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
static int take_block(struct leveldb_manifest *m, const uint8_t *data, size_t len)
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

int leveldb_manifest_add(struct leveldb_manifest *m, const void *data, size_t len)
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

int leveldb_manifest_end(struct leveldb_manifest *m, const char **ret_torn)
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

int leveldb_manifest_each(const struct leveldb_manifest *m,
			  int (*fn)(void *arg, uint64_t number, uint64_t size), void *arg)
{
	int error = 0;

	for (size_t i = 0; i < m->slots && !error; i++)
		if (m->tables[i].used && m->tables[i].levels)
			error = fn(arg, m->tables[i].number, m->tables[i].size);
	return error;
}
