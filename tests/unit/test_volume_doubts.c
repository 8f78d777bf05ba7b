/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of doubt: histories in a line each, over a tree that is a list of paths. */
#include "lib/volume/doubts.h"

#include <string.h>
#include "tests/unit/unit.h"

/*
 * A history is words with blanks between them. A step that a rule looks at is the last thing that is said of it:
 *   w:PATH      saved whole, by O_TRUNC or as a new file        o:PATH, c:PATH   the same, opened and closed apart
 *   t:PATH      saved torn inside and closed (Ctrl-C)           p:PATH           found torn after a power loss
 *   k:PATH      a save whose writer was killed, so undone       e:PATH           a database left by a killed writer
 *   r:PATH      removed, or all that is below it                m:PATH:PATH      renamed, or all that is below it
 *   +  -        sealed: complete, incomplete                    W                sealed by the word of somebody who knows
 *   b:N         rolled back to the Nth epoch: a new one         x                the next writer is another machine
 *   i           the next epoch is imported from a directory: what is not saved, removed or torn after this is unchanged
 *   n:K         so many doubts stand in the epoch that was sealed last
 *   d:PATH      one of them is of this path
 */
#define FILES_MAX  64
#define KILLS_MAX  16
#define EPOCHS_MAX 24

struct file {
	char path[64];
	uint64_t ino, version, born, opened;
	bool torn;
};

struct kill {
	char path[64];
	enum doubt_kind kind;
	uint64_t id, since, ino_then, version_then;
	bool gone, judged;
	struct doubt_companion companions[16];
	char companion_paths[16][64];
	size_t companion_count;
	uint64_t again[16], again_born[16];
	size_t again_count;
};

struct tree {
	struct file files[FILES_MAX];
	size_t file_count;
	struct kill kills[KILLS_MAX];
	size_t kill_count;
};

struct world {
	struct rules *rules;
	struct tree now;
	struct tree epochs[EPOCHS_MAX];
	bool complete[EPOCHS_MAX];
	uint64_t last, inos, versions;
	char standing[32][64];
	size_t standing_count;
};

static bool is_below(const char *path, const char *top)
{
	size_t len = strlen(top);

	return !strncmp(path, top, len) && (!path[len] || path[len] == '/');
}

static struct file *find(struct world *w, const char *path)
{
	for (size_t i = 0; i < w->now.file_count; i++)
		if (!strcmp(w->now.files[i].path, path))
			return &w->now.files[i];
	return NULL;
}

/* What state_doubt_file_add notes: it had changed before the kill, and is saved again, by who began after that. */
static void note_again(struct world *w, uint64_t ino, const struct file *old, uint64_t begun)
{
	for (size_t i = 0; i < w->now.kill_count; i++) {
		struct kill *k = &w->now.kills[i];

		if (k->judged || k->kind != DOUBT_UNDONE || begun < k->id)
			continue;
		k->again[k->again_count] = ino;
		k->again_born[k->again_count++] = old->born;
	}
}

static struct file *add(struct world *w, const char *path)
{
	struct file *f = &w->now.files[w->now.file_count++];

	ck_assert_uint_le(w->now.file_count, FILES_MAX);
	*f = (struct file){.ino = ++w->inos};
	snprintf(f->path, sizeof(f->path), "%s", path);
	return f;
}

static void save(struct world *w, const char *path, uint64_t version, bool torn)
{
	struct file *f = find(w, path);

	if (f)
		note_again(w, f->ino, f, version);
	else
		f = add(w, path);
	f->version = f->opened = version;
	f->born = w->last + 1;
	f->torn = torn;
}

static void drop(struct world *w, size_t i)
{
	memmove(&w->now.files[i], &w->now.files[i + 1],
		(--w->now.file_count - i) * sizeof(w->now.files[0]));
}

