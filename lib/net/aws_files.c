/* SPDX-License-Identifier: Apache-2.0 */
/* The two files that Amazon's tools share. */
#include "lib/net/aws_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>
#include "lib/util/io.h"
#include "lib/util/text.h"

#define FILE_MAX ((size_t)1 << 20)
#define BLANKS	 " \t\r"

const char *env_value(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static void wipe_free(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void aws_files_free(struct aws_files *files)
{
	for (size_t i = 0; i < files->count; i++) {
		free(files->settings[i].section);
		free(files->settings[i].name);
		wipe_free(files->settings[i].value);
	}
	free(files->settings);
	*files = (struct aws_files){0};
}

const char *aws_files_get(const struct aws_files *files, const char *section, const char *name)
{
	for (size_t i = 0; i < files->count; i++) {
		const struct aws_setting *s = &files->settings[i];

		if (!strcmp(s->section, section) && !strcmp(s->name, name) && *s->value)
			return s->value;
	}
	return NULL;
}

/* ---- parsing */

struct parsing {
	struct aws_files *files;
	bool is_config;
	char *section; /* NULL: one that is left out, or none yet */
	char *parent;  /* the name that indented lines belong to; NULL: none */
};

/* strndup for what ends without a NUL: AddressSanitizer's wants one (strict_string_checks). NULL: -ENOMEM. */
static char *copy_of(const char *text, size_t len)
{
	char *copy = malloc(len + 1);

	if (copy) {
		memcpy(copy, text, len);
		copy[len] = '\0';
	}
	return copy;
}

static void parsing_free(struct parsing *p)
{
	free(p->section);
	free(p->parent);
}

/* The span without blanks at its ends. */
static void trim(const char **text, size_t *len)
{
	while (*len && strchr(BLANKS, **text)) {
		++*text;
		--*len;
	}
	while (*len && strchr(BLANKS, (*text)[*len - 1]))
		--*len;
}

static int add_setting(struct parsing *p, const char *name, size_t name_len, const char *value,
		       size_t value_len)
{
	struct aws_setting *grown =
		reallocarray(p->files->settings, p->files->count + 1, sizeof(*grown));
	struct aws_setting s = {0};

	if (!grown)
		return -ENOMEM;
	p->files->settings = grown;
	s.section = strdup(p->section);
	s.value = copy_of(value, value_len);
	text_print(&s.name, "%s%s%.*s", p->parent ? p->parent : "", p->parent ? "." : "",
		   (int)name_len, name);
	if (!s.section || !s.name || !s.value) {
		free(s.section);
		free(s.name);
		wipe_free(s.value);
		return -ENOMEM;
	}
	grown[p->files->count++] = s;
	return 0;
}

/* What stands between the brackets, and is a profile or services. */
static int enter_section(struct parsing *p, const char *text, size_t len)
{
	static const char profile[] = "profile", services[] = "services";
	const char *end = memchr(text, ']', len);

	parsing_free(p);
	p->section = p->parent = NULL;
	if (!end)
		return 0;
	len = (size_t)(end - text);
	trim(&text, &len);
	if (p->is_config && len > strlen(profile) && !strncmp(text, profile, strlen(profile)) &&
	    strchr(BLANKS, text[strlen(profile)])) {
		text += strlen(profile);
		len -= strlen(profile);
		trim(&text, &len);
	} else if (p->is_config && !(len == strlen("default") && !strncmp(text, "default", len)) &&
		   !(len > strlen(services) && !strncmp(text, services, strlen(services)))) {
		return 0;
	}
	p->section = copy_of(text, len);
	return p->section ? 0 : -ENOMEM;
}

static int parse_line(struct parsing *p, const char *line, size_t len)
{
	bool indented = len && strchr(BLANKS, line[0]);
	const char *equals, *value;
	size_t name_len, value_len;

	trim(&line, &len);
	if (!len || line[0] == '#' || line[0] == ';')
		return 0;
	if (line[0] == '[')
		return enter_section(p, line + 1, len - 1);
	equals = memchr(line, '=', len);
	if (!p->section || !equals)
		return 0;
	name_len = (size_t)(equals - line);
	value = equals + 1;
	value_len = len - name_len - 1;
	trim(&line, &name_len);
	trim(&value, &value_len);
	if (!indented) {
		free(p->parent);
		p->parent = NULL;
	}
	if (value_len || (indented && p->parent))
		return add_setting(p, line, name_len, value, value_len);
	p->parent = copy_of(line, name_len);
	return p->parent ? 0 : -ENOMEM;
}

int aws_files_parse(struct aws_files *files, const char *text, size_t len, bool is_config)
{
	CLEANUP(parsing_free) struct parsing p = {.files = files, .is_config = is_config};
	int r = 0;

	/* A file with a NUL is none of theirs. */
	len = strnlen(text, len);
	while (r == 0 && len) {
		const char *end = memchr(text, '\n', len);
		size_t line = end ? (size_t)(end - text) : len;

		r = parse_line(&p, text, line);
		text += line + (end != NULL);
		len -= line + (end != NULL);
	}
	return r;
}

/* ---- finding the files */

/* ~/.aws/NAME; *ret_path NULL where nobody knows a home. */
static int path_in_home(const char *name, char **ret_path)
{
	const char *home = env_value("HOME");
	char room[4096];
	struct passwd entry, *found = NULL;

	if (!home && getpwuid_r(geteuid(), &entry, room, sizeof(room), &found) == 0 && found)
		home = entry.pw_dir;
	if (!home) {
		*ret_path = NULL;
		return 0;
	}
	return text_print(ret_path, "%s/.aws/%s", home, name) < 0 ? -ENOMEM : 0;
}

static int read_one(struct aws_files *files, const char *variable, const char *name, bool is_config,
		    char **ret_path)
{
	const char *given = env_value(variable);
	cleanup_free char *path = NULL;
	cleanup_buf struct buf text = {0};
	int r = 0;

	if (!given)
		r = path_in_home(name, &path);
	else if (!(path = strdup(given)))
		r = -ENOMEM;
	if (r < 0 || !path)
		return r;
	r = io_read_file(AT_FDCWD, path, FILE_MAX, &text);
	/* /dev/null is how people say "none". */
	if (r == -ENOENT || r == -ENOTDIR || !strcmp(path, "/dev/null"))
		return 0;
	if (r == 0)
		r = aws_files_parse(files, (const char *)text.data, text.len, is_config);
	if (text.len)
		explicit_bzero(text.data, text.len);
	if (r < 0)
		*ret_path = steal_ptr(path);
	return r;
}

int aws_files_read(struct aws_files *ret_files, char **ret_path)
{
	struct aws_files cleanup_aws_files files = {0};
	int r = read_one(&files, "AWS_SHARED_CREDENTIALS_FILE", "credentials", false, ret_path);

	if (r == 0)
		r = read_one(&files, "AWS_CONFIG_FILE", "config", true, ret_path);
	if (r < 0)
		return r;
	*ret_files = files;
	files = (struct aws_files){0};
	return 0;
}
