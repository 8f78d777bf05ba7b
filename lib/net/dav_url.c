/* SPDX-License-Identifier: Apache-2.0 */
/* The URL of a WebDAV remote, taken apart, and who we are there. */
#include "lib/net/dav.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/util/io.h"
#include "lib/util/text.h"

#define SECRET_MAX 16384 /* bytes of a file with a token or a password */
/* RFC 3986: what may stand in a host, and in a path as it goes on the wire. */
#define HOST_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_[]:"
#define PATH_CHARS                                                                                 \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@%/"

static void wipe_free(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

void dav_url_free(struct dav_url *u)
{
	free(u->origin);
	free(u->authority);
	free(u->path);
	free(u->path_decoded);
	wipe_free(u->userpwd);
	free(u->token_file);
	wipe_free(u->token);
	free(u->cert);
	free(u->key);
	free(u->ca_file);
	free(u->ca_dir);
	*u = (struct dav_url){0};
}

static int copy(const char *from, char **ret_to)
{
	char *to = strdup(from);

	if (!to)
		return -ENOMEM;
	free(*ret_to);
	*ret_to = to;
	return 0;
}

/* An environment variable that says something. */
static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* ---- place */

static int set_path(struct dav_url *u, const char *path)
{
	size_t len = strlen(path);

	if (strspn(path, PATH_CHARS) != len || strcasestr(path, "%2f"))
		return -EINVAL;
	while (len > 0 && path[len - 1] == '/')
		len--;
	u->path = strndup(path, len);
	if (!u->path)
		return -ENOMEM;
	/* Servers and clients take these out of a path, each in its own way. */
	if (strstr(u->path, "//") || strstr(u->path, "/./") || strstr(u->path, "/../"))
		return -EINVAL;
	return remote_url_decode(u->path, &u->path_decoded);
}

static int set_authority(struct dav_url *u, const char *scheme, const char *host, size_t len)
{
	if (len == 0 || strspn(host, HOST_CHARS) < len || host[0] == ':')
		return -EINVAL;
	u->authority = strndup(host, len);
	if (!u->authority || text_print(&u->origin, "%s://%s", scheme, u->authority) < 0)
		return -ENOMEM;
	return 0;
}

/* "user" or "user:password", still encoded. */
static int set_userinfo(struct dav_url *u, const char *text, size_t len)
{
	cleanup_free char *raw = strndup(text, len);
	char *colon = raw ? strchr(raw, ':') : NULL;
	char *user = NULL, *password = NULL;
	int r;

	if (!raw)
		return -ENOMEM;
	if (colon)
		*colon = '\0';
	r = remote_url_decode(raw, &user);
	if (r == 0)
		r = remote_url_decode(colon ? colon + 1 : "", &password);
	/* Basic authentication has no way to write a colon in a user's name. */
	if (r == 0 && (!*user || strchr(user, ':')))
		r = -EINVAL;
	if (r == 0 && text_print(&u->userpwd, "%s:%s", user, password) < 0)
		r = -ENOMEM;
	explicit_bzero(raw, len);
	wipe_free(user);
	wipe_free(password);
	return r;
}

/* What stands behind "http:": //[userinfo@]host[:port][/path] */
static int parse_place(struct dav_url *u, const char *scheme, const char *rest)
{
	const char *host = rest + 2, *at;
	size_t len;
	int r = 0;

	if (rest[0] != '/' || rest[1] != '/')
		return -EINVAL;
	len = strcspn(host, "/");
	at = memrchr(host, '@', len);
	if (at) {
		r = set_userinfo(u, host, (size_t)(at - host));
		len -= (size_t)(at + 1 - host);
		host = at + 1;
	}
	if (r == 0)
		r = set_authority(u, scheme, host, len);
	return r < 0 ? r : set_path(u, host + len);
}

/* ---- parameters */

static int set_ca(struct dav_url *u, const char *path)
{
	struct stat st;

	return copy(path, stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? &u->ca_dir : &u->ca_file);
}

static int set_create(struct dav_url *u, const char *value)
{
	static const struct {
		const char *name;
		enum dav_create_means means;
	} names[] = {
		{"conditional", DAV_CREATE_CONDITIONAL},
		{"mkcol", DAV_CREATE_MKCOL},
		{"lock", DAV_CREATE_LOCK},
		{"checked", DAV_CREATE_CHECKED},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(value, names[i].name) == 0) {
			u->create = names[i].means;
			return 0;
		}
	}
	return -EINVAL;
}

static int set_param(void *arg, const char *name, const char *value, const char *raw)
{
	struct dav_url *u = arg;

	(void)raw;
	if (strcmp(name, "create") == 0)
		return set_create(u, value);
	if (value[0] != '/' || !u->tls)
		return -EINVAL;
	if (strcmp(name, "cert") == 0)
		return copy(value, &u->cert);
	if (strcmp(name, "key") == 0)
		return copy(value, &u->key);
	return strcmp(name, "ca") == 0 ? set_ca(u, value) : -EINVAL;
}

