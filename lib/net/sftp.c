/* SPDX-License-Identifier: Apache-2.0 */
/* The remote on an SFTP server: sftp.h has the manual. Opening it, links, paths, reading and deleting. */
#include "lib/net/sftp.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "lib/net/open.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

#define WAIT_NS (100 * NS_PER_MS) /* how soon a cancel is seen */

static struct sftp *sftp_of(struct remote *r)
{
	return (struct sftp *)r;
}

/* ---- links */

/* An idle one; NULL where a new one may be made, which is then counted. -ECANCELED. */
static int take_idle(struct sftp *s, struct sftp_link **ret_link)
{
	SCOPED_LOCK(&s->lock);

	while (!s->idle && s->links >= s->connections) {
		if (atomic_load(&s->base.cancelled))
			return -ECANCELED;
		cond_wait_until(&s->freed, &s->lock, clock_mono_ns() + WAIT_NS);
	}
	*ret_link = s->idle;
	if (s->idle)
		s->idle = s->idle->next;
	else
		s->links++;
	return 0;
}

static void uncount(struct sftp *s)
{
	SCOPED_LOCK(&s->lock);

	s->links--;
	pthread_cond_signal(&s->freed);
}

int sftp_take(struct sftp *s, struct sftp_link **ret_link)
{
	for (;;) {
		struct sftp_link *l = NULL;
		int error = take_idle(s, &l);

		if (!error && !l) {
			error = sftp_link_open(s, &l);
			if (error)
				uncount(s);
		} else if (!error && !sftp_link_alive(l)) {
			/* The server ended it while it was idle: no failure of anything. */
			l->broken = true;
			sftp_give(s, l);
			continue;
		}
		if (!error)
			*ret_link = l;
		return error;
	}
}

void sftp_give(struct sftp *s, struct sftp_link *link)
{
	if (!link)
		return;
	if (link->broken) {
		sftp_link_close(link);
		uncount(s);
		return;
	}
	SCOPED_LOCK(&s->lock);
	link->next = s->idle;
	s->idle = link;
	pthread_cond_signal(&s->freed);
}

void sftp_close_links(struct sftp *s)
{
	while (s->idle) {
		struct sftp_link *l = s->idle;

		s->idle = l->next;
		sftp_link_close(l);
	}
}

/* ---- paths and errors */

int sftp_path(const struct sftp *s, const char *key, struct buf *out)
{
	size_t len;

	buf_reset(out);
	buf_put(out, s->root, strlen(s->root));
	buf_put(out, key, strlen(key));
	/* A directory goes without its slash; the home is ".". */
	len = out->len;
	while (len > 1 && out->data[len - 1] == '/')
		len--;
	out->len = len;
	if (!len)
		buf_put_u8(out, '.');
	buf_str(out);
	return buf_error(out);
}

int sftp_errno(int status)
{
	switch (status) {
	case SFTP_OK:
		return 0;
	case SFTP_NO_SUCH_FILE:
		return -ENOENT;
	case SFTP_PERMISSION_DENIED:
		return -EACCES;
	case SFTP_OP_UNSUPPORTED:
		return -EOPNOTSUPP;
	default:
		return status < 0 ? status : -EIO;
	}
}

/* ---- reading and deleting */

static int get_on(struct sftp_link *l, const char *path, uint64_t offset, uint64_t len,
		  struct buf *out)
{
	struct sftp_handle h;
	int error = sftp_errno(sftp_call_open(l, path, SFTP_OPEN_READ, 0, &h));

	if (error)
		return error;
	error = sftp_receive_file(l, &h, offset, len, out);
	sftp_close_forget(l, &h);
	return error;
}

static int sftp_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	struct buf cleanup_buf path = {0};
	struct sftp *s = sftp_of(r);
	struct sftp_link *l = NULL;
	size_t before = out->len;
	int error = sftp_path(s, key, &path);

	if (!error)
		error = sftp_take(s, &l);
	if (!error)
		error = get_on(l, buf_str(&path), offset, len, out);
	sftp_give(s, l);
	if (error && out->len > before)
		out->len = before;
	return error;
}

