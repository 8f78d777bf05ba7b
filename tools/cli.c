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
#include "lib/util/printable.h"
#include "lib/util/text.h"

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

const char *cli_reason(int error)
{
	switch (-error) {
	case EBADMSG:
	case EUCLEAN:
		return "damaged or missing in the remote; epochfs fsck says more";
	case EHOSTUNREACH:
		return "the remote does not answer";
	case EPROTONOSUPPORT:
		return "it is of a newer epochfs: upgrade this one";
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

static const struct cli_option *find_option(const struct cli_option *options, const char *name,
					    size_t len, char letter)
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

/* The options that every command takes. */
static const char *common_key_file, *common_passphrase_file;
static const struct cli_option common_options[] = {
	{"key-file", 0, NULL, &common_key_file},
	{"passphrase-file", 0, NULL, &common_passphrase_file},
	{0},
};

/* Of an option that is repeated: "-o A -o B" is "-o A,B". Lives as long as the program. */
static const char *join(const char *first, const char *second)
{
	static char *joined;
	char *before = joined;

	if (text_print(&joined, "%s,%s", first, second) < 0)
		joined = NULL;
	free(before);
	return joined;
}

/* One option at argv[*i]; 0, or -1 after a message. */
static int take_option(const char *command, int argc, char **argv, int *i,
		       const struct cli_option *options)
{
	const char *arg = argv[*i], *value = NULL;
	const struct cli_option *o;

	if (arg[1] == '-') {
		size_t len = strcspn(arg + 2, "=");

		o = find_option(options, arg + 2, len, 0);
		if (!o)
			o = find_option(common_options, arg + 2, len, 0);
		if (arg[2 + len] == '=')
			value = arg + 2 + len + 1;
	} else {
		o = find_option(options, NULL, 0, arg[1]);
		if (arg[2])
			value = arg + 2;
	}
	if (!o) {
		cli_usage_error(command, "unknown option %s", arg);
		return -1;
	}
	if (o->flag) {
		if (value) {
			cli_usage_error(command, "option --%s takes no value", o->name);
			return -1;
		}
		*o->flag = true;
		return 0;
	}
	if (!value && *i + 1 < argc)
		value = argv[++*i];
	if (!value) {
		cli_usage_error(command, "option --%s needs a value", o->name);
		return -1;
	}
	if (*o->value && o->letter == 'o') {
		value = join(*o->value, value);
		if (!value)
			return cli_error(-1, "out of memory");
	}
	*o->value = value;
	return o->value == &common_key_file || o->value == &common_passphrase_file
		       ? set_key(command, o->name, value)
		       : 0;
}

int cli_parse(const char *command, int argc, char **argv, const struct cli_option *options,
	      const char **operands, int max, int *ret_exit)
{
	bool only_operands = false;
	int count = 0;

	for (int i = 1; i < argc; i++) {
		if (!only_operands && !strcmp(argv[i], "--")) {
			only_operands = true;
		} else if (!only_operands &&
			   (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
			command_help(command_find(command));
			*ret_exit = EXIT_DONE;
			return -1;
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
			if (take_option(command, argc, argv, &i, options) < 0) {
				*ret_exit = EXIT_USAGE;
				return -1;
			}
		} else if (count == max) {
			*ret_exit = cli_usage_error(command, "too many arguments: %s", argv[i]);
			return -1;
		} else {
			operands[count++] = argv[i];
		}
	}
	return count;
}
