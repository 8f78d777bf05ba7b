/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as text. */
#include "lib/metrics/text.h"

#include "tests/unit/unit.h"

static const struct metrics_family bytes = {"epochfs_sent_bytes", METRICS_COUNTER, "bytes",
					    "Bytes sent."};
static const struct metrics_family mount = {"epochfs_mount", METRICS_INFO, NULL, "The mount."};
static const struct metrics_family age = {"epochfs_age_seconds", METRICS_GAUGE, "seconds", "Age."};

static void put_some(struct metrics_text *m)
{
	metrics_begin(m, &bytes);
	metrics_number(m, "kind=\"a\"", 18446744073709551615u);
	metrics_begin(m, &mount);
	metrics_number(m, "", 1);
	metrics_begin(m, &age);
	metrics_time(m, 1500000001);
	metrics_time(m, -1);
	metrics_end(m);
}

START_TEST(the_new_format_has_units_and_an_end)
{
	cleanup_buf struct buf out = {0};
	struct metrics_text m = {.out = &out, .common = "node=\"n\""};

	put_some(&m);
	ck_assert_str_eq(buf_str(&out),
			 "# TYPE epochfs_sent_bytes counter\n"
			 "# UNIT epochfs_sent_bytes bytes\n"
			 "# HELP epochfs_sent_bytes Bytes sent.\n"
			 "epochfs_sent_bytes_total{kind=\"a\",node=\"n\"} 18446744073709551615\n"
			 "# TYPE epochfs_mount info\n"
			 "# HELP epochfs_mount The mount.\n"
			 "epochfs_mount_info{node=\"n\"} 1\n"
			 "# TYPE epochfs_age_seconds gauge\n"
			 "# UNIT epochfs_age_seconds seconds\n"
			 "# HELP epochfs_age_seconds Age.\n"
			 "epochfs_age_seconds{node=\"n\"} 1.500000001\n"
			 "epochfs_age_seconds{node=\"n\"} 0.000000000\n"
			 "# EOF\n");
}
END_TEST

START_TEST(the_older_one_names_counters_as_their_samples)
{
	cleanup_buf struct buf out = {0};
	struct metrics_text m = {.out = &out, .format = METRICS_CLASSIC, .common = ""};

	put_some(&m);
	ck_assert_str_eq(buf_str(&out),
			 "# TYPE epochfs_sent_bytes_total counter\n"
			 "# HELP epochfs_sent_bytes_total Bytes sent.\n"
			 "epochfs_sent_bytes_total{kind=\"a\"} 18446744073709551615\n"
			 "# TYPE epochfs_mount_info gauge\n"
			 "# HELP epochfs_mount_info The mount.\n"
			 "epochfs_mount_info 1\n"
			 "# TYPE epochfs_age_seconds gauge\n"
			 "# HELP epochfs_age_seconds Age.\n"
			 "epochfs_age_seconds 1.500000001\n"
			 "epochfs_age_seconds 0.000000000\n");
}
END_TEST

START_TEST(what_a_label_may_hold_is_escaped)
{
	cleanup_buf struct buf labels = {0};

	metrics_put_label(&labels, "node", "a\"b\\c\nd");
	metrics_put_label(&labels, "run", "gr\xc3\xbc\xc3\x9f\xff");
	ck_assert_str_eq(buf_str(&labels), "node=\"a\\\"b\\\\c\\nd\",run=\"gr\xc3\xbc\xc3\x9f?\"");
}
END_TEST

START_TEST(a_histogram_counts_up_to_each_bound)
{
	static const struct metrics_family family = {"epochfs_x_seconds", METRICS_HISTOGRAM,
						     "seconds", "X."};
	cleanup_buf struct buf out = {0};
	struct metrics_text m = {.out = &out, .common = ""};
	struct histogram h = {0};
	const char *text;

	histogram_add(&h, 0);
	histogram_add(&h, NS_PER_MS);
	histogram_add(&h, NS_PER_MS + 1);
	histogram_add(&h, 601 * NS_PER_S);
	metrics_begin(&m, &family);
	metrics_histogram(&m, &h);
	text = buf_str(&out);
	ck_assert_ptr_nonnull(strstr(text, "epochfs_x_seconds_bucket{le=\"0.001\"} 2\n"));
	ck_assert_ptr_nonnull(strstr(text, "epochfs_x_seconds_bucket{le=\"0.005\"} 3\n"));
	ck_assert_ptr_nonnull(strstr(text, "epochfs_x_seconds_bucket{le=\"600.0\"} 3\n"));
	ck_assert_ptr_nonnull(strstr(text, "epochfs_x_seconds_bucket{le=\"+Inf\"} 4\n"));
	ck_assert_ptr_nonnull(strstr(text, "epochfs_x_seconds_count 4\n"));
	ck_assert_ptr_nonnull(strstr(text, "epochfs_x_seconds_sum 601.002000001\n"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics_text");
	TCase *t = unit_case(s, "text");

	tcase_add_test(t, the_new_format_has_units_and_an_end);
	tcase_add_test(t, the_older_one_names_counters_as_their_samples);
	tcase_add_test(t, what_a_label_may_hold_is_escaped);
	tcase_add_test(t, a_histogram_counts_up_to_each_bound);
	return unit_run(s);
}
