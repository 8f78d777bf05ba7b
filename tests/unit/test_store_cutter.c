/* SPDX-License-Identifier: Apache-2.0 */
/* The cutter: where it cuts, what it finds again, that holes change nothing. */
#include "lib/store/cutter.h"

#include "lib/store/cutter_impl.h"
#include "lib/util/hash.h"
#include "tests/unit/unit.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* splitmix64: the same bytes in every run. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static void put_random(struct buf *b, size_t len, uint64_t seed)
{
	for (; len >= 8; len -= 8)
		buf_put_u64(b, next_random(&seed));
	for (; len > 0; len--)
		buf_put_u8(b, (uint8_t)next_random(&seed));
}

static void put_zeros(struct buf *b, size_t len)
{
	unit_ok(buf_reserve(b, len + 1));
	memset(b->data + b->len, 0, len);
	b->len += len;
}

/* ---- content in memory, with holes wherever it is zero, or with none */

struct memory {
	const struct buf *content;
	bool holes;
	unsigned reads;
};

static ssize_t memory_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	struct memory *m = arg;

	ck_assert_uint_le(offset + len, m->content->len);
	memcpy(data, m->content->data + offset, len);
	m->reads++;
	return (ssize_t)len;
}

/* Holes as a file system has them: whole blocks of 4 KiB. */
static uint64_t memory_next_data(void *arg, uint64_t offset)
{
	static const uint8_t zeros[4096];
	struct memory *m = arg;

	while (offset < m->content->len) {
		size_t n = sizeof(zeros) - offset % sizeof(zeros);

		if (n > m->content->len - offset)
			n = m->content->len - offset;
		if (memcmp(m->content->data + offset, zeros, n) != 0)
			return offset;
		offset += n;
	}
	return UINT64_MAX;
}

static bool all_zero(const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (data[i])
			return false;
	return true;
}

struct piece {
	struct segment segment;
	struct hash hash;
};

/* Takes all segments of a cutter and checks what holds for every list of them. */
static size_t collect(struct cutter *c, const struct buf *content, struct piece **ret_pieces)
{
	struct piece *pieces = NULL;
	struct segment s;
	size_t count = 0;
	uint64_t pos = 0;
	int r;

	while ((r = cutter_next(c, &s)) == 1) {
		pieces = realloc(pieces, (count + 1) * sizeof(*pieces));
		ck_assert_uint_eq(s.offset, pos);
		ck_assert_uint_ge(s.len, 1);
		pos += s.len;
		ck_assert_uint_le(pos, content->len);
		if (s.kind == SEGMENT_DATA) {
			ck_assert_uint_le(s.len, CUTTER_CHUNK_MAX);
			ck_assert_mem_eq(s.data, content->data + s.offset, s.len);
		} else {
			ck_assert_ptr_null(s.data);
			ck_assert(all_zero(content->data + s.offset, s.len));
		}
		hash_of(content->data + s.offset, s.len, &pieces[count].hash);
		pieces[count++].segment = s;
	}
	unit_ok(r);
	ck_assert_uint_eq(pos, content->len);
	*ret_pieces = pieces;
	return count;
}

static size_t cut_window(const struct buf *content, bool holes, size_t window,
			 struct piece **ret_pieces)
{
	struct memory m = {.content = content};
	struct cutter_source source = {.size = content->len,
				       .pread = memory_pread,
				       .next_data = holes ? memory_next_data : NULL,
				       .arg = &m};
	cleanup_cutter struct cutter *c = NULL;

	unit_ok(buf_error(content));
	if (window)
		unit_ok(cutter_open_window(&source, window, &c));
	else
		unit_ok(cutter_open(&source, &c));
	return collect(c, content, ret_pieces);
}

static size_t cut(const struct buf *content, bool holes, struct piece **ret_pieces)
{
	return cut_window(content, holes, 0, ret_pieces);
}

static bool holds(const struct piece *pieces, size_t count, const struct piece *one)
{
	for (size_t i = 0; i < count; i++)
		if (pieces[i].segment.kind == one->segment.kind &&
		    hash_equal(&pieces[i].hash, &one->hash))
			return true;
	return false;
}

