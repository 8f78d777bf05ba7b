/* SPDX-License-Identifier: Apache-2.0 */
/* What names mean: globs built in and from the options, the training step in a name, and what frameworks write last. */
#include "lib/meta/rules.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <regex.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/util/cleanup.h"

/* Python's tempfile makes names of eight such characters. */
#define PYTHON_CHARACTER "[a-z0-9_]"
#define PYTHON_FOUR	 PYTHON_CHARACTER PYTHON_CHARACTER PYTHON_CHARACTER PYTHON_CHARACTER

static const char *const builtin_temporary[] = {
	"_checkpoint",
	"tmp-*",
	"*.tmp*",
	"*_temp",
	"*.orbax-checkpoint-tmp*",
	"tmp" PYTHON_FOUR PYTHON_FOUR,
	NULL,
};
static const char *const builtin_marker[] = {NULL};
static const char *const builtin_log[] = {
	"*.log",   "*.jsonl", "*.csv",	       "*.out",
	"*.err",   "log.txt", "*[-_.]log.txt", "log.lammps",
	"stdout*", "stderr*", "*.wandb",       "events.out.tfevents.*",
	NULL,
};

struct rules {
	struct globs temporary, marker, log;
	bool want_path;
	bool has_regex;
	regex_t regex;
};

static bool globs_have_slash(const struct globs *g)
{
	for (unsigned i = 0; i < g->count; i++)
		if (strchr(g->pattern[i], '/'))
			return true;
	return false;
}

int rules_new(const struct volume_options *options, struct rules **ret_rules)
{
	struct rules *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->temporary = options->temporary;
	r->marker = options->marker;
	r->log = options->log;
	r->want_path = globs_have_slash(&r->temporary) || globs_have_slash(&r->marker) ||
		       globs_have_slash(&r->log);
	if (options->step_regex) {
		if (regcomp(&r->regex, options->step_regex, REG_EXTENDED) != 0) {
			free(r);
			return -EINVAL;
		}
		r->has_regex = true;
		if (r->regex.re_nsub < 1) {
			rules_free(r);
			return -EINVAL;
		}
	}
	*ret_rules = r;
	return 0;
}

void rules_free(struct rules *r)
{
	if (!r)
		return;
	if (r->has_regex)
		regfree(&r->regex);
	free(r);
}

bool rules_want_path(const struct rules *r)
{
	return r->want_path;
}

static bool glob_matches(const char *pattern, const char *name, const char *path)
{
	if (strchr(pattern, '/'))
		return path && fnmatch(pattern, path, FNM_PATHNAME) == 0;
	return fnmatch(pattern, name, 0) == 0;
}

static bool any_matches(const char *const *builtin, const struct globs *g, const char *name,
			const char *path)
{
	for (; *builtin; builtin++)
		if (glob_matches(*builtin, name, path))
			return true;
	for (unsigned i = 0; i < g->count; i++)
		if (glob_matches(g->pattern[i], name, path))
			return true;
	return false;
}

bool rules_temporary(const struct rules *r, const char *name, const char *path)
{
	return any_matches(builtin_temporary, &r->temporary, name, path);
}

bool rules_marker(const struct rules *r, const char *name, const char *path)
{
	return any_matches(builtin_marker, &r->marker, name, path);
}

bool rules_log(const struct rules *r, const char *name, const char *path)
{
	return any_matches(builtin_log, &r->log, name, path);
}

/* ---- the step in a name ---- */

/* A word that stands right before a number, with at most one separator between. */
struct word {
	const char *text;
	size_t len;
};

static bool word_is(struct word w, const char *const *list)
{
	for (; *list; list++)
		if (strlen(*list) == w.len && strncasecmp(w.text, *list, w.len) == 0)
			return true;
	return false;
}

/* The letters right before `end`. */
static struct word word_before(const char *text, size_t end)
{
	struct word w = {.text = text + end};

	while (w.text > text && isalpha((unsigned char)w.text[-1])) {
		w.text--;
		w.len++;
	}
	return w;
}

static bool word_ends_with(struct word w, const char *end)
{
	size_t len = strlen(end);

	return w.len >= len && strncasecmp(w.text + w.len - len, end, len) == 0;
}

