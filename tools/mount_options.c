/* SPDX-License-Identifier: Apache-2.0 */
/* Mount options: reading them from the command line and the environment (mount_option_table.c has what they are). */
#include "tools/mount_options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/meta/listing.h"
#include "lib/meta/retention_policy.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/config.h"
#include "tools/suggest.h"

char *mount_options_keep(struct mount_options *o, const char *text)
{
	size_t len = strlen(text) + 1;
	char *node = malloc(sizeof(char *) + len);

	if (!node)
		return NULL;
	*(char **)(void *)node = o->text;
	o->text = node;
	return memcpy(node + sizeof(char *), text, len);
}

void mount_options_init(struct mount_options *o)
{
	*o = (struct mount_options){0};
	volume_options_init(&o->volume);
	o->fs.grace_ns = FS_GRACE_NS;
}

void mount_options_free(struct mount_options *o)
{
	json_decref(o->configured);
	json_decref(o->given);
	o->configured = o->given = NULL;
	/* The list of texts: each begins with a pointer to the next. */
	while (o->text) {
		char *next = *(char **)(void *)o->text;

		free(o->text);
		o->text = next;
	}
}

/* Each one that is given is one more. */
static bool adds_up(const struct option_row *row)
{
	return row->kind == OPTION_GLOB || !strcmp(row->name, "marker");
}

/* Of these two the last one given counts. */
static void forget_other_key(struct mount_options *o, const struct option_row *row)
{
	static const char *const keys[] = {"passphrase-file", "key-file"};

	for (size_t i = 0; i < 2; i++)
		if (!strcmp(row->name, keys[i]))
			json_object_del(o->given, keys[1 - i]);
}

/* Of those that add up all values are kept, else the last one, which counts. */
static int note(struct mount_options *o, const struct option_row *row, const char *value,
		const char *from)
{
	const char *before;
	cleanup_free char *all = NULL;

	if (!o->given)
		o->given = json_object();
	forget_other_key(o, row);
	before = json_string_value(json_object_get(json_object_get(o->given, row->name), "value"));
	if (adds_up(row) && before && text_print(&all, "%s,%s", before, value) < 0)
		return cli_error(EXIT_FAILED, "out of memory");
	return json_object_set_new(o->given, row->name,
				   json_pack("{s:o, s:s}", "value",
					     listing_string(all ? all : value), "from", from))
		       ? cli_error(EXIT_FAILED, "out of memory")
		       : EXIT_DONE;
}

void mount_options_tell(struct mount_options *o)
{
	cleanup_free char *told = o->given ? json_dumps(o->given, JSON_COMPACT) : NULL;

	o->volume.told = told ? mount_options_keep(o, told) : NULL;
}

static bool is_set(const char *variable)
{
	const char *value = getenv(variable);

	return value && *value;
}

static int from_environment(struct mount_options *o, const struct option_row *row)
{
	char name[64];
	const char *value, *expected;
	size_t n = (size_t)snprintf(name, sizeof(name), "EPOCHFS_%s", row->name);

	for (size_t k = 0; k < n; k++)
		name[k] = name[k] == '-' ? '_' : (char)toupper((unsigned char)name[k]);
	value = getenv(name);
	if (!value || !*value)
		return EXIT_DONE;
	value = mount_options_keep(o, value);
	if (!value)
		return cli_error(EXIT_FAILED, "out of memory");
	expected = mount_option_set(row, o, value);
	if (expected)
		return cli_error(EXIT_USAGE, "environment %s=%s: expected %s", name, value,
				 expected);
	return note(o, row, value, name);
}

/* ---- misspelt names in the environment ---- */

#define NAME_MAX_LEN 32

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many letters must be put in, left out or changed to make one of the other (Levenshtein); both up to NAME_MAX_LEN. */
static size_t distance(const char *a, const char *b)
{
	size_t row[NAME_MAX_LEN + 1], len = strlen(b);

	for (size_t k = 0; k <= len; k++)
		row[k] = k;
	for (size_t i = 0; a[i]; i++) {
		size_t before = row[0];

		row[0] = i + 1;
		for (size_t k = 1; k <= len; k++) {
			size_t changed = before + (a[i] != b[k - 1]);

			before = row[k];
			row[k] = smaller(changed, smaller(row[k], row[k - 1]) + 1);
		}
	}
	return row[len];
}

