/* SPDX-License-Identifier: Apache-2.0 */
/* Zips of NumPy and of Keras that were closed in good order hold all of their last member, or are torn. */
#include "lib/format/tails.h"

#include "tests/unit/zip_unit.h"

#define METHOD_DEFLATED 8
#define ENCRYPTED	1

/* ---- NumPy ---- */

#define NPY_HEADER(text) "\x93NUMPY\1\0" text "\n"
/* The length of the header, a letter of Python's for it: 58 bytes. */
#define FIVE_FLOATS NPY_HEADER("\x3a\0{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }")
#define DATA	    "01234567890123456789"

static const struct entry first_array = MADE("arr_0.npy", FIVE_FLOATS DATA);
static const struct entry array = MADE("arr_1.npy", FIVE_FLOATS DATA);

/* What is said of two arrays of which the last is this one. */
static int check_last(const struct entry *last)
{
	const struct entry entries[] = {first_array, *last};

	return check_zip(entries, 2, "a.npz");
}

START_TEST(every_cut_of_the_last_array_is_torn)
{
	for (int zip64 = 0; zip64 < 2; zip64++) {
		struct entry e = array;

		e.zip64 = zip64;
		ck_assert_int_eq(check_last(&e), 0);
		ck_assert_int_eq(check_zip(&e, 1, "a.npz"), 0);
		for (e.len = 0; e.len < array.len; e.len++) {
			ck_assert_msg(check_last(&e) == 1, "at %zu", e.len);
			ck_assert_msg(check_zip(&e, 1, "temporary") == 1, "at %zu", e.len);
		}
	}
}
END_TEST

START_TEST(an_array_before_the_last_is_not_judged)
{
	struct entry entries[] = {first_array, array};

	entries[0].len--;
	ck_assert_int_eq(check_zip(entries, 2, "a.npz"), 0);
}
END_TEST

START_TEST(members_that_are_not_understood)
{
	static const struct entry members[] = {
		MADE("a.npy",
		     NPY_HEADER("\x39\0{'descr': '|O', 'fortran_order': False, 'shape': (5,), }")),
		MADE("a.npy", NPY_HEADER("\x16\0{'descr': [('a', 'f4')]")),
		/* more elements than there are numbers */
		MADE("a.npy",
		     NPY_HEADER("\x37\0{'descr': '<f4', 'shape': (4294967296, 4294967296,), }")),
		MADE("a.npy", "\x93NUMPY\4\0\x01\0\0\0{"),
		MADE("a.npy", "another format"),
		MADE("a.npyz", FIVE_FLOATS),
		MADE("npy", FIVE_FLOATS),
		MADE(".npy", FIVE_FLOATS),
		MADE("a.bin", ""),
	};

	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++)
		ck_assert_msg(check_last(&members[i]) == 0, "member %zu", i);
}
END_TEST

START_TEST(compressed_and_encrypted_arrays)
{
	struct entry e = array;

	e.len = 20;
	e.method = METHOD_DEFLATED;
	ck_assert_int_eq(check_last(&e), 0);
	e.len = 0;
	ck_assert_int_eq(check_last(&e), 1);
	e = array;
	e.len = 20;
	e.flags = ENCRYPTED;
	ck_assert_int_eq(check_last(&e), 0);
}
END_TEST

/* What lies nowhere is not blamed: it was not an interruption that made it so. But Python may have counted what it did not write any more. */
START_TEST(directories_that_lie)
{
	static const uint64_t offsets[] = {1, 200, 100000, UINT32_MAX, UINT64_MAX - 8, UINT64_MAX};
	const uint64_t sizes[] = {array.len + 1, 100000, UINT32_MAX, UINT64_MAX - 8, UINT64_MAX};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
		struct entry e = array;

		e.zip64 = true;
		e.len = 20;
		e.told_at = offsets[i];
		ck_assert_msg(check_last(&e) == 0, "offset %zu", i);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct entry e = array;

		e.zip64 = true;
		e.told_size = sizes[i];
		ck_assert_msg(check_last(&e) == 1, "size %zu", i);
		e.len = 80;
		ck_assert_msg(check_last(&e) == 1, "size %zu", i);
	}
}
END_TEST

/* The numbers of a field that is cut off, or not there, are not known. */
START_TEST(fields_that_are_cut_off)
{
	struct entry e = array;
	cleanup_buf struct buf b = {0};
	size_t field;

	e.zip64 = true;
	e.len = 20;
	make_archive(&b, &e, 1);
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.npz"), 1);
	/* before the records at the end: the field, its length and its kind */
	field = b.len - 22 - 20 - 56 - 24 - 4;
	b.data[field] = 2;
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.npz"), 0);
	b.data[field] = 1;
	for (unsigned len = 0; len < 256; len++) {
		b.data[field + 2] = (uint8_t)len;
		ck_assert_int_eq(check_bytes(b.data, b.len, "a.npz"), len == 24);
	}
}
END_TEST

START_TEST(a_longer_header_than_there_is)
{
	struct entry e = array;
	cleanup_buf struct buf b = {0};

	e.len = 20;
	make_archive(&b, &e, 1);
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.npz"), 1);
	/* the local header says that a field of 64 KiB stands before the bytes */
	b.data[28] = b.data[29] = 0xff;
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.npz"), 0);
}
END_TEST

