/* SPDX-License-Identifier: Apache-2.0 */
/* A save whose files are renamed into place one by one: the first rename seals too early. */
#include "tests/unit/epochs_unit.h"

/*
 * Steps with blanks between them:
 *   d:DIR   made                                s:FILE  saved under FILE.tmp, closed and renamed
 *   D:DIR   saved under tmp-DIR and renamed     k:FILE  its writer is killed under FILE.tmp
 *   p:FILE  saved in place                      w       longer than the quiesce time
 */
static const struct history {
	const char *steps;
	uint64_t latest;
	bool doubtful; /* the epoch that is sealed at the end */
} histories[] = {
	/* In a directory of its own */
	{"d:checkpoint-5 s:checkpoint-5/a", 1, false},
	{"d:checkpoint-5 s:checkpoint-5/a k:checkpoint-5/b", 0, true},
	{"d:checkpoint-5 s:checkpoint-5/a w k:checkpoint-5/b", 0, true},
	{"d:checkpoint-5 s:checkpoint-5/a s:checkpoint-5/b k:checkpoint-5/c", 0, true},
	{"d:checkpoint-5 s:checkpoint-5/a s:checkpoint-5/b d:checkpoint-6 s:checkpoint-6/a", 3,
	 false},
	{"d:checkpoint-5 s:checkpoint-5/a s:checkpoint-5/b d:checkpoint-6 s:checkpoint-6/a k:checkpoint-6/b",
	 2, true},
	/* A directory that was renamed is whole. */
	{"D:checkpoint-5", 1, false},
	{"D:checkpoint-5 k:checkpoint-5/b", 1, false},
	{"D:checkpoint-5 p:checkpoint-5/b k:checkpoint-5/c", 0, true},
	/* In place */
	{"s:a s:b s:a s:b", 4, false},
	{"s:a s:b s:a k:b", 2, true},
	{"s:a s:b s:c s:a s:b k:c", 3, true},
	{"s:a s:b s:c s:a k:b", 3, true},
	{"s:a s:b s:a w k:b", 3, false},
	{"s:a s:b s:a s:b k:a", 4, false},
	{"s:a s:a k:a", 2, false},
	{"s:a k:b", 1, false},
	{"s:a s:b k:unrelated", 2, false},
	{"d:out s:out/a s:out/b s:out/a k:out/b", 2, true},
};

static void temporary(const char *path, char out[80])
{
	snprintf(out, 80, "%s.tmp", path);
}

static void save(const char *path)
{
	char tmp[80];

	temporary(path, tmp);
	eu_save(tmp, path);
	eu_rename(tmp, path);
	unit_ok(seal_finish_until(u.vol, INT64_MAX));
}

static void save_directory(const char *dir)
{
	char tmp[64], file[80];

	snprintf(tmp, sizeof(tmp), "tmp-%s", dir);
	snprintf(file, sizeof(file), "%s/a", tmp);
	eu_mkdir(tmp);
	eu_save(file, "a");
	eu_rename(tmp, dir);
	unit_ok(seal_finish_until(u.vol, INT64_MAX));
}

static void kill_under_temporary_name(const char *path)
{
	struct handle *h;
	char tmp[80];

	temporary(path, tmp);
	h = eu_open(tmp, O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(h, "half", 0);
	h->killed = true;
	handle_release(h, false);
}

static void step(const char *word)
{
	const char *path = word + 2;

	switch (word[0]) {
	case 'd':
		eu_mkdir(path);
		break;
	case 'D':
		save_directory(path);
		break;
	case 's':
		save(path);
		break;
	case 'p':
		eu_save(path, path);
		ck_assert_uint_eq(eu_seal_by("quiet"), eu_count());
		break;
	case 'k':
		kill_under_temporary_name(path);
		break;
	case 'w':
		mutex_lock(&u.vol->lock);
		u.vol->sealer->last.begun_ns -= 2 * u.vol->options.settle_ns;
		mutex_unlock(&u.vol->lock);
		break;
	default:
		ck_abort_msg("%s", word);
	}
}

START_TEST(files_that_are_renamed_one_by_one)
{
	const struct history *h = &histories[_i];
	char *words = strdup(h->steps), *rest;
	struct epoch_info info;

	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		step(word);
	free(words);
	if (h->doubtful)
		eu_seal();
	ck_assert_msg(epochs_latest(u.vol) == h->latest, "%s: %d is the latest", h->steps,
		      (int)epochs_latest(u.vol));
	info = eu_info(eu_count());
	ck_assert_msg(info.complete != h->doubtful, "%s", h->steps);
	ck_assert_uint_eq(info.record.doubt_count, h->doubtful);
	epoch_info_free(&info);
}
END_TEST

/* The same after a mount. */
START_TEST(a_mount_between_two_renames)
{
	eu_mkdir("checkpoint-5");
	save("checkpoint-5/a");
	eu_remount();
	kill_under_temporary_name("checkpoint-5/b");
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_seal_renames");
	TCase *t = eu_case(s, "renames");

	tcase_add_loop_test(t, files_that_are_renamed_one_by_one, 0,
			    sizeof(histories) / sizeof(histories[0]));
	tcase_add_test(t, a_mount_between_two_renames);
	return unit_run(s);
}