/* The bytes of `b` in segments that `a` does not have. */
static uint64_t bytes_new(const struct buf *a, const struct buf *b)
{
	cleanup_free struct piece *old = NULL;
	cleanup_free struct piece *now = NULL;
	size_t old_count = cut(a, false, &old);
	size_t count = cut(b, false, &now);
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		if (!holds(old, old_count, &now[i]))
			sum += now[i].segment.len;
	return sum;
}

/* Whether a segment begins at the offset, and of what kind: -1 where none does. */
static int kind_at(const struct piece *pieces, size_t count, uint64_t offset)
{
	for (size_t i = 0; i < count; i++)
		if (pieces[i].segment.offset == offset)
			return (int)pieces[i].segment.kind;
	return -1;
}

/* ---- by content */

START_TEST(content_is_cut_between_words)
{
	cleanup_buf struct buf b = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	put_random(&b, 32 * MIB, 1);
	count = cut(&b, false, &p);
	for (size_t i = 0; i < count; i++) {
		ck_assert_uint_eq(p[i].segment.offset % 8, 0);
		if (i + 1 < count)
			ck_assert_uint_ge(p[i].segment.len, CUTTER_CHUNK_MIN);
	}
	/* 256 KiB on average. */
	ck_assert_uint_gt(count, 100);
	ck_assert_uint_lt(count, 160);
}
END_TEST

START_TEST(an_insertion_moves_only_the_cuts_near_it)
{
	cleanup_buf struct buf a = {0};
	cleanup_buf struct buf b = {0};

	put_random(&a, 16 * MIB, 2);
	buf_put(&b, a.data, 5 * MIB);
	put_random(&b, 4096 + 8, 3);
	buf_put(&b, a.data + 5 * MIB, 11 * MIB);
	ck_assert_uint_le(bytes_new(&a, &b), 2 * MIB);
	/* The removal of the same. */
	ck_assert_uint_le(bytes_new(&b, &a), 2 * MIB);
}
END_TEST

START_TEST(what_is_appended_leaves_the_start_alone)
{
	cleanup_buf struct buf a = {0};
	cleanup_buf struct buf b = {0};

	put_random(&a, 8 * MIB, 4);
	buf_put(&b, a.data, a.len);
	put_random(&b, 10, 5);
	ck_assert_uint_le(bytes_new(&a, &b), CUTTER_CHUNK_MAX + 10);
	b.data[4 * MIB] ^= 1;
	ck_assert_uint_le(bytes_new(&a, &b), 4 * MIB);
}
END_TEST

START_TEST(short_content_is_one_segment)
{
	static const size_t lens[] = {1, 7, 8, 100, 4096, 65535, 65536, 65543};

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		cleanup_buf struct buf b = {0};
		cleanup_free struct piece *p = NULL;

		put_random(&b, lens[i], lens[i]);
		ck_assert_uint_eq(cut(&b, false, &p), 1);
	}
}
END_TEST

START_TEST(nothing_has_no_segment)
{
	struct buf b = {0};
	cleanup_free struct piece *p = NULL;

	ck_assert_uint_eq(cut(&b, false, &p), 0);
}
END_TEST

START_TEST(one_word_over_and_over_is_cut_at_the_limits)
{
	cleanup_buf struct buf b = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	for (size_t i = 0; i < MIB; i++)
		buf_put_u64(&b, UINT64_C(0x3f8000003f800000));
	count = cut(&b, false, &p);
	for (size_t i = 0; i + 1 < count; i++)
		ck_assert_uint_eq(p[i].segment.len, p[0].segment.len);
}
END_TEST

/* ---- zips as torch.save writes them */

#define ENTRIES_MAX 16

struct zip {
	struct buf bytes;
	size_t count;
	uint64_t header[ENTRIES_MAX];
	uint64_t data[ENTRIES_MAX];
	char name[ENTRIES_MAX][320];
	uint64_t directory;
};

static void zip_free(struct zip *z)
{
	buf_free(&z->bytes);
}

