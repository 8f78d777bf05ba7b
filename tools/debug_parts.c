/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into the file of epochfs debug. */
#include "tools/debug.h"

#include <curl/curl.h>
#include <expat.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <lz4.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lib/format/wire.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/text.h"
#include "tools/client.h"
#include "tools/mount_options.h"

#define WORDS_MAX	3
#define LOG_MAX		(UINT64_C(1) << 20) /* of its end */
#define ENVIRONMENT_MAX ((size_t)4 << 20)
#define RELEASE_MAX	((size_t)64 << 10)

static const char *text(const json_t *o, const char *key)
{
	const char *value = json_string_value(json_object_get(o, key));

	return value ? value : "";
}

/* ---- what the commands say ---- */

/* `words` are the command and its operands, and end with NULL. */
static void ask_into(struct debug_report *r, const char *const *words, struct buf *out)
{
	const char *argv[WORDS_MAX + 3] = {"/proc/self/exe", words[0], "--json"};
	char said[DEBUG_SAID_MAX];
	int64_t began_ns = clock_mono_ns();
	int code;

	buf_printf(&r->done, "epochfs %s --json", words[0]);
	for (size_t i = 1; words[i] && i < WORDS_MAX; i++) {
		argv[2 + i] = words[i];
		buf_printf(&r->done, " %s", words[i]);
	}
	code = debug_run(argv, out, said);
	buf_printf(&r->done, ": exit code %d after %" PRId64 " ms%s%s\n", code,
		   (clock_mono_ns() - began_ns) / NS_PER_MS, *said ? ": " : "", said);
}

static void ask(struct debug_report *r, const char *name, const char *const *words)
{
	cleanup_buf struct buf out = {0};

	ask_into(r, words, &out);
	debug_put(r, name, &out);
}

/* ---- what of the mount no command says ---- */

static void put_json(struct debug_report *r, const char *name, const json_t *value)
{
	cleanup_free char *dumped = value ? json_dumps(value, JSON_INDENT(2)) : NULL;
	cleanup_buf struct buf out = {0};

	if (dumped)
		buf_printf(&out, "%s\n", dumped);
	debug_put(r, name, &out);
}

/* Those that are no stranger's business keep their name. */
static void put_options(struct debug_report *r, const json_t *options)
{

	for (size_t i = 0; i < mount_option_count; i++) {
		json_t *given = json_object_get(options, mount_option_table[i].name);

		if (given && mount_option_table[i].hidden)
			json_object_set_new(given, "value", json_null());
	}
	put_json(r, "options.json", options);
}

static void put_log(struct debug_report *r, const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	cleanup_buf struct buf out = {0};
	struct stat st;
	uint64_t from;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || buf_reserve(&out, LOG_MAX) < 0)
		return;
	from = (uint64_t)st.st_size > LOG_MAX ? (uint64_t)st.st_size - LOG_MAX : 0;
	n = io_pread_some(fd, out.data, LOG_MAX, from);
	out.len = n > 0 ? (size_t)n : 0;
	debug_put(r, "log.txt", &out);
}

/* What it was told of secrets, too, so that they are known before anything is put. */
static void learn_from_options(struct debug_report *r, const json_t *options)
{
	for (size_t i = 0; i < mount_option_count; i++) {
		const char *value =
			text(json_object_get(options, mount_option_table[i].name), "value");

		if (!mount_option_table[i].hidden || !*value)
			continue;
		if (*value == '/' && mount_option_table[i].limit)
			scrub_add_file(&r->secrets, value);
		else
			scrub_add(&r->secrets, value);
	}
}

static void learn_from_process(struct debug_report *r, json_int_t pid)
{
	cleanup_buf struct buf block = {0};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%" JSON_INTEGER_FORMAT "/environ", pid);
	if (io_read_file(AT_FDCWD, path, ENVIRONMENT_MAX, &block) == 0)
		scrub_add_environment(&r->secrets, buf_str(&block), block.len);
	if (block.data)
		explicit_bzero(block.data, block.cap);
}

/* The options that hold, from which what is secret is learnt; NULL: they cannot be told. The caller's. */
static json_t *ask_options(struct debug_report *r)
{
	cleanup_buf struct buf out = {0};
	cleanup_json json_t *answer = NULL;
	json_t *options;

	ask_into(r, (const char *const[]){"config", r->target, NULL}, &out);
	answer = json_loadb(buf_str(&out), out.len, 0, NULL);
	options = json_object_get(answer, "options");
	if (options)
		learn_from_options(r, options);
	return json_incref(options);
}

