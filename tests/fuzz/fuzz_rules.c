/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what names mean, and the step in a path: names come from whoever writes to the volume. */
#include "lib/meta/rules.h"
#include "tests/fuzz/fuzz.h"

/*
 * Lines: globs up to a line of `-`, then paths. A line of `=` takes a regex of our own: which one counts is the user's to say, and
 * glibc's compiler takes all memory for some of 80 bytes.
 */
static void take_option(struct volume_options *o, const char *line)
{
	if (line[0] == '=')
		o->step_regex = "st?e*p?-?([0-9]+|x)*$";
	else if (o->log.count < GLOBS_MAX)
		o->log.pattern[o->log.count++] = line;
}

static void check_path(const struct rules *rules, struct step_votes *votes, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	rules_temporary(rules, name, path);
	rules_marker(rules, name, path);
	rules_log(rules, name, path);
	fuzz_assert(step_votes_add(votes, rules, path) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf text = {0};
	struct volume_options options;
	struct step_votes votes = {0};
	struct rules *rules = NULL;
	char *rest = NULL, *line;

	/* fnmatch takes its time for long patterns of many stars, which are the user's. */
	if (len > 4096)
		return 0;
	buf_put(&text, data, len);
	buf_str(&text);
	buf_put_u8(&text, '\0');
	volume_options_init(&options);
	for (line = strtok_r((char *)text.data, "\n", &rest); line && strcmp(line, "-") != 0;
	     line = strtok_r(NULL, "\n", &rest))
		take_option(&options, line);
	if (rules_new(&options, &rules) == 0) {
		while ((line = strtok_r(NULL, "\n", &rest)))
			check_path(rules, &votes, line);
		fuzz_assert(votes.count <= STEP_CANDIDATES_MAX);
		step_votes_winner(&votes);
	}
	step_votes_free(&votes);
	rules_free(rules);
	return 0;
}
