/* SPDX-License-Identifier: Apache-2.0 */
/* A save whose files are renamed into place one by one: the first rename seals too early, but not twice. */
#include "tests/unit/epochs_unit.h"

/*
 * Steps with blanks between them:
 *   d:DIR   made                                s:FILE  saved under FILE.tmp, closed and renamed
 *   D:DIR   saved under tmp-DIR and renamed     r:FILE  saved under FILE.X, closed and renamed
 *   p:FILE  saved in place, and sealed by quiet o:FILE  saved in place
 *   k:FILE  its writer is killed under FILE.tmp x:FILE  its writer is killed
 *   K:FILE  as k, another process               w, W    longer than the quiesce time, than patience
 *   t       the end: sealed
 */
static const struct history {
	const char *steps, *complete; /* the epochs that are, in the end */
} histories[] = {
	/* In a directory of its own */
	{"d:checkpoint-5 s:checkpoint-5/a", "1"},
	{"d:checkpoint-5 s:checkpoint-5/a k:checkpoint-5/b t", ""},
	{"d:checkpoint-5 s:checkpoint-5/a w k:checkpoint-5/b t", ""},
	{"d:checkpoint-5 s:checkpoint-5/a s:checkpoint-5/b k:checkpoint-5/c t", ""},
	{"d:checkpoint-5 s:checkpoint-5/a s:checkpoint-5/b d:checkpoint-6 s:checkpoint-6/a", "2"},
	{"d:checkpoint-5 s:checkpoint-5/a s:checkpoint-5/b d:checkpoint-6 s:checkpoint-6/a k:checkpoint-6/b t",
	 "2"},
	/* A directory that was renamed is whole. */
	{"D:checkpoint-5", "1"},
	{"D:checkpoint-5 k:checkpoint-5/b", "1"},
	{"D:checkpoint-5 p:checkpoint-5/b k:checkpoint-5/c t", ""},
	/* In place */
	{"s:a s:b s:a", "2"},
	{"s:a s:b s:a s:b", "23"},
	{"s:a s:b s:c s:a s:b", "3"},
	{"s:a s:b s:c s:a s:b s:c", "34"},
	{"s:a-1 s:b-1 s:a-2", "2"},
	{"d:out p:out/a s:out/b s:out/b", "23"},
	{"s:a s:b s:a k:b t", "2"},
	{"s:a s:b s:c s:a s:b k:c t", "3"},
	{"s:a s:b s:c s:a k:b t", "3"},
	{"s:a s:b s:a w k:b t", "2"},
	{"s:a s:b s:a s:b k:a", "23"},
	{"s:a s:a k:a", "12"},
	/* ... the first time */
	{"s:a s:b", "2"},
	{"s:a k:b t", ""},
	{"s:a K:b", "1"},
	{"s:a w k:b", "1"},
	{"s:a s:b k:c t", ""},
	{"s:a s:b K:unrelated", "2"},
	{"s:ckpt-1 s:ckpt-2 k:ckpt-3", "12"},
	{"s:ckpt-1.a s:ckpt-1.b k:ckpt-1.c t", ""},
	{"s:ckpt-1.a s:ckpt-1.b s:ckpt-2.a k:ckpt-2.b t", "2"},
	/* The same directory again */
	{"d:out s:out/a s:out/b s:out/a k:out/b t", "2"},
	{"d:out p:out/a p:out/b", "2"},
	{"d:out p:out/a r:out/a p:n", "12"},
	{"d:out p:out/a r:out/a r:out/b p:n", "2"},
	{"d:out p:out/a s:out/a", "12"},
	{"d:out o:out/a p:out/b o:out/a k:out/b t", "1"},
	{"d:out o:out/a s:out/b o:out/a k:out/b t", "1"},
	{"d:out o:out/a s:out/b w o:out/a k:out/b t", "1"},
	{"d:out o:out/a s:out/b o:out/a x:out/b t", "1"},
	{"d:out o:out/a p:out/b o:out/a x:out/new t", "1"},
	{"d:out p:out/a x:out/b t", ""},
	{"d:out p:out/a w x:out/b t", ""},
	{"d:out p:out/a W x:out/b d:n t", "12"},
	/* The last file of a framework is one of several in a larger save. */
	{"d:step-5 o:step-5/m o:step-5/.metadata d:step-6 o:step-6/m o:step-6/.metadata", "12"},
	{"d:step-5 o:step-5/m o:step-5/.metadata d:step-5/o p:step-5/o/m d:step-6 o:step-6/m o:step-6/.metadata d:step-6/o p:step-6/o/m",
	 "23"},
	{"d:step-5 o:step-5/m s:step-5/.metadata p:step-5/n d:step-6 o:step-6/m s:step-6/.metadata p:step-6/n",
	 "23"},
	/* ... but the next save is no part of it. */
	{"d:out d:out/step-5 o:out/step-5/m o:out/step-5/.metadata d:out/step-6 o:out/step-6/m o:out/step-6/.metadata",
	 "12"},
	{"d:out d:out/step-5 p:out/step-5/m d:out/step-6 p:n p:out/step-6/m", "13"},
};