static enum step_kind kind_of_word(struct word w)
{
	static const char *const checkpoint[] = {"checkpoint", "ckpt",	    "chkpt", "iter",
						 "iters",      "iteration", NULL};
	static const char *const epoch[] = {"epoch", "ep", NULL};

	if (word_ends_with(w, "step") || word_ends_with(w, "steps"))
		return STEP_KIND_STEP;
	if (word_is(w, checkpoint))
		return STEP_KIND_CHECKPOINT;
	if (word_is(w, epoch))
		return STEP_KIND_EPOCH;
	return STEP_KIND_NONE;
}

/* Numbers after these count parts of one checkpoint. */
static bool word_is_part(struct word w)
{
	static const char *const part[] = {"rank", "shard",  "part", "process", "worker", "node",
					   "of",   "device", "gpu",  "dp",	"mp",	  "tp",
					   "pp",   "state",  "v",    "version", NULL};

	return word_is(w, part);
}

bool rules_number_of_part(const char *path, size_t from)
{
	if (strncmp(path + from + strspn(path + from, "0123456789"), "-of-", 4) == 0)
		return true;
	if (from > 0 && strchr("=_-.:", path[from - 1]))
		from--;
	return word_is_part(word_before(path, from));
}

/* The word that says what a number counts. */
static struct word word_of_number(const char *path, size_t from)
{
	/* Of a fraction, what is before that. */
	if (from > 1 && path[from - 1] == '.' && isdigit((unsigned char)path[from - 2]))
		for (from--; from > 0 && isdigit((unsigned char)path[from - 1]);)
			from--;
	if (from > 0 && strchr("=_-.:", path[from - 1]))
		from--;
	return word_before(path, from);
}

bool rules_number_of_layer(const char *path, size_t from)
{
	static const char *const layer[] = {"layer",   "layers", "block", "blocks", "expert",
					    "experts", "stage",	 "chunk", "bucket", "group",
					    "head",    "fold",	 NULL};

	return word_is(word_of_number(path, from), layer);
}

bool rules_number_of_progress(const char *path, size_t from)
{
	static const char *const progress[] = {
		"batch", "batches", "ba",   "it",   "update",	"updates", "sample", "samples",
		"token", "tokens",  "loss", "acc",  "accuracy", "score",   "metric", "ppl",
		"auc",	 "bleu",    "wer",  "cer",  "mae",	"mse",	   "rmse",   "map",
		"psnr",	 "ssim",    "fid",  "dice", "iou",	"reward",  "return", NULL};

	return word_is(word_of_number(path, from), progress);
}

static bool is_weights_ending(const char *text)
{
	static const char *const endings[] = {".pt",   ".pth",	 ".ckpt",  ".safetensors", ".h5",
					      ".hdf5", ".keras", ".npz",   ".npy",	   ".bin",
					      ".pkl",  ".zip",	 ".index", ".msgpack",	   NULL};

	for (const char *const *e = endings; *e; e++)
		if (strcasecmp(text, *e) == 0)
			return true;
	return strncmp(text, ".data-", 6) == 0;
}

bool rules_weights(const char *name)
{
	const char *end = strrchr(name, '.');

	return end && (is_weights_ending(end) || !strcasecmp(end, ".distcp"));
}

/* Do the digits that end there number a node? trainer:0.7, worker3.7 */
static bool ends_node_number(const char *component, size_t end)
{
	static const char *const node[] = {"rank",    "process", "worker", "node",   "host",
					   "trainer", "reader",	 "gpu",	   "device", NULL};
	size_t at = end, word;

	while (at > 0 && isdigit((unsigned char)component[at - 1]))
		at--;
	if (at == end || at == 0)
		return false;
	for (word = at; word > 0 && isalpha((unsigned char)component[word - 1]);)
		word--;
	return component[at - 1] == ':' ||
	       word_is((struct word){component + word, at - word}, node);
}

