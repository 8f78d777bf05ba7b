/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume in this process, for player.py: commands on standard input, a line each, answers on standard output.
 *
 *   protocols DIR ARENA       DIR: a folder for caches; ARENA: a file with all bytes that are written
 *
 *   new on|off                another place, with or without passthrough
 *   up SETTLE PATIENCE RESUME BY_SAVES   the volume is opened; times in milliseconds, then 0 or 1
 *   down ORDER COLD           closed: ORDER 1 as by an unmount, COLD 1: its cache is lost
 *   upload                    all that is sealed is in the remote
 *   pass MS                   time passes
 *   latest                    -> one line: the number of the newest whole epoch
 *   look WHAT                 -> one line (place.h); WHAT: "none", "tree", "live", "trees" or "facts"
 *   failed                    -> one line: what failed since the last time, "WHAT: ERRNO" each, with tabs between
 *   end                       the place is gone
 * and the operations of README.md, `WHO WHAT ARGUMENTS`, with flags as a number, bytes as `SIZE AT OFFSET` (AT: in the arena; OFFSET: -1 where the descriptor
 * stands), and `WHO kill`; `* kill` kills all.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "tests/protocols/clock.h"
#include "tests/protocols/place.h"

#define WORDS	    8
#define FAILURE_MAX 65536
#define WRITE_MAX   (16 << 20)

static const char *dir;
static int arena;
static struct place *place;
static char failure[FAILURE_MAX];
static char bytes[WRITE_MAX];

static unsigned long long number(const char *word)
{
	return strtoull(word ? word : "0", NULL, 10);
}

static int write_some(char **w, unsigned fd)
{
	long long offset = strtoll(w[5], NULL, 10);
	size_t len = number(w[3]);

	if (len > sizeof(bytes) || pread(arena, bytes, len, (off_t)number(w[4])) != (ssize_t)len) {
		fprintf(stderr, "the arena lacks bytes\n");
		exit(2);
	}
	return place_write(place, w[0], fd, bytes, len, offset < 0 ? UINT64_MAX : (uint64_t)offset);
}

/* Those of descriptors: 1 where it is none. */
static int act_on_descriptor(char **w)
{
	unsigned fd = (unsigned)number(w[2]);

	if (!strcmp(w[1], "open"))
		return place_open(place, w[0], fd, w[3], (int)number(w[4]));
	if (!strcmp(w[1], "write") || !strcmp(w[1], "store"))
		return write_some(w, fd);
	if (!strcmp(w[1], "truncate"))
		return place_truncate(place, w[0], fd, number(w[3]));
	if (!strcmp(w[1], "fsync"))
		return place_fsync(place, w[0], fd);
	if (!strcmp(w[1], "close"))
		return place_close(place, w[0], fd);
	return 1;
}

static int act_on_name(char **w)
{
	if (!strcmp(w[1], "fsyncdir"))
		return place_sync(place);
	if (!strcmp(w[1], "mkdir"))
		return place_mkdir(place, w[0], w[2]);
	if (!strcmp(w[1], "unlink") || !strcmp(w[1], "rmdir"))
		return place_remove(place, w[0], w[2], w[1][0] == 'r');
	if (!strcmp(w[1], "rename") || !strcmp(w[1], "exchange"))
		return place_rename(place, w[0], w[2], w[3], w[1][0] == 'e');
	if (!strcmp(w[1], "link"))
		return place_link(place, w[0], w[2], w[3]);
	if (!strcmp(w[1], "symlink"))
		return place_symlink(place, w[0], w[2], w[3]);
	if (!strcmp(w[1], "chmod") || !strcmp(w[1], "utimens"))
		return place_touch(place, w[0], w[2], w[1][0] == 'c');
	return 1;
}

static int act_on_process(char **w)
{
	if (!strcmp(w[1], "fork"))
		return place_fork(place, w[0], w[2]);
	if (!strcmp(w[1], "exit"))
		return place_exit(place, w[0], (int)number(w[2]));
	if (strcmp(w[1], "kill") != 0)
		return 1;
	if (strcmp(w[0], "*") != 0)
		return place_kill(place, w[0]);
	place_kill_all(place);
	return 0;
}

static void act(char **w)
{
	size_t used = strlen(failure);
	int r = act_on_descriptor(w);

	if (r == 1)
		r = act_on_name(w);
	if (r == 1)
		r = act_on_process(w);
	if (r == 1) {
		fprintf(stderr, "no such operation: %s\n", w[1]);
		exit(2);
	}
	clock_pass(NS_PER_MS);
	if (r)
		snprintf(failure + used, sizeof(failure) - used, "%s%s %s %s: %d", used ? "\t" : "",
			 w[0], w[1], w[2], -r);
}

static void new_place(char **w)
{
	place = place_new(dir, !strcmp(w[1], "on"));
}

static void up(char **w)
{
	struct place_options o = {.settle_ns = (int64_t)number(w[1]) * NS_PER_MS,
				  .patience_ns = (int64_t)number(w[2]) * NS_PER_MS,
				  .resume = number(w[3])};

	place_up(place, &o);
	clock_pass(0);
}

static void down(char **w)
{
	place_down(place, number(w[1]), number(w[2]));
}

static void upload(char **w)
{
	(void)w;
	place_upload(place);
}

static void pass(char **w)
{
	clock_pass((int64_t)number(w[1]) * NS_PER_MS);
}

static void latest(char **w)
{
	(void)w;
	clock_pass(0);
	printf("%llu\n", (unsigned long long)place_latest(place));
	fflush(stdout);
}

static void look(char **w)
{
	clock_pass(0);
	place_look(place, w[1], stdout);
	fflush(stdout);
}

static void failed(char **w)
{
	(void)w;
	puts(failure);
	fflush(stdout);
	failure[0] = '\0';
}

static void end(char **w)
{
	(void)w;
	place_free(place);
	place = NULL;
}

static const struct command {
	const char *name;
	void (*run)(char **words);
} commands[] = {{"new", new_place}, {"up", up},		{"down", down},
		{"upload", upload}, {"pass", pass},	{"look", look},
		{"latest", latest}, {"failed", failed}, {"end", end}};

static void obey(char *line)
{
	char *words[WORDS] = {0}, *rest = NULL;
	unsigned n = 0;

	for (char *w = strtok_r(line, " \n", &rest); w && n < WORDS;
	     w = strtok_r(NULL, " \n", &rest))
		words[n++] = w;
	if (!n)
		return;
	for (unsigned i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (!strcmp(words[0], commands[i].name)) {
			commands[i].run(words);
			return;
		}
	act(words);
}

int main(int argc, char **argv)
{
	char line[4096];

	if (argc != 3 || (arena = open(argv[2], O_RDONLY | O_CLOEXEC)) < 0) {
		fprintf(stderr, "usage: protocols DIR ARENA\n");
		return 2;
	}
	dir = argv[1];
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	return 0;
}
