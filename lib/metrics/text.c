/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/metrics/text.h"

#include <inttypes.h>
#include <string.h>
#include "lib/util/clock.h"
#include "lib/util/text.h"

const char *metrics_content_type(enum metrics_format format)
{
	return format == METRICS_CLASSIC
		       ? "text/plain; version=0.0.4; charset=utf-8"
		       : "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

/* ---- labels ---- */

static void put_escaped(struct buf *out, const char *value)
{
	for (const uint8_t *p = (const uint8_t *)value; *p;) {
		size_t len = utf8_len(p);

		if (*p == '"' || *p == '\\')
			buf_put_u8(out, '\\');
		if (*p == '\n')
			buf_put(out, "\\n", 2);
		else if (len)
			buf_put(out, p, len);
		else
			buf_put_u8(out, '?');
		p += len ? len : 1;
	}
}

void metrics_put_label(struct buf *labels, const char *name, const char *value)
{
	buf_printf(labels, "%s%s=\"", labels->len ? "," : "", name);
	put_escaped(labels, value);
	buf_put_u8(labels, '"');
}

/* The name of a sample with all its labels, and the space before the value. */
static void put_name(struct metrics_text *m, const char *suffix, const char *labels)
{
	bool both = *labels && *m->common;

	buf_printf(m->out, "%s%s", m->family->name, suffix);
	if (*labels || *m->common)
		buf_printf(m->out, "{%s%s%s}", labels, both ? "," : "", m->common);
	buf_put_u8(m->out, ' ');
}

/* ---- families ---- */

static const char *suffix_of(const struct metrics_family *f)
{
	return f->type == METRICS_COUNTER ? "_total" : f->type == METRICS_INFO ? "_info" : "";
}

static const char *type_name(const struct metrics_text *m)
{
	static const char *const names[] = {
		[METRICS_GAUGE] = "gauge",
		[METRICS_COUNTER] = "counter",
		[METRICS_INFO] = "info",
		[METRICS_HISTOGRAM] = "histogram",
	};
	enum metrics_type type = m->family->type;

	if (m->format == METRICS_CLASSIC && type == METRICS_INFO)
		type = METRICS_GAUGE;
	return names[type];
}

void metrics_begin(struct metrics_text *m, const struct metrics_family *family)
{
	const char *suffix = m->format == METRICS_CLASSIC ? suffix_of(family) : "";

	m->family = family;
	buf_printf(m->out, "# TYPE %s%s %s\n", family->name, suffix, type_name(m));
	if (family->unit && m->format == METRICS_OPENMETRICS)
		buf_printf(m->out, "# UNIT %s %s\n", family->name, family->unit);
	buf_printf(m->out, "# HELP %s%s %s\n", family->name, suffix, family->help);
}

static void put_seconds(struct buf *out, int64_t ns)
{
	buf_printf(out, "%" PRId64 ".%09" PRId64 "\n", ns / NS_PER_S, ns % NS_PER_S);
}

void metrics_number(struct metrics_text *m, const char *labels, uint64_t value)
{
	put_name(m, suffix_of(m->family), labels);
	buf_printf(m->out, "%" PRIu64 "\n", value);
}

void metrics_time(struct metrics_text *m, int64_t ns)
{
	put_name(m, suffix_of(m->family), "");
	put_seconds(m->out, ns > 0 ? ns : 0);
}

/* A bound as both formats want it: a float that is the same each time. */
static void put_bound(int64_t ns, char ret_label[32])
{
	if (ns % NS_PER_S)
		snprintf(ret_label, 32, "le=\"%g\"", (double)ns / NS_PER_S);
	else
		snprintf(ret_label, 32, "le=\"%" PRId64 ".0\"", ns / NS_PER_S);
}

void metrics_histogram(struct metrics_text *m, const struct histogram *h)
{
	int64_t sum_ns = atomic_load(&h->sum_ns);
	uint64_t below = 0;
	char label[32];

	for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++) {
		below += atomic_load(&h->count[i]);
		if (i < HISTOGRAM_BOUNDS)
			put_bound(histogram_bounds_ns[i], label);
		else
			strcpy(label, "le=\"+Inf\"");
		put_name(m, "_bucket", label);
		buf_printf(m->out, "%" PRIu64 "\n", below);
	}
	put_name(m, "_count", "");
	buf_printf(m->out, "%" PRIu64 "\n", below);
	put_name(m, "_sum", "");
	put_seconds(m->out, sum_ns);
}

void metrics_end(struct metrics_text *m)
{
	if (m->format == METRICS_OPENMETRICS)
		buf_printf(m->out, "# EOF\n");
}
