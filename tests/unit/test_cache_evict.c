/* SPDX-License-Identifier: Apache-2.0 */
/* What goes from the cache when there is no room. */
#include "lib/cache/evict.h"

#include <jansson.h>
#include <sys/stat.h>

#include "lib/cache/content.h"
#include "tests/unit/machines_unit.h"

#define MIB ((size_t)1 << 20)

static struct content *fetch_all(const char *name)
{
	struct content *c = NULL;

	unit_ok(content_get(u.vol, vu_file(&u, name).closed, &c));
	unit_ok(content_fetch(c, 0, UINT64_MAX, NULL, NULL));
	return c;
}

/* "a", "b", "c", 2 MiB each, durable, used in this order; room for 8 MiB. */
static void start_small(void)
{
	mu_start();
	eu_options.cache_size = 8 * MIB;
	eu_options.full_wait = false;
	for (int i = 0; i < 3; i++) {
		mu_save_noise((char[]){(char)('a' + i), '\0'}, 2 * MIB, (uint64_t)i);
		mu_drain();
	}
	mu_go_to(0);
}

static bool is_here(const char *name)
{
	return vu_version(&u, vu_file(&u, name).closed).local_bytes > 0;
}

START_TEST(the_least_recently_used_goes_first)
{
	content_put(fetch_all("a"));
	ck_assert(is_here("a") && is_here("b") && is_here("c"));
	unit_ok(volume_reserve(u.vol, 3 * MIB, NULL, NULL));
	ck_assert(is_here("a") && !is_here("b") && is_here("c"));
	unit_ok(volume_reserve(u.vol, 5 * MIB, NULL, NULL));
	ck_assert(is_here("a") && !is_here("c"));
	/* What went comes again. */
	unit_ok(mu_read_noise("b", 2 * MIB, 1));
	unit_ok(mu_read_noise("c", 2 * MIB, 2));
}
END_TEST

START_TEST(what_is_open_and_what_is_dirty_stays)
{
	struct content *open = fetch_all("a");
	uint8_t byte;

	mu_weather("put.error=1");
	mu_save_noise("dirty", 2 * MIB, 9);
	eu_seal();
	unit_error(volume_reserve(u.vol, 5 * MIB, NULL, NULL), -ENOSPC);
	ck_assert(is_here("a") && is_here("dirty") && !is_here("b") && !is_here("c"));
	ck_assert_int_eq(content_read(open, &byte, 1, 0, NULL, NULL), 1);
	unit_ok(mu_read_noise("dirty", 2 * MIB, 9));
	content_put(open);
	unit_ok(volume_reserve(u.vol, 5 * MIB, NULL, NULL));
	ck_assert(!is_here("a") && is_here("dirty"));
	/* Once it is durable it goes too. */
	unit_error(volume_reserve(u.vol, 7 * MIB, NULL, NULL), -ENOSPC);
	mu_weather(NULL);
	mu_drain();
	unit_ok(volume_reserve(u.vol, 7 * MIB, NULL, NULL));
	ck_assert(!is_here("dirty"));
	unit_ok(mu_read_noise("dirty", 2 * MIB, 9));
}
END_TEST

static bool say_yes(void *arg)
{
	(void)arg;
	return true;
}

static void make_dirty(int64_t patience_ns)
{
	eu_options.full_wait = true;
	eu_options.patience_ns = patience_ns;
	mu_go_to(0);
	mu_weather("put.error=1");
	mu_save_noise("dirty", 2 * MIB, 9);
	eu_seal();
}

START_TEST(who_waits_for_room_gets_it_or_is_told)
{
	make_dirty(100 * NS_PER_MS);
	unit_error(volume_reserve(u.vol, 7 * MIB, NULL, NULL), -ENOSPC);
	mu_weather(NULL);
	mu_drain();
	make_dirty(EU_LONG);
	unit_error(volume_reserve(u.vol, 7 * MIB, say_yes, NULL), -EINTR);
	/* More than the cache may have is not waited for. */
	unit_error(volume_reserve(u.vol, 9 * MIB, NULL, NULL), -ENOSPC);
	mu_weather(NULL);
}
END_TEST

START_TEST(a_file_larger_than_the_cache_is_read_through_it)
{
	const size_t size = 20 * MIB;
	struct stat st;
	int fd;

	mu_save_noise("large", size, 5);
	eu_options.cache_size = 4 * MIB;
	mu_drain();
	mu_go_to(1);
	for (int i = 0; i < 2; i++)
		unit_ok(mu_read_noise("large", size, 5));
	fd = object_open(u.vol, vu_file(&u, "large").closed, O_RDONLY);
	if (fd >= 0) {
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_int_lt(st.st_blocks * 512, (int64_t)size);
		close(fd);
	}
}
END_TEST

START_TEST(status_counts_what_is_here)
{
	json_t *status = json_object();
	const json_t *cache;

	mu_weather("put.error=1");
	mu_save_noise("dirty", MIB, 9);
	unit_ok(evictor_status(u.vol, status));
	cache = json_object_get(status, "cache");
	ck_assert_int_eq(json_integer_value(json_object_get(cache, "limit_bytes")), 8 * MIB);
	ck_assert_int_ge(json_integer_value(json_object_get(cache, "bytes")), 7 * MIB);
	ck_assert_int_lt(json_integer_value(json_object_get(cache, "bytes")), 8 * MIB);
	ck_assert_int_ge(json_integer_value(json_object_get(cache, "dirty_bytes")), MIB);
	ck_assert_int_lt(json_integer_value(json_object_get(cache, "dirty_bytes")), 2 * MIB);
	json_decref(status);
	mu_weather(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_evict");
	TCase *small = unit_case(s, "evicting");

	tcase_add_checked_fixture(small, start_small, mu_stop);
	tcase_add_test(small, the_least_recently_used_goes_first);
	tcase_add_test(small, what_is_open_and_what_is_dirty_stays);
	tcase_add_test(small, who_waits_for_room_gets_it_or_is_told);
	tcase_add_test(small, a_file_larger_than_the_cache_is_read_through_it);
	tcase_add_test(small, status_counts_what_is_here);
	return unit_run(s);
}
