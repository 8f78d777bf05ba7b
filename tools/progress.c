/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar. */
#include "tools/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/util/buf.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"
#include "lib/util/printable.h"

#define QUIET_NS	 NS_PER_S
#define BAR_INTERVAL_NS	 (100 * NS_PER_MS)
#define LINE_INTERVAL_NS (10 * NS_PER_S)
#define BAR_WIDTH	 28

static void show_bar(const struct progress *p, uint64_t done, uint64_t total, const char *detail)
{
	char bar[BAR_WIDTH + 1], have[FORMAT_MAX], all[FORMAT_MAX], rate[FORMAT_MAX];
	int64_t ns = clock_mono_ns() - p->started_ns;
	size_t full = total ? (size_t)((double)BAR_WIDTH * ((double)done / (double)total)) : 0;

	if (full > BAR_WIDTH)
		full = BAR_WIDTH;
	memset(bar, '#', full);
	memset(bar + full, '.', BAR_WIDTH - full);
	bar[BAR_WIDTH] = '\0';
	if (p->counts) {
		fprintf(stderr, "\r%s [%s] %s\033[K", p->label, bar, detail ? detail : "");
		return;
	}
	format_size(done, have);
	format_size(total, all);
	format_size((uint64_t)((double)done * 1e9 / (double)(ns ? ns : 1)), rate);
	fprintf(stderr, "\r%s [%s] %s of %s, %s/s%s%s\033[K", p->label, bar, have, all, rate,
		detail ? ", " : "", detail ? detail : "");
}

static void show_line(const struct progress *p, uint64_t done, uint64_t total, const char *detail)
{
	char have[FORMAT_MAX], all[FORMAT_MAX];

	if (p->counts) {
		fprintf(stderr, "%s: %s\n", p->label, detail ? detail : "");
		return;
	}
	format_size(done, have);
	format_size(total, all);
	fprintf(stderr, "%s: %s of %s%s%s\n", p->label, have, all, detail ? ", " : "",
		detail ? detail : "");
}

void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *detail)
{
	bool terminal = isatty(STDERR_FILENO);
	cleanup_buf struct buf shown = {
		0}; /* it may be the reason of a failure, in a server's words */
	int64_t now = clock_mono_ns();

	if (!p->started_ns)
		p->started_ns = now;
	if (now - p->started_ns < QUIET_NS)
		return;
	if (p->visible && now - p->shown_ns < (terminal ? BAR_INTERVAL_NS : LINE_INTERVAL_NS))
		return;
	p->visible = true;
	p->shown_ns = now;
	if (detail)
		printable_put(&shown, detail);
	if (terminal)
		show_bar(p, done, total, detail ? buf_str(&shown) : NULL);
	else
		show_line(p, done, total, detail ? buf_str(&shown) : NULL);
}

void progress_end(struct progress *p)
{
	if (p->visible && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	p->visible = false;
}
