/* SPDX-License-Identifier: Apache-2.0 */
/* Torn zip, safetensors, HDF5, NumPy and pickle files are told from whole ones. */
#include "lib/format/tails.h"

#include "tests/unit/tails_unit.h"

/* A stored zip of one entry; with `zip64`, with the records that PyTorch writes and the 32-bit ones
 * saturated where `saturated`. */
static void make_zip(struct buf *b, bool zip64, bool saturated, const char *comment)
{
	size_t base = b->len, directory, size, end64;

	buf_put_u32(b, 0x04034b50);
	buf_put(b, "\x14\0\0\0\0\0\0\0\0\0", 10);
	buf_put_u32(b, 0);
	buf_put_u32(b, 5);
	buf_put_u32(b, 5);
	buf_put_u16(b, 1);
	buf_put_u16(b, 0);
	buf_put(b, "ahello", 6);
	directory = b->len;
	buf_put_u32(b, 0x02014b50);
	buf_put(b, "\x14\0\x14\0\0\0\0\0\0\0\0\0", 12);
	buf_put_u32(b, 0);
	buf_put_u32(b, 5);
	buf_put_u32(b, 5);
	buf_put_u16(b, 1);
	buf_put(b, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
	buf_put(b, "a", 1);
	size = b->len - directory;
	if (zip64) {
		end64 = b->len;
		buf_put_u32(b, 0x06064b50);
		buf_put_u64(b, 44);
		buf_put(b, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
		buf_put_u64(b, 1);
		buf_put_u64(b, 1);
		buf_put_u64(b, size);
		buf_put_u64(b, directory - base);
		buf_put_u32(b, 0x07064b50);
		buf_put_u32(b, 0);
		buf_put_u64(b, end64 - base);
		buf_put_u32(b, 1);
	}
	buf_put_u32(b, 0x06054b50);
	buf_put_u32(b, 0);
	buf_put_u16(b, 1);
	buf_put_u16(b, 1);
	buf_put_u32(b, saturated ? UINT32_MAX : (uint32_t)size);
	buf_put_u32(b, saturated ? UINT32_MAX : (uint32_t)(directory - base));
	buf_put_u16(b, (uint16_t)strlen(comment));
	buf_put(b, comment, strlen(comment));
	unit_ok(buf_error(b));
}

START_TEST(whole_zips)
{
	for (int i = 0; i < 6; i++) {
		cleanup_buf struct buf b = {0};

		make_zip(&b, i % 3 > 0, i % 3 > 1, i > 2 ? "a comment" : "");
		ck_assert_int_eq(check_bytes(b.data, b.len, "model.pt"), 0);
	}
}
END_TEST

START_TEST(every_cut_of_a_zip_is_torn)
{
	for (int i = 0; i < 3; i++) {
		cleanup_buf struct buf b = {0};

		make_zip(&b, i > 0, i > 1, "");
		for (size_t len = 4; len < b.len; len++)
			ck_assert_msg(check_bytes(b.data, len, "model.pt") == 1, "kind %d at %zu",
				      i, len);
	}
}
END_TEST

START_TEST(a_zip_whose_directory_lies_elsewhere_is_torn)
{
	cleanup_buf struct buf b = {0}, hole = {0};

	/* the same end, after bytes of another length: a hole where the directory should be */
	make_zip(&b, false, false, "");
	buf_put(&hole, b.data, 4);
	buf_put(&hole, "\0\0\0\0\0\0\0\0\0\0", 10);
	buf_put(&hole, b.data + b.len - 22, 22);
	ck_assert_int_eq(check_bytes(hole.data, hole.len, "a.npz"), 1);
	b.data[b.len - 22 - 47] = 'x'; /* the directory's magic: 46 bytes and a name of 1 */
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.npz"), 1);
}
END_TEST

START_TEST(an_end_record_inside_the_comment_does_not_deceive)
{
	cleanup_buf struct buf b = {0};

	make_zip(&b, false, false, "PK\5\6 is how it starts, and here are thirty more bytes");
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.zip"), 0);
	ck_assert_int_eq(check_bytes(b.data, b.len - 1, "a.zip"), 1);
}
END_TEST

static void make_safetensors(struct buf *b, const char *header, size_t data_len)
{
	buf_put_u64(b, strlen(header));
	buf_put(b, header, strlen(header));
	for (size_t i = 0; i < data_len; i++)
		buf_put_u8(b, (uint8_t)i);
	unit_ok(buf_error(b));
}

static const char two_tensors[] =
	"{\"__metadata__\":{\"format\":\"pt \\\"data_offsets\\\" x\"},"
	"\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
	"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\" : [ 0 , 8 ]}}   ";

START_TEST(safetensors_length)
{
	cleanup_buf struct buf b = {0};

	make_safetensors(&b, two_tensors, 16);
	ck_assert_int_eq(check_bytes(b.data, b.len, "model.safetensors"), 0);
	for (size_t len = 1; len < b.len; len++)
		ck_assert_msg(check_bytes(b.data, len, "model.safetensors") == 1, "at %zu", len);
	/* Under another name the header tells it, also half a one, by its first two bytes. */
	ck_assert_int_eq(check_bytes(b.data, b.len, "model.safetensors.tmp"), 0);
	for (size_t len = 1; len < b.len; len++)
		ck_assert_msg(check_bytes(b.data, len, "model.safetensors.tmp") ==
				      (len >= sizeof(uint64_t) + 2),
			      "at %zu", len);
	/* What is no JSON, or not as long, may be anything. */
	make_safetensors(&b, "{{ a template }}", 0);
	ck_assert_int_eq(check_bytes(b.data, b.len - 4, "a.bin"), 0);
	ck_assert_int_eq(check_bytes("\x90\x01\0\0\0\0\0\x10{\"a\"", 12, "a.bin"), 0);
}
END_TEST

START_TEST(safetensors_headers_that_lie)
{
	static const char *const bad[] = {
		"{\"a\":{\"data_offsets\":[0,99999999999999999999999]}}",
		"{\"a\":{\"data_offsets\":[0]}}",
		"{\"a\":{\"data_offsets\":\"x\"}}",
		"{\"a\":{\"data_offsets\"",
		"[]",
	};
	cleanup_buf struct buf b = {0};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		buf_reset(&b);
		make_safetensors(&b, bad[i], 8);
		ck_assert_msg(check_bytes(b.data, b.len, "a.safetensors") == 1, "%s", bad[i]);
		ck_assert_msg(check_bytes(b.data, b.len, "a") == 0, "%s", bad[i]);
	}
	buf_reset(&b);
	buf_put_u64(&b, UINT64_MAX);
	buf_put_u64(&b, 0);
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.safetensors"), 1);
	buf_reset(&b);
	make_safetensors(&b, "{}", 0);
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.safetensors"), 0);
	ck_assert_int_eq(check_bytes(b.data, b.len, "a"), 0);
}
END_TEST

static void make_hdf5(struct buf *b, unsigned version, uint8_t flags, uint64_t end, size_t size)
{
	buf_put(b, "\x89HDF\r\n\x1a\n", 8);
	buf_put_u8(b, (uint8_t)version);
	if (version < 2) {
		buf_put(b, "\0\0\0\0", 4);
		buf_put_u8(b, 8);
		buf_put_u8(b, 8);
		buf_put_u8(b, 0);
		buf_put_u32(b, 0x00100004);
		buf_put_u32(b, 0);
		if (version == 1)
			buf_put_u32(b, 0x20);
	} else {
		buf_put_u8(b, 8);
		buf_put_u8(b, 8);
		buf_put_u8(b, flags);
	}
	buf_put_u64(b, 0);
	buf_put_u64(b, UINT64_MAX);
	buf_put_u64(b, end);
	while (b->len < size && !buf_error(b))
		buf_put_u8(b, 0);
	unit_ok(buf_error(b));
}

START_TEST(hdf5_end_of_file)
{
	for (unsigned version = 0; version < 4; version++) {
		cleanup_buf struct buf b = {0};

		make_hdf5(&b, version, 0, 2048, 2048);
		ck_assert_int_eq(check_bytes(b.data, 2048, "a.h5"), 0);
		ck_assert_int_eq(check_bytes(b.data, 2047, "a.h5"), 1);
		ck_assert_int_eq(check_bytes(b.data, 20, "a.h5"), 1);
	}
}
END_TEST

START_TEST(hdf5_open_for_writing)
{
	cleanup_buf struct buf b = {0}, swmr = {0}, later = {0};

	make_hdf5(&b, 3, 1, 2048, 2048);
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.h5"), 1);
	make_hdf5(&swmr, 3, 5, 2048, 2048);
	ck_assert_int_eq(check_bytes(swmr.data, swmr.len, "a.h5"), 0);
	make_hdf5(&later, 9, 1, UINT64_MAX, 2048);
	ck_assert_int_eq(check_bytes(later.data, later.len, "a.h5"), 0);
}
END_TEST

/* ---- what Python writes ---- */

static void make_npy(struct buf *b, unsigned version, const char *header, size_t data_len)
{
	buf_put(b, "\x93NUMPY", 6);
	buf_put_u8(b, (uint8_t)version);
	buf_put_u8(b, 0);
	if (version == 1)
		buf_put_u16(b, (uint16_t)strlen(header));
	else
		buf_put_u32(b, (uint32_t)strlen(header));
	buf_put(b, header, strlen(header));
	for (size_t i = 0; i < data_len; i++)
		buf_put_u8(b, (uint8_t)i);
	unit_ok(buf_error(b));
}

START_TEST(every_cut_of_an_array_is_torn)
{
	static const char header[] =
		"{'descr': '<f4', 'fortran_order': False, 'shape': (5, 2), }      \n";

	for (unsigned version = 1; version <= 3; version++) {
		cleanup_buf struct buf b = {0}, two = {0};

		make_npy(&b, version, header, 40);
		ck_assert_int_eq(check_bytes(b.data, b.len, "a.npy"), 0);
		for (size_t len = 6; len < b.len; len++)
			ck_assert_msg(check_bytes(b.data, len, "a.npy.tmp") == 1, "at %zu", len);
		/* Several in one file. */
		make_npy(&two, version, header, 40);
		buf_put(&two, b.data, b.len);
		unit_ok(buf_error(&two));
		ck_assert_int_eq(check_bytes(two.data, two.len, "a.npy"), 0);
	}
}
END_TEST

START_TEST(shapes_and_elements)
{
	static const struct {
		const char *header;
		int least; /* -1: it cannot be told */
	} cases[] = {
		{"{'descr': '|b1', 'fortran_order': True, 'shape': (), }", 1},
		{"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", 24},
		{"{'shape': (3L, 2L), 'fortran_order': False, 'descr': '>i2'}", 12},
		{"{\"descr\": \"<c16\", \"fortran_order\": False, \"shape\": (2,)}", 32},
		{"{'descr': '<U3', 'fortran_order': False, 'shape': (2,), }", 24},
		{"{'descr': '|S3', 'fortran_order': False, 'shape': (2,), }", 6},
		{"{'descr': '|V7', 'fortran_order': False, 'shape': (2,), }", 14},
		{"{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), }", 16},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9), }", 0},
		{"{'descr': '|O', 'fortran_order': False, 'shape': (9,), }", -1},
		{"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (9,), }", -1},
		{"{'descr': ('<f4', (2,)), 'fortran_order': False, 'shape': (9,), }", -1},
		{"{'descr': '<f-4', 'fortran_order': False, 'shape': (9,), }", -1},
		{"{'descr': '<f4x', 'fortran_order': False, 'shape': (9,), }", -1},
		{"{'descr': '<f', 'fortran_order': False, 'shape': (9,), }", -1},
		{"{'descr': '', 'fortran_order': False, 'shape': (9,), }", -1},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (-9,), }", -1},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (9 9), }", -1},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': 9, }", -1},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (9,", -1},
		{"{'descr': '<f4', 'fortran_order': False}", -1},
		{"{'descr': '<f4', 'shape': (4294967296, 4294967296)}", -1},
		{"{'descr': '<f8', 'shape': (4611686018427387904,)}", -1},
		{"{'descr': '<f4', 'shape': (99999999999999999999999,)}", -1},
		{"{'descr': '<f4", -1},
		{"{'descr", -1},
		{"{", -1},
		{"", -1},
		{"[]", -1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cleanup_buf struct buf b = {0};
		int least = cases[i].least < 0 ? 0 : cases[i].least;

		make_npy(&b, 1, cases[i].header, (size_t)least);
		ck_assert_msg(check_bytes(b.data, b.len, "a.npy") == 0, "case %zu", i);
		if (least)
			ck_assert_msg(check_bytes(b.data, b.len - 1, "a.npy") == 1, "case %zu", i);
	}
}
END_TEST