/* An entry with sizes of 0 in its header, its data at a multiple of 64, a descriptor behind. */
static void zip_entry(struct zip *z, const char *archive, const char *name, const void *data,
		      size_t len)
{
	struct buf *b = &z->bytes;
	size_t i = z->count++;
	size_t n, pad;

	n = (size_t)snprintf(z->name[i], sizeof(z->name[i]), "%s/%s", archive, name);
	z->header[i] = b->len;
	pad = (64 - (b->len + 30 + n + 4) % 64) % 64;
	buf_put(b, "PK\3\4\0\0\10\10\0\0", 10);
	put_zeros(b, 16);
	buf_put_u16(b, (uint16_t)n);
	buf_put_u16(b, (uint16_t)(pad + 4));
	buf_put(b, z->name[i], n);
	buf_put(b, "FB", 2);
	buf_put_u16(b, (uint16_t)pad);
	for (size_t k = 0; k < pad; k++)
		buf_put_u8(b, 'Z');
	ck_assert_uint_eq(b->len % 64, 0);
	z->data[i] = b->len;
	buf_put(b, data, len);
	buf_put(b, "PK\7\10", 4);
	buf_put_u32(b, crc32c(0, data, len));
	buf_put_u64(b, len);
	buf_put_u64(b, len);
}

static void zip_random(struct zip *z, const char *archive, const char *name, size_t len,
		       uint64_t seed)
{
	cleanup_buf struct buf data = {0};

	put_random(&data, len, seed);
	zip_entry(z, archive, name, data.data, data.len);
}

static void zip_finish(struct zip *z)
{
	struct buf *b = &z->bytes;

	z->directory = b->len;
	for (size_t i = 0; i < z->count; i++) {
		size_t n = strlen(z->name[i]);

		buf_put(b, "PK\1\2\0\0\0\0\10\10\0\0", 12);
		put_zeros(b, 16);
		buf_put_u16(b, (uint16_t)n);
		put_zeros(b, 16);
		buf_put(b, z->name[i], n);
	}
	buf_put(b, "PK\5\6", 4);
	put_zeros(b, 18);
}

/* Four large tensors of 9 MiB in all, small ones between them. */
static void zip_model(struct zip *z, const char *archive, size_t pickle)
{
	zip_random(z, archive, "data.pkl", pickle, 11);
	zip_random(z, archive, "byteorder", 6, 12);
	zip_random(z, archive, "data/0", 3 * MIB + 500 * KIB, 13);
	zip_random(z, archive, "data/1", 4096, 14);
	zip_random(z, archive, "data/2", 130 * KIB, 15);
	zip_random(z, archive, "data/3", 60 * KIB, 16);
	zip_random(z, archive, "data/4", 4 * MIB, 17);
	zip_random(z, archive, "data/5", MIB + 4, 18);
	zip_random(z, archive, "version", 2, 19);
	zip_finish(z);
}

START_TEST(large_tensors_of_a_zip_are_cut_at_their_edges)
{
	CLEANUP(zip_free) struct zip z = {0};
	cleanup_free struct piece *p = NULL;
	static const bool large[] = {false, false, true, false, true, false, true, true, false};
	size_t count;

	zip_model(&z, "checkpoint", 20000);
	count = cut(&z.bytes, false, &p);
	for (size_t i = 0; i < z.count; i++) {
		uint64_t next = i + 1 < z.count ? z.header[i + 1] : z.directory;

		ck_assert_msg((kind_at(p, count, z.data[i]) == SEGMENT_DATA) == large[i],
			      "entry %zu", i);
		if (!large[i])
			continue;
		ck_assert_int_eq(kind_at(p, count, next), SEGMENT_DATA);
		for (uint64_t at = z.data[i]; at < next; at += MIB)
			ck_assert_int_eq(kind_at(p, count, at), SEGMENT_DATA);
	}
	/* 4 + 1 + 5 + 2 of tensors; five pieces around them. */
	ck_assert_uint_eq(count, 17);
}
END_TEST

START_TEST(another_name_or_pickle_leaves_the_tensors_alone)
{
	CLEANUP(zip_free) struct zip a = {0};
	CLEANUP(zip_free) struct zip b = {0};
	CLEANUP(zip_free) struct zip c = {0};
	char name[200];

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	zip_model(&a, "last", 20000);
	zip_model(&b, name, 20000);
	zip_model(&c, "last", 20100);
	/* The small ones and the headers are all that may differ. */
	ck_assert_uint_le(bytes_new(&a.bytes, &b.bytes), 120 * KIB);
	ck_assert_uint_le(bytes_new(&a.bytes, &c.bytes), 120 * KIB);
	ck_assert_uint_gt(bytes_new(&a.bytes, &b.bytes), 0);
}
END_TEST