/* 1000_steps, as Stable Baselines names its files; but not 500_step_1000, where the number after it is the step. */
static bool is_before_steps(const char *after, const char *end)
{
	if (after < end && strchr("_-", *after))
		after++;
	if (end - after < 4 || strncasecmp(after, "step", 4) != 0)
		return false;
	after += 4;
	if (after < end && (*after == 's' || *after == 'S'))
		after++;
	return after == end ||
	       (strchr("._-", *after) && !(after + 1 < end && isdigit((unsigned char)after[1])));
}

enum step_kind rules_number_kind(const char *component, size_t len, size_t from, size_t to,
				 bool directory)
{
	const char *after = component + to;
	size_t word_end = from;
	struct word w;
	enum step_kind kind;

	if (from == 0 && to == len)
		return directory ? STEP_KIND_DIRECTORY : STEP_KIND_NONE;
	if (is_before_steps(after, component + len))
		return STEP_KIND_STEP;
	if (to < len && (isalpha((unsigned char)*after) || strncmp(after, "-of-", 4) == 0))
		return STEP_KIND_NONE;
	if (word_end > 0 && strchr("=_-.", component[word_end - 1]))
		word_end--;
	w = word_before(component, word_end);
	kind = kind_of_word(w);
	if (kind != STEP_KIND_NONE || word_is_part(w))
		return kind;
	if (word_end == from || (word_end > 0 && isdigit((unsigned char)component[word_end - 1]) &&
				 !ends_node_number(component, word_end)))
		return STEP_KIND_NONE;
	if (to == len)
		return component[from - 1] == '.' && word_end > 0 ? STEP_KIND_TAIL : STEP_KIND_NONE;
	/* The component may be followed by "/..." in the path: compare its own rest only. */
	if (!directory && is_weights_ending(after))
		return STEP_KIND_TAIL;
	return STEP_KIND_NONE;
}

static bool parse_digits(const char *digits, size_t len, uint64_t *ret_step)
{
	uint64_t step = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned digit = (unsigned)(digits[i] - '0');

		if (step > ((uint64_t)INT64_MAX - digit) / 10)
			return false;
		step = step * 10 + digit;
	}
	*ret_step = step;
	return len > 0;
}

struct found {
	int kind;
	uint64_t step;
	const char *component;
	size_t component_len;
};

static void look_at_component(const char *component, size_t len, bool directory, struct found *best)
{
	for (size_t from = 0; from < len;) {
		size_t to = from;
		uint64_t step;
		int kind;

		while (to < len && isdigit((unsigned char)component[to]))
			to++;
		if (to == from) {
			from++;
			continue;
		}
		kind = rules_number_kind(component, len, from, to, directory);
		/* The topmost of several bare numbers is the checkpoint's directory. */
		if (kind != STEP_KIND_NONE &&
		    (kind > best->kind || (kind == best->kind && kind != STEP_KIND_DIRECTORY)) &&
		    parse_digits(component + from, to - from, &step))
			*best = (struct found){kind, step, component, len};
		from = to;
	}
}

static void find_builtin(const char *path, struct found *best)
{
	const char *component = path;

	while (*component) {
		const char *slash = strchrnul(component, '/');

		look_at_component(component, (size_t)(slash - component), *slash == '/', best);
		component = *slash ? slash + 1 : slash;
	}
}

/* The last match of the regex in the path. */
static void find_regex(const regex_t *regex, const char *path, struct found *best)
{
	const char *at = path;
	regmatch_t m[2];

	while (regexec(regex, at, 2, m, at == path ? 0 : REG_NOTBOL) == 0) {
		uint64_t step;

		if (m[1].rm_so >= 0) {
			const char *digits = at + m[1].rm_so;
			size_t len = (size_t)(m[1].rm_eo - m[1].rm_so);

			if (strspn(digits, "0123456789") >= len &&
			    parse_digits(digits, len, &step)) {
				const char *slash = memrchr(path, '/', (size_t)(digits - path));
				const char *component = slash ? slash + 1 : path;

				*best = (struct found){STEP_KIND_REGEX, step, component,
						       strcspn(component, "/")};
			}
		}
		if (m[0].rm_eo == 0 && !*at)
			break;
		at += m[0].rm_eo > 0 ? m[0].rm_eo : 1;
	}
}