static void collect_mount(struct debug_report *r, const json_t *options)
{
	cleanup_json json_t *status = NULL, *metrics = NULL, *facts = NULL;
	cleanup_free char *log = NULL;
	cleanup_buf struct buf out = {0};
	const char *given = text(json_object_get(options, "log-file"), "value");

	if (client_ask(r->mount, json_pack("{s:s}", "op", "status"), &status) < 0 ||
	    client_ask(r->mount, json_pack("{s:s}", "op", "metrics"), &metrics) < 0 ||
	    client_ask(r->mount, json_pack("{s:s}", "op", "explain"), &facts) < 0)
		return;
	scrub_add_url(&r->secrets, text(status, "remote_url"));
	learn_from_process(r, json_integer_value(json_object_get(status, "pid")));
	text_print(&log, "%s/log", text(json_object_get(status, "cache"), "directory"));
	put_json(r, "explain.json", json_object_get(facts, "facts"));
	buf_printf(&out, "%s", text(metrics, "metrics"));
	debug_put(r, "metrics.txt", &out);
	put_log(r, *given ? given : log ? log : "");
}

/* ---- the machine ---- */

static void put_versions(struct debug_report *r)
{
	cleanup_buf struct buf out = {0};
	struct utsname name;

	uname(&name);
	buf_printf(&out, "epochfs " EPOCHFS_VERSION "\n%s %s %s\n", name.sysname, name.release,
		   name.machine);
	buf_printf(&out, "libfuse %s\n%s\n%s\n", fuse_pkgversion(), curl_version(),
		   OpenSSL_version(OPENSSL_VERSION));
	buf_printf(&out, "SQLite %s\nLZ4 %s\njansson %s\n%s\nlibmicrohttpd %s\n",
		   sqlite3_libversion(), LZ4_versionString(), jansson_version_str(),
		   XML_ExpatVersion(), MHD_get_version());
	io_read_file(AT_FDCWD, "/etc/os-release", RELEASE_MAX, &out);
	debug_put(r, "versions.txt", &out);
}

/* Of the variables that change what epochfs does: their names. */
static void put_environment(struct debug_report *r)
{
	static const char *const begins[] = {"EPOCHFS_", "AWS_",    "GS_",    "GCS_", "GCE_",
					     "GOOGLE_",	 "BEARER_", "X509_",  "SSL_", "SLURM_JOB",
					     "http_",	 "https_",  "HTTPS_", "all_", "ALL_",
					     "no_",	 "NO_",	    "XDG_"};
	cleanup_buf struct buf out = {0};

	for (char **e = environ; *e; e++)
		for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
			if (!strncmp(*e, begins[i], strlen(begins[i])))
				buf_printf(&out, "%.*s is set\n", (int)strcspn(*e, "="), *e);
	debug_put(r, "environment.txt", &out);
}

static void put_mounts(struct debug_report *r)
{
	cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	cleanup_buf struct buf out = {0};
	size_t room = 0;

	while (f && getline(&line, &room, f) > 0)
		if (strstr(line, " - fuse.epochfs "))
			buf_printf(&out, "%s", line);
	debug_put(r, "mounts.txt", &out);
}

void debug_collect(struct debug_report *r)
{
	cleanup_json json_t *options = NULL;

	for (char **e = environ; *e; e++)
		scrub_add_environment(&r->secrets, *e, strlen(*e));
	scrub_add_url(&r->secrets, r->target);
	options = r->hangs ? NULL : ask_options(r);
	if (r->mount)
		collect_mount(r, options);
	put_options(r, options);
	put_versions(r);
	put_environment(r);
	put_mounts(r);
	ask(r, "machine.json", (const char *const[]){"doctor", NULL});
	ask(r, "doctor.json", (const char *const[]){"doctor", r->target, NULL});
	if (!r->hangs) {
		ask(r, "status.json", (const char *const[]){"status", r->target, NULL});
		ask(r, "epochs.json", (const char *const[]){"log", r->target, NULL});
	}
	if (r->mount)
		ask(r, "cache.json", (const char *const[]){"cache", "status", r->mount, NULL});
	debug_put(r, "asked.txt", &r->done);
}