/* Short names are close to much. KEY is close to KEY_FILE, CACHE_DIRECTORY to CACHE_DIR. */
static bool is_close(const char *name, const char *option, size_t far)
{
	size_t len = strlen(name), wanted = strlen(option);

	if (far <= (wanted < 6 ? 1u : 2u))
		return true;
	if (len < wanted)
		return len >= 3 && !strncmp(name, option, len) && option[len] == '_';
	return (wanted >= 6 || (wanted >= 4 && name[wanted] == '_')) &&
	       !strncmp(name, option, wanted);
}

/* What a kind of remote reads by itself: all that begins so is meant for it. */
#define DAV_PREFIX "DAV_"

static bool is_of_dav(const char *given)
{
	static const char *const known[] = {"DAV_USER", "DAV_PASSWORD", "DAV_PASSWORD_FILE"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(given, known[i]))
			return true;
	return false;
}

static void fold(const char *given, char ret_name[NAME_MAX_LEN + 1])
{
	snprintf(ret_name, NAME_MAX_LEN + 1, "%s", given);
	for (char *p = ret_name; *p; p++)
		*p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

/* What is close to the name of an option without being one. */
static void warn_if_misspelt(const char *given)
{
	const char *meant = NULL;
	char name[NAME_MAX_LEN + 1], option[NAME_MAX_LEN + 1];

	fold(given, name);
	if (!strncmp(name, DAV_PREFIX, strlen(DAV_PREFIX))) {
		if (!is_of_dav(given))
			fprintf(stderr,
				"epochfs: environment EPOCHFS_%s is ignored: WebDAV takes EPOCHFS_DAV_USER, "
				"EPOCHFS_DAV_PASSWORD and EPOCHFS_DAV_PASSWORD_FILE\n",
				given);
		return;
	}
	for (size_t i = 0; i < mount_option_count; i++) {
		const struct option_row *row = &mount_option_table[i];
		size_t far;

		fold(row->name, option);
		far = distance(name, option);
		if (!far && !row->environment)
			fprintf(stderr,
				"epochfs: environment EPOCHFS_%s is ignored: %s is given with -o alone\n",
				given, row->name);
		if (!far && (!row->environment || !strcmp(given, name)))
			return;
		if (row->environment && (!meant || !far) && is_close(name, option, far))
			meant = row->name;
	}
	/* Far from it by its letters: in silence a new volume would not be encrypted. */
	if (!meant && !strncmp(name, "PASSWORD", strlen("PASSWORD")))
		meant = "passphrase-file";
	if (meant)
		fprintf(stderr,
			"epochfs: environment EPOCHFS_%s is no option and is ignored: is %s meant?\n",
			given, meant);
}

/* Once: a command may look at the environment for a mount, and again for each remote. */
static void warn_of_misspelt(void)
{
	static bool done;

	if (done)
		return;
	done = true;
	for (char **e = environ; *e; e++) {
		char name[NAME_MAX_LEN + 1];
		size_t len = strcspn(*e, "=");

		if (strncmp(*e, "EPOCHFS_", 8) != 0 || len - 8 > NAME_MAX_LEN)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(len - 8), *e + 8);
		if (!name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-")])
			warn_if_misspelt(name);
	}
}

int mount_options_environment(struct mount_options *o)
{
	int code = EXIT_DONE;

	warn_of_misspelt();
	for (size_t i = 0; i < mount_option_count && code == EXIT_DONE; i++)
		if (mount_option_table[i].environment)
			code = from_environment(o, &mount_option_table[i]);
	return code;
}

/* ---- the configuration files ---- */

static int set_configured(struct mount_options *o, const struct option_row *row,
			  const struct config_entry *e)
{
	const char *expected = mount_option_set(row, o, e->value);
	cleanup_free char *from = NULL;

	if (expected)
		return cli_error(EXIT_USAGE, "%s:%u: %s = %s: expected %s", e->file, e->line,
				 e->name, e->value, expected);
	if (text_print(&from, "%s:%u", e->file, e->line) < 0)
		return cli_error(EXIT_FAILED, "out of memory");
	return note(o, row, e->value, from);
}

static int take_configured(void *arg, const struct config_entry *e)
{
	return set_configured(arg, mount_option_find(e->name, strlen(e->name)), e);
}

static int take_limit(void *arg, const struct config_entry *e)
{
	const struct option_row *row = mount_option_find(e->name, strlen(e->name));

	return row->limit ? set_configured(arg, row, e) : EXIT_DONE;
}

int mount_options_defaults(struct mount_options *o, const char *remote)
{
	int code = config_each(remote, take_configured, o);

	if (code != EXIT_DONE)
		return code;
	o->configured = o->given ? json_deep_copy(o->given) : NULL;
	return mount_options_environment(o);
}

void mount_options_put(struct buf *list, const char *name, const char *value)
{
	buf_printf(list, "%s%s%s", list->len ? "," : "", name, *value ? "=" : "");
	for (; *value; value++)
		buf_printf(list, "%s%c", *value == ',' ? "\\" : "", *value);
}

/* Patterns add up, and the commas between them part options. */
static void put_patterns(struct buf *list, const char *name, const char *patterns)
{
	while (*patterns) {
		size_t len = strcspn(patterns, ",");

		buf_printf(list, "%s%s=%.*s", list->len ? "," : "", name, (int)len, patterns);
		patterns += len + (patterns[len] == ',');
	}
}

const char *mount_options_configured(struct mount_options *o)
{
	cleanup_buf struct buf list = {0};
	const char *name;
	json_t *entry;

	json_object_foreach(o->configured, name, entry)
	{
		const struct option_row *row = mount_option_find(name, strlen(name));
		const char *value = json_string_value(json_object_get(entry, "value"));

		if (adds_up(row))
			put_patterns(&list, name, value);
		else if (json_equal(json_object_get(o->given, name), entry))
			mount_options_put(&list, name, value);
	}
	return buf_error(&list) ? NULL : mount_options_keep(o, buf_str(&list));
}

int mount_options_limits(const char *remote, struct remote_limits *ret_limits)
{
	struct mount_options o;
	int code;

	warn_of_misspelt();
	mount_options_init(&o);
	code = config_each(remote, take_limit, &o);
	for (size_t i = 0; i < mount_option_count && code == EXIT_DONE; i++)
		if (mount_option_table[i].limit)
			code = from_environment(&o, &mount_option_table[i]);
	/* The environment's own texts, which outlive `o`, as those of the configuration do. */
	if (o.volume.limits.key_file && is_set("EPOCHFS_KEY_FILE"))
		o.volume.limits.key_file = getenv("EPOCHFS_KEY_FILE");
	if (o.volume.limits.passphrase_file && is_set("EPOCHFS_PASSPHRASE_FILE"))
		o.volume.limits.passphrase_file = getenv("EPOCHFS_PASSPHRASE_FILE");
	*ret_limits = o.volume.limits;
	mount_options_free(&o);
	return code;
}

static int set_one(struct mount_options *o, char *option)
{
	char *value = strchr(option, '=');
	const char *expected;

	if (value)
		*value++ = '\0';
	for (size_t i = 0; i < mount_option_count; i++) {
		if (strcmp(mount_option_table[i].name, option))
			continue;
		expected = mount_option_set(&mount_option_table[i], o, value ? value : "");
		if (expected)
			return cli_error(EXIT_USAGE, "option %s=%s: expected %s", option,
					 value ? value : "", expected);
		return note(o, &mount_option_table[i], value ? value : "", "-o");
	}
	return cli_error(EXIT_USAGE, "unknown option '%s'%s; see `epochfs mount --help-all`",
			 option, suggest_mount_option(option));
}

int mount_options_parse(struct mount_options *o, const char *list)
{
	char *text = mount_options_keep(o, list), *option = text, *out = text;

	if (!text)
		return cli_error(EXIT_FAILED, "out of memory");
	for (char *p = text;; p++) {
		char c = *p;
		int code;

		if (c == '\\' && p[1] == ',') {
			*out++ = *++p;
			continue;
		}
		/* The commas of keep=last:3,daily:7 part rules. */
		if ((c != ',' && c != '\0') || (c == ',' && retention_goes_on(option, p + 1))) {
			*out++ = c;
			continue;
		}
		*out++ = '\0';
		code = *option ? set_one(o, option) : EXIT_DONE;
		if (code != EXIT_DONE || c == '\0')
			return code;
		option = out = p + 1;
	}
}

int mount_options_check(const struct mount_options *o)
{
	if ((o->fs.suid || o->fs.dev) && geteuid() != 0)
		return cli_error(EXIT_DENIED,
				 "option %s is root's to give: a mount is nosuid and nodev else",
				 o->fs.suid ? "suid" : "dev");
	if (o->volume.take_over && o->volume.read_only)
		return cli_error(EXIT_USAGE,
				 "option take-over is for a mount that writes: leave ro out, "
				 "or take-over");
	if (o->volume.at_epoch && !o->volume.read_only)
		return cli_error(
			EXIT_USAGE,
			"option epoch=%llu shows a past epoch: give ro with it (-o ro,epoch=%llu), "
			"or roll back with `epochfs rollback`",
			(unsigned long long)o->volume.at_epoch,
			(unsigned long long)o->volume.at_epoch);
	return EXIT_DONE;
}