static int sftp_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct buf cleanup_buf path = {0};
	struct sftp *s = sftp_of(r);
	struct sftp_link *l = NULL;
	struct sftp_attrs attrs = {0};
	int error = sftp_path(s, key, &path);

	if (!error)
		error = sftp_take(s, &l);
	if (!error)
		error = sftp_errno(sftp_call_stat(l, buf_str(&path), &attrs));
	sftp_give(s, l);
	if (error)
		return error;
	if (!sftp_is_file(&attrs))
		return sftp_is_dir(&attrs) ? -ENOENT : -EPERM;
	if (!attrs.has_size)
		return -EIO;
	*ret_size = attrs.size;
	return 0;
}

static int delete_on(struct sftp_link *l, const char *path)
{
	struct sftp_attrs attrs;
	int status = sftp_call_remove(l, path);

	if (status == SFTP_NO_SUCH_FILE)
		return 0;
	/* A directory is no object, and servers differ in how they refuse to remove one. */
	if (status > 0 && sftp_call_lstat(l, path, &attrs) == 0 && sftp_is_dir(&attrs))
		return 0;
	return sftp_errno(status);
}

static int sftp_delete(struct remote *r, const char *key)
{
	struct buf cleanup_buf path = {0};
	struct sftp *s = sftp_of(r);
	struct sftp_link *l = NULL;
	int error = sftp_path(s, key, &path);

	if (!error)
		error = sftp_take(s, &l);
	if (!error)
		error = delete_on(l, buf_str(&path));
	sftp_give(s, l);
	return error;
}

static int sftp_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	return sftp_list_all(sftp_of(r), prefix, fn, arg);
}

const struct remote_ops sftp_ops = {
	.put = sftp_put,
	.put_if_absent = sftp_put_if_absent,
	.get = sftp_get,
	.size = sftp_size,
	.list = sftp_list,
	.delete = sftp_delete,
	.upload_check = "SSH checks each packet",
	.check_create = sftp_check_create,
	.release = sftp_release,
};

/* ---- Opening an sftp: remote: its URL, and the command line of ssh. ---- */

#define DEFAULT_CONNECT_NS (10 * NS_PER_S)
#define DEFAULT_STALL_NS   (30 * NS_PER_S)
#define DEFAULT_TOTAL_NS   (600 * NS_PER_S)
#define ARGV_MAX	   64
#define KNOWN_HOSTS	   "~/.ssh/known_hosts"

/* What the URL says, decoded. Free with parts_free. */
struct parts {
	char *user, *host, *root, *known_hosts, *key; /* NULL: not said (but for host and root) */
	unsigned port;				      /* 0: ssh's own */
};

static void parts_free(struct parts *p)
{
	free(p->user);
	free(p->host);
	free(p->root);
	free(p->known_hosts);
	free(p->key);
}

static bool has_control(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f)
			return true;
	return false;
}

/* A file of ours, as ssh takes it: it would see `%` and quotes as its own. */
static int take_file(const char *value, char **ret_file)
{
	if (*ret_file || (value[0] != '/' && strncmp(value, "~/", 2) != 0) || has_control(value) ||
	    strpbrk(value, "\"\\%$"))
		return remote_open_reason(-EINVAL,
					  "name a file from / or ~/ (without \" \\ %% $) with "
					  "key= and known-hosts=");
	*ret_file = strdup(value);
	return *ret_file ? 0 : -ENOMEM;
}

static int take_param(void *arg, const char *name, const char *value, const char *raw)
{
	struct parts *p = arg;

	(void)raw;
	if (strcmp(name, "known-hosts") == 0)
		return take_file(value, &p->known_hosts);
	if (strcmp(name, "key") == 0)
		return take_file(value, &p->key);
	return remote_open_reason(-EINVAL, "sftp:// takes ?key=FILE and ?known-hosts=FILE, not %s",
				  name);
}

