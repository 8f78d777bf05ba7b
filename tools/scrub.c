/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/scrub.h"

#include <ctype.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/remote/remote_url.h"
#include "lib/util/io.h"

#define SECRET_MIN 6 /* shorter ones, such as "true", are words of the text */
#define FILE_MAX   ((size_t)64 << 10)
#define HIDDEN	   "***"
#define BLANKS	   " \t\r\n\v\f"
#define QUOTES	   "\"'`<>"
#define NAME_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."

void scrub_free(struct scrub *s)
{
	for (size_t i = 0; i < s->count; i++) {
		explicit_bzero(s->secrets[i], strlen(s->secrets[i]));
		free(s->secrets[i]);
	}
	free(s->secrets);
	*s = (struct scrub){0};
}

/* ---- what is known ---- */

static void add_as_it_is(struct scrub *s, const char *text, size_t len)
{
	char **more =
		s->failed ? NULL : reallocarray(s->secrets, s->count + 1, sizeof(*s->secrets));

	s->failed = !more;
	if (!more)
		return;
	s->secrets = more;
	more[s->count] = strndup(text, len);
	s->failed = !more[s->count];
	s->count += !s->failed;
}

void scrub_add(struct scrub *s, const char *secret)
{
	cleanup_free char *quoted = NULL;
	json_t *string;
	size_t len;

	if (strlen(secret) < SECRET_MIN)
		return;
	add_as_it_is(s, secret, strlen(secret));
	/* As it stands in JSON; what is no UTF-8 stands nowhere. */
	string = json_string(secret);
	quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
	json_decref(string);
	len = quoted ? strlen(quoted) - 2 : 0;
	if (len && (len != strlen(secret)))
		add_as_it_is(s, quoted + 1, len);
	if (quoted)
		explicit_bzero(quoted, strlen(quoted));
}

void scrub_add_file(struct scrub *s, const char *path)
{
	cleanup_buf struct buf text = {0};
	char *rest, *line;

	scrub_add(s, path);
	if (io_read_file(AT_FDCWD, path, FILE_MAX, &text) < 0)
		return;
	rest = (char *)(uintptr_t)buf_str(&text);
	for (line = strtok_r(rest, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest))
		scrub_add(s, line);
	explicit_bzero(text.data, text.cap);
}

/* In a name `_` and `-` are the same. */
static bool has_word(const char *name, size_t len, const char *word)
{
	size_t wanted = strlen(word);

	for (size_t i = 0; i + wanted <= len; i++) {
		size_t k = 0;

		while (k < wanted &&
		       (name[i + k] == '_' ? '-' : tolower((unsigned char)name[i + k])) == word[k])
			k++;
		if (k == wanted)
			return true;
	}
	return false;
}

