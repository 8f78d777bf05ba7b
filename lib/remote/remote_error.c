/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of remotes: which may be tried again, and what people are told. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

#define KINDS_TEXT                                                                                 \
	"/abs/dir, file:///abs/dir, memory:NAME, none, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, https://HOST/PATH, sftp://HOST/DIR, exec:PROGRAM ARGS, fault+URL"

#define ADVICE_MAX 128 /* longest text of advice(), and what is put around it */

/* Why remote_open failed, in this thread, as the kind says it; error 0: it did not say. */
static _Thread_local struct {
	int error;
	char text[REMOTE_REASON_MAX];
} open_reason;

bool remote_may_retry(int err)
{
	return err == -EIO || err == -ETIMEDOUT || err == -ECONNREFUSED;
}

int remote_errno_of(int err)
{
	switch (err) {
	case ENOENT:
	case EEXIST:
	case EACCES:
	case EPERM:
	case EROFS:
	case ENOSPC:
	case ETIMEDOUT:
	case ECONNREFUSED:
	case ECANCELED:
	case EINVAL:
	case EOPNOTSUPP:
	case EFBIG:
	case ENOMEM:
		return -err;
	case EDQUOT:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

/* What went wrong and what to do, without the place. */
static const char *advice(int err)
{
	switch (err) {
	case -ENOENT:
		return "not found; check that the URL names the right place";
	case -EEXIST:
		return "exists already; another writer made it";
	case -EACCES:
	case -EPERM:
		return "the remote does not allow this; check its permissions and your credentials";
	case -EROFS:
		return "the remote takes no writes; read it with -o ro, or name another";
	case -ENOSPC:
		return "the remote is full; free space there or raise the quota";
	case -ETIMEDOUT:
		return "the remote does not answer; check the network, then try again";
	case -ECONNREFUSED:
		return "the remote cannot be reached; check that it is up, then try again";
	case -EIO:
		return "the remote failed; check it, then try again";
	case -ECANCELED:
		return "cancelled";
	case -EINVAL:
		return "not a key that a remote can hold";
	case -EOPNOTSUPP:
		return "it cannot create an object only if absent, which a volume needs; use "
		       "another place";
	case -EFBIG:
		return "an object is larger than any that epochfs writes; it is damaged or foreign";
	default:
		return strerror(-err);
	}
}

/* A line without control characters. */
__attribute__((format(printf, 2, 0))) static void format_reason(char ret_text[REMOTE_REASON_MAX],
								const char *fmt, va_list ap)
{
	vsnprintf(ret_text, REMOTE_REASON_MAX, fmt, ap);
	printable_mask(ret_text);
}

void remote_open_forget(void)
{
	open_reason.error = 0;
}

int remote_open_reason(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	format_reason(open_reason.text, fmt, ap);
	va_end(ap);
	open_reason.error = err;
	return err;
}

int remote_set_reason(struct remote *r, int err, const char *fmt, ...)
{
	char text[REMOTE_REASON_MAX];
	va_list ap;

	va_start(ap, fmt);
	format_reason(text, fmt, ap);
	va_end(ap);
	log_debug("%s: %s", r->name, text);
	SCOPED_LOCK(&r->reason_lock);
	memcpy(r->reason, text, sizeof(text));
	r->reason_error = err;
	return err;
}

void remote_move_reason(struct remote *r, int from, int to)
{
	SCOPED_LOCK(&r->reason_lock);
	if (r->reason_error == from)
		r->reason_error = to;
}

/* The reason for this error that the remote, or one below it, gave last. */
static bool reason_of(struct remote *r, int err, char ret_text[REMOTE_REASON_MAX])
{
	for (; r; r = r->inner) {
		SCOPED_LOCK(&r->reason_lock);

		if (r->reason_error != err)
			continue;
		memcpy(ret_text, r->reason, REMOTE_REASON_MAX);
		return true;
	}
	return false;
}

const char *remote_strerror(struct remote *r, int err, char ret_text[REMOTE_TEXT_MAX])
{
	char reason[REMOTE_REASON_MAX], what[REMOTE_REASON_MAX + ADVICE_MAX];

	if (err >= 0 || !reason_of(r, err, reason))
		snprintf(what, sizeof(what), "%s", advice(err));
	else if (strchr(reason, ';'))
		snprintf(what, sizeof(what), "%s", reason);
	else /* It does not say what to do. */
		snprintf(what, sizeof(what), "%s (%s)", advice(err), reason);
	snprintf(ret_text, REMOTE_TEXT_MAX, "%.*s: %s", (int)(REMOTE_TEXT_MAX - 3 - strlen(what)),
		 r->name, what);
	return ret_text;
}

const char *remote_open_strerror(const char *url, int err, char ret_text[REMOTE_TEXT_MAX])
{
	char name[300];
	const char *what = advice(err);

	remote_url_redact(url, name, sizeof(name));
	if (open_reason.error == err)
		what = open_reason.text;
	else if (err == -ENOENT && strncmp(url, "exec:", 5) == 0)
		what = "no such program; give its path, or a name that is in PATH";
	else if (err == -ENOENT)
		what = "the directory above it does not exist; create that, or check the path";
	else if (err == -ENOTDIR)
		what = "not a directory; name one, or a path where one can be made";
	else if (err == -EPROTONOSUPPORT && strpbrk(url, ":+"))
		what = "no such kind of remote; there are: " KINDS_TEXT;
	else if (err == -EINVAL || err == -EPROTONOSUPPORT) /* a path from here is but a word */
		what = "not a remote; give one of: " KINDS_TEXT " (paths absolute)";
	snprintf(ret_text, REMOTE_TEXT_MAX, "%.*s: %s", (int)(REMOTE_TEXT_MAX - 3 - strlen(what)),
		 name, what);
	return ret_text;
}