/* The topmost directory above the component that carries the same step. */
static void climb(const char *path, struct found *found)
{
	for (const char *at = path; at < found->component;) {
		size_t len = strcspn(at, "/");
		struct found above = {.kind = STEP_KIND_NONE};

		look_at_component(at, len, true, &above);
		if (above.kind != STEP_KIND_NONE && above.step == found->step) {
			*found = above;
			return;
		}
		at += len + 1;
	}
}

static void find_step(const struct rules *r, const char *path, struct found *best)
{
	if (r->has_regex)
		find_regex(&r->regex, path, best);
	else
		find_builtin(path, best);
}

bool rules_step(const struct rules *r, const char *path, struct step_place *ret_place)
{
	struct found best = {.kind = STEP_KIND_NONE};

	find_step(r, path, &best);
	if (best.kind == STEP_KIND_NONE)
		return false;
	if (!r->has_regex)
		climb(path, &best);
	ret_place->begin = (size_t)(best.component - path);
	ret_place->end = ret_place->begin + best.component_len;
	ret_place->step = best.step;
	ret_place->kind = (enum step_kind)best.kind;
	return true;
}

bool rules_step_is_given(const struct rules *r)
{
	return r->has_regex;
}

int step_votes_add(struct step_votes *v, const struct rules *r, const char *path)
{
	struct found best = {.kind = STEP_KIND_NONE};
	struct step_candidate *c;

	find_step(r, path, &best);
	if (best.kind == STEP_KIND_NONE)
		return 0;
	for (unsigned i = 0; i < v->count; i++) {
		c = &v->candidate[i];
		if (c->kind == best.kind && c->step == best.step) {
			c->votes++;
			return 0;
		}
	}
	if (v->count == STEP_CANDIDATES_MAX)
		return 0;
	c = &v->candidate[v->count];
	c->name = strndup(best.component, best.component_len);
	if (!c->name)
		return -ENOMEM;
	c->kind = best.kind;
	c->step = best.step;
	c->votes = 1;
	v->count++;
	return 0;
}

static bool beats(const struct step_candidate *a, const struct step_candidate *b)
{
	if (a->kind != b->kind)
		return a->kind > b->kind;
	if (a->votes != b->votes)
		return a->votes > b->votes;
	return a->step > b->step;
}

const struct step_candidate *step_votes_winner(const struct step_votes *v)
{
	const struct step_candidate *best = NULL;

	for (unsigned i = 0; i < v->count; i++)
		if (!best || beats(&v->candidate[i], best))
			best = &v->candidate[i];
	return best;
}

void step_votes_free(struct step_votes *v)
{
	for (unsigned i = 0; i < v->count; i++)
		free(v->candidate[i].name);
	v->count = 0;
}

/* ---- The last files of the frameworks. ---- */

static const struct {
	const char *glob;
	enum last_file kind;
} last_files[] = {
	{"latest_checkpointed_iteration.txt", LAST_FILE_ANY},
	{"checkpoint", LAST_FILE_ANY},
	{".metadata", LAST_FILE_ANY},
	{"training_metadata.json", LAST_FILE_ANY},
	{"latest", LAST_FILE_DEEPSPEED},
	{"*.ckpt", LAST_FILE_RENAMED},
	{"*.keras", LAST_FILE_RENAMED},
	{"*.weights.h5", LAST_FILE_RENAMED},
	{"trainer_state.json", LAST_FILE_STATE},
	{"rng_state.pth", LAST_FILE_RNG},
};

enum last_file last_file_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(last_files) / sizeof(*last_files); i++)
		if (fnmatch(last_files[i].glob, name, 0) == 0)
			return last_files[i].kind;
	return LAST_FILE_NONE;
}

const char *const *last_file_partners(enum last_file kind)
{
	static const char *const none[] = {NULL};
	static const char *const of_state[] = {"rng_state.pth", "rng_state_0.pth", NULL};
	static const char *const of_rng[] = {"trainer_state.json", NULL};

	switch (kind) {
	case LAST_FILE_STATE:
		return of_state;
	case LAST_FILE_RNG:
		return of_rng;
	default:
		return none;
	}
}