START_TEST(an_entry_is_large_from_the_limit_on)
{
	static const size_t descriptor = 24;

	for (size_t less = 0; less < 2; less++) {
		CLEANUP(zip_free) struct zip z = {0};
		cleanup_free struct piece *p = NULL;
		size_t count;

		zip_random(&z, "a", "first", 100, 1);
		zip_random(&z, "a", "second", CUTTER_TENSOR_MIN - descriptor - less, 2);
		zip_random(&z, "a", "third", 100, 3);
		zip_finish(&z);
		count = cut(&z.bytes, false, &p);
		ck_assert_int_eq(kind_at(p, count, z.data[1]), less ? -1 : (int)SEGMENT_DATA);
	}
}
END_TEST

START_TEST(a_signature_alone_is_no_header)
{
	CLEANUP(zip_free) struct zip z = {0};
	cleanup_buf struct buf data = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	put_random(&data, 3 * MIB, 4);
	/* A version that is none, a method that is none, a name without length. */
	memcpy(data.data + 500000, "PK\3\4\xff\0\0\0\0\0", 10);
	memcpy(data.data + 600000, "PK\3\4\12\0\0\0\xff\xff", 10);
	memcpy(data.data + 700000, "PK\3\4\12\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 28);
	zip_entry(&z, "a", "tensor", data.data, data.len);
	zip_finish(&z);
	count = cut(&z.bytes, false, &p);
	ck_assert_int_eq(kind_at(p, count, z.data[0]), SEGMENT_DATA);
	ck_assert_int_eq(kind_at(p, count, z.data[0] + MIB), SEGMENT_DATA);
	ck_assert_uint_eq(count, 6);
}
END_TEST

/* ---- safetensors */

static void safetensors_start(struct buf *b, const char *json)
{
	buf_put_u64(b, strlen(json));
	buf_put(b, json, strlen(json));
}

START_TEST(large_tensors_of_safetensors_are_cut_at_their_edges)
{
	static const char json[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\" : [ 1573864 , 1704936 ]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[393216],\"data_offsets\":[0,1572864]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1572864,1573864]}}";
	cleanup_buf struct buf b = {0};
	cleanup_free struct piece *p = NULL;
	uint64_t start = 8 + sizeof(json) - 1;
	uint64_t at[] = {0, start, start + MIB, start + 1572864, start + 1573864};
	size_t count;

	safetensors_start(&b, json);
	put_random(&b, 1704936, 1);
	count = cut(&b, false, &p);
	ck_assert_uint_eq(count, 5);
	for (size_t i = 0; i < 5; i++)
		ck_assert_int_eq(kind_at(p, count, at[i]), SEGMENT_DATA);
}
END_TEST

START_TEST(a_longer_safetensors_header_leaves_the_tensors_alone)
{
	static const char short_json[] = "{\"w\":{\"data_offsets\":[0,3000000]}}";
	static const char long_json[] =
		"{\"__metadata__\":{\"epoch\":\"7\"},\"w\":{\"data_offsets\":[0,3000000]}}";
	cleanup_buf struct buf a = {0};
	cleanup_buf struct buf b = {0};

	safetensors_start(&a, short_json);
	put_random(&a, 3000000, 2);
	safetensors_start(&b, long_json);
	put_random(&b, 3000000, 2);
	ck_assert_uint_eq(bytes_new(&a, &b), 8 + sizeof(long_json) - 1);
}
END_TEST

START_TEST(a_lying_safetensors_header_does_no_harm)
{
	static const char *const lies[] = {
		"{\"data_offsets\":[0,99999999999999999999999]}",
		"{\"data_offsets\":[18446744073709551615,18446744073709551615]}",
		"{\"data_offsets\":[300000,0]}",
		"{\"data_offsets\":[-1,300000]}",
		"{\"data_offsets\":[0,400000],\"data_offsets\":[100,300000],"
		"\"data_offsets\":[0,400000]}",
		"{\"data_offsets\":[0,1000000]}",
		"{\"data_offsets\":[",
		"{\"data_offsets\"",
		"{",
	};

	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		cleanup_buf struct buf b = {0};
		cleanup_free struct piece *p = NULL;

		safetensors_start(&b, lies[i]);
		put_random(&b, 500000, i);
		cut(&b, false, &p);
		/* The length of the header lies as well. */
		b.data[i % 8] ^= 0xff;
		free(steal_ptr(p));
		cut(&b, false, &p);
	}
}
END_TEST

/* ---- zeros */

START_TEST(a_long_run_of_zeros_is_a_segment)
{
	cleanup_buf struct buf b = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	put_random(&b, 100003, 1);
	b.data[100002] = 1;
	put_zeros(&b, 2 * MIB);
	buf_put_u8(&b, 1);
	put_random(&b, 100000, 2);
	count = cut(&b, false, &p);
	/* From the first whole word of zeros to the last. */
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(p[1].segment.kind, SEGMENT_ZERO);
	ck_assert_uint_eq(p[1].segment.offset, 100008);
	ck_assert_uint_eq(p[1].segment.len, 2 * MIB - 8);
}
END_TEST

START_TEST(a_short_run_of_zeros_is_data)
{
	for (size_t less = 0; less < 2; less++) {
		cleanup_buf struct buf b = {0};
		cleanup_free struct piece *p = NULL;
		size_t count;

		buf_put_u64(&b, UINT64_MAX);
		put_zeros(&b, CUTTER_ZERO_MIN - 8 * less);
		buf_put_u64(&b, UINT64_MAX);
		count = cut(&b, false, &p);
		ck_assert_int_eq(kind_at(p, count, 8), less ? -1 : (int)SEGMENT_ZERO);
		for (size_t i = 0; less && i < count; i++)
			ck_assert_int_eq(p[i].segment.kind, SEGMENT_DATA);
	}
}
END_TEST

START_TEST(zeros_alone_are_one_segment)
{
	static const size_t lens[] = {CUTTER_ZERO_MIN, CUTTER_ZERO_MIN + 3, 20 * MIB + 5};

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (int holes = 0; holes < 2; holes++) {
			cleanup_buf struct buf b = {0};
			cleanup_free struct piece *p = NULL;

			put_zeros(&b, lens[i]);
			ck_assert_uint_eq(cut(&b, holes, &p), 1);
			ck_assert_int_eq(p[0].segment.kind, SEGMENT_ZERO);
		}
	}
}
END_TEST