static void save(const char *path, const char *ending)
{
	char tmp[80];

	snprintf(tmp, sizeof(tmp), "%s%s", path, ending);
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

static void kill_writer(const char *path, const char *ending, pid_t pid)
{
	struct handle *h;
	char name[80];

	snprintf(name, sizeof(name), "%s%s", path, ending);
	h = eu_open(name, O_WRONLY | O_CREAT | O_TRUNC);
	/* The sealer's thread looks at who writes. */
	mutex_lock(&u.vol->lock);
	h->tgid = pid;
	mutex_unlock(&u.vol->lock);
	vu_write(h, "half", 0);
	h->killed = true;
	handle_release(h, false);
}

static void pass(int64_t ns)
{
	SCOPED_LOCK(&u.vol->lock);
	u.vol->sealer->last.begun_ns -= ns;
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
		save(path, ".tmp");
		break;
	case 'r':
		save(path, ".X");
		break;
	case 'o':
		eu_save(path, path);
		unit_ok(seal_finish_until(u.vol, INT64_MAX));
		break;
	case 'p':
		eu_save(path, path);
		ck_assert_uint_eq(eu_seal_by("quiet"), eu_count());
		break;
	case 'k':
		kill_writer(path, ".tmp", getpid());
		break;
	case 'K':
		kill_writer(path, ".tmp", getppid());
		break;
	case 'x':
		kill_writer(path, "", getpid());
		break;
	case 'w':
		pass(u.vol->options.settle_ns + 1);
		break;
	case 'W':
		pass(u.vol->options.patience_ns + 1);
		break;
	case 't':
		eu_seal();
		break;
	default:
		ck_abort_msg("%s", word);
	}
}

START_TEST(files_that_are_renamed_one_by_one)
{
	const struct history *h = &histories[_i];
	char *words = strdup(h->steps), *rest, complete[16] = "";

	for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		step(word);
	free(words);
	for (uint64_t n = 1; n <= eu_count(); n++) {
		struct epoch_info info = eu_info(n);

		if (info.complete)
			snprintf(complete + strlen(complete), 2, "%d", (int)n);
		/* Of the last one, a file says why not. */
		else if (n == eu_count())
			ck_assert_uint_gt(info.record.doubt_count, 0);
		epoch_info_free(&info);
	}
	ck_assert_msg(!strcmp(complete, h->complete), "%s: complete are %s", h->steps, complete);
}
END_TEST

/* The same after a mount. */
START_TEST(a_mount_between_two_renames)
{
	eu_mkdir("checkpoint-5");
	save("checkpoint-5/a", ".tmp");
	eu_remount();
	kill_writer("checkpoint-5/b", ".tmp", getpid());
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 0);
}
END_TEST

/* That the files of a save are renamed one by one, is known then, too. */
START_TEST(a_mount_between_two_saves)
{
	save("a", ".tmp");
	save("b", ".tmp");
	eu_remount();
	save("a", ".tmp");
	kill_writer("b", ".tmp", getpid());
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
}
END_TEST

START_TEST(a_mount_after_renames_that_went_on)
{
	save("a", ".tmp");
	save("b", ".tmp");
	eu_remount();
	save("a", ".tmp");
	ck_assert_uint_eq(eu_count(), 2);
	save("b", ".tmp");
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
}
END_TEST

START_TEST(a_mount_in_the_first_save)
{
	save("a", ".tmp");
	eu_remount();
	kill_writer("b", ".tmp", getpid());
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_seal_renames");
	TCase *t = eu_case(s, "renames");

	tcase_add_loop_test(t, files_that_are_renamed_one_by_one, 0,
			    sizeof(histories) / sizeof(histories[0]));
	tcase_add_test(t, a_mount_between_two_renames);
	tcase_add_test(t, a_mount_between_two_saves);
	tcase_add_test(t, a_mount_after_renames_that_went_on);
	tcase_add_test(t, a_mount_in_the_first_save);
	return unit_run(s);
}
