/* SPDX-License-Identifier: Apache-2.0 */
/* The remote that is a program: exec.h has the protocol. */
#include "lib/remote/exec.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"

/* The exit codes of exec.h. */
enum {
	CODE_DONE = 0,
	CODE_USAGE = 2,
	CODE_UNREACHABLE = 3,
	CODE_DENIED = 4,
	CODE_NOT_FOUND = 5,
	CODE_LATE = 7,
	CODE_EXISTS = 8,
	CODE_FULL = 9,
};

static struct exec *exec_of(struct remote *r)
{
	return (struct exec *)r;
}

/* ---- runs */

static int errno_of_code(int code)
{
	switch (code) {
	case CODE_DONE:
		return 0;
	case CODE_USAGE:
		return -EINVAL;
	case CODE_UNREACHABLE:
		return -ECONNREFUSED;
	case CODE_DENIED:
		return -EACCES;
	case CODE_NOT_FOUND:
		return -ENOENT;
	case CODE_LATE:
		return -ETIMEDOUT;
	case CODE_EXISTS:
		return -EEXIST;
	case CODE_FULL:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

/* Runs it: 0 or an error of remote.h. -ENOENT and -EEXIST only from a verb that may say so. */
static int run(struct exec *e, const struct exec_verb *verb)
{
	char said[EXEC_SAID_MAX];
	int code = exec_run(e, verb, said), error;

	if (code < 0)
		/* A program that is gone is no object that is gone. */
		return code == -ENOENT ? -EACCES : code;
	error = errno_of_code(code);
	if (!error || error == -ENOENT || error == -EEXIST)
		return error;
	return remote_set_reason(&e->base, error, "%s %s ended with exit code %d%s%s", e->program,
				 verb->word[0], code, *said ? ": " : "", said);
}

/* ---- what it can besides */

/* Asks once. Two threads may ask at the same time; the answers are the same. */
static int abilities(struct exec *e, struct exec_abilities *ret_can)
{
	struct buf cleanup_buf text = {0};
	struct exec_sink sink = {.out = &text, .want = REMOTE_TO_END, .max = 4096};
	const struct exec_verb verb = {.word = {"capabilities"}, .sink = &sink};
	struct exec_abilities can = {0};
	char said[EXEC_SAID_MAX];
	bool asked;
	int code;

	mutex_lock(&e->lock);
	asked = e->asked;
	can = e->can;
	mutex_unlock(&e->lock);
	if (!asked) {
		code = exec_run(e, &verb, said);
		if (code < 0 && code != -EFBIG)
			return code == -ENOENT ? -EACCES : code;
		if (code == 0)
			can = exec_abilities_parse(&text);
		SCOPED_LOCK(&e->lock);
		e->can = can;
		e->asked = true;
	}
	*ret_can = can;
	return 0;
}

/* ---- the operations */

static int exec_put(struct remote *r, const char *key, const void *data, size_t len)
{
	const struct exec_verb verb = {
		.word = {"put", key}, .input = len ? data : "", .input_len = len};
	int error = run(exec_of(r), &verb);

	return error == -ENOENT || error == -EEXIST ? -EIO : error;
}

/* A part of what `get KEY` gives, or of `get KEY OFFSET LENGTH`. */
static int get_part(struct exec *e, const char *key, uint64_t offset, uint64_t len, bool range,
		    struct exec_sink *sink)
{
	char from[24], count[24];
	struct exec_verb verb = {.word = {"get", key}, .sink = sink};

	if (range) {
		snprintf(from, sizeof(from), "%" PRIu64, offset);
		snprintf(count, sizeof(count), "%" PRIu64, len);
		verb.word[2] = from;
		verb.word[3] = count;
	}
	return run(e, &verb);
}

static int exec_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	struct exec *e = exec_of(r);
	struct exec_abilities can;
	struct exec_sink sink = {.out = out, .want = len, .max = REMOTE_GET_MAX};
	size_t before = out->len;
	bool range;
	int error = abilities(e, &can);

	if (error)
		return error;
	/* An object's size fits an off_t; beyond that a program could stumble. */
	range = can.range && len && offset <= INT64_MAX && (offset || len != REMOTE_TO_END);
	if (range && len > INT64_MAX - offset)
		len = INT64_MAX - offset;
	sink.skip = range ? 0 : offset;
	error = get_part(e, key, offset, len, range, &sink);
	/* The sink of a range has all at its end, and the program then still says how it went. */
	if (error && out->len > before)
		out->len = before;
	return error == -EEXIST ? -EIO : error;
}

/* ---- listing */

/* The output of `list`, walked line by line. */
struct exec_list {
	const char *prefix;
	remote_list_fn *fn;
	void *arg;
};

/* Collected first, since fn may take its time and use the remote, for which there may be one place
 * only. */
static int list_all(struct exec *e, const struct exec_list *list)
{
	struct buf cleanup_buf text = {0};
	struct exec_sink sink = {.out = &text, .want = REMOTE_TO_END, .max = REMOTE_GET_MAX};
	const struct exec_verb verb = {.word = {"list", list->prefix}, .sink = &sink};
	int error = run(e, &verb);

	if (error == -ENOENT)
		return 0;
	if (error)
		return error == -EFBIG || error == -EEXIST ? -EIO : error;
	error = exec_list_parse(&text, list->prefix, list->fn, list->arg);
	if (error == -EPROTO)
		error = remote_set_reason(&e->base, -EIO, "%s list %s did not write lines",
					  e->program, list->prefix);
	return error;
}

static int exec_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	const struct exec_list list = {prefix, fn, arg};

	return list_all(exec_of(r), &list);
}