static void remove_below(struct world *w, const char *top)
{
	for (size_t i = w->now.file_count; i-- > 0;)
		if (is_below(w->now.files[i].path, top))
			drop(w, i);
	for (size_t i = 0; i < w->now.kill_count; i++)
		if (strcmp(w->now.kills[i].path, top) != 0 && is_below(w->now.kills[i].path, top))
			w->now.kills[i].gone = true;
}

static void move_path(char path[64], const char *from, const char *to)
{
	char moved[160];

	snprintf(moved, sizeof(moved), "%s%s", to, path + strlen(from));
	snprintf(path, 64, "%.63s", moved);
}

static void rename_below(struct world *w, const char *from, const char *to)
{
	struct file *f = find(w, from), *over = find(w, to);

	if (f && over) {
		note_again(w, f->ino, over, f->opened);
		drop(w, (size_t)(over - w->now.files));
	}
	for (size_t i = 0; i < w->now.file_count; i++)
		if (is_below(w->now.files[i].path, from))
			move_path(w->now.files[i].path, from, to);
	for (size_t i = 0; i < w->now.kill_count; i++)
		if (strcmp(w->now.kills[i].path, from) != 0 && is_below(w->now.kills[i].path, from))
			move_path(w->now.kills[i].path, from, to);
}

static void kill_writer(struct world *w, const char *path, enum doubt_kind kind)
{
	struct kill *k = &w->now.kills[w->now.kill_count++];
	const struct file *f = find(w, path);

	*k = (struct kill){.kind = kind,
			   .id = ++w->versions,
			   .since = w->last + 1,
			   .ino_then = f ? f->ino : 0,
			   .version_then = f ? f->version : 0};
	snprintf(k->path, sizeof(k->path), "%s", path);
}

/* ---- sealing ---- */

static uint64_t base_of(const struct world *w, const struct kill *k)
{
	for (uint64_t n = k->since - 1; n > 0; n--)
		if (w->complete[n])
			return n;
	return 0;
}

static void tell_kill(struct world *w, struct doubts *d, const struct kill *k)
{
	const struct file *f = find(w, k->path);
	uint64_t again[16];
	struct doubts_kill kill = {
		.id = k->id,
		.kind = k->kind,
		.path = k->path,
		.why = "its writer was killed",
		.since = k->since,
		.base = base_of(w, k),
		.ino_then = k->ino_then,
		.version_then = k->version_then,
		.parent_is_gone = k->gone,
		.ino_now = f ? f->ino : 0,
		.version_now = f ? f->version : 0,
		.judged = k->judged,
		.companions = k->companions,
		.companion_count = k->companion_count,
		.again = again,
	};

	for (size_t i = 0; i < k->again_count; i++)
		if (k->again_born[i] > kill.base)
			again[kill.again_count++] = k->again[i];
	unit_ok(doubts_add_kill(d, &kill));
}

static struct kill *kill_of(struct world *w, uint64_t id)
{
	for (size_t i = 0; i < w->now.kill_count; i++)
		if (w->now.kills[i].id == id)
			return &w->now.kills[i];
	ck_abort_msg("no kill %lu", (unsigned long)id);
}

/* What doubts_judged_locked does. */
static void keep(struct world *w, const struct doubt *doubt)
{
	struct kill *k;

	if (doubt->kind == DOUBT_TORN || doubt->postponed)
		return;
	k = kill_of(w, doubt->id);
	if (!doubt->stands || (!doubt->companion_count && !doubt->gone)) {
		*k = w->now.kills[--w->now.kill_count];
		return;
	}
	k->judged = true;
	k->companion_count = 0;
	for (size_t i = 0; i < doubt->companion_count; i++) {
		k->companions[k->companion_count] = doubt->companions[i];
		snprintf(k->companion_paths[k->companion_count++], 64, "%s",
			 doubt->companions[i].path);
	}
}

/* What doubts_find_gone does. */
static void tell_what_is_gone(struct world *w, struct doubts *d)
{
	for (uint64_t base = 0; (base = doubts_next_base(d, base));)
		for (size_t i = 0; i < w->epochs[base].file_count; i++)
			if (!find(w, w->epochs[base].files[i].path))
				doubts_add_gone(d, base, w->epochs[base].files[i].path);
}