/* `[USER@]HOST[:PORT]`, all of it ssh's arguments: none may look like an option. */
static int take_authority(const char *text, size_t len, struct parts *p)
{
	const char *at = memrchr(text, '@', len), *host = at ? at + 1 : text;
	size_t host_len = (size_t)(text + len - host);
	cleanup_free char *user = at ? strndup(text, (size_t)(at - text)) : NULL;
	const char *colon;
	uint64_t port = 0;

	/* A colon after the address's own bracket. */
	colon = memrchr(host, ':', host_len);
	if (colon && memchr(colon, ']', (size_t)(host + host_len - colon)))
		colon = NULL;
	if (colon) {
		cleanup_free char *digits =
			strndup(colon + 1, (size_t)(host + host_len - colon - 1));

		if (!digits)
			return -ENOMEM;
		if (parse_u64(digits, &port) < 0 || !port || port > 65535)
			return -EINVAL;
		host_len = (size_t)(colon - host);
	}
	if (host_len > 2 && host[0] == '[' && host[host_len - 1] == ']') {
		host++;
		host_len -= 2;
	}
	p->port = (unsigned)port;
	p->host = strndup(host, host_len);
	if (!p->host || (at && !user))
		return -ENOMEM;
	if (!host_len || p->host[0] == '-' || has_control(p->host) ||
	    strpbrk(p->host, " @/[]%\"'\\$`"))
		return -EINVAL;
	if (!user)
		return 0;
	if (strchr(user, ':'))
		return remote_open_reason(-EINVAL, "no password may be in a URL, where all see it; "
						   "use a key (?key=FILE) or the agent");
	if (remote_url_decode(user, &p->user) < 0 || !*p->user || p->user[0] == '-' ||
	    has_control(p->user))
		return -EINVAL;
	return 0;
}

/* The directory, with one `/` at its end; "" for the home. */
static int take_root(const char *path, struct parts *p)
{
	cleanup_free char *plain = NULL;
	const char *from;
	size_t len;
	int error = remote_url_decode(path, &plain);

	if (error)
		return error;
	from = plain;
	if (strcmp(plain, "/~") == 0)
		from = plain + 2;
	else if (strncmp(plain, "/~/", 3) == 0)
		from = plain + 3;
	else if (plain[0] != '/' || plain[1] == '~')
		return remote_open_reason(
			-EINVAL, "name the directory: sftp://HOST/abs/dir, or sftp://HOST/~/dir "
				 "below the home there");
	len = strlen(from);
	while (len > 1 && from[len - 1] == '/')
		len--;
	if (has_control(from) || text_print(&p->root, "%.*s%s", (int)len, from,
					    len && from[len - 1] != '/' ? "/" : "") < 0)
		return has_control(from) ? -EINVAL : -ENOMEM;
	return 0;
}

static int take_url(const struct remote_url *url, struct parts *p)
{
	const char *rest = url->rest;
	size_t len;
	int error;

	if (strncmp(rest, "//", 2) != 0)
		return -EINVAL;
	rest += 2;
	len = strcspn(rest, "/");
	error = take_authority(rest, len, p);
	if (!error)
		error = take_root(rest + len, p);
	return error ? error : remote_url_each_param(url->query, take_param, p);
}

/* ---- the command line */

struct words {
	char **argv;
	size_t count;
	bool failed;
};

static void add(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct words *w, const char *fmt, ...)
{
	va_list ap;

	if (w->failed || w->count == ARGV_MAX) {
		w->failed = true;
		return;
	}
	va_start(ap, fmt);
	if (text_vprint(&w->argv[w->count], fmt, ap) < 0)
		w->failed = true;
	else
		w->count++;
	va_end(ap);
}

/* What must hold whatever the user's configuration says comes first: ssh takes the first value. */
static void add_options(struct words *w, const struct parts *p, int64_t connect_ns)
{
	static const char *const fixed[] = {
		"BatchMode=yes", /* asks nothing */
		"StrictHostKeyChecking=yes",
		"NoHostAuthenticationForLocalhost=no",
		"UpdateHostKeys=no",
		"ControlMaster=no", /* a link is a connection of its own */
		"ControlPath=none",
		"ClearAllForwardings=yes",
		"ForwardAgent=no",
		"ForwardX11=no",
		"PermitLocalCommand=no",
		"RemoteCommand=none",
		"RequestTTY=no",
		"EscapeChar=none",
		"LogLevel=ERROR", /* no banners: what it says is why it failed */
		"ServerAliveInterval=15",
		"ServerAliveCountMax=3",
	};

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		add(w, "-o");
		add(w, "%s", fixed[i]);
	}
	add(w, "-o");
	add(w, "ConnectTimeout=%lld", (long long)((connect_ns + NS_PER_S - 1) / NS_PER_S));
	if (p->known_hosts) {
		add(w, "-o");
		add(w, "UserKnownHostsFile=\"%s\"", p->known_hosts);
		add(w, "-o");
		add(w, "GlobalKnownHostsFile=/dev/null");
	}
	if (p->key) {
		add(w, "-o");
		add(w, "IdentityFile=\"%s\"", p->key);
		add(w, "-o");
		add(w, "IdentitiesOnly=yes");
	}
}

