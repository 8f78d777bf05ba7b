/* SPDX-License-Identifier: Apache-2.0 */
/* .epochs/.control: requests of the command, one after another. */
#include "fs/epochs_dir.h"

#include <errno.h>
#include <jansson.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/files.h"
#include "fs/handover.h"
#include "fs/loop.h"
#include "fs/passthrough.h"
#include "lib/admin/control.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/mountinfo.h"

/* Of processes that hold the mount elsewhere, `status` names so many. */
#define HOLDERS_MAX 16

#define REQUEST_MAX (1u << 20)

/* Reads and writes carry no offset: a stream each way (FOPEN_STREAM of Linux 4.20 and later). */
#define OPEN_FLAGS (FOPEN_DIRECT_IO | (1u << 4))

struct control {
	struct mutex lock; /* guards all below; not held over a request, nor a reply */
	struct buf request, response;
	size_t given;		   /* of the response */
	bool answered;		   /* the request was carried out; the next write begins another */
	bool running;		   /* it is being carried out: others get EBUSY */
	struct fs_mount *restarts; /* once the answer was read and this is closed; else NULL */
	struct users *users;
	enum hold hold; /* until this is closed */
};

void control_free(struct control *c)
{
	if (!c)
		return;
	if (c->restarts)
		(void)fs_restart(c->restarts);
	users_let_go(c->users, c->hold, false);
	buf_free(&c->request);
	buf_free(&c->response);
	mutex_destroy(&c->lock);
	free(c);
}

static struct control *control_new(struct fs_mount *m)
{
	struct control *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	mutex_init(&c->lock, LOCK_FS_CONTROL);
	c->users = m->users;
	return c;
}

struct control *control_revive(struct fs_mount *m, enum hold hold)
{
	struct control *c = control_new(m);

	if (c) {
		c->hold = hold;
		users_hold(m->users, hold);
	}
	return c;
}

void control_file_open(fuse_req_t req, struct node *n)
{
	struct fs_mount *m = fs_of(req);
	struct file *f = file_new(m, FILE_CONTROL, n);
	int r = -ENOMEM;

	if (f)
		f->control = control_new(m);
	if (f && f->control) {
		r = reply_open(req, NULL, f, OPEN_FLAGS, 0);
	} else {
		reply_error(req, r);
	}
	if (r < 0 && f)
		file_release(m, f);
}

/* ---- what only the mount knows of status ---- */

static bool is_op(struct buf *request, const char *wanted)
{
	json_t *json = json_loadb((const char *)request->data, request->len, 0, NULL);
	const char *op = json_string_value(json_object_get(json, "op"));
	bool is = op && strcmp(op, wanted) == 0;

	json_decref(json);
	return is;
}

static bool is_supervised(const struct fs_mount *m)
{
	return m->handover && !handover_peer_gone(m->handover->socket);
}

/* Other mount namespaces that hold the mount, each by a process in it: it goes on for as long as they do. */
static void add_holders(const struct fs_mount *m, json_t *json)
{
	pid_t pids[HOLDERS_MAX];
	size_t count = mountinfo_elsewhere(m->device, pids, HOLDERS_MAX);
	json_t *holders = count ? json_array() : NULL;

	for (size_t i = 0; holders && i < count && i < HOLDERS_MAX; i++)
		json_array_append_new(holders, json_integer(pids[i]));
	if (holders)
		json_object_set_new(json, "held_elsewhere_by_pids", holders);
}

/* Adds the mount point, our pid, what it counts in, and the state of passthrough. */
static void add_mount(struct fs_mount *m, struct buf *response)
{
	json_t *json = json_loadb((const char *)response->data, response->len, 0, NULL);
	struct stat namespace;
	char *text;

	if (json_is_object(json) && !json_object_get(json, "error")) {
		json_object_set_new(json, "mountpoint", json_string(m->mountpoint));
		json_object_set_new(json, "pid", json_integer(getpid()));
		if (stat("/proc/self/ns/pid", &namespace) == 0)
			json_object_set_new(json, "pid_namespace",
					    json_integer((json_int_t) namespace.st_ino));
		json_object_set_new(json, "passthrough", passthrough_status(m));
		json_object_set_new(json, "supervised", json_boolean(is_supervised(m)));
		add_holders(m, json);
		if (is_supervised(m))
			json_object_update_new(
				json, json_pack("{s:I, s:I}", "supervisor",
						(json_int_t)m->handover->table.start->supervisor,
						"restarts",
						(json_int_t)m->handover->table.start->restarts));
		text = json_dumps(json, JSON_COMPACT);
		if (text) {
			buf_reset(response);
			buf_put(response, text, strlen(text));
		}
		free(text);
	}
	json_decref(json);
}

/* {"op":"restart"} -> {"pid":N}, of the process that ends. */
static int ask_restart(struct fs_mount *m, struct control *c, struct buf *response)
{
	if (is_supervised(m)) {
		c->restarts = m;
		buf_printf(response, "{\"pid\":%d}", (int)getpid());
	} else {
		buf_printf(
			response,
			"{\"error\":\"nothing would start it again: mount with -o supervise\",\"errno\":%d}",
			EOPNOTSUPP);
	}
	return buf_error(response);
}

/* ---- holds ---- */

