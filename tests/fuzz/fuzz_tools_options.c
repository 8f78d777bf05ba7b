/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what people type: mount options, numbers, sizes, times, policies. */
#include "lib/meta/retention_policy.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "tests/fuzz/fuzz.h"
#include "tools/mount_options.h"

static void check_numbers(const char *text)
{
	uint64_t value = 0, again = 0;
	char shown[FORMAT_MAX];
	int64_t ns = 0, same = 0;

	if (parse_u64(text, &value) == 0)
		fuzz_assert(parse_size(text, &again) == 0 && again == value);
	if (parse_size(text, &value) == 0)
		format_size(value, shown);
	if (parse_duration(text, &ns) == 0) {
		fuzz_assert(ns >= 0);
		format_age(ns, shown);
	}
	if (parse_time(text, &ns) == 0) {
		format_time(ns, shown);
		fuzz_assert(parse_time(shown, &same) == 0 && same == ns);
	}
}

static void check_policy(const char *text)
{
	struct retention_policy policy;
	char why[RETENTION_WHY_MAX];

	if (retention_parse(text, &policy, why))
		fuzz_assert(why[0] && strlen(why) < sizeof(why));
}

/* glibc compiles some regular expressions of 80 bytes into all memory there is; the option step= is the user's own. */
static bool has_regex(const char *text)
{
	size_t repeats = 0;

	for (const char *p = text; *p; p++)
		repeats += strchr("+*{?", *p) != NULL;
	return strstr(text, "step=") && repeats > 4;
}

static void check_options(const char *text)
{
	struct mount_options o;

	if (has_regex(text))
		return;
	mount_options_init(&o);
	if (mount_options_parse(&o, text) == 0 && mount_options_check(&o) == 0) {
		fuzz_assert(o.volume.lease_ns >= LEASE_MIN_NS && o.volume.lease_ns <= LEASE_MAX_NS);
		fuzz_assert(o.volume.refresh_ns >= REFRESH_MIN_NS && o.volume.settle_ns >= 0);
		fuzz_assert(o.volume.min_free_percent < 100 &&
			    o.volume.temporary.count <= GLOBS_MAX);
	}
	mount_options_free(&o);
	log_set_level(LOG_LEVEL_INFO); /* which is an option, too */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static FILE *nowhere;
	cleanup_buf struct buf text = {0};

	/* A line for each refusal; sanitizers and fuzzers keep the stream that they began with. */
	if (!nowhere)
		stderr = nowhere = fopen("/dev/null", "w");
	buf_put(&text, data, len);
	check_numbers(buf_str(&text));
	check_policy(buf_str(&text));
	check_options(buf_str(&text));
	return 0;
}