static int exec_delete(struct remote *r, const char *key)
{
	const struct exec_verb verb = {.word = {"delete", key}};
	int error = run(exec_of(r), &verb);

	if (error == -ENOENT)
		return 0;
	return error == -EEXIST ? -EIO : error;
}

/* ---- sizes */

struct sought {
	const char *key;
	uint64_t size;
	bool found;
};

static int seek_key(void *arg, const char *key, uint64_t size)
{
	struct sought *s = arg;

	if (strcmp(key, s->key) == 0) {
		s->found = true;
		s->size = size;
	}
	return 0;
}

static int size_by_list(struct exec *e, const char *key, uint64_t *ret_size)
{
	char prefix[REMOTE_KEY_MAX + 1];
	struct sought sought = {.key = key};
	const struct exec_list list = {prefix, seek_key, &sought};
	int error;

	snprintf(prefix, sizeof(prefix), "%.*s", (int)(strrchr(key, '/') + 1 - key), key);
	error = list_all(e, &list);
	if (error)
		return error;
	if (!sought.found)
		return -ENOENT;
	*ret_size = sought.size;
	return 0;
}

static int size_by_verb(struct exec *e, const char *key, uint64_t *ret_size)
{
	struct buf cleanup_buf text = {0};
	struct exec_sink sink = {.out = &text, .want = REMOTE_TO_END, .max = 64};
	const struct exec_verb verb = {.word = {"size", key}, .sink = &sink};
	int error = run(e, &verb);

	if (error)
		return error == -EFBIG ? -EIO : error;
	error = exec_size_parse(&text, ret_size);
	if (error == -EPROTO)
		return remote_set_reason(&e->base, -EIO, "%s size %s did not write a number",
					 e->program, key);
	return error;
}

static int size_by_get(struct exec *e, const char *key, uint64_t *ret_size)
{
	struct exec_sink sink = {.want = REMOTE_TO_END, .max = UINT64_MAX};
	int error = get_part(e, key, 0, REMOTE_TO_END, false, &sink);

	if (!error)
		*ret_size = sink.seen;
	return error;
}

static int exec_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct exec *e = exec_of(r);
	struct exec_abilities can;
	int error = abilities(e, &can);

	if (error)
		return error;
	if (can.size)
		error = size_by_verb(e, key, ret_size);
	else if (strchr(key, '/'))
		error = size_by_list(e, key, ret_size);
	else
		error = size_by_get(e, key, ret_size);
	return error == -EEXIST ? -EIO : error;
}

/* ---- creating only if absent */