static bool seal(struct world *w, bool restores)
{
	cleanup_doubts struct doubts *d = NULL;
	const struct doubt *list;
	size_t count;

	unit_ok(doubts_new(w->rules, restores ? UINT64_MAX : w->last, &d));
	for (size_t i = 0; i < w->now.kill_count; i++)
		tell_kill(w, d, &w->now.kills[i]);
	for (size_t i = 0; i < w->now.file_count; i++) {
		const struct file *f = &w->now.files[i];

		unit_ok(doubts_add_file(
			d, &(const struct doubts_file){.path = f->path,
						       .ino = f->ino,
						       .version = f->version,
						       .born = f->born,
						       .mtime_ns = (int64_t)f->opened,
						       .torn = f->torn ? "torn" : NULL}));
	}
	tell_what_is_gone(w, d);
	unit_ok(doubts_decide(d));
	list = doubts_list(d, &count);
	w->standing_count = 0;
	for (size_t i = 0; i < count; i++) {
		if (list[i].stands)
			snprintf(w->standing[w->standing_count++], 64, "%s", list[i].path);
		keep(w, &list[i]);
	}
	w->last++;
	w->epochs[w->last] = w->now;
	return w->complete[w->last] = doubts_counting(d) == 0;
}

/* The tree of an epoch, as a rollback or another machine makes it: other files, other versions, the record's doubts. */
static void load(struct world *w, uint64_t number, uint64_t born)
{
	w->now = w->epochs[number];
	for (size_t i = 0; i < w->now.file_count; i++) {
		struct file *f = &w->now.files[i];

		f->opened = f->version > f->opened ? f->version : f->opened; /* its mtime stays */
		f->ino = ++w->inos;
		f->version = ++w->versions;
		f->born = born;
	}
	for (size_t i = 0; i < w->now.kill_count; i++) {
		struct kill *k = &w->now.kills[i];
		const struct file *f = find(w, k->path);

		if (!k->judged) {
			w->now.kills[i--] = w->now.kills[--w->now.kill_count];
			continue;
		}
		k->id = ++w->versions;
		k->ino_then = f ? f->ino : 0;
		k->version_then = f ? f->version : 0;
		for (size_t c = 0; c < k->companion_count; c++) {
			f = find(w, k->companion_paths[c]);
			k->companions[c] = (struct doubt_companion){f ? f->ino : UINT64_MAX,
								    f ? f->version : 0, NULL};
		}
	}
}

/* ---- words ---- */

static void by_word(struct world *w)
{
	for (size_t i = 0; i < w->now.file_count; i++)
		w->now.files[i].torn = false;
	w->now.kill_count = 0;
}

static bool stands(const struct world *w, const char *path)
{
	for (size_t i = 0; i < w->standing_count; i++)
		if (!strcmp(w->standing[i], path))
			return true;
	return false;
}

static void do_file_word(struct world *w, const char *word, char *path)
{
	char *to = strchr(path, ':');

	if (to)
		*to++ = '\0';
	switch (*word) {
	case 'w':
		save(w, path, ++w->versions, false);
		break;
	case 't':
		save(w, path, ++w->versions, true);
		break;
	case 'o':
		add(w, "(open)")->opened = ++w->versions;
		break;
	case 'c':
		save(w, path, find(w, "(open)")->opened, false);
		drop(w, (size_t)(find(w, "(open)") - w->now.files));
		break;
	case 'p':
		find(w, path)->torn = true;
		break;
	case 'k':
		kill_writer(w, path, DOUBT_UNDONE);
		break;
	case 'e':
		save(w, path, ++w->versions, false);
		kill_writer(w, path, DOUBT_LEFT);
		break;
	case 'r':
		remove_below(w, path);
		break;
	case 'm':
		rename_below(w, path, to);
		break;
	default:
		ck_abort_msg("%s", word);
	}
}

