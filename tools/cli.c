/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes, error lines and the reading of arguments. */
#include "tools/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"
#include "tools/mount_options.h"
#include "tools/suggest.h"

const char *cli_reason(int error)
{
	switch (-error) {
	case EBADMSG:
	case EUCLEAN:
		return "damaged or missing in the remote; epochfs fsck says more";
	case EHOSTUNREACH:
		return "the remote does not answer";
	case EPROTONOSUPPORT:
		return "it was created by a newer version of epochfs: upgrade this one";
	default:
		return strerror(-error);
	}
}

/* A line of stderr, whatever the arguments hold: a remote's text may be among them. */
__attribute__((format(printf, 3, 0))) static void put_line(const char *before, const char *after,
							   const char *fmt, va_list ap)
{
	cleanup_free char *text = NULL;
	cleanup_buf struct buf line = {0};

	text_vprint(&text, fmt, ap);
	printable_put(&line, text ? text : "out of memory");
	fprintf(stderr, "epochfs%s: %s%s\n", before, buf_str(&line), after);
}

int cli_error(int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put_line("", "", fmt, ap);
	va_end(ap);
	return code;
}

int cli_usage_error(const char *command, const char *fmt, ...)
{
	cleanup_buf struct buf before = {0}, after = {0};
	va_list ap;

	buf_printf(&before, " %s", command);
	buf_printf(&after, "; see `epochfs %s --help`", command);
	va_start(ap, fmt);
	put_line(buf_str(&before), buf_str(&after), fmt, ap);
	va_end(ap);
	return EXIT_USAGE;
}

void cli_put(const char *text)
{
	cleanup_buf struct buf shown = {0};

	printable_put(&shown, text);
	fputs(buf_str(&shown), stdout);
}

void cli_print_json(const json_t *value, size_t flags)
{
	/* jansson escapes what is below a blank, not what else a terminal would obey. */
	json_dumpf(value, stdout, flags | (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0));
	putchar('\n');
}

static const struct command_option *find_option(const struct command_option *options,
						const char *name, size_t len, char letter)
{
	for (; options->name; options++) {
		if (letter && options->letter == letter)
			return options;
		if (!letter && strlen(options->name) == len && !memcmp(options->name, name, len))
			return options;
	}
	return NULL;
}

/* What opens an encrypted remote, for whatever this command does with one: told on as the environment tells it
 * (mount_options.h), from any directory. 0, or -1 after a message. */
static int set_key(const char *command, const char *name, const char *path)
{
	bool file = !strcmp(name, "key-file");
	cleanup_free char *here = NULL, *whole = NULL;

	if (path[0] != '/') {
		here = getcwd(NULL, 0);
		if (!here || text_print(&whole, "%s/%s", here, path) < 0) {
			cli_usage_error(command, "option --%s needs a path from /", name);
			return -1;
		}
		path = whole;
	}
	unsetenv(file ? "EPOCHFS_PASSPHRASE_FILE" : "EPOCHFS_KEY_FILE");
	setenv(file ? "EPOCHFS_KEY_FILE" : "EPOCHFS_PASSPHRASE_FILE", path, 1);
	return 0;
}

static const char *common_key_file, *common_passphrase_file;
static bool common_help;
static const struct cli_place common_places[] = {
	{"key-file", NULL, &common_key_file},
	{"passphrase-file", NULL, &common_passphrase_file},
	{"help", &common_help, NULL},
	{0},
};

static const struct cli_place *find_place(const struct cli_place *places, const char *option)
{
	while (places->option && strcmp(places->option, option) != 0)
		places++;
	return places;
}

/* Of an option that is repeated: "-o A -o B" is "-o A,B". Lives as long as the program. */
static const char *join(const char *first, const char *second)
{
	static char *joined;
	char *before = joined;

	if (text_print(&joined, "%s%s%s", first ? first : "", first ? "," : "", second) < 0)
		joined = NULL;
	free(before);
	return joined;
}

/* What argv holds, of the command's options or those of all; its value where it is in the same word. */
static const struct command_option *option_of(const struct command *c, const char *arg,
					      const char **ret_value)
{
	bool is_long = arg[1] == '-';
	const char *name = is_long ? arg + 2 : NULL;
	size_t len = is_long ? strcspn(name, "=") : 0;
	char letter = is_long ? '\0' : arg[1];
	bool is_count = letter >= '0' && letter <= '9';
	const struct command_option *o = find_option(c->options, is_count ? "count" : name,
						     is_count ? 5 : len, is_count ? '\0' : letter);

	*ret_value = NULL;
	if (is_count) { /* -5, as of head(1) and git log */
		*ret_value = arg + 1;
		return o;
	}
	if (is_long && name[len])
		*ret_value = name + len + 1;
	else if (!is_long && arg[2])
		*ret_value = arg + 2;
	return o ? o : find_option(common_command_options, name, len, letter);
}

