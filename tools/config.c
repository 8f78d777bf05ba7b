/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/mount_options.h"
#include "tools/suggest.h"

#define FILE_MAX ((size_t)1 << 20)
#define BLANKS	 " \t\r"

/* Read once, and kept: its texts are what options point to. */
static struct config {
	char path[PATH_MAX];
	char *text; /* cut into words */
	struct config_entry *entries;
	size_t count;
	bool done;
} configs[CONFIG_FILES];

void config_path(size_t which, char ret_path[PATH_MAX])
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	*ret_path = '\0';
	if (which == 0)
		snprintf(ret_path, PATH_MAX, "/etc/epochfs.conf");
	else if (config && *config == '/')
		snprintf(ret_path, PATH_MAX, "%s/epochfs/config", config);
	else if (home && *home == '/')
		snprintf(ret_path, PATH_MAX, "%s/.config/epochfs/config", home);
}

/* ---- a line ---- */

__attribute__((format(printf, 3, 4))) static int wrong(const struct config *c, unsigned line,
						       const char *fmt, ...)
{
	cleanup_free char *text = NULL;
	va_list ap;

	va_start(ap, fmt);
	text_vprint(&text, fmt, ap);
	va_end(ap);
	return cli_error(EXIT_USAGE, "%s:%u: %s", c->path, line, text ? text : "out of memory");
}

static char *trimmed(char *text)
{
	size_t len;

	text += strspn(text, BLANKS);
	for (len = strlen(text); len && strchr(BLANKS, text[len - 1]); len--)
		text[len - 1] = '\0';
	return text;
}

/* Up to a '#' that begins a word, and is not in quotes. NULL: the quotes have no end, or something follows it. */
static char *value_of(char *text)
{
	char *end;

	text = trimmed(text);
	if (*text == '"') {
		end = strchr(++text, '"');
		if (!end || !strchr("#", *trimmed(end + 1)))
			return NULL;
		*end = '\0';
		return text;
	}
	for (end = text; *end && (*end != '#' || (end > text && !strchr(BLANKS, end[-1]))); end++)
		;
	*end = '\0';
	return trimmed(text);
}

/* [remote "URL"] */
static int take_section(const struct config *c, unsigned line, char *text, const char **ret_url)
{
	char *url = trimmed(text + 1), *end;
	const char *host, *at;

	if (strncmp(url, "remote", 6) != 0 || !strchr(BLANKS "\"", url[6]))
		return wrong(c, line, "a section is [remote \"URL\"]: write it so");
	url = trimmed(url + 6);
	end = *url == '"' ? strchr(url + 1, '"') : NULL;
	if (!end || end == url + 1 || *trimmed(end + 1) != ']' ||
	    !strchr("#", *trimmed(strchr(end + 1, ']') + 1)))
		return wrong(c, line, "a section is [remote \"URL\"]: write it so");
	*end = '\0';
	host = strstr(++url, "://");
	at = host ? memchr(host + 3, '@', strcspn(host + 3, "/?#")) : NULL;
	if (at && memchr(host + 3, ':', (size_t)(at - host - 3)))
		return wrong(
			c, line,
			"no password belongs in this file: leave user and password out, the section is for all users");
	*ret_url = url;
	return EXIT_DONE;
}

static int check_name(const struct config *c, unsigned line, const char *name)
{
	for (size_t i = 0; i < mount_option_count; i++) {
		if (strcmp(mount_option_table[i].name, name) != 0)
			continue;
		if (mount_option_table[i].environment)
			return EXIT_DONE;
		return wrong(c, line, "%s is given with -o alone: remove it here", name);
	}
	if (strstr(name, "pass") || strstr(name, "secret") || strstr(name, "token"))
		return wrong(
			c, line,
			"no secret belongs in this file: remove it; passphrase-file and key-file name files that hold one");
	return wrong(c, line, "unknown option '%s'%s; see `epochfs mount --help-all`", name,
		     suggest_mount_option(name));
}

