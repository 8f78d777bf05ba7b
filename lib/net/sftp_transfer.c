/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files over SFTP: many requests under way at once, since each answer takes a round trip. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/net/sftp.h"
#include "lib/util/clock.h"

#define UNDER_WAY_BYTES (4u << 20) /* twice the window of OpenSSH's channels */
#define UNDER_WAY_MAX	64
#define UNSENT_MAX	(1u << 20)

/* Waits until these bytes may be moved; that is no stall. */
static int pace(struct sftp_link *l, struct rate *rate, size_t bytes)
{
	int64_t wait_ns = rate_take(rate, bytes, clock_mono_ns());

	if (!wait_ns)
		return 0;
	l->deadline_ns += wait_ns;
	l->mark_ns += wait_ns;
	if (remote_sleep(&l->owner->base, wait_ns) == 0)
		return 0;
	l->broken = true;
	return -ECANCELED;
}

/* How many requests of this size are kept under way. */
static size_t depth_of(size_t piece)
{
	size_t depth = UNDER_WAY_BYTES / piece;

	return depth < UNDER_WAY_MAX ? depth : UNDER_WAY_MAX;
}

/* ---- sending */

static void request_write(struct sftp_link *l, const struct sftp_handle *h, uint64_t offset,
			  const uint8_t *data, size_t len)
{
	uint32_t id;
	size_t mark = sftp_request_begin(l, SFTP_WRITE, &id);

	sftp_put_string(&l->out, h->bytes, h->len);
	sftp_put_u64(&l->out, offset);
	sftp_put_string(&l->out, data, len);
	sftp_request_end(l, mark);
}

int sftp_send_file(struct sftp_link *l, const struct sftp_handle *h, const uint8_t *data,
		   size_t len)
{
	struct rate *rate = &l->owner->upload;
	size_t piece = rate_piece(rate, l->max_write), depth = depth_of(piece);
	size_t sent = 0, under_way = 0;
	int status = SFTP_OK;

	sftp_link_start(l);
	/* After a refusal nothing more is sent, but all answers are taken. */
	while (under_way || (sent < len && status == SFTP_OK)) {
		struct sftp_answer a;
		int r = 0;

		while (!r && status == SFTP_OK && sent < len && under_way < depth &&
		       sftp_unsent(l) < UNSENT_MAX) {
			size_t n = len - sent < piece ? len - sent : piece;

			r = pace(l, rate, n);
			request_write(l, h, sent, data + sent, n);
			sent += n;
			under_way++;
		}
		if (!r)
			r = sftp_receive(l, &a);
		if (!r)
			r = sftp_status_of(l, &a);
		if (r < 0)
			return r;
		under_way--;
		if (status == SFTP_OK)
			status = r;
	}
	return status;
}

/* ---- receiving */

/* One READ under way. */
struct piece {
	uint32_t id; /* 0: free */
	uint64_t offset;
	uint32_t len;
};

struct receiving {
	struct sftp_link *l;
	const struct sftp_handle *h;
	struct buf *out;
	size_t start;	    /* of our bytes in `out` */
	uint64_t offset;    /* of the first one in the file */
	uint64_t next, end; /* in the file: what to ask for next, and where to stop */
	uint32_t stat_id;   /* of the FSTAT under way; 0: answered */
	struct piece pieces[UNDER_WAY_MAX];
	size_t under_way, depth, piece;
};

static void request_stat(struct receiving *rc)
{
	size_t mark = sftp_request_begin(rc->l, SFTP_FSTAT, &rc->stat_id);

	sftp_put_string(&rc->l->out, rc->h->bytes, rc->h->len);
	sftp_request_end(rc->l, mark);
}

static int request_read(struct receiving *rc, uint64_t offset, uint32_t len)
{
	struct piece *p = rc->pieces;
	size_t mark;

	while (p->id)
		p++;
	mark = sftp_request_begin(rc->l, SFTP_READ, &p->id);
	sftp_put_string(&rc->l->out, rc->h->bytes, rc->h->len);
	sftp_put_u64(&rc->l->out, offset);
	sftp_put_u32(&rc->l->out, len);
	sftp_request_end(rc->l, mark);
	p->offset = offset;
	p->len = len;
	rc->under_way++;
	return pace(rc->l, &rc->l->owner->download, len);
}

