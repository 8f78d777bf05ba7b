/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of torch.save hold what their pickle names, or are torn. */
#include "lib/format/tails.h"

#include "tests/unit/zip_unit.h"

static int check_archive(const struct entry *entries, size_t count)
{
	return check_zip(entries, count, "model.pt");
}

#define PICKLE(t)    MADE("model/data.pkl", t)
#define MEMBER(name) MADE(name, "x")
/* As torch.save writes it by protocol 2: storages 0 and 12, the second from what was memoized. */
#define FIRST                                                                                      \
	"\x80\2}q\0((X\7\0\0\0storageq\1ctorch\nFloatStorage\nq\2X\1\0\0\0"                        \
	"0q\3X\3\0\0\0cpuq\4K\5tq\5Q"
#define SECOND                                                                                     \
	"(h\1h\2X\2\0\0\0"                                                                         \
	"12q\6h\4M\0\1tq\7Qu."

START_TEST(a_torch_archive_must_hold_what_its_pickle_names)
{
	const struct entry whole[] = {PICKLE(FIRST SECOND), MEMBER("model/data/0"),
				      MEMBER("model/data/12"), MEMBER("model/version")};
	const struct entry one[] = {whole[0], whole[1], whole[3]};
	const struct entry other[] = {whole[0], whole[2], whole[3]};
	const struct entry none[] = {whole[0], whole[3]};
	const struct entry more[] = {whole[0],
				     MEMBER("model/.format_version"),
				     MEMBER("model/byteorder"),
				     whole[1],
				     whole[2],
				     whole[3],
				     MEMBER("model/.data/serialization_id")};
	const struct entry elsewhere[] = {whole[0], whole[1], MEMBER("model/data/120"), whole[3]};

	ck_assert_int_eq(check_archive(whole, 4), 0);
	ck_assert_int_eq(check_archive(more, 7), 0);
	ck_assert_int_eq(check_archive(one, 3), 1);
	ck_assert_int_eq(check_archive(other, 3), 1);
	ck_assert_int_eq(check_archive(none, 2), 1);
	ck_assert_int_eq(check_archive(elsewhere, 4), 1);
}
END_TEST

START_TEST(a_torch_archive_without_a_pickle_is_torn)
{
	const struct entry members[] = {MEMBER("model/version"),
					MEMBER("model/.data/serialization_id"),
					MEMBER("model/data/0"), MEMBER("model/readme.txt")};

	ck_assert_int_eq(check_archive(members, 1), 1);
	ck_assert_int_eq(check_archive(members, 2), 1);
	ck_assert_int_eq(check_archive(members, 3), 1);
	/* another program's */
	ck_assert_int_eq(check_archive(members, 4), 0);
	ck_assert_int_eq(check_archive(members + 1, 2), 0);
}
END_TEST

