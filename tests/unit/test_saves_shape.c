/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes, and what the saves of a kind have in common. */
#include "lib/saves/shape.h"
#include "tests/unit/unit.h"

/* Of words; one that stands twice is there twice. */
static struct shape shape_of(const char *words)
{
	char *copy = strdup(words), *rest = NULL;
	struct shape s = {0};

	for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
		unit_ok(shape_add(&s, w, 1));
	free(copy);
	return s;
}

static void add(struct shapes *all, const char *checkpoint, const char *words)
{
	struct shape s = shape_of(words);

	unit_ok(shapes_add(all, checkpoint, &s));
}

/* What a save with these names lacks; "-": its kind has no core. */
static void check_lacking(const struct shapes *all, const char *checkpoint, const char *words,
			  const char *lacking)
{
	struct shape s = shape_of(words), gone = {0};
	struct core core = shapes_core(all, checkpoint, &s, &gone);
	cleanup_buf struct buf out = {0};

	core_put_lacking(&core, &s, &out);
	ck_assert_str_eq(core_known(&core) ? buf_str(&out) : "-", lacking);
	if (core_known(&core))
		ck_assert(core_within(&core, &s) == !*lacking);
	shape_free(&s);
}

START_TEST(names_are_counted)
{
	struct shape s = shape_of("b a b");

	ck_assert_uint_eq(s.count, 2);
	ck_assert_uint_eq(shape_times(&s, "b"), 2);
	ck_assert_uint_eq(shape_times(&s, "c"), 0);
	shape_take(&s, "b", 1);
	shape_take(&s, "a", 5);
	shape_take(&s, "c", 1);
	ck_assert_uint_eq(shape_times(&s, "b"), 1);
	ck_assert_uint_eq(s.count, 1);
	shape_free(&s);
}
END_TEST

START_TEST(the_core_is_what_the_last_two_have)
{
	struct shapes all = {0};

	check_lacking(&all, "step-1", "a", "-");
	add(&all, "step-1", "a b c");
	check_lacking(&all, "step-2", "a", "b, c");
	check_lacking(&all, "epoch-2", "a", "-");
	add(&all, "step-2", "a b");
	check_lacking(&all, "step-3", "a", "b");
	check_lacking(&all, "step-3", "b a x", "");
	shapes_free(&all);
}
END_TEST

START_TEST(the_smaller_count_is_of_the_core)
{
	struct shapes all = {0};

	add(&all, "s-1", "part-#.bin part-#.bin part-#.bin");
	add(&all, "s-2", "part-#.bin part-#.bin");
	check_lacking(&all, "s-3", "part-#.bin part-#.bin", "");
	check_lacking(&all, "s-3", "part-#.bin", "part-#.bin");
	shapes_free(&all);
}
END_TEST

START_TEST(only_saves_that_share_a_name_count)
{
	struct shapes all = {0};

	add(&all, "", "model optimizer");
	add(&all, "", "model optimizer");
	for (int i = 0; i < 5; i++)
		add(&all, "", "best");
	check_lacking(&all, "", "model", "optimizer");
	check_lacking(&all, "", "best", "");
	check_lacking(&all, "", "other", "-");
	shapes_free(&all);
}
END_TEST

START_TEST(what_no_core_needs_is_not_kept)
{
	struct shapes all = {0};

	for (int i = 0; i < 100; i++)
		add(&all, "step-1", "a b");
	ck_assert_uint_eq(all.count, 1);
	ck_assert_uint_eq(all.kind[0].count, 2);
	for (int i = 0; i < 2000; i++) {
		char text[32];

		snprintf(text, sizeof(text), "name%c%c%c", 'a' + i % 26, 'a' + i / 26 % 26,
			 'a' + i / 676);
		add(&all, "step-1", text);
		add(&all, text, "a");
	}
	ck_assert_uint_le(all.count, SHAPE_KINDS_MAX);
	for (size_t i = 0; i < all.count; i++)
		ck_assert_uint_le(all.kind[i].count, SHAPES_OF_KIND_MAX);
	shapes_free(&all);
}
END_TEST

START_TEST(a_shape_has_so_many_names_at_most)
{
	struct shape s = {0};
	char text[16];

	for (int i = 0; i < SHAPE_NAMES_MAX + 10; i++) {
		snprintf(text, sizeof(text), "%d", i);
		unit_ok(shape_add(&s, text, 1));
	}
	ck_assert_uint_eq(s.count, SHAPE_NAMES_MAX);
	shape_free(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("saves_shape");
	TCase *t = unit_case(s, "shapes");

	tcase_add_test(t, names_are_counted);
	tcase_add_test(t, the_core_is_what_the_last_two_have);
	tcase_add_test(t, the_smaller_count_is_of_the_core);
	tcase_add_test(t, only_saves_that_share_a_name_count);
	tcase_add_test(t, what_no_core_needs_is_not_kept);
	tcase_add_test(t, a_shape_has_so_many_names_at_most);
	return unit_run(s);
}
