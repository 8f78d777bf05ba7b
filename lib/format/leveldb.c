/* SPDX-License-Identifier: Apache-2.0 */
/* Is a LevelDB whole? The manifest that CURRENT names, and the tables that it names. */
#include "lib/format/leveldb.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/databases.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"

#define READ_LEN    ((size_t)1 << 20) /* whole blocks */
#define CURRENT_MAX 64u
#define MAGIC_LEN   8u

struct check {
	const struct database_dir *dir;
	char manifest[CURRENT_MAX]; /* its name */
	struct leveldb_manifest m;
	unsigned missing; /* tables */
	char first_missing[32];
};

/* An error of reading that is told elsewhere ends the check of that file. */
static int damage_is_told(int error)
{
	return error == -EBADMSG || error == -EIO ? 0 : error;
}

static void tell(struct check *c, const char *name, const char *what)
{
	c->dir->problem(c->dir->arg, name, what);
}

/* ---- CURRENT ---- */

static bool is_manifest_name(const char *name, size_t len)
{
	static const char start[] = "MANIFEST-";
	size_t at = sizeof(start) - 1;

	return len > at && memcmp(name, start, at) == 0 &&
	       strspn(name + at, "0123456789") >= len - at;
}

/* 1: the name of the manifest is there; 0: this is no LevelDB, or it was told what is wrong. */
static int read_current(struct check *c)
{
	char text[CURRENT_MAX + 1] = {0};
	uint64_t size;
	ssize_t got;
	int error = c->dir->find(c->dir->arg, "CURRENT", &size);

	if (error)
		return error == -ENOENT ? 0 : error;
	got = c->dir->read(c->dir->arg, "CURRENT", text, CURRENT_MAX, 0);
	if (got < 0)
		return damage_is_told((int)got);
	if (got > 1 && text[got - 1] == '\n' && is_manifest_name(text, (size_t)got - 1)) {
		memcpy(c->manifest, text, (size_t)got - 1);
		return 1;
	}
	/* Many programs have a file of this name; fewer one that is locked beside it. */
	if (c->dir->find(c->dir->arg, "LOCK", &size) == 0)
		tell(c, "CURRENT", "LevelDB: it does not name a manifest");
	return 0;
}

/* ---- the manifest ---- */

/* Reads all of it through the decoder. `ret_what` is NULL where nothing is wrong with it. */
static int read_manifest(struct check *c, const char **ret_what)
{
	cleanup_free uint8_t *data = malloc(READ_LEN);
	uint64_t at = 0;
	int error = data ? 0 : -ENOMEM;

	*ret_what = NULL;
	while (!error) {
		ssize_t got = c->dir->read(c->dir->arg, c->manifest, data, READ_LEN, at);

		if (got < 0)
			return (int)got;
		at += (uint64_t)got;
		if (got)
			error = leveldb_manifest_add(&c->m, data, (size_t)got);
		if ((size_t)got < READ_LEN)
			break;
	}
	return error ? error : leveldb_manifest_end(&c->m, ret_what);
}

/* 1: it was read, and what it names can be looked at. */
static int check_manifest(struct check *c)
{
	char text[CURRENT_MAX + 64];
	const char *what;
	uint64_t size;
	int error = c->dir->find(c->dir->arg, c->manifest, &size);

	if (error == -ENOENT) {
		snprintf(text, sizeof(text), "LevelDB: it names %s, which is not there",
			 c->manifest);
		tell(c, "CURRENT", text);
		return 0;
	}
	if (!error)
		error = read_manifest(c, &what);
	if (error == -EPROTONOSUPPORT)
		return 0;
	if (error)
		return damage_is_told(error);
	if (what) {
		tell(c, c->manifest, what);
		return 0;
	}
	return 1;
}

/* ---- what it names ---- */

static int check_table_end(struct check *c, const char *name, uint64_t size)
{
	static const uint8_t magic[MAGIC_LEN] = {0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb};
	uint8_t end[MAGIC_LEN];
	ssize_t got;

	if (size < MAGIC_LEN)
		return 0;
	got = c->dir->read(c->dir->arg, name, end, MAGIC_LEN, size - MAGIC_LEN);
	if (got < 0)
		return damage_is_told((int)got);
	if (got != MAGIC_LEN || memcmp(end, magic, MAGIC_LEN) != 0)
		tell(c, name, "LevelDB: it does not end as a table does");
	return 0;
}

static int check_table(void *arg, uint64_t number, uint64_t size)
{
	struct check *c = arg;
	char name[32], text[128];
	uint64_t is;
	int error;

	snprintf(name, sizeof(name), "%06" PRIu64 ".ldb", number);
	error = c->dir->find(c->dir->arg, name, &is);
	if (error == -ENOENT) {
		char old[32];

		snprintf(old, sizeof(old), "%06" PRIu64 ".sst", number);
		error = c->dir->find(c->dir->arg, old, &is);
		if (error == -ENOENT) {
			if (!c->missing++)
				memcpy(c->first_missing, name, sizeof(name));
			return 0;
		}
		memcpy(name, old, sizeof(old));
	}
	if (error)
		return error;
	if (is == size)
		return check_table_end(c, name, size);
	snprintf(text, sizeof(text),
		 "LevelDB: it has %" PRIu64 " byte%s, and its manifest says %" PRIu64, is,
		 plural(is), size);
	tell(c, name, text);
	return 0;
}

static int check_named(struct check *c)
{
	char text[160], log[32];
	uint64_t size;
	int error = leveldb_manifest_each(&c->m, check_table, c);

	if (error)
		return error;
	if (c->missing == 1)
		snprintf(text, sizeof(text), "LevelDB: it names %s, which is not there",
			 c->first_missing);
	else if (c->missing)
		snprintf(text, sizeof(text), "LevelDB: it names %s and %u more that are not there",
			 c->first_missing, c->missing - 1);
	if (c->missing) {
		tell(c, c->manifest, text);
		return 0;
	}
	/* 0: all that there was is in tables. */
	if (!c->m.log_number)
		return 0;
	snprintf(log, sizeof(log), "%06" PRIu64 ".log", c->m.log_number);
	error = c->dir->find(c->dir->arg, log, &size);
	if (error != -ENOENT)
		return error;
	snprintf(text, sizeof(text),
		 "LevelDB: it names %s, which is not there: what was written last is lost", log);
	tell(c, c->manifest, text);
	return 0;
}

int leveldb_check(const struct database_dir *dir)
{
	struct check c = {.dir = dir};
	int result = read_current(&c);

	if (result == 1)
		result = check_manifest(&c);
	if (result == 1)
		result = check_named(&c);
	leveldb_manifest_free(&c.m);
	return result;
}