static void do_word(struct world *w, const char *name, char *word)
{
	switch (*word) {
	case '+':
	case '-':
		ck_assert_msg(seal(w, false) == (*word == '+'), "%s: epoch %lu", name,
			      (unsigned long)w->last);
		break;
	case 'W':
		by_word(w);
		ck_assert_msg(seal(w, false), "%s: by word", name);
		break;
	case 'b':
		load(w, strtoull(word + 2, NULL, 10), w->last + 1);
		seal(w, true);
		ck_assert_msg(w->complete[w->last] == w->complete[strtoull(word + 2, NULL, 10)],
			      "%s: %s", name, word);
		break;
	case 'x':
		load(w, w->last, 1);
		break;
	case 'i':
		/* What import_doubts_file does: a new inode each, and what is unchanged is as old as the epoch before. */
		load(w, w->last, w->last);
		break;
	case 'n':
		ck_assert_msg(w->standing_count == strtoull(word + 2, NULL, 10),
			      "%s: %zu stand in epoch %lu", name, w->standing_count,
			      (unsigned long)w->last);
		break;
	case 'd':
		ck_assert_msg(stands(w, word + 2), "%s: %s", name, word);
		break;
	default:
		do_file_word(w, word, word + 2);
	}
}

static const struct {
	const char *name, *history;
} cases[] = {
	/* ---- a single file in place ---- */
	{"whole", "w:model.pt + w:model.pt +"},
	{"Ctrl-C, then another file", "w:model.pt + t:model.pt - w:notes - n:1 d:model.pt"},
	{"Ctrl-C, saved again", "w:model.pt + t:model.pt - w:model.pt + n:0"},
	{"Ctrl-C, removed", "w:model.pt + t:model.pt - r:model.pt w:x +"},
	{"Ctrl-C, replaced by a rename", "w:m + t:m - w:m.new m:m.new:m +"},
	{"Ctrl-C, renamed", "w:m + t:m - m:m:old - d:old"},
	{"Ctrl-C at the first save", "t:m - w:m +"},
	{"killed, then another file", "w:m + k:m w:train -"},
	{"killed at the first save", "k:m w:x - w:m +"},
	{"killed alone at the first save", "k:m + n:0"},
	{"killed, saved before the seal", "w:m + k:m w:m + n:0"},
	{"killed twice", "w:a w:m + w:a k:m - k:m - w:m + n:0"},
	{"power loss", "w:m + w:m + p:m w:x - w:m +"},
	{"power loss of what is sealed", "w:m + p:m w:x - w:y - d:m"},

	/* ---- several files in place ---- */
	{"A new, B killed", "w:a w:b + w:a k:b - d:b n:1"},
	{"... then another file", "w:a w:b + w:a k:b - w:notes - w:notes -"},
	{"... B saved", "w:a w:b + w:a k:b - w:b + n:0"},
	{"... A saved, since B is not each time", "w:a w:b + w:a k:b - w:a +"},
	{"... A removed", "w:a w:b + w:a k:b - r:a w:x +"},
	{"... B removed", "w:a w:b + w:a k:b - r:b w:x +"},
	{"... A renamed", "w:a w:b + w:a k:b - m:a:c -"},
	{"... B replaced by a rename", "w:a w:b + w:a k:b - w:b2 m:b2:b +"},
	{"... A replaced by a rename", "w:a w:b + w:a k:b - w:a2 m:a2:a +"},
	{"... both again before the seal", "w:a w:b + w:a k:b w:a w:b + n:0"},
	{"... A again before the seal", "w:a w:b + w:a k:b w:a + n:0"},
	{"... A replaced before the seal", "w:a w:b + w:a k:b w:a2 m:a2:a +"},
	{"... killed again", "w:a w:b + w:a k:b - w:a k:b - w:notes - w:notes - w:b +"},
	{"... killed again after another epoch",
	 "w:a w:b + w:a k:b - w:notes - w:a k:b - w:notes -"},
	{"the first of two killed", "w:a w:b + k:a +"},
	{"the first killed, then another changes", "w:a w:b + k:a w:b - w:b +"},
	{"the last of three killed", "w:a w:b w:c + w:a w:b k:c - w:a - w:b +"},
	{"a torn one and a killed one", "w:a w:b + t:a k:b - n:2 w:b - n:1 w:a +"},
	{"companions are those since the newest complete epoch",
	 "w:a w:b w:c + w:a + k:b w:c - w:c +"},
	{"an incomplete epoch is no beginning", "w:a w:b w:c + t:a - k:b w:x - n:2 w:a - w:x +"},

	/* ---- rotating directories with steps ---- */
	{"the newest is whole", "w:checkpoint-500/a k:checkpoint-500/b - w:checkpoint-510/a + n:1"},
	{"the newest is torn", "w:checkpoint-500/a + t:checkpoint-510/a - n:1"},
	{"the newest is killed", "w:checkpoint-500/a + w:checkpoint-510/a k:checkpoint-510/b -"},
	{"... and removed", "w:s-step1/a + w:s-step2/a k:s-step2/b - r:s-step2 w:s-step3/a + n:0"},
	{"the older one becomes the newest again",
	 "t:checkpoint-1/a w:checkpoint-2/a + w:checkpoint-1/b - w:checkpoint-2/a +"},
	{"torn in the root beside it", "w:checkpoint-1/a t:best.pt - w:checkpoint-2/a -"},
	{"a note beside it", "w:checkpoint-1/a t:checkpoint-1/b - w:notes -"},
	{"the older torn, a note", "t:checkpoint-1/b w:checkpoint-2/a + w:notes + n:1"},
	{"steps in order of time, not of number", "t:step-9/a w:step-10/a + t:step-2/a -"},
	{"a directory in the checkpoint with the same step",
	 "w:checkpoint-5/a t:checkpoint-5/global_step5/b - w:checkpoint-5/a -"},
	{"an unnumbered directory is of the root",
	 "w:ckpt/a w:checkpoint-5/a + t:ckpt/a - w:checkpoint-6/a -"},
	{"companions are of the unit", "w:checkpoint-5/a + w:notes k:checkpoint-6/a + n:0"},

	/* ---- names with steps ---- */
	{"each file its step", "w:model_1.pt + t:model_2.pt - w:model_3.pt + n:1"},
	{"several files of a step",
	 "w:m.ckpt-1.index + w:m.ckpt-2.data-00000-of-00001 k:m.ckpt-2.index -"},
	{"... in other directories are others", "w:a/m_2.pt k:b/m_2.pt + n:0"},
	{"killed without others of its step", "w:model_1.pt + w:x k:model_2.pt + n:0"},

	/* ---- removed first, then saved ---- */
	{"all of the root", "w:out/a w:out/b + r:out k:out/a - d:out/a n:1"},
	{"... then another file", "w:out/a w:out/b + r:out k:out/a - w:notes - n:1"},
	{"... saved whole", "w:out/a w:out/b + r:out k:out/a - w:out/a w:out/b + n:0"},
	{"... saved before the seal", "w:out/a w:out/b + r:out k:out/a w:out/a w:out/b +"},
	{"... rolled back", "w:out/a w:out/b + r:out k:out/a - b:1 n:0 w:x +"},
	{"... and forward", "w:out/a w:out/b + r:out k:out/a - b:1 b:2 d:out/a w:x -"},
	{"... taken over", "w:out/a w:out/b + r:out k:out/a - x w:x - d:out/a w:out/a +"},
	{"... by word", "w:out/a w:out/b + r:out k:out/a - W w:x + n:0"},
	{"the file alone", "w:m + r:m k:m w:x - w:x - w:m +"},
	{"the others of the save", "w:a w:b w:c + r:b r:c k:a - w:a w:b w:c +"},
	{"a backup by rename", "w:last w:x + m:last:prev k:last - w:last + n:0"},
	{"a unit with a step", "w:step-1/a w:step-1/b + r:step-1/b k:step-1/a - w:step-1/a +"},
	{"the only step, then the next", "w:step-1/a w:x + r:step-1 k:step-2/a - d:step-2/a"},
	{"... saved again", "w:step-1/a + r:step-1 k:step-2/a - w:step-2/a + n:0"},
	{"... another step instead", "w:step-1/a + r:step-1 k:step-2/a - w:step-3/a + n:0"},
	{"... under a temporary name",
	 "w:step-1/a + r:step-1 k:tmp-c/a - w:tmp-c/a m:tmp-c:step-2 + n:0"},
	{"... of files with steps", "w:m_1.pt + r:m_1.pt k:m_2.pt - w:m_2.pt +"},
	{"the newest step, an older one left",
	 "w:step-1/a + w:step-2/a + r:step-2 k:step-3/a - w:step-3/a +"},
	{"the oldest step, by rotation", "w:step-1/a w:step-2/a + r:step-1 k:step-3/a + n:0"},
	{"a file of no step, then a step", "w:notes w:step-1/a + r:notes k:step-2/a + n:0"},

	/* ---- a temporary directory that is renamed ---- */
	{"killed and done again",
	 "w:c-step0/m + w:_checkpoint/m k:_checkpoint/o r:_checkpoint w:_checkpoint/m"
	 " w:_checkpoint/o m:_checkpoint:c-step1 + n:0"},
	{"killed and done again in place",
	 "w:c-step0/m + w:_checkpoint/m k:_checkpoint/o w:_checkpoint/m"
	 " w:_checkpoint/o m:_checkpoint:c-step1 + n:0"},
	{"killed, and sealed as it is", "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + n:1"},
	{"... then renamed",
	 "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + m:tmp-c:c-step1 - d:c-step1/o"},
	{"... then removed", "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + r:tmp-c w:y + n:0"},
	{"... then saved and renamed",
	 "w:c-step0/m + w:tmp-c/m k:tmp-c/o w:x + w:tmp-c/o m:tmp-c:c-step1 + n:0"},
	{"the first file of it killed, others after",
	 "k:tmp-c/m w:x + w:tmp-c/o m:tmp-c:c-step1 -"},
	{"torn, then renamed", "w:x + t:tmp-c/m w:x + m:tmp-c:c-step1 -"},
	{"a temporary file killed", "w:m + k:m.tmp w:x + n:0"},
	{"a temporary file torn and renamed", "w:m + t:m.tmp w:x + m:m.tmp:m - w:m +"},

	/* ---- copies ---- */
	{"last and best, torn while copied", "w:last w:best + w:last t:best - w:best +"},
	{"best copied from a torn last", "w:last w:best + t:last t:best - w:last - w:best +"},
	{"best killed after last", "w:last w:best + w:last k:best - w:last +"},

	/* ---- a config written once ---- */
	{"killed at the start", "k:config.json + w:model + w:model +"},
	{"killed at the start, beside a model", "w:model + k:config.json w:model - w:model +"},

	/* ---- two ranks ---- */
	{"one killed while the other writes",
	 "w:c-step1/0 w:c-step1/1 + o:c-step2/0 k:c-step2/1 c:c-step2/0 -"},
	{"... and saves the same files once more",
	 "w:r0 w:r1 + w:r0 k:r1 - o:r0 k:r1 c:r0 - w:notes - w:r1 +"},
	{"... and renames what it has written before",
	 "w:r0 w:r1 + w:r0 k:r1 - w:r0 w:r0.new k:r1 m:r0.new:r0 - w:notes - w:r1 +"},
	{"one killed after the other",
	 "w:c-step1/0 + w:c-step2/0 k:c-step2/1 - w:c-step3/0 w:c-step3/1 +"},
	{"one killed, the other goes on twice", "w:r0 w:r1 + k:r1 w:r0 w:r0 + n:0"},
	{"one killed before the other begins", "w:r0 w:r1 + k:r1 w:r0 - w:r0 w:r1 +"},
	{"both killed", "w:r0 w:r1 + k:r0 k:r1 + n:0"},

	/* ---- what a killed writer left ---- */
	{"a database", "w:a + e:runs.db - w:a + n:0"},
	{"a database, written again", "w:a + e:runs.db w:runs.db + n:0"},

	/* ---- rollback, other machines, the word of somebody ---- */
	{"rolled back", "w:a w:b + w:a k:b - b:1 n:0 w:x +"},
	{"... and forward", "w:a w:b + w:a k:b - b:1 b:2 d:b w:x - w:a +"},
	{"torn, rolled back and forward", "w:a + t:a - b:1 w:x + b:2 w:y - w:a +"},
	{"a restored tree has the same newest unit",
	 "t:step-1/a w:step-2/a + w:step-3/a + b:1 w:x + n:1"},
	{"taken over", "w:a w:b + w:a k:b - x w:x - d:b w:b + n:0"},
	{"taken over, companion saved", "w:a w:b + w:a k:b - x w:a + n:0"},
	{"taken over twice", "w:a w:b + w:a k:b - x w:x - x w:y - d:b"},
	{"torn, taken over", "w:a + t:a - x w:x - w:a +"},
	{"older unit, taken over", "w:step-1/a k:step-1/b - w:step-2/a + x w:x + n:1"},
	{"by word", "w:a w:b + t:a k:b - W n:0 w:x +"},
	{"by word, then torn again", "w:a + t:a - W t:a -"},

	/* ---- imports ---- */
	{"a torn file, imported as it is", "w:a + i t:a - i w:x - n:1 d:a"},
	{"... and whole", "w:a + i t:a - i w:a + n:0"},
	{"... and removed", "w:a + i t:a - i r:a w:x +"},
	{"what a mount had torn", "w:a + t:a - i w:x - d:a i w:a + n:0"},
	{"what a mount had killed", "w:a w:b + w:a k:b - i w:x - d:b i w:y - n:1"},
	{"... saved whole", "w:a w:b + w:a k:b - i w:b + n:0"},
	{"... its companion saved", "w:a w:b + w:a k:b - i w:a + n:0"},
	{"... its companion removed", "w:a w:b + w:a k:b - i r:a w:x +"},
	{"... by word", "w:a w:b + w:a k:b - W i w:x + n:0"},
	{"removed first, then killed", "w:o/a w:o/b + r:o k:o/a - i w:x - i w:o/a w:o/b + n:0"},
	{"the next step is whole", "w:step-1/a t:step-1/b - i w:step-2/a + n:1"},
	{"the older step is torn", "t:step-1/b w:step-2/a + i w:notes + n:1"},
	{"a mount goes on after it", "w:a w:b + w:a k:b - i w:x - x w:y - w:b + n:0"},
};

