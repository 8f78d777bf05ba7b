/* SPDX-License-Identifier: Apache-2.0 */
/* The cutter: tensors of zips and safetensors, and that nothing but the content decides. */
#include "lib/store/cutter.h"

#include "tests/unit/cutting.h"

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
		"{\"data_offsets\":[0,400000],\"data_offsets\":[100,300000]}",
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

/* ---- zeros in tensors, and everything mixed */

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

int main(void)
{
	Suite *s = suite_create("store_cutter_formats");
	TCase *t;

	t = unit_case(s, "zip");
	tcase_add_test(t, large_tensors_of_a_zip_are_cut_at_their_edges);
	tcase_add_test(t, another_name_or_pickle_leaves_the_tensors_alone);
	tcase_add_test(t, an_entry_is_large_from_the_limit_on);
	tcase_add_test(t, a_signature_alone_is_no_header);
	t = unit_case(s, "safetensors");
	tcase_add_test(t, large_tensors_of_safetensors_are_cut_at_their_edges);
	tcase_add_test(t, a_longer_safetensors_header_leaves_the_tensors_alone);
	tcase_add_test(t, a_lying_safetensors_header_does_no_harm);
	t = unit_case(s, "mixtures");
	tcase_set_timeout(t, 300);
	tcase_add_test(t, zero_blocks_of_a_tensor_keep_to_its_grid);
	tcase_add_test(t, zeros_end_at_the_edge_of_a_tensor);
	tcase_add_loop_test(t, only_the_content_decides, 0, 6);
	return unit_run(s);
}