START_TEST(storages_in_other_protocols)
{
	static const struct {
		const char *pickle;
		size_t len;
		int torn;
	} cases[] = {
		/* protocol 4, with its frame and its way to name a class */
		{TEXT("\x80\4\x95\x40\0\0\0\0\0\0\0(\x8c\7storage\x94\x8c\5torch\x94\x8c\14"
		      "FloatStorage\x94\x93\x94\x8c\2"
		      "12\x94\x8c\3cpu\x94K\5t\x94Q."),
		 1},
		/* a key that was memoized as another string: of one digit it is known */
		{TEXT("\x80\2X\1\0\0\0"
		      "7q\1"
		      "0(X\7\0\0\0storageNh\1NNtQ."),
		 1},
		{TEXT("\x80\2X\2\0\0\0"
		      "77q\1"
		      "0(X\7\0\0\0storageNh\1NNtQ."),
		 0},
		/* no persistent id of torch's */
		{TEXT("\x80\2(X\7\0\0\0storageNX\1\0\0\0"
		      "7NNt."),
		 0},
		{TEXT("\x80\2(X\7\0\0\0storagfNX\1\0\0\0"
		      "7NNtQ."),
		 0},
		{TEXT("\x80\2(X\7\0\0\0storageNX\1\0\0\0"
		      "7NtQ."),
		 0},
		{TEXT("\x80\2(X\7\0\0\0storageNX\1\0\0\0"
		      "7NNNtQ."),
		 0},
		{TEXT("\x80\2(X\7\0\0\0storageNX\1\0\0\0"
		      "7}NtQ."),
		 0},
		{TEXT("\x80\2(X\7\0\0\0storageNX\1\0\0\0"
		      "7NNt0Q."),
		 0},
		/* keys that torch does not make */
		{TEXT("\x80\2(X\7\0\0\0storageNX\2\0\0\0"
		      "07NNtQ."),
		 0},
		{TEXT("\x80\2(X\7\0\0\0storageNX\10\0\0\0"
		      "99999999NNtQ."),
		 0},
		{TEXT("\x80\2(X\7\0\0\0storageNX\1\0\0\0"
		      "xNNtQ."),
		 0},
		/* an opcode that is not known, lengths beyond the end */
		{TEXT("\x80\2\xff(X\7\0\0\0storageNX\1\0\0\0"
		      "7NNtQ."),
		 0},
		{TEXT("\x80\2(X\xff\xff\xff\xffstorageNX\1\0\0\0"
		      "7NNtQ."),
		 0},
		{TEXT("\x80\2\x8e\xff\xff\xff\xff\xff\xff\xff\xff(X\7\0\0\0storage"), 0},
		{TEXT("\x80\2ctorch"), 0},
		{TEXT(""), 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct entry e[] = {
			{.name = "model/data.pkl", .data = cases[i].pickle, .len = cases[i].len},
			MEMBER("model/version")};

		ck_assert_msg(check_archive(e, 2) == cases[i].torn, "case %zu", i);
	}
}
END_TEST

START_TEST(archives_that_only_resemble_torchs)
{
	const struct entry pickle = PICKLE(FIRST SECOND);
	static const char *const others[] = {"model/constants.pkl", "model/code/x.py",
					     "model/bytecode.pkl", "model/.data/extern_modules",
					     "another/version"};
	struct entry packed = pickle;

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		const struct entry e[] = {pickle, MEMBER(others[i])};

		ck_assert_msg(check_archive(e, 2) == 0, "%s", others[i]);
	}
	packed.method = 8;
	ck_assert_int_eq(check_archive(&packed, 1), 0);
	packed = pickle;
	packed.name = "data.pkl";
	ck_assert_int_eq(check_archive(&packed, 1), 0);
}
END_TEST

/* Strings and skipped bytes across the pieces in which it is read. */
START_TEST(a_long_pickle)
{
	for (size_t fill = 262000; fill < 262160; fill++) {
		cleanup_buf struct buf p = {0};
		struct entry e[] = {{.name = "model/data.pkl"},
				    MEMBER("model/data/0"),
				    MEMBER("model/data/12")};

		buf_put(&p, "\x80\2X", 3);
		buf_put_u32(&p, (uint32_t)fill);
		for (size_t i = 0; i < fill; i++)
			buf_put_u8(&p, 'x');
		buf_put(&p, TEXT(FIRST SECOND));
		unit_ok(buf_error(&p));
		e[0].data = p.data;
		e[0].len = p.len;
		ck_assert_int_eq(check_archive(e, 3), 0);
		ck_assert_int_eq(check_archive(e, 2), 1);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_torch_zip");
	TCase *t = unit_case(s, "archives");

	tcase_add_test(t, a_torch_archive_must_hold_what_its_pickle_names);
	tcase_add_test(t, a_torch_archive_without_a_pickle_is_torn);
	tcase_add_test(t, storages_in_other_protocols);
	tcase_add_test(t, archives_that_only_resemble_torchs);
	tcase_add_test(t, a_long_pickle);
	return unit_run(s);
}