START_TEST(a_history)
{
	char text[512], *word, *rest = NULL;
	static const struct volume_options options;
	static struct world w;

	w = (struct world){0};
	unit_ok(rules_new(&options, &w.rules));
	snprintf(text, sizeof(text), "%s", cases[_i].history);
	for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		do_word(&w, cases[_i].name, word);
	rules_free(w.rules);
}
END_TEST

START_TEST(units_of_paths)
{
	static const struct {
		const char *path;
		size_t len;
		bool temporary, file;
	} paths[] = {
		{"model.pt", 0, false, false},
		{"dir/model.pt", 0, false, false},
		{"checkpoint-500/model.pt", 14, false, false},
		{"run/checkpoint-500/model.pt", 18, false, false},
		{"checkpoint-500/global_step500/mp_rank_00.pt", 14, false, false},
		{"checkpoint_5/random_states_0.pkl", 12, false, false},
		{"00012/a", 5, false, false},
		{"model_12.pt", 11, false, true},
		{"epoch=3-step=400.ckpt", 21, false, true},
		{"tmp-checkpoint-500/model.pt", 18, true, false},
		{"checkpoint-500/model.pt.tmp", 27, true, false},
		{"_checkpoint/checkpoint-5/a", 11, true, false},
	};
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct doubt_unit u = doubt_unit_of(r, paths[i].path);

		ck_assert_msg(u.len == paths[i].len && u.temporary == paths[i].temporary &&
				      u.file == paths[i].file,
			      "%s: %zu %d %d", paths[i].path, u.len, u.temporary, u.file);
	}
	rules_free(r);
}
END_TEST

