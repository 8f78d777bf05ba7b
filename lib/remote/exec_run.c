/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the program of an exec: remote: its command line, and its answer. */
#include "lib/util/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/remote/exec.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

#define SLICE_MS   100 /* how soon a cancel is seen */
#define READ_BYTES (256 << 10)

/* ---- a place among those that run */

static void leave(struct exec *e)
{
	SCOPED_LOCK(&e->lock);

	e->running--;
	pthread_cond_signal(&e->freed);
}

static int enter(struct exec *e)
{
	SCOPED_LOCK(&e->lock);

	while (e->running >= e->connections) {
		if (atomic_load(&e->base.cancelled))
			return -ECANCELED;
		cond_wait_until(&e->freed, &e->lock, clock_mono_ns() + SLICE_MS * NS_PER_MS);
	}
	e->running++;
	return 0;
}

/* ---- input and output */

/* A descriptor to read the input from: a sealed file in memory, or /dev/null. Above 2. */
static int open_input(const struct exec_verb *verb, int *ret_fd)
{
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	cleanup_close int fd = -1;
	int error = 0, high;

	fd = verb->input ? memfd_create("object", MFD_CLOEXEC | MFD_ALLOW_SEALING)
			 : open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOMEM ? -ENOMEM : -EIO;
	if (verb->input) {
		error = io_write_full(fd, verb->input, verb->input_len);
		if (error || lseek(fd, 0, SEEK_SET) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0)
			return error == -ENOSPC ? -ENOMEM : -EIO;
	}
	high = fd > 2 ? steal_fd(&fd) : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (high < 0)
		return -EIO;
	*ret_fd = high;
	return 0;
}

/* Takes `len` bytes that came: what the sink wants of them. */
static int sink_take(struct exec_sink *s, const uint8_t *data, size_t len)
{
	uint64_t end, from = s->seen;

	s->seen += len;
	if (__builtin_add_overflow(s->skip, s->want, &end))
		end = UINT64_MAX;
	if (s->seen > s->skip && from < end) {
		uint64_t start = from > s->skip ? from : s->skip;
		uint64_t stop = s->seen < end ? s->seen : end;

		if (stop - s->skip > s->max)
			return -EFBIG;
		if (s->out)
			buf_put(s->out, data + (start - from), stop - start);
	}
	/* Wanting nothing, we still want to know whether there is an object. */
	s->enough = s->want && s->seen >= end;
	return s->out ? buf_error(s->out) : 0;
}

/* Reads what is there, up to a bound; at the end of the output c->out is closed. While the limit keeps us from reading, the
 * pipe keeps the program from writing; that time is not its own: *deadline moves. */
static int take_output(struct exec *e, struct child *c, struct exec_sink *sink, uint8_t *room,
		       bool *ret_more, int64_t *deadline)
{
	ssize_t n = c->out >= 0 ? read(c->out, room, READ_BYTES) : -1;
	int64_t start;
	int error;

	*ret_more = n > 0;
	if (n == 0) {
		close(c->out);
		c->out = -1;
	}
	if (n <= 0 || !sink)
		return 0;
	start = clock_mono_ns();
	error = rate_wait(&e->download, &e->base, (size_t)n);
	*deadline += clock_mono_ns() - start;
	return error ? error : sink_take(sink, room, (size_t)n);
}

/* ---- the run */

/* Waits for news of it: 0 or why to give up. *ret_ended: it has ended. */
static int wait_news(const struct exec *e, const struct child *c, int64_t deadline, bool *ret_ended)
{
	struct pollfd fds[] = {{.fd = c->out, .events = POLLIN},
			       {.fd = c->err, .events = POLLIN},
			       {.fd = c->pidfd, .events = POLLIN}};

	if (atomic_load(&e->base.cancelled))
		return -ECANCELED;
	if (clock_mono_ns() >= deadline)
		return -ETIMEDOUT;
	if (poll(fds, 3, SLICE_MS) < 0 && errno != EINTR)
		return -EIO;
	*ret_ended = fds[2].revents != 0;
	return 0;
}

