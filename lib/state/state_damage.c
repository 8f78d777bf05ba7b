/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for damage in the local state. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <string.h>
#include "lib/util/log.h"

/* The first line of what the check says: "ok", or what is wrong. */
static int check_text(struct state *s, const char *sql, struct buf *out)
{
	cleanup_query struct query q = query_of(s, sql);
	int error = query_one(&q);

	return error ? error : query_append(&q, out);
}

int state_check(struct state *s, bool indexes)
{
	cleanup_buf struct buf text = {0};
	int error = indexes ? check_text(s, "PRAGMA integrity_check(1)", &text)
			    : check_text(s, "PRAGMA quick_check(1)", &text);

	if (error || !strcmp(buf_str(&text), "ok"))
		return error;
	log_error("local state %s: %s", sqlite3_db_filename(s->db, "main"), buf_str(&text));
	return -EUCLEAN;
}

bool state_is_damaged(const struct state *s)
{
	return s->vfs && state_vfs_damaged(s->vfs);
}