static int create_by_verb(struct remote *r, const char *key, const void *data, size_t len)
{
	const struct exec_verb verb = {
		.word = {"put-if-absent", key}, .input = len ? data : "", .input_len = len};
	int error = run(exec_of(r), &verb);

	return error == -ENOENT ? -EIO : error;
}

/* As remote.h says of REMOTE_CREATE_CHECKED. */
static int create_checked(struct remote *r, const char *key, const void *data, size_t len)
{
	struct buf cleanup_buf got = {0};
	uint64_t size;
	int error = exec_size(r, key, &size);

	if (error != -ENOENT)
		return error ? error : -EEXIST;
	error = exec_put(r, key, data, len);
	if (!error)
		error = exec_get(r, key, 0, REMOTE_TO_END, &got);
	if (error)
		return error == -ENOENT ? -EIO : error;
	return got.len == len && (!len || memcmp(got.data, data, len) == 0) ? 0 : -EEXIST;
}

static int exec_check_create(struct remote *r, enum remote_create *ret_create)
{
	struct exec *e = exec_of(r);
	struct exec_abilities can;
	bool kept = false, tried;
	int error;

	mutex_lock(&e->lock);
	tried = e->tried;
	*ret_create = e->create;
	mutex_unlock(&e->lock);
	if (tried)
		return 0;
	error = abilities(e, &can);
	if (!error && can.put_if_absent)
		error = remote_probe_create(r, create_by_verb, &kept);
	if (error)
		return error;
	SCOPED_LOCK(&e->lock);
	e->tried = true;
	e->create = kept ? REMOTE_CREATE_ATOMIC : REMOTE_CREATE_CHECKED;
	*ret_create = e->create;
	return 0;
}

static int exec_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	enum remote_create create;
	int error = exec_check_create(r, &create);

	if (error)
		return error;
	return create == REMOTE_CREATE_ATOMIC ? create_by_verb(r, key, data, len)
					      : create_checked(r, key, data, len);
}

const struct remote_ops exec_ops = {
	.put = exec_put,
	.put_if_absent = exec_put_if_absent,
	.get = exec_get,
	.size = exec_size,
	.list = exec_list,
	.delete = exec_delete,
	.check_create = exec_check_create,
	.release = exec_release,
};

/* ---- Opening an exec: remote. ---- */

#define DEFAULT_TOTAL_TIMEOUT (600 * NS_PER_S)

static void exec_free(struct exec *e)
{
	rate_destroy(&e->upload);
	rate_destroy(&e->download);
	pthread_cond_destroy(&e->freed);
	mutex_destroy(&e->lock);
	exec_words_free(e->words);
}

void exec_release(struct remote *r)
{
	exec_free((struct exec *)r);
}

static int exec_init(struct exec *e, const char *text, const struct remote_limits *limits)
{
	const char *slash;
	int error = exec_words_split(text + strlen("exec:"), &e->words, &e->word_count);

	if (error)
		return error;
	error = exec_words_find(e->words);
	if (error)
		return error;
	slash = strrchr(e->words[0], '/');
	e->program = slash + 1;
	e->connections = limits->connections ? limits->connections : REMOTE_CONNECTIONS;
	e->total_timeout_ns =
		limits->total_timeout_ns ? limits->total_timeout_ns : DEFAULT_TOTAL_TIMEOUT;
	return 0;
}

int remote_exec_open(const struct remote_url *url, const char *text,
		     const struct remote_limits *limits, struct remote **ret_remote)
{
	cleanup_free struct exec *e = calloc(1, sizeof(*e));
	int error;

	(void)url; /* a `?` is the program's own */
	if (!e)
		return -ENOMEM;
	if (cond_init_mono(&e->freed) < 0)
		return -ENOMEM;
	mutex_init(&e->lock, LOCK_REMOTE_EXEC);
	rate_init(&e->upload, limits->upload_rate);
	rate_init(&e->download, limits->download_rate);
	error = exec_init(e, text, limits);
	if (!error)
		error = remote_init(&e->base, &exec_ops, text, NULL);
	if (error) {
		exec_free(e);
		return error;
	}
	*ret_remote = &steal_ptr(e)->base;
	return 0;
}