static int set_value(const struct command *c, const struct command_option *o,
		     const struct cli_place *place, const char *value)
{
	if (*place->value && !strcmp(o->name, "options")) {
		value = join(*place->value, value);
		if (!value)
			return cli_error(-1, "out of memory");
	}
	*place->value = value;
	return place->value == &common_key_file || place->value == &common_passphrase_file
		       ? set_key(c->name, o->name, value)
		       : 0;
}

/* An option of a mount may stand without -o: --settle=0, --ro. 0; 1: it is none, or this command takes none; -1 after a message. */
static int take_mount_option(const struct command *c, int argc, char **argv, int *i,
			     const struct cli_place *places)
{
	const char *name = argv[*i] + 2, *value;
	const struct cli_place *place = find_place(places, "options");
	const struct option_row *row = strncmp(argv[*i], "--", 2) || !place->option
					       ? NULL
					       : mount_option_find(name, strcspn(name, "="));
	cleanup_buf struct buf word = {0};

	if (!row || !row->value)
		return 1;
	value = strchr(name, '=');
	if (value)
		value++;
	else if (*row->value && *i + 1 < argc)
		value = argv[++*i];
	if (!value && *row->value) {
		cli_usage_error(c->name, "option --%s needs a value", row->name);
		return -1;
	}
	mount_options_put(&word, row->name, value ? value : "");
	*place->value = join(*place->value, buf_str(&word));
	return *place->value ? 0 : cli_error(-1, "out of memory");
}

/* One option at argv[*i]; 0, or -1 after a message. */
static int take_option(const struct command *c, int argc, char **argv, int *i,
		       const struct cli_place *places)
{
	const char *arg = argv[*i], *value;
	const struct command_option *o = option_of(c, arg, &value);
	const struct cli_place *place;
	int taken = o ? 1 : take_mount_option(c, argc, argv, i, places);

	if (taken <= 0)
		return taken;
	if (!o) {
		cli_usage_error(c->name, "unknown option %s%s", arg, suggest_option(c, arg));
		return -1;
	}
	place = find_place(places, o->name);
	if (!place->option)
		place = find_place(common_places, o->name);
	if (!o->value) {
		if (value) {
			cli_usage_error(c->name, "option --%s takes no value", o->name);
			return -1;
		}
		*place->flag = true;
		return 0;
	}
	if (!value && *i + 1 < argc)
		value = argv[++*i];
	if (!value) {
		cli_usage_error(c->name, "option --%s needs a value", o->name);
		return -1;
	}
	return set_value(c, o, place, value);
}

int cli_parse(const char *command, int argc, char **argv, const struct cli_place *places,
	      const char **operands, int max, int *ret_exit)
{
	const struct command *c = command_find(command);
	bool only_operands = false;
	int count = 0;

	for (int i = 1; i < argc; i++) {
		if (!only_operands && !strcmp(argv[i], "--")) {
			only_operands = true;
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
			if (take_option(c, argc, argv, &i, places) < 0) {
				*ret_exit = EXIT_USAGE;
				return -1;
			}
		} else if (count == max) {
			*ret_exit = cli_usage_error(command, "too many arguments: %s", argv[i]);
			return -1;
		} else {
			operands[count++] = argv[i];
		}
		if (common_help) {
			command_help(c);
			*ret_exit = EXIT_DONE;
			return -1;
		}
	}
	return count;
}

/* ---- exit codes ---- */

int exit_code_of(int error)
{
	switch (-error) {
	case 0:
		return EXIT_DONE;
	case EINVAL:
		return EXIT_USAGE;
	case EHOSTUNREACH:
	case ECONNREFUSED:
	case ENETUNREACH:
		return EXIT_UNREACHABLE;
	case EACCES:
	case EPERM:
	case EROFS:
		return EXIT_DENIED;
	case ENOENT:
		return EXIT_NOT_FOUND;
	case EBADMSG:
	case EUCLEAN:
		return EXIT_DAMAGED;
	case ETIMEDOUT:
		return EXIT_NOT_DURABLE;
	case EBUSY:
	case EEXIST:
	case ENOTUNIQ:
		return EXIT_CONFLICT;
	default:
		return EXIT_FAILED;
	}
}
