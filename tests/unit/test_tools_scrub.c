/* SPDX-License-Identifier: Apache-2.0 */
/* Taking secrets out of text: what is known, what looks like one, and what must stay. */
#include "tools/scrub.h"

#include "tests/unit/unit.h"

static struct scrub scrub;

static void expect(const char *text, const char *shown)
{
	struct buf cleanup_buf out = {0};

	scrub_put(&scrub, text, strlen(text), &out);
	ck_assert_str_eq(buf_str(&out), shown);
}

START_TEST(what_is_known_is_hidden_wherever_it_stands)
{
	static const char block[] =
		"HOME=/root\0AWS_SECRET_ACCESS_KEY=abc+def/\0OPENAI_KEY=openai1\0"
		"EPOCHFS_GC_TOKEN=true\0https_proxy=http://u:p%40ss-1@h:1\0";

	scrub_add_environment(&scrub, block, sizeof(block) - 1);
	scrub_add(&scrub, "say \"this\"");
	scrub_add(&scrub, "abc+def/longer");
	expect("xabc+def/y openai1", "x***y ***");
	expect("abc+def/longer", "***");
	expect("p%40ss-1 and p@ss-1", "*** and ***");
	/* As JSON has it; short words are nobody's secret. */
	expect("{\"a\": \"say \\\"this\\\"\", \"b\": true, \"home\": \"/root\"}",
	       "{\"a\": \"***\", \"b\": true, \"home\": \"/root\"}");
	scrub_free(&scrub);
}
END_TEST

START_TEST(a_file_is_known_by_its_lines_and_its_name)
{
	cleanup_free char *dir = unit_dir(), *path = unit_path(dir, "passphrase");
	cleanup_fclose FILE *f = fopen(path, "we");
	struct buf cleanup_buf text = {0};

	fputs("correct horse\r\nshort\nsecond line\n", f);
	fflush(f);
	scrub_add_file(&scrub, path);
	scrub_add_file(&scrub, "/nonexistent/key");
	buf_printf(&text, "%s: correct horse, second line, short", path);
	expect(buf_str(&text), "***: ***, ***, short");
	expect("/nonexistent/key", "***");
	scrub_free(&scrub);
}
END_TEST

static const struct {
	const char *text, *shown;
} looks[] = {
	{"", ""},
	{"https://user:p,w(@h.example/x", "https://***@h.example/x"},
	{"sftp://me@h/x and s3://b/x@latest", "sftp://***@h/x and s3://b/x@latest"},
	{"https://h/x?X-Amz-Signature=ab12&part=1", "https://h/x?X-Amz-Signature=***&part=1"},
	{"-o settle=1s,key-file=/k,gc=off", "-o settle=1s,key-file=***,gc=off"},
	{"run --token abc --step 5", "run --token *** --step 5"},
	{"Authorization: Bearer abc def\nnext", "Authorization:***\nnext"},
	{"\"authorization: Basic abc\" sent", "\"authorization:***\" sent"},
	{"model-hf_abcdefghijk.pt", "model-***"},
	{"AKIAABCDEFGHIJKLMNOP", "***"},
	{"packs/key=1 keep=last:3 monkey: 1 author: me",
	 "packs/key=1 keep=last:3 monkey: 1 author: me"},
	{"task-sk-1 half_life eyJ", "task-sk-1 half_life eyJ"},
	{"://@", "://@"},
	{"=", "="},
	{"token=", "token="},
	{"--password", "--password"},
};

START_TEST(what_looks_like_one_is_hidden)
{
	expect(looks[_i].text, looks[_i].shown);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scrub");
	TCase *t = unit_case(s, "scrub");

	tcase_add_test(t, what_is_known_is_hidden_wherever_it_stands);
	tcase_add_test(t, a_file_is_known_by_its_lines_and_its_name);
	tcase_add_loop_test(t, what_looks_like_one_is_hidden, 0, sizeof(looks) / sizeof(looks[0]));
	return unit_run(s);
}