/* A new file, undone, with nothing beside it. */
static uint64_t counting_of_one_kill(struct rules *r, bool base_is_there)
{
	cleanup_doubts struct doubts *d = NULL;

	unit_ok(doubts_new(r, 0, &d));
	unit_ok(doubts_add_kill(d, &(const struct doubts_kill){.id = 1,
							       .kind = DOUBT_UNDONE,
							       .path = "out/a",
							       .why = "its writer was killed",
							       .since = 2,
							       .base = 1}));
	ck_assert_uint_eq(doubts_next_base(d, 0), 1);
	if (!base_is_there)
		doubts_gone_unknown(d, 1);
	unit_ok(doubts_decide(d));
	return doubts_counting(d);
}

START_TEST(while_nobody_can_tell_what_is_gone_the_doubt_stands)
{
	static const struct volume_options options;
	struct rules *r = NULL;

	unit_ok(rules_new(&options, &r));
	ck_assert_uint_eq(counting_of_one_kill(r, true), 0);
	ck_assert_uint_eq(counting_of_one_kill(r, false), 1);
	rules_free(r);
}
END_TEST

START_TEST(of_many_torn_files_those_that_count_are_named_first)
{
	static const struct volume_options options;
	cleanup_doubts struct doubts *d = NULL;
	struct rules *r = NULL;
	char path[64];
	size_t count;

	unit_ok(rules_new(&options, &r));
	unit_ok(doubts_new(r, 0, &d));
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "step-%u/a", i % 10 ? 1 : 2);
		unit_ok(doubts_add_file(d, &(const struct doubts_file){.path = path,
								       .ino = i + 1,
								       .version = i + 1,
								       .born = 1,
								       .torn = "torn"}));
	}
	snprintf(path, sizeof(path), "step-2/b");
	unit_ok(doubts_add_file(d, &(const struct doubts_file){
					   .path = path, .ino = 2000, .version = 2000, .born = 1}));
	unit_ok(doubts_decide(d));
	ck_assert_uint_eq(doubts_counting(d), 100);
	ck_assert(doubts_list(d, &count)[99].counts && !doubts_list(d, &count)[100].counts);
	ck_assert_uint_eq(count, DOUBTS_NAMED_MAX);
	ck_assert_str_eq(doubts_newest(d), "step-2/b");
	rules_free(r);
}
END_TEST

START_TEST(kinds_have_names)
{
	for (enum doubt_kind k = DOUBT_TORN; k <= DOUBT_LEFT; k++)
		ck_assert_int_eq(doubt_kind_parse(doubt_kind_name(k)), k);
	ck_assert_int_eq(doubt_kind_parse("of a newer program"), DOUBT_TORN);
	ck_assert_int_eq(doubt_kind_parse(NULL), DOUBT_TORN);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_doubts");
	TCase *c = unit_case(s, "doubts");

	tcase_add_loop_test(c, a_history, 0, (int)(sizeof(cases) / sizeof(*cases)));
	tcase_add_test(c, units_of_paths);
	tcase_add_test(c, while_nobody_can_tell_what_is_gone_the_doubt_stands);
	tcase_add_test(c, of_many_torn_files_those_that_count_are_named_first);
	tcase_add_test(c, kinds_have_names);
	return unit_run(s);
}