static int make_command(struct sftp *s, const struct parts *p)
{
	struct words w = {.argv = calloc(ARGV_MAX + 1, sizeof(char *))};

	s->argv = w.argv;
	if (!s->argv)
		return -ENOMEM;
	add(&w, "ssh");
	add_options(&w, p, s->times.connect_ns);
	if (p->port) {
		add(&w, "-p");
		add(&w, "%u", p->port);
	}
	if (p->user) {
		add(&w, "-l");
		add(&w, "%s", p->user);
	}
	add(&w, "-s");
	add(&w, "--");
	add(&w, "%s", p->host);
	add(&w, "sftp");
	return w.failed ? -ENOMEM : 0;
}

/* ---- opening */

static void sftp_free(struct sftp *s)
{
	sftp_close_links(s);
	rate_destroy(&s->upload);
	rate_destroy(&s->download);
	pthread_cond_destroy(&s->freed);
	mutex_destroy(&s->lock);
	for (size_t i = 0; s->argv && s->argv[i]; i++)
		free(s->argv[i]);
	free(s->argv);
	free(s->root);
	free(s->host);
	free(s->known_hosts);
}

void sftp_release(struct remote *r)
{
	sftp_free((struct sftp *)r);
}

static int64_t or_default(int64_t value, int64_t fallback)
{
	return value > 0 ? value : fallback;
}

/* The locks, with nothing to undo on failure. */
static int init_locks(struct sftp *s, const struct remote_limits *limits)
{
	if (cond_init_mono(&s->freed) < 0)
		return -ENOMEM;
	mutex_init(&s->lock, LOCK_REMOTE_SFTP);
	rate_init(&s->upload, limits->upload_rate);
	rate_init(&s->download, limits->download_rate);
	return 0;
}

static int fill(struct sftp *s, struct parts *p, const struct remote_limits *limits)
{
	char port[16] = "";

	s->connections = limits->connections ? limits->connections : REMOTE_CONNECTIONS;
	s->times = (struct sftp_times){
		.connect_ns = or_default(limits->connect_timeout_ns, DEFAULT_CONNECT_NS),
		.stall_ns = or_default(limits->stall_timeout_ns, DEFAULT_STALL_NS),
		.total_ns = or_default(limits->total_timeout_ns, DEFAULT_TOTAL_NS),
	};
	if (p->port)
		snprintf(port, sizeof(port), "-p %u ", p->port);
	if (text_print(&s->host, "%s%s", port, p->host) < 0)
		return -ENOMEM;
	s->known_hosts = strdup(p->known_hosts ? p->known_hosts : KNOWN_HOSTS);
	s->root = steal_ptr(p->root);
	return s->known_hosts ? make_command(s, p) : -ENOMEM;
}

int remote_sftp_open(const struct remote_url *url, const char *text,
		     const struct remote_limits *limits, struct remote **ret_remote)
{
	CLEANUP(parts_free) struct parts parts = {0};
	cleanup_free struct sftp *s = calloc(1, sizeof(*s));
	int error = s ? take_url(url, &parts) : -ENOMEM;

	if (!error)
		error = init_locks(s, limits);
	if (error)
		return error;
	error = fill(s, &parts, limits);
	if (!error)
		error = remote_init(&s->base, &sftp_ops, text, NULL);
	if (error) {
		sftp_free(s);
		return error;
	}
	*ret_remote = &steal_ptr(s)->base;
	return 0;
}
