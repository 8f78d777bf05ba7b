/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as text: OpenMetrics 1.0, and the older text format of Prometheus (0.0.4). */
#ifndef EPOCHFS_METRICS_TEXT_H
#define EPOCHFS_METRICS_TEXT_H

#include <stdint.h>
#include "lib/cache/counters.h"
#include "lib/util/buf.h"

/*
 * Pure. A failed allocation shows in the buffer. The specification: OpenMetrics 1.0.0 (prometheus.io/docs/specs/om). The two differ in
 * what a family of counters is called, in info, in units, and in the end.
 */
enum metrics_format {
	METRICS_OPENMETRICS,
	METRICS_CLASSIC, /* what node_exporter's textfile collector and promtool read */
};
/* For the header Content-Type. */
const char *metrics_content_type(enum metrics_format format);

enum metrics_type { METRICS_GAUGE, METRICS_COUNTER, METRICS_INFO, METRICS_HISTOGRAM };

/* Samples of one name; texts that need no escape. */
struct metrics_family {
	const char *name; /* without "_total" and "_info", with the unit at its end */
	enum metrics_type type;
	const char *unit; /* NULL: none */
	const char *help;
};

struct metrics_text {
	struct buf *out;
	enum metrics_format format;
	const char *common; /* labels of all samples, as metrics_put_label writes them; "": none */
	const struct metrics_family *family; /* that was begun last */
};

/* Appends NAME="VALUE", with a comma in front where there is something; what no UTF-8 is becomes '?'. */
void metrics_put_label(struct buf *labels, const char *name, const char *value);

void metrics_begin(struct metrics_text *m, const struct metrics_family *family);
/* A sample of the family; `labels` of its own, as above; "": none. */
void metrics_number(struct metrics_text *m, const char *labels, uint64_t value);
/* In seconds; one that is negative, as after a step of a clock, is 0. */
void metrics_time(struct metrics_text *m, int64_t ns);
/* All samples of a family of histograms. */
void metrics_histogram(struct metrics_text *m, const struct histogram *h);
void metrics_end(struct metrics_text *m);

#endif