/* {"op":"hold","mounted":B} -> {}: until this file is closed, signals do not end the mount. `mounted`: whoever asks mounted it. */
static int ask_hold(struct fs_mount *m, const struct file *f, const json_t *request,
		    struct buf *response)
{
	struct control *c = f->control;

	if (c->hold == HOLD_NONE) {
		c->hold = json_is_true(json_object_get(request, "mounted")) ? HOLD_MOUNTED
									    : HOLD_USES;
		file_note_hold(m, f, c->hold);
		users_hold(m->users, c->hold);
	}
	buf_printf(response, "{}");
	return buf_error(response);
}

/* {"op":"release","unmount":B} -> {}: the hold of this file ends in order, and the mount with it. */
static int ask_release(struct fs_mount *m, const struct file *f, const json_t *request,
		       struct buf *response)
{
	struct control *c = f->control;

	if (json_is_true(json_object_get(request, "unmount")))
		users_end(m->users);
	file_note_hold(m, f, HOLD_NONE);
	users_let_go(m->users, c->hold, true);
	c->hold = HOLD_NONE;
	buf_printf(response, "{}");
	return buf_error(response);
}

/* What the mount answers itself: false where the volume is to answer. */
static bool ask_mount(struct fs_mount *m, const struct file *f, struct buf *response, int *ret_r)
{
	struct buf *request = &f->control->request;
	json_t *json = json_loadb((const char *)request->data, request->len, 0, NULL);
	const char *op = json_string_value(json_object_get(json, "op"));
	bool mine = true;

	if (op && !strcmp(op, "restart"))
		*ret_r = ask_restart(m, f->control, response);
	else if (op && !strcmp(op, "hold"))
		*ret_r = ask_hold(m, f, json, response);
	else if (op && !strcmp(op, "release"))
		*ret_r = ask_release(m, f, json, response);
	else
		mine = false;
	json_decref(json);
	return mine;
}

/* ---- reading and writing ---- */

/* Without the lock: `running` keeps others away. */
static int carry_out(fuse_req_t req, const struct file *f, struct buf *response)
{
	struct fs_mount *m = fs_of(req);
	struct control *c = f->control;
	int r;

	if (ask_mount(m, f, response, &r))
		return r;
	loop_wait_closes();
	/* As in a rollback by ln -s: what changes is to be seen when this returns. */
	loop_defer_off();
	r = volume_control(m->vol, (const char *)c->request.data, c->request.len,
			   request_interrupted, req, response);
	loop_defer_on();
	if (r == 0 && is_op(&c->request, "status"))
		add_mount(m, response);
	return r < 0 ? r : buf_error(response);
}

/* Carries the request out, if there is one: 0, -EBUSY, -ENOMEM. */
static int answer_locked(fuse_req_t req, const struct file *f)
{
	struct control *c = f->control;
	cleanup_buf struct buf response = {0};
	struct buf before;
	int r;

	if (c->running)
		return -EBUSY;
	if (c->answered || !c->request.len)
		return 0;
	c->running = true;
	mutex_unlock(&c->lock);
	r = carry_out(req, f, &response);
	mutex_lock(&c->lock);
	c->running = false;
	if (r < 0)
		return r;
	before = c->response;
	c->response = response;
	response = before;
	c->given = 0;
	c->answered = true;
	return 0;
}

/* Takes up to `size` bytes of the answer: their count, or -errno. */
static ssize_t take(fuse_req_t req, const struct file *f, char *data, size_t size)
{
	struct control *c = f->control;

	SCOPED_LOCK(&c->lock);
	int r = answer_locked(req, f);
	size_t left = c->response.len - c->given;

	if (r < 0)
		return r;
	if (size > left)
		size = left;
	if (size)
		memcpy(data, c->response.data + c->given, size);
	c->given += size;
	return (ssize_t)size;
}

void control_file_read(fuse_req_t req, struct file *f, size_t size)
{
	cleanup_free char *data = malloc(size + 1);
	ssize_t n = data ? take(req, f, data, size) : -ENOMEM;

	if (n < 0)
		reply_error(req, (int)n);
	else
		fuse_reply_buf(req, data, (size_t)n);
}

static ssize_t add(struct control *c, struct fuse_bufvec *data)
{
	size_t len = fuse_buf_size(data);
	struct fuse_bufvec to = FUSE_BUFVEC_INIT(len);
	ssize_t n;

	SCOPED_LOCK(&c->lock);
	if (c->running)
		return -EBUSY;
	if (c->answered) { /* the next request begins, and what was not read is lost */
		c->answered = false;
		buf_reset(&c->request);
		buf_reset(&c->response);
		c->given = 0;
	}
	if (c->request.len + len > REQUEST_MAX)
		return -EFBIG;
	if (buf_reserve(&c->request, len) < 0)
		return -ENOMEM;
	to.buf[0].mem = c->request.data + c->request.len;
	n = fuse_buf_copy(&to, data, 0);
	if (n > 0)
		c->request.len += (size_t)n;
	return n;
}

void control_file_write(fuse_req_t req, struct file *f, struct fuse_bufvec *data)
{
	ssize_t n = add(f->control, data);

	if (n < 0)
		reply_error(req, (int)n);
	else
		fuse_reply_write(req, (size_t)n);
}