/* ---- who we are, from the environment */

/* The first line of a file, without white space around it. `own`: a place where others may put
 * files too, so only one that is ours and that nobody else may read or write counts. -ENOENT where
 * there is none. */
static int read_secret(const char *path, bool own, struct buf *out)
{
	cleanup_close int fd =
		open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (own ? O_NOFOLLOW : 0));
	char text[SECRET_MAX];
	ssize_t n;
	size_t start, len;
	struct stat st;

	if (fd < 0)
		return errno == ENOENT ? -ENOENT : -EACCES;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    (own && (st.st_uid != geteuid() || (st.st_mode & 077))))
		return own ? -ENOENT : -EACCES;
	n = io_pread_some(fd, text, sizeof(text) - 1, 0);
	if (n < 0)
		return -EACCES;
	text[n] = '\0';
	start = strspn(text, " \t\r\n");
	len = strcspn(text + start, "\r\n");
	while (len > 0 && strchr(" \t", text[start + len - 1]))
		len--;
	buf_put(out, text + start, len);
	explicit_bzero(text, sizeof(text));
	return buf_error(out);
}

static int find_password(struct dav_url *u)
{
	const char *user = environment("EPOCHFS_DAV_USER");
	const char *password = environment("EPOCHFS_DAV_PASSWORD");
	const char *file = environment("EPOCHFS_DAV_PASSWORD_FILE");
	struct buf cleanup_buf text = {0};
	int r = 0;

	if (!user || u->userpwd)
		return 0;
	if (strchr(user, ':'))
		return -EINVAL;
	if (!password && file)
		r = read_secret(file, false, &text);
	if (r < 0)
		return r;
	if (text_print(&u->userpwd, "%s:%s", user, password ? password : buf_str(&text)) < 0)
		r = -ENOMEM;
	if (text.data)
		explicit_bzero(text.data, text.cap);
	return r;
}

/* A file of this name in `folder` that is ours alone to read. */
static int find_own(const char *folder, const char *prefix, char **ret_path)
{
	cleanup_free char *path = NULL;
	struct stat st;

	if (!folder || *ret_path)
		return 0;
	if (text_print(&path, "%s/%s%u", folder, prefix, geteuid()) < 0)
		return -ENOMEM;
	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    !(st.st_mode & 077))
		*ret_path = steal_ptr(path);
	return 0;
}

static int find_token(struct dav_url *u)
{
	const char *token = environment("BEARER_TOKEN");
	const char *file = environment("BEARER_TOKEN_FILE");
	int r;

	if (u->userpwd || !u->tls)
		return 0;
	if (token)
		return copy(token + strspn(token, " \t\r\n"), &u->token);
	if (file)
		return copy(file, &u->token_file);
	r = find_own(environment("XDG_RUNTIME_DIR"), "bt_u", &u->token_file);
	return r < 0 ? r : find_own("/tmp", "bt_u", &u->token_file);
}

static int find_certificate(struct dav_url *u)
{
	const char *proxy = environment("X509_USER_PROXY");
	const char *cert = environment("X509_USER_CERT"), *key = environment("X509_USER_KEY");
	int r = 0;

	if (!u->tls || u->cert)
		return 0;
	if (proxy)
		return copy(proxy, &u->cert);
	if (cert) {
		r = copy(cert, &u->cert);
		return r == 0 && key ? copy(key, &u->key) : r;
	}
	return u->userpwd ? 0 : find_own("/tmp", "x509up_u", &u->cert);
}

static int find_authorities(struct dav_url *u)
{
	const char *folder = environment("X509_CERT_DIR");

	if (!u->tls || !folder || u->ca_file || u->ca_dir)
		return 0;
	return copy(folder, &u->ca_dir);
}

int dav_url_parse(const struct remote_url *url, struct dav_url *ret_url)
{
	struct dav_url cleanup_dav_url u = {.tls = strcmp(url->scheme, "https") == 0};
	int r = parse_place(&u, url->scheme, url->rest);

	if (r == 0)
		r = remote_url_each_param(url->query, set_param, &u);
	if (r == 0)
		r = find_password(&u);
	if (r == 0)
		r = find_token(&u);
	if (r == 0)
		r = find_certificate(&u);
	if (r == 0)
		r = find_authorities(&u);
	if (r < 0)
		return r;
	*ret_url = u;
	u = (struct dav_url){0};
	return 0;
}

int dav_url_token(const struct dav_url *u, struct buf *out)
{
	int r = 0;

	if (u->token)
		buf_put(out, u->token, strcspn(u->token, " \t\r\n"));
	else if (u->token_file)
		r = read_secret(u->token_file, false, out);
	if (r == -ENOENT)
		r = -EACCES;
	if (r == 0)
		r = buf_error(out);
	/* RFC 6750: visible characters only. */
	for (size_t i = 0; r == 0 && i < out->len; i++)
		if (out->data[i] <= ' ' || out->data[i] >= 0x7f)
			r = -EACCES;
	return r;
}