START_TEST(zero_blocks_of_a_tensor_keep_to_its_grid)
{
	CLEANUP(zip_free) struct zip z = {0};
	cleanup_buf struct buf data = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	put_random(&data, 300 * KIB, 1);
	put_zeros(&data, 250 * KIB);
	put_random(&data, 1498 * KIB, 2);
	zip_entry(&z, "a", "tensor", data.data, data.len);
	zip_finish(&z);
	count = cut(&z.bytes, false, &p);
	ck_assert_int_eq(kind_at(p, count, z.data[0]), SEGMENT_DATA);
	ck_assert_int_eq(kind_at(p, count, z.data[0] + 320 * KIB), SEGMENT_ZERO);
	ck_assert_int_eq(kind_at(p, count, z.data[0] + 512 * KIB), SEGMENT_DATA);
	ck_assert_int_eq(kind_at(p, count, z.data[0] + MIB), SEGMENT_DATA);
}
END_TEST

START_TEST(zeros_end_at_the_edge_of_a_tensor)
{
	static const char json[] = "{\"a\":{\"data_offsets\":[0,9000000]},"
				   "\"b\":{\"data_offsets\":[9000000,18000000]}}";
	uint64_t start = 8 + sizeof(json) - 1;

	for (int holes = 0; holes < 2; holes++) {
		cleanup_buf struct buf b = {0};
		cleanup_free struct piece *p = NULL;

		safetensors_start(&b, json);
		put_zeros(&b, 18000000);
		ck_assert_uint_eq(cut(&b, holes, &p), 3);
		ck_assert_int_eq(kind_at(p, 3, start), SEGMENT_ZERO);
		ck_assert_int_eq(kind_at(p, 3, start + 9000000), SEGMENT_ZERO);
	}
}
END_TEST

/* Noise and zeros of many lengths, about as large as `scale` says. */
static void put_mixture(struct buf *b, size_t scale, uint64_t *seed)
{
	for (unsigned k = 0; k < 4; k++) {
		size_t len = next_random(seed) % scale;

		if (next_random(seed) % 2)
			put_zeros(b, len);
		else
			put_random(b, len, next_random(seed));
	}
}