static bool names_secret(const char *name, size_t len)
{
	static const char *const words[] = {"password",	 "passwd",    "passphrase",   "secret",
					    "token",	 "signature", "credential",   "access-key",
					    "accesskey", "api-key",   "apikey",	      "private-key",
					    "key-file",	 "authz",     "authorization"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (has_word(name, len, words[i]))
			return true;
	return false;
}

/* A variable is private by less than what stands in a text: OPENAI_KEY, but not the `key=` of a log. */
static bool is_private(const char *name, size_t len)
{
	return names_secret(name, len) || (len > 4 && !strncasecmp(name + len - 4, "_key", 4));
}

static void add_variable(struct scrub *s, const char *variable)
{
	size_t len = strcspn(variable, "=");
	const char *value = variable[len] ? variable + len + 1 : "";

	scrub_add_url(s, value);
	if (!is_private(variable, len))
		return;
	if (*value == '/' && has_word(variable, len, "file"))
		scrub_add_file(s, value);
	else
		scrub_add(s, value);
}

void scrub_add_environment(struct scrub *s, const char *block, size_t len)
{
	for (const char *end = block + len; block < end; block += strlen(block) + 1)
		add_variable(s, block);
}

void scrub_add_url(struct scrub *s, const char *url)
{
	const char *host = strstr(url, "://"), *at, *colon;
	cleanup_free char *raw = NULL, *plain = NULL;

	host = host ? host + 3 : url; /* of a proxy the scheme may be left out */
	at = memrchr(host, '@', strcspn(host, "/?#"));
	colon = at ? memchr(host, ':', (size_t)(at - host)) : NULL;
	if (!colon)
		return;
	raw = strndup(colon + 1, (size_t)(at - colon - 1));
	s->failed |= !raw;
	if (!raw)
		return;
	scrub_add(s, raw);
	if (remote_url_decode(raw, &plain) == 0)
		scrub_add(s, plain);
}

/* ---- what looks like one ---- */

/* The longest of those that stand here. */
static size_t known_at(const struct scrub *s, const char *p, size_t left)
{
	size_t best = 0;

	for (size_t i = 0; i < s->count; i++) {
		size_t len = *s->secrets[i] == *p ? strlen(s->secrets[i]) : 0;

		if (len > best && len <= left && !memcmp(p, s->secrets[i], len))
			best = len;
	}
	return best;
}

/* Behind "://": up to the '@'. A password may have any character but those that end a URL in a text. */
static size_t user_at(const char *start, const char *p)
{
	const char *at;

	if (p - start < 3 || strncmp(p - 3, "://", 3) != 0)
		return 0;
	at = memrchr(p, '@', strcspn(p, BLANKS QUOTES "/?#"));
	return at ? (size_t)(at - p) : 0;
}

/* A word such as --password, which ends here. */
static bool is_secret_option(const char *start, const char *end)
{
	const char *word = end;

	while (word > start && strchr(NAME_CHARS, word[-1]))
		word--;
	return *word == '-' && names_secret(word, (size_t)(end - word));
}

/* Behind the '=' of a name that says so, as of a parameter of a URL, or behind the ':' of a header. */
static size_t value_at(const char *start, const char *p)
{
	const char *name, *end = p - 1;

	if (p == start || (*end != '=' && *end != ':' && *end != ' '))
		return 0;
	if (*end == ' ' && is_secret_option(start, end))
		return strcspn(p, BLANKS QUOTES ",");
	if (*end == ' ' && (end == start || *--end != ':'))
		return 0;
	for (name = end; name > start && strchr(NAME_CHARS, name[-1]); name--)
		;
	if (*end == ':')
		return has_word(name, (size_t)(end - name), "authorization") ? strcspn(p, "\r\n\"")
									     : 0;
	return names_secret(name, (size_t)(end - name)) ? strcspn(p, BLANKS QUOTES "&,;") : 0;
}

/* By how services begin the tokens that they give. */
static size_t token_at(const char *start, const char *p)
{
	static const struct {
		const char *begin;
		size_t least;
	} kinds[] = {{"AKIA", 16}, {"ASIA", 16},  {"hf_", 12},	 {"ghp_", 12}, {"github_pat_", 12},
		     {"eyJ", 24},  {"ya29.", 12}, {"GOOG1", 20}, {"AIza", 20}, {"sk-", 20}};
	size_t len;

	if (p > start && isalnum((unsigned char)p[-1]))
		return 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strncmp(p, kinds[i].begin, strlen(kinds[i].begin)) != 0)
			continue;
		len = strspn(p, NAME_CHARS);
		if (len >= kinds[i].least)
			return len;
	}
	return 0;
}

void scrub_put(const struct scrub *s, const char *text, size_t len, struct buf *out)
{
	/* With an end that the searches stop at. */
	cleanup_free char *copy = s->failed ? NULL : strndup(text, len);
	const char *end = copy ? copy + strlen(copy) : NULL;

	for (const char *p = copy; p < end;) {
		size_t secret = known_at(s, p, (size_t)(end - p));

		if (!secret)
			secret = user_at(copy, p);
		if (!secret)
			secret = value_at(copy, p);
		if (!secret)
			secret = token_at(copy, p);
		if (secret)
			buf_printf(out, HIDDEN);
		else
			buf_put_u8(out, (uint8_t)*p);
		p += secret ? secret : 1;
	}
}