/* Until the size is known, one piece is asked for, not to the end of what may be wanted. */
static int ask_more(struct receiving *rc)
{
	size_t depth = rc->stat_id ? 1 : rc->depth;
	int error = 0;

	while (!error && rc->next < rc->end && rc->under_way < depth) {
		uint64_t left = rc->end - rc->next;
		uint32_t len = (uint32_t)(left < rc->piece ? left : rc->piece);

		error = request_read(rc, rc->next, len);
		rc->next += len;
	}
	return error;
}

/* What kind of file it is, and how long. */
static int take_stat(struct receiving *rc, struct sftp_answer *a)
{
	struct sftp_attrs attrs;

	rc->stat_id = 0;
	if (a->type != SFTP_ATTRS) {
		int status = sftp_status_of(rc->l, a);

		return status < 0 ? status : -EIO;
	}
	sftp_attrs(&a->fields, &attrs);
	if (reader_error(&a->fields) || !attrs.has_size)
		return sftp_nonsense(rc->l, "attributes");
	if (attrs.has_mode && !sftp_is_file(&attrs))
		return sftp_is_dir(&attrs) ? -ENOENT : -EPERM;
	if (attrs.size < rc->end)
		rc->end = attrs.size > rc->offset ? attrs.size : rc->offset;
	if (rc->end - rc->offset > REMOTE_GET_MAX)
		return -EFBIG;
	return buf_reserve(rc->out, rc->end - rc->offset);
}

/* Puts bytes to where they belong. */
static int place(struct receiving *rc, uint64_t offset, const uint8_t *data, size_t len)
{
	size_t at = rc->start + (size_t)(offset - rc->offset);

	if (at + len > rc->out->len) {
		if (buf_reserve(rc->out, at + len - rc->out->len) < 0)
			return -ENOMEM;
		/* Pieces may come in another order: what is not there yet must not be garbage. */
		if (at > rc->out->len)
			memset(rc->out->data + rc->out->len, 0, at - rc->out->len);
		rc->out->len = at + len;
	}
	memcpy(rc->out->data + at, data, len);
	return 0;
}

/* An answer to a READ: data, less than asked for perhaps, or the end of the file. */
static int take_piece(struct receiving *rc, struct sftp_answer *a)
{
	struct piece p = {0};
	const uint8_t *data;
	size_t len;
	int error;

	for (size_t i = 0; i < UNDER_WAY_MAX && !p.id; i++)
		if (rc->pieces[i].id == a->id) {
			p = rc->pieces[i];
			rc->pieces[i].id = 0;
		}
	if (!p.id)
		return sftp_nonsense(rc->l, "an answer to no question");
	rc->under_way--;
	if (a->type != SFTP_DATA) {
		error = sftp_status_of(rc->l, a);
		if (error == SFTP_EOF && p.offset < rc->end)
			rc->end = p.offset;
		return error == SFTP_EOF ? 0 : error < 0 ? error : sftp_errno(error);
	}
	data = sftp_string(&a->fields, &len);
	if (!data || !len || len > p.len)
		return sftp_nonsense(rc->l, "data");
	error = place(rc, p.offset, data, len);
	if (!error && len < p.len)
		error = request_read(rc, p.offset + len, p.len - (uint32_t)len);
	return error;
}

int sftp_receive_file(struct sftp_link *l, const struct sftp_handle *h, uint64_t offset,
		      uint64_t len, struct buf *out)
{
	struct receiving rc = {
		.l = l, .h = h, .out = out, .start = out->len, .offset = offset, .next = offset};
	int result = 0;

	rc.piece = rate_piece(&l->owner->download, l->max_read);
	rc.depth = depth_of(rc.piece);
	if (__builtin_add_overflow(offset, len, &rc.end) || rc.end > INT64_MAX)
		rc.end = INT64_MAX;
	if (rc.next > rc.end)
		rc.next = rc.end = rc.offset;
	sftp_link_start(l);
	request_stat(&rc);
	/* After a failure, what is under way is still taken: the link stays good. */
	while (rc.stat_id || rc.under_way || (!result && rc.next < rc.end)) {
		struct sftp_answer a;
		int error = result ? 0 : ask_more(&rc);

		if (!error)
			error = sftp_receive(l, &a);
		if (!error)
			error = a.id == rc.stat_id ? take_stat(&rc, &a) : take_piece(&rc, &a);
		if (l->broken)
			return error ? error : -EIO;
		if (error && !result)
			result = error;
	}
	if (!result && out->len - rc.start > rc.end - rc.offset)
		out->len = rc.start + (size_t)(rc.end - rc.offset);
	return result;
}