/* A zip, a safetensors file or neither. */
static void make_mixture(struct buf *ret_content, uint64_t *seed)
{
	static const size_t scales[] = {100, 5000, 70000, 200000, 1500000, 5000000};
	CLEANUP(zip_free) struct zip z = {0};
	cleanup_buf struct buf json = {0};
	cleanup_buf struct buf all = {0};
	unsigned kind = next_random(seed) % 4;

	for (unsigned i = 0; i < 15; i++) {
		cleanup_buf struct buf data = {0};

		put_mixture(&data, scales[next_random(seed) % (i % 4 ? 5 : 6)], seed);
		if (kind < 2)
			zip_entry(&z, "mixture", "entry", data.data, data.len);
		buf_printf(&json, "%s\"%u\":{\"data_offsets\":[%zu,%zu]}", i ? "," : "{", i,
			   all.len, all.len + data.len);
		buf_put(&all, data.data, data.len);
	}
	buf_printf(&json, "}");
	if (kind < 2) {
		zip_finish(&z);
		buf_put(ret_content, z.bytes.data, z.bytes.len);
		return;
	}
	if (kind == 2)
		safetensors_start(ret_content, buf_str(&json));
	buf_put(ret_content, all.data, all.len);
}

/* Neither holes nor how much the cutter sees at a time change the cuts. */
START_TEST(only_the_content_decides)
{
	static const size_t windows[] = {CUTTER_AHEAD, CUTTER_AHEAD + 12345, 32 * MIB};
	uint64_t seed = (uint64_t)_i * 1000;

	for (unsigned round = 0; round < 4; round++) {
		cleanup_buf struct buf b = {0};
		cleanup_free struct piece *want = NULL;
		size_t count;

		make_mixture(&b, &seed);
		count = cut(&b, false, &want);
		for (unsigned k = 0; k < 4; k++) {
			cleanup_free struct piece *p = NULL;
			size_t n = cut_window(&b, k != 1, k ? windows[k - 1] : 0, &p);

			ck_assert_msg(n == count, "round %u, %u: %zu, not %zu", round, k, n, count);
			for (size_t i = 0; i < count; i++) {
				ck_assert_int_eq(p[i].segment.kind, want[i].segment.kind);
				ck_assert_uint_eq(p[i].segment.offset, want[i].segment.offset);
			}
		}
	}
}
END_TEST

/* A TiB of hole with one byte in it. */
#define LONELY ((UINT64_C(1) << 39) + 12345)

static ssize_t lonely_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	++*(unsigned *)arg;
	memset(data, 0, len);
	if (LONELY >= offset && LONELY < offset + len)
		((uint8_t *)data)[LONELY - offset] = 1;
	return (ssize_t)len;
}

static uint64_t lonely_next_data(void *arg, uint64_t offset)
{
	(void)arg;
	if (offset <= (LONELY & ~UINT64_C(4095)))
		return LONELY & ~UINT64_C(4095);
	return offset < (LONELY | 4095) ? offset : UINT64_MAX;
}

START_TEST(a_hole_of_any_length_costs_nothing)
{
	unsigned reads = 0;
	struct cutter_source source = {.size = UINT64_C(1) << 40,
				       .pread = lonely_pread,
				       .next_data = lonely_next_data,
				       .arg = &reads};
	cleanup_cutter struct cutter *c = NULL;
	struct segment s;

	unit_ok(cutter_open(&source, &c));
	ck_assert_int_eq(cutter_next(c, &s), 1);
	ck_assert_int_eq(s.kind, SEGMENT_ZERO);
	ck_assert_uint_eq(s.len, LONELY & ~UINT64_C(7));
	ck_assert_int_eq(cutter_next(c, &s), 1);
	ck_assert_int_eq(s.kind, SEGMENT_DATA);
	ck_assert_uint_eq(s.len, 8);
	ck_assert_int_eq(cutter_next(c, &s), 1);
	ck_assert_int_eq(s.kind, SEGMENT_ZERO);
	ck_assert_uint_eq(s.offset + s.len, UINT64_C(1) << 40);
	ck_assert_int_eq(cutter_next(c, &s), 0);
	ck_assert_int_eq(cutter_next(c, &s), 0);
	ck_assert_uint_lt(reads, 10);
}
END_TEST