static int take_entry(struct config *c, unsigned line, char *text, const char *section)
{
	char *equals = strchr(text, '='), *value = equals ? value_of(equals + 1) : NULL;
	struct config_entry *more;
	int code;

	if (!equals)
		return wrong(c, line, "not NAME = VALUE: give a value, or put a '#' before it");
	*equals = '\0';
	text = trimmed(text);
	if (!value)
		return wrong(c, line, "the value of %s has a quote too few: end it with one", text);
	code = check_name(c, line, text);
	if (code != EXIT_DONE)
		return code;
	more = reallocarray(c->entries, c->count + 1, sizeof(*more));
	if (!more)
		return cli_error(EXIT_FAILED, "out of memory");
	c->entries = more;
	more[c->count++] = (struct config_entry){c->path, line, section, text, value};
	return EXIT_DONE;
}

/* ---- a file ---- */

/* It may name programs, which then run as this user. */
static int check_owner(const struct config *c)
{
	struct stat st;

	if (stat(c->path, &st) < 0)
		return EXIT_DONE;
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return cli_error(EXIT_USAGE, "%s: another user owns it: chown it", c->path);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return cli_error(EXIT_USAGE, "%s: other users can write it: chmod go-w it",
				 c->path);
	return EXIT_DONE;
}

static int load(struct config *c)
{
	cleanup_buf struct buf text = {0};
	int error = *c->path ? io_read_file(AT_FDCWD, c->path, FILE_MAX, &text) : -ENOENT;

	if (error == -ENOENT || error == -ENOTDIR || error == -EACCES)
		return EXIT_DONE;
	if (error)
		return cli_error(EXIT_FAILED, "%s: cannot be read: %s", c->path, strerror(-error));
	c->text = strdup(buf_str(&text));
	return c->text ? check_owner(c) : cli_error(EXIT_FAILED, "out of memory");
}

static int read_config(struct config *c, size_t which)
{
	const char *section = NULL;
	unsigned number = 0;
	char *line, *next;
	int code;

	if (c->done)
		return EXIT_DONE;
	config_path(which, c->path);
	code = load(c);
	for (next = c->text; code == EXIT_DONE && next;) {
		line = trimmed(strsep(&next, "\n"));
		number++;
		if (*line == '[')
			code = take_section(c, number, line, &section);
		else if (*line && *line != '#')
			code = take_entry(c, number, line, section);
	}
	c->done = code == EXIT_DONE;
	return code;
}

/* ---- what of it counts ---- */

/* The length of the URL `section` where `remote` is that, or lies below it; 0: it does not. */
static size_t reaches(const char *section, const char *remote)
{
	size_t len = strlen(section);

	while (len > 1 && section[len - 1] == '/')
		len--;
	return !strncmp(section, remote, len) && strchr("/?", remote[len]) ? len : 0;
}

/* As sections are compared with: a directory by its path from /, and a URL without its user. */
static void plain_remote(const char *remote, char ret_remote[PATH_MAX])
{
	const char *host, *at;

	if (!strchr(remote, ':') && realpath(remote, ret_remote))
		return;
	if (!strncmp(remote, "file:///", 8))
		remote += 7;
	host = strstr(remote, "://");
	host = host ? host + 3 : remote;
	at = host == remote ? NULL : memrchr(host, '@', strcspn(host, "/?#"));
	snprintf(ret_remote, PATH_MAX, "%.*s%s", (int)(host - remote), remote, at ? at + 1 : host);
}

/* In the order of how long their URL is; those of one length as they stand. */
static int give(const struct config *c, const char *remote, config_fn *fn, void *arg)
{
	char plain[PATH_MAX] = "", section[PATH_MAX];
	size_t longest = 0;
	int code = 0;

	if (remote)
		plain_remote(remote, plain);
	for (size_t len = 0; len <= longest && !code; len++)
		for (size_t i = 0; i < c->count && !code; i++) {
			size_t reach = 0;

			if (c->entries[i].section) {
				plain_remote(c->entries[i].section, section);
				reach = reaches(section, plain);
				if (!reach)
					continue;
			}
			longest = reach > longest ? reach : longest;
			if (reach == len)
				code = fn(arg, &c->entries[i]);
		}
	return code;
}

int config_each(const char *remote, config_fn *fn, void *arg)
{
	int code = EXIT_DONE;

	for (size_t i = 0; i < CONFIG_FILES && code == EXIT_DONE; i++)
		code = read_config(&configs[i], i);
	for (size_t i = 0; i < CONFIG_FILES && code == EXIT_DONE; i++)
		code = give(&configs[i], remote, fn, arg);
	return code;
}