/* Follows it to its end, or to where there is no need for more. */
static int follow(struct exec *e, struct child *c, struct exec_sink *sink)
{
	int64_t deadline = clock_mono_ns() + e->total_timeout_ns;
	cleanup_free uint8_t *room = malloc(READ_BYTES);
	bool ended = false, more = true;
	int error = room ? 0 : -ENOMEM;

	/* After its end, what it wrote before is still in the pipe. */
	while (!error && (!ended || more)) {
		error = wait_news(e, c, deadline, &ended);
		if (!error)
			error = take_output(e, c, sink, room, &more, &deadline);
		child_listen(c);
		if (sink && sink->enough)
			break;
	}
	return error;
}

/* What its end means, where it was not us who ended it. */
static int judge_end(struct exec *e, const char *verb, int status)
{
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	return remote_set_reason(&e->base, -EIO, "%s %s was killed by signal %d", e->program, verb,
				 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static int run_child(struct exec *e, const struct exec_verb *verb, struct child *c)
{
	cleanup_free const char **argv = calloc(e->word_count + 5, sizeof(*argv));
	cleanup_close int input = -1;
	int error = argv ? open_input(verb, &input) : -ENOMEM;

	if (error)
		return error;
	memcpy(argv, e->words, e->word_count * sizeof(*argv));
	for (size_t i = 0; i < 4 && verb->word[i]; i++)
		argv[e->word_count + i] = verb->word[i];
	/* It reads as fast as it likes: it is started once all of that has had its time. */
	error = rate_wait(&e->upload, &e->base, verb->input_len);
	if (error)
		return error;
	error = child_start(argv, input, c);
	if (error == -ENOENT || error == -EACCES)
		return remote_set_reason(&e->base, error, "cannot run %s: %s", e->words[0],
					 strerror(-error));
	return error ? error : follow(e, c, verb->sink);
}

static int run_entered(struct exec *e, const struct exec_verb *verb, char ret_said[EXEC_SAID_MAX])
{
	struct child cleanup_child child = NO_CHILD;
	int error = run_child(e, verb, &child);
	int status = child_end(&child);

	child_log(&child, e->program);
	snprintf(ret_said, EXEC_SAID_MAX, "%s", child_last_line(&child));
	if (error == -ETIMEDOUT)
		return remote_set_reason(&e->base, error, "%s %s took longer than %lld s",
					 e->program, verb->word[0],
					 (long long)(e->total_timeout_ns / NS_PER_S));
	if (error)
		return error;
	if (verb->sink && verb->sink->enough)
		return 0;
	return judge_end(e, verb->word[0], status);
}

int exec_run(struct exec *e, const struct exec_verb *verb, char ret_said[EXEC_SAID_MAX])
{
	int result = enter(e);

	ret_said[0] = '\0';
	if (result < 0)
		return result;
	result = run_entered(e, verb, ret_said);
	leave(e);
	return result;
}

/* ---- What a program that is a remote writes, decoded. ---- */

#define LINE_MAX_BYTES (REMOTE_KEY_MAX + 32)

struct exec_abilities exec_abilities_parse(struct buf *text)
{
	struct exec_abilities can = {0};
	char *rest = NULL;

	buf_put_u8(text, '\0');
	if (buf_error(text))
		return can;
	for (char *w = strtok_r((char *)text->data, " \t\r\n", &rest); w;
	     w = strtok_r(NULL, " \t\r\n", &rest)) {
		can.range |= !strcmp(w, "range");
		can.size |= !strcmp(w, "size");
		can.put_if_absent |= !strcmp(w, "put-if-absent");
	}
	return can;
}

/* "SIZE KEY": true where it is an object below the prefix. The key lies in the line. */
static bool parse_line(char *line, const char *prefix, const char **ret_key, uint64_t *ret_size)
{
	char *blank = strchr(line, ' ');

	if (!blank)
		return false;
	*blank = '\0';
	if (parse_u64(line, ret_size) < 0 || !remote_key_valid(blank + 1) ||
	    strncmp(blank + 1, prefix, strlen(prefix)) != 0)
		return false;
	*ret_key = blank + 1;
	return true;
}

int exec_list_parse(struct buf *text, const char *prefix, remote_list_fn *fn, void *arg)
{
	char *line, *end;

	if (text->len && (memchr(text->data, '\0', text->len) || text->data[text->len - 1] != '\n'))
		return -EPROTO;
	buf_put_u8(text, '\0');
	if (buf_error(text))
		return -ENOMEM;
	for (line = (char *)text->data; *line; line = end + 1) {
		const char *key = NULL;
		uint64_t size = 0;
		int error;

		end = strchr(line, '\n');
		/* The program has ended well, so a line without an end is no part of one. */
		if (!end || end - line > LINE_MAX_BYTES)
			return -EPROTO;
		*end = '\0';
		error = parse_line(line, prefix, &key, &size) ? fn(arg, key, size) : 0;
		if (error)
			return error;
	}
	return 0;
}

int exec_size_parse(struct buf *text, uint64_t *ret_size)
{
	char *digits;

	buf_put_u8(text, '\0');
	if (buf_error(text))
		return -ENOMEM;
	digits = (char *)text->data;
	digits[strcspn(digits, "\r\n")] = '\0';
	return parse_u64(digits, ret_size) < 0 ? -EPROTO : 0;
}

/* ---- A program and its arguments in one text. ---- */

#define WORDS_MAX 128

void exec_words_free(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}

static void cleanup_words_fn(char ***words)
{
	exec_words_free(*words);
}

/* One word from *text on, which moves behind it: 0, or -EINVAL for an open quote. */
static int take_word(const char **text, struct buf *word)
{
	bool quoted = false;
	const char *p = *text;

	for (; *p && (quoted || !strchr(" \t", *p)); p++) {
		if (*p == '\'') {
			quoted = !quoted;
			continue;
		}
		if (*p == '\\' && !quoted && !*++p)
			return -EINVAL;
		if ((unsigned char)*p < ' ' && *p != '\t')
			return -EINVAL;
		buf_put_u8(word, (uint8_t)*p);
	}
	*text = p;
	return quoted ? -EINVAL : 0;
}

int exec_words_split(const char *text, char ***ret_words, size_t *ret_count)
{
	CLEANUP(cleanup_words_fn) char **words = calloc(WORDS_MAX + 1, sizeof(*words));
	size_t count = 0;

	if (!words)
		return -ENOMEM;
	for (text += strspn(text, " \t"); *text; text += strspn(text, " \t")) {
		struct buf cleanup_buf word = {0};
		int error;

		if (count == WORDS_MAX)
			return -EINVAL;
		error = take_word(&text, &word);
		if (!error)
			error = buf_error(&word);
		if (error)
			return error;
		words[count] = strdup(buf_str(&word));
		if (!words[count++])
			return -ENOMEM;
	}
	if (!count || !*words[0])
		return -EINVAL;
	*ret_words = steal_ptr(words);
	*ret_count = count;
	return 0;
}

int exec_words_find(char **words)
{
	const char *path = getenv("PATH");
	int error = -ENOENT;

	if (strchr(words[0], '/')) {
		if (words[0][0] != '/')
			return -EINVAL;
		return access(words[0], X_OK) == 0 ? 0 : errno == EACCES ? -EACCES : -ENOENT;
	}
	for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p; p += *p == ':') {
		size_t len = strcspn(p, ":");
		cleanup_free char *full = NULL;

		/* An empty or relative one would mean wherever we stand. */
		if (*p == '/' && text_print(&full, "%.*s/%s", (int)len, p, words[0]) < 0)
			return -ENOMEM;
		if (full && access(full, X_OK) == 0) {
			free(words[0]);
			words[0] = steal_ptr(full);
			return 0;
		}
		if (full && errno == EACCES)
			error = -EACCES;
		p += len;
	}
	return error;
}