/* ---- files, and errors */

START_TEST(a_sparse_file_is_cut_as_its_content)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "sparse");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	cleanup_buf struct buf b = {0};
	cleanup_cutter struct cutter *c = NULL;
	cleanup_free struct piece *p = NULL;
	cleanup_free struct piece *want = NULL;
	size_t count;

	put_random(&b, 300000, 1);
	put_zeros(&b, 9 * MIB);
	put_random(&b, 5 * MIB, 2);
	put_zeros(&b, MIB);
	unit_ok(io_pwrite_full(fd, b.data, 300000, 0));
	unit_ok(io_pwrite_full(fd, b.data + 300000 + 9 * MIB, 5 * MIB, 300000 + 9 * MIB));
	unit_ok(ftruncate(fd, (off_t)b.len));
	unit_ok(cutter_open_fd(fd, b.len, &c));
	count = collect(c, &b, &p);
	ck_assert_uint_eq(cut(&b, false, &want), count);
	for (size_t i = 0; i < count; i++)
		ck_assert_uint_eq(p[i].segment.offset, want[i].segment.offset);
}
END_TEST

START_TEST(a_file_shorter_than_said_is_an_error)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "short");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	struct cutter *c = NULL;

	unit_ok(io_pwrite_full(fd, "short", 5, 0));
	unit_error(cutter_open_fd(fd, 6, &c), -ENODATA);
	ck_assert_ptr_null(c);
}
END_TEST

static ssize_t failing_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	uint64_t *limit = arg;

	if (offset + len > *limit)
		return -EIO;
	memset(data, 'x', len);
	return (ssize_t)len;
}

START_TEST(an_error_of_the_source_is_passed_on)
{
	uint64_t limit = 5 * MIB;
	struct cutter_source source = {.size = 20 * MIB, .pread = failing_pread, .arg = &limit};
	cleanup_cutter struct cutter *c = NULL;
	struct segment s;
	int r;

	unit_ok(cutter_open(&source, &c));
	while ((r = cutter_next(c, &s)) == 1)
		ck_assert_uint_le(s.offset + s.len, limit);
	ck_assert_int_eq(r, -EIO);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_cutter");
	TCase *t = unit_case(s, "content");

	tcase_add_test(t, content_is_cut_between_words);
	tcase_add_test(t, an_insertion_moves_only_the_cuts_near_it);
	tcase_add_test(t, what_is_appended_leaves_the_start_alone);
	tcase_add_test(t, short_content_is_one_segment);
	tcase_add_test(t, nothing_has_no_segment);
	tcase_add_test(t, one_word_over_and_over_is_cut_at_the_limits);
	t = unit_case(s, "formats");
	tcase_add_test(t, large_tensors_of_a_zip_are_cut_at_their_edges);
	tcase_add_test(t, another_name_or_pickle_leaves_the_tensors_alone);
	tcase_add_test(t, an_entry_is_large_from_the_limit_on);
	tcase_add_test(t, a_signature_alone_is_no_header);
	tcase_add_test(t, large_tensors_of_safetensors_are_cut_at_their_edges);
	tcase_add_test(t, a_longer_safetensors_header_leaves_the_tensors_alone);
	tcase_add_test(t, a_lying_safetensors_header_does_no_harm);
	t = unit_case(s, "zeros");
	tcase_set_timeout(t, 300);
	tcase_add_test(t, a_long_run_of_zeros_is_a_segment);
	tcase_add_test(t, a_short_run_of_zeros_is_data);
	tcase_add_test(t, zeros_alone_are_one_segment);
	tcase_add_test(t, zero_blocks_of_a_tensor_keep_to_its_grid);
	tcase_add_test(t, zeros_end_at_the_edge_of_a_tensor);
	tcase_add_loop_test(t, only_the_content_decides, 0, 10);
	tcase_add_test(t, a_hole_of_any_length_costs_nothing);
	t = unit_case(s, "sources");
	tcase_add_test(t, a_sparse_file_is_cut_as_its_content);
	tcase_add_test(t, a_file_shorter_than_said_is_an_error);
	tcase_add_test(t, an_error_of_the_source_is_passed_on);
	return unit_run(s);
}