START_TEST(arrays_of_other_versions_and_long_headers)
{
	cleanup_buf struct buf b = {0}, long_one = {0};
	char header[6000];

	make_npy(&b, 4, "{'descr': '<f4', 'shape': (9,)}", 0);
	ck_assert_int_eq(check_bytes(b.data, b.len, "a.npy"), 0);
	memset(header, ' ', sizeof(header));
	header[sizeof(header) - 1] = '\0';
	make_npy(&long_one, 2, header, 0);
	ck_assert_int_eq(check_bytes(long_one.data, long_one.len, "a.npy"), 0);
	ck_assert_int_eq(check_bytes(long_one.data, long_one.len - 1, "a.npy"), 1);
}
END_TEST

START_TEST(pickles)
{
	static const struct {
		const char *text;
		size_t len;
		int torn; /* where the last byte is missing */
	} cases[] = {
		{TEXT("(dp0\nVa\np1\nI1\ns."), 1},
		{TEXT("(lp0\nI1\na."), 1},
		{TEXT("}q\0X\1\0\0\0aq\1K\1s."), 1},
		{TEXT("]q\0K\1a."), 1},
		{TEXT("ccopy_reg\n_reconstructor\np0\n."), 1},
		{TEXT("\x80\2}q\0X\1\0\0\0aq\1K\1s."), 1},
		{TEXT("\x80\3}q\0X\1\0\0\0aq\1K\1s."), 1},
		{TEXT("\x80\4\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\1a\x94K\1s."), 1},
		{TEXT("\x80\5N."), 1},
		/* not known, or not by its last byte: compressed, of the old torch.save, of a later protocol */
		{TEXT("\x1f\x8b\x08\0\0."), 0},
		{TEXT("x\x9c\x4b."), 0},
		{TEXT("]\0\0\x80\0."), 0},
		{TEXT("\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3."), 0},
		{TEXT("\x80\x09N."), 0},
		{TEXT("\x80."), 0},
		{TEXT("a text."), 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *text = cases[i].text;
		size_t len = cases[i].len;

		ck_assert_msg(check_bytes(text, len, "a.pkl") == 0, "case %zu", i);
		ck_assert_msg(check_bytes(text, len - 1, "a.PKL") == cases[i].torn, "case %zu", i);
		ck_assert_msg(check_bytes(text, len - 1, "a.pickle") == cases[i].torn, "case %zu",
			      i);
		ck_assert_msg(check_bytes(text, len - 1, "a.bin") == 0, "case %zu", i);
	}
	ck_assert(tail_depends_on_name("a.pkl") && tail_depends_on_name("a.pickle"));
}
END_TEST

START_TEST(other_files_are_left_alone)
{
	ck_assert_int_eq(check_bytes("PK", 2, "a.zip"), 0);
	ck_assert_int_eq(check_bytes("\x80\x02}q\x01.", 6, "legacy.pt"), 0);
	ck_assert_int_eq(check_bytes("", 0, "notes"), 0);
	ck_assert_int_eq(check_bytes("\x89HDF", 4, "a.h5"), 0);
}
END_TEST

START_TEST(which_files_are_never_empty)
{
	static const char *const torn[] = {
		"model.pt",  "a.pth",	  "a.safetensors", "a.npz", "a.npy",	"a.b.keras",
		"a.h5",	     "a.hdf5",	  "MODEL.PT",	   "a.pkl", "a.pickle", "last.ckpt",
		"a.pth.tar", "a.msgpack", "a.joblib",	   "a.bin", NULL};
	static const char *const fine[] = {"ckpt",  ".bin",   "__0_0.distcp", "a",     ".pt", "pt",
					   "a.ptx", "a.json", "a.pt.tmp",     "a.zip", "",    NULL};
	const char *why = NULL;

	for (unsigned i = 0; torn[i]; i++) {
		ck_assert_msg(check_bytes("", 0, torn[i]) == 1, "%s", torn[i]);
		ck_assert_int_eq(tail_check(-1, 0, torn[i], &why), 1);
		ck_assert_str_eq(why, "it is empty");
	}
	for (unsigned i = 0; fine[i]; i++)
		ck_assert_msg(check_bytes("", 0, fine[i]) == 0, "%s", fine[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_tails");
	TCase *t = unit_case(s, "tails");

	tcase_add_test(t, whole_zips);
	tcase_add_test(t, every_cut_of_a_zip_is_torn);
	tcase_add_test(t, a_zip_whose_directory_lies_elsewhere_is_torn);
	tcase_add_test(t, an_end_record_inside_the_comment_does_not_deceive);
	tcase_add_test(t, safetensors_length);
	tcase_add_test(t, safetensors_headers_that_lie);
	tcase_add_test(t, hdf5_end_of_file);
	tcase_add_test(t, hdf5_open_for_writing);
	tcase_add_test(t, every_cut_of_an_array_is_torn);
	tcase_add_test(t, shapes_and_elements);
	tcase_add_test(t, arrays_of_other_versions_and_long_headers);
	tcase_add_test(t, pickles);
	tcase_add_test(t, other_files_are_left_alone);
	tcase_add_test(t, which_files_are_never_empty);
	return unit_run(s);
}
