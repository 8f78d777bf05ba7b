/* SPDX-License-Identifier: Apache-2.0 */
/* Text of strangers on a terminal. */
#include "lib/util/text.h"

#include "tests/unit/unit.h"

static void shows(const char *text, const char *want, const char *masked)
{
	cleanup_buf struct buf out = {0};
	char copy[64];

	printable_put(&out, text);
	ck_assert_str_eq(buf_str(&out), want);
	snprintf(copy, sizeof(copy), "%s", text);
	printable_mask(copy);
	ck_assert_str_eq(copy, masked);
}

START_TEST(what_is_shown_stays)
{
	shows("", "", "");
	shows("model.pt 100% \\x1b", "model.pt 100% \\x1b", "model.pt 100% \\x1b");
	shows("gr\xc3\xbc\xc3\x9f \xe6\xa8\xa1 \xf0\x9f\x98\x80",
	      "gr\xc3\xbc\xc3\x9f \xe6\xa8\xa1 \xf0\x9f\x98\x80",
	      "gr\xc3\xbc\xc3\x9f \xe6\xa8\xa1 \xf0\x9f\x98\x80");
	/* Of another encoding. */
	shows("gr\xfc\xdf", "gr\xfc\xdf", "gr\xfc\xdf");
}
END_TEST

START_TEST(what_a_terminal_obeys_is_escaped)
{
	shows("\033]0;x\a", "\\x1b]0;x\\x07", "?]0;x?");
	shows("a\nb\rc\td\x7f", "a\\x0ab\\x0dc\\x09d\\x7f", "a?b?c?d?");
	/* CSI of one character, in UTF-8 and as a byte. */
	shows("\xc2\x9b"
	      "2J",
	      "\\xc2\\x9b2J", "??2J");
	shows("\x9b"
	      "2J",
	      "\\x9b2J", "?2J");
	/* Direction of writing, ends of lines. */
	shows("a\xe2\x80\xae"
	      "b\xe2\x81\xa6\xe2\x80\xa8",
	      "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6\\xe2\\x80\\xa8", "a???b??????");
	shows("\xe2\x80\xa6\xc2\xa0", "\xe2\x80\xa6\xc2\xa0", "\xe2\x80\xa6\xc2\xa0");
}
END_TEST

START_TEST(what_is_cut_off_is_not_read_past)
{
	shows("\xe2\x80", "\xe2\\x80", "\xe2?");
	shows("\xf0\x9f\x98", "\xf0\\x9f\\x98", "\xf0??");
	shows("\xc2", "\xc2", "\xc2");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_printable");
	TCase *t = unit_case(s, "printable");

	tcase_add_test(t, what_is_shown_stays);
	tcase_add_test(t, what_a_terminal_obeys_is_escaped);
	tcase_add_test(t, what_is_cut_off_is_not_read_past);
	return unit_run(s);
}
