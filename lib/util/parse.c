/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, sizes, durations and times as text. */
#include "lib/util/parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/util/clock.h"

int parse_u64(const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(value, UINT64_C(10), &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return -ERANGE;
	}
	*ret_value = value;
	return 0;
}

/* A plain decimal ("12", "1.5", ".5") and where it ends. Not by strtod: its point is the locale's.
 */
static int parse_decimal(const char *text, double *ret_value, const char **ret_end)
{
	double value = 0, scale = 1;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++)
		value = value * 10 + (*p - '0');
	if (*p == '.') {
		const char *point = p++;

		for (; *p >= '0' && *p <= '9'; p++) {
			value = value * 10 + (*p - '0');
			scale *= 10;
		}
		if (p == point + 1)
			return -EINVAL;
	}
	if (p == text)
		return -EINVAL;
	/* Hundreds of digits: neither infinity nor infinity / infinity is a number. */
	if (!isfinite(value) || !isfinite(scale))
		return -ERANGE;
	*ret_value = value / scale;
	*ret_end = p;
	return 0;
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	const char *end, *unit;
	double value;
	uint64_t plain;
	int error;

	if (parse_u64(text, &plain) == 0) {
		*ret_bytes = plain;
		return 0;
	}
	error = parse_decimal(text, &value, &end);
	if (error)
		return error;
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		value = ldexp(value, 10 * (int)(unit - units + 1));
		end++;
		if (*end == 'i')
			end++;
	}
	if (*end == 'B')
		end++;
	if (*end)
		return -EINVAL;
	if (value >= ldexp(1, 63))
		return -ERANGE;
	*ret_bytes = (uint64_t)value;
	return 0;
}

int parse_duration(const char *text, int64_t *ret_ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = {{"", 1e9},	  {"ms", 1e6},	 {"s", 1e9},
		     {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
	const char *end;
	double value;
	int error = parse_decimal(text, &value, &end);

	if (error)
		return error;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].name))
			continue;
		if (value * units[i].ns >= 9e18)
			return -ERANGE;
		*ret_ns = (int64_t)(value * units[i].ns);
		return 0;
	}
	return -EINVAL;
}

void format_size(uint64_t bytes, char ret_text[FORMAT_MAX])
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	if (unit == 0)
		snprintf(ret_text, FORMAT_MAX, "%" PRIu64 " B", bytes);
	else
		snprintf(ret_text, FORMAT_MAX, value < 9.95 ? "%.1f %s" : "%.0f %s", value,
			 units[unit]);
}

void format_age(int64_t ns, char ret_text[FORMAT_MAX])
{
	int64_t s = ns < 0 ? 0 : ns / NS_PER_S;

	if (s < 120)
		snprintf(ret_text, FORMAT_MAX, "%" PRId64 " s", s);
	else if (s < 2 * 3600)
		snprintf(ret_text, FORMAT_MAX, "%" PRId64 " min", s / 60);
	else if (s < 2 * 86400)
		snprintf(ret_text, FORMAT_MAX, "%" PRId64 " h", s / 3600);
	else
		snprintf(ret_text, FORMAT_MAX, "%" PRId64 " d", s / 86400);
}

void format_time(int64_t wall_ns, char ret_text[FORMAT_MAX])
{
	struct timespec ts = clock_timespec(wall_ns);
	struct tm tm;
	size_t n;

	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(ret_text, FORMAT_MAX - 12, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret_text + n, FORMAT_MAX - n, ".%09ldZ", ts.tv_nsec);
}

int parse_time(const char *text, int64_t *ret_wall_ns)
{
	struct tm tm = {0}, normal;
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	int64_t fraction = 0, scale = NS_PER_S, seconds;

	if (!end)
		return -EINVAL;
	if (*end == '.')
		for (end++; *end >= '0' && *end <= '9' && scale > 1; end++) {
			scale /= 10;
			fraction += (*end - '0') * scale;
		}
	if (strcmp(end, "Z"))
		return -EINVAL;
	normal = tm;
	seconds = timegm(&normal);
	if (normal.tm_mday != tm.tm_mday || normal.tm_sec != tm.tm_sec)
		return -EINVAL; /* the 30th of February */
	if (seconds > INT64_MAX / NS_PER_S - 1 || seconds < INT64_MIN / NS_PER_S + 1)
		return -EINVAL;
	*ret_wall_ns = seconds * NS_PER_S + fraction;
	return 0;
}