START_TEST(a_long_name)
{
	char name[400];
	struct entry entries[] = {first_array, array};

	memset(name, 'x', sizeof(name));
	memcpy(name + sizeof(name) - sizeof(".npy"), ".npy", sizeof(".npy"));
	entries[0].name = name;
	ck_assert_int_eq(check_zip(entries, 2, "a.npz"), 0);
	entries[1].len--;
	ck_assert_int_eq(check_zip(entries, 2, "a.npz"), 1);
}
END_TEST

/* ---- Keras ---- */

#define METADATA       MADE("metadata.json", "{\"keras_version\": \"3.5.0\"}")
#define OTHER_METADATA MADE("metadata.json", "{\"version\": 1}")
#define CONFIG	       MADE("config.json", "{}")
#define ASSET	       MADE("assets/vocabulary.txt", "a b")
/* Version 2, whose end of the file is at 60. */
#define HDF5                                                                                       \
	"\x89HDF\r\n\x1a\n\2\10\10\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x3c\0\0\0"    \
	"\0\0\0\0ohdr....sumsand all other bytes"
#define WEIGHTS MADE("model.weights.h5", HDF5)

START_TEST(kerass_archive_has_weights)
{
	const struct entry whole[] = {METADATA, CONFIG, WEIGHTS, ASSET};
	const struct entry without[] = {METADATA, CONFIG, ASSET};
	const struct entry arrays[] = {METADATA, CONFIG, MADE("model.weights.npz", "PK")};
	const struct entry older[] = {METADATA, CONFIG, MADE("variables.h5", HDF5)};

	for (int i = 0; i < 2; i++) {
		const char *name = i ? "a.keras" : "temporary";

		ck_assert_int_eq(check_zip(whole, 3, name), 0);
		ck_assert_int_eq(check_zip(whole, 4, name), 0);
		ck_assert_int_eq(check_zip(arrays, 3, name), 0);
		ck_assert_int_eq(check_zip(older, 3, name), 0);
		ck_assert_int_eq(check_zip(whole, 2, name), 1);
		ck_assert_int_eq(check_zip(whole, 1, name), 1);
		ck_assert_int_eq(check_zip(without, 3, name), 1);
	}
	ck_assert(tail_depends_on_name("a.keras"));
}
END_TEST

START_TEST(archives_that_only_resemble_kerass)
{
	const struct entry other[] = {OTHER_METADATA, CONFIG};
	const struct entry more[] = {METADATA, CONFIG, MADE("data.bin", "x")};
	const struct entry config_first[] = {CONFIG, METADATA};
	struct entry packed[] = {METADATA, CONFIG};

	ck_assert_int_eq(check_zip(other, 2, "a.zip"), 0);
	ck_assert_int_eq(check_zip(other, 2, "a.KERAS"), 1);
	ck_assert_int_eq(check_zip(more, 3, "a.keras"), 0);
	ck_assert_int_eq(check_zip(config_first, 2, "a.keras"), 0);
	packed[0].method = METHOD_DEFLATED;
	ck_assert_int_eq(check_zip(packed, 2, "a.zip"), 0);
	packed[0].method = 0;
	packed[0].told_at = 1;
	ck_assert_int_eq(check_zip(packed, 2, "a.zip"), 0);
}
END_TEST

START_TEST(every_cut_of_kerass_weights_is_torn)
{
	struct entry entries[] = {METADATA, CONFIG, WEIGHTS, ASSET};
	struct entry *weights = &entries[2];
	const size_t whole = 60;

	ck_assert_uint_ge(weights->len, whole);
	for (weights->len = 0; weights->len <= whole; weights->len++)
		for (size_t count = 3; count <= 4; count++)
			ck_assert_msg(check_zip(entries, count, "a.keras") ==
					      (weights->len < whole),
				      "at %zu", weights->len);
	weights->len = 20;
	weights->method = METHOD_DEFLATED;
	ck_assert_int_eq(check_zip(entries, 3, "a.keras"), 0);
	weights->method = 0;
	weights->data = "this is no HDF5 at all";
	ck_assert_int_eq(check_zip(entries, 3, "a.keras"), 0);
}
END_TEST

START_TEST(an_array_among_kerass_assets)
{
	struct entry entries[] = {METADATA, CONFIG, WEIGHTS,
				  MADE("assets/a.npy", FIVE_FLOATS DATA)};
	const struct entry without[] = {METADATA, CONFIG, entries[3]};

	ck_assert_int_eq(check_zip(entries, 4, "a.keras"), 0);
	ck_assert_int_eq(check_zip(without, 3, "a.keras"), 1);
	entries[2].len = 30;
	ck_assert_int_eq(check_zip(entries, 4, "a.keras"), 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_zip_members");
	TCase *t = unit_case(s, "numpy"), *keras = unit_case(s, "keras");

	tcase_add_test(t, every_cut_of_the_last_array_is_torn);
	tcase_add_test(t, an_array_before_the_last_is_not_judged);
	tcase_add_test(t, members_that_are_not_understood);
	tcase_add_test(t, compressed_and_encrypted_arrays);
	tcase_add_test(t, directories_that_lie);
	tcase_add_test(t, fields_that_are_cut_off);
	tcase_add_test(t, a_longer_header_than_there_is);
	tcase_add_test(t, a_long_name);
	tcase_add_test(keras, kerass_archive_has_weights);
	tcase_add_test(keras, archives_that_only_resemble_kerass);
	tcase_add_test(keras, every_cut_of_kerass_weights_is_torn);
	tcase_add_test(keras, an_array_among_kerass_assets);
	return unit_run(s);
}
