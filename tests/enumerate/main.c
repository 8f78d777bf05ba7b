/* SPDX-License-Identifier: Apache-2.0 */
/* The command. tests/README.md says how it is used. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/enumerate/enumerate.h"

static const char usage[] =
	"usage: enumerate --on volume|mount|directory [options] DIR\n"
	"  --all N          all histories of up to N steps (default 3)\n"
	"  --length N       with --seconds or --draw: some of up to N steps, when these are done\n"
	"  --seconds S      at most; --draw N: so many; --seed N: which ones are drawn\n"
	"  --extended       those with O_DIRECT, asynchronous I/O, preallocation, holes, copies or mappings\n"
	"                   that outlive their descriptors, instead of those without\n"
	"  --shard I/N      of all histories those of each N-th beginning from the I-th (0 is the first)\n"
	"  --count          only say how many there are\n"
	"  --only STEP,...  no others: open-read, close, ...\n"
	"  --names 1        without the second name\n"
	"  --slow           with duplicated descriptors of writers on a volume, which look into /proc\n"
	"  --keep-going     do not end at the first that fails\n"
	"  --replay TEXT    this one; --times N: so many\n"
	"  --batch N        so many histories between two remounts\n"
	"  --unit BYTES     that a letter stands for (default 1024; 4096 with --extended)\n"
	"  --passthrough on|off, --durable on|off    of a volume\n"
	"  --remounts, --evicts    of a mount: see on.h\n";

struct command {
	const char *where, *dir, *script;
	bool passthrough, durable, remounts, evicts;
	unsigned unit, times;
};

static bool is_on(const char *text)
{
	return !strcmp(text, "on");
}

static void shard_of(struct enumerate_options *want, const char *text)
{
	if (sscanf(text, "%u/%u", &want->shard, &want->shards) != 2 || want->shard >= want->shards)
		give_up("--shard is I/N, I from 0: %s", text);
}

/* "open-read,close,write". */
static uint32_t ops_of(const char *text)
{
	uint32_t ops = history_ops(text);

	if (!ops)
		give_up("these are no steps: %s", text);
	return ops;
}

static const struct option options[] = {
	{"on", required_argument, NULL, 'o'},
	{"all", required_argument, NULL, 'a'},
	{"length", required_argument, NULL, 'l'},
	{"seconds", required_argument, NULL, 's'},
	{"seed", required_argument, NULL, 'e'},
	{"shard", required_argument, NULL, 'h'},
	{"names", required_argument, NULL, 'n'},
	{"slow", no_argument, NULL, 'w'},
	{"keep-going", no_argument, NULL, 'k'},
	{"replay", required_argument, NULL, 'r'},
	{"batch", required_argument, NULL, 'b'},
	{"times", required_argument, NULL, 't'},
	{"only", required_argument, NULL, 'y'},
	{"unit", required_argument, NULL, 'u'},
	{"passthrough", required_argument, NULL, 'p'},
	{"durable", required_argument, NULL, 'd'},
	{"remounts", no_argument, NULL, 'm'},
	{"evicts", no_argument, NULL, 'v'},
	{"draw", required_argument, NULL, 'c'},
	{"extended", no_argument, NULL, 'x'},
	{"count", no_argument, NULL, 'q'},
	{0},
};

static void take_option(struct enumerate_options *want, struct command *c, int option)
{
	unsigned number = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;

	switch (option) {
	case 'o':
		c->where = optarg;
		break;
	case 'a':
		want->all = number;
		break;
	case 'c':
		want->draw = number;
		break;
	case 'x':
		want->extended = true;
		break;
	case 'q':
		want->count = true;
		break;
	case 'l':
		want->length = number;
		break;
	case 's':
		want->seconds = strtod(optarg, NULL);
		break;
	case 'e':
		want->seed = strtoull(optarg, NULL, 10);
		break;
	case 'h':
		shard_of(want, optarg);
		break;
	case 'n':
		want->names = number;
		break;
	case 'w':
		want->slow = true;
		break;
	case 'k':
		want->keep_going = true;
		break;
	case 'r':
		c->script = optarg;
		break;
	case 'b':
		want->batch = number;
		break;
	case 't':
		c->times = number ? number : 1;
		break;
	case 'y':
		want->ops = ops_of(optarg);
		break;
	case 'u':
		c->unit = number;
		break;
	case 'p':
		c->passthrough = is_on(optarg);
		break;
	case 'm':
		c->remounts = true;
		break;
	case 'v':
		c->evicts = true;
		break;
	case 'd':
		c->durable = is_on(optarg);
		break;
	default:
		give_up("%s", usage);
	}
}

static struct on *place(const struct command *c)
{
	if (c->where && !strcmp(c->where, "volume"))
		return on_volume(c->dir, c->passthrough, c->durable, c->unit);
	if (c->where && (!strcmp(c->where, "mount") || !strcmp(c->where, "directory")))
		return on_directory(c->dir, !strcmp(c->where, "mount"), c->remounts, c->evicts,
				    c->unit);
	give_up("%s", usage);
}

int main(int argc, char **argv)
{
	struct enumerate_options want = ENUMERATE_DEFAULTS;
	struct command c = {.passthrough = true, .times = 1};
	struct history script;
	uint64_t failed;
	struct on *on;
	int option;

	want.seed = (uint64_t)time(NULL);
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0)
		take_option(&want, &c, option);
	if (optind + 1 != argc || want.all > HISTORY_MAX || want.length > HISTORY_MAX ||
	    !want.batch || c.unit > UNIT_MAX)
		give_up("%s", usage);
	c.dir = argv[optind];
	if (c.script && history_parse(c.script, &script))
		give_up("this is no history: %s", c.script);
	if (c.script) {
		want.replay = &script;
		want.batch = c.times;
	}
	if (!c.unit)
		c.unit = want.extended ? UNIT_EXTENDED : UNIT_DEFAULT;
	on = place(&c);
	failed = enumerate(on, &want);
	on->close(on);
	return failed != 0;
}
