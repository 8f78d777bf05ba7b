/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: taking back epochs that began and were never frozen. */
#include "lib/state/state_db.h"

static int rewind_by(struct state *s, uint64_t next, struct query q)
{
	cleanup_query struct query query = q;

	(void)s;
	query_bind_u64(&query, next);
	return query_run(&query);
}

int state_epochs_rewind(struct state *s, uint64_t next)
{
	int error = state_begin(s);

	if (error)
		return error;
	/* 0 is EPOCH_SEALED. */
	error = rewind_by(s, next,
			  query_of(s, "DELETE FROM epochs WHERE number >= ?1 AND record IS NULL"
				      " AND state = 0"));
	if (!error)
		error = rewind_by(s, next,
				  query_of(s, "UPDATE versions SET born = ?1 WHERE born > ?1"));
	if (!error)
		error = rewind_by(s, next,
				  query_of(s, "UPDATE versions SET died = ?1 WHERE died > ?1"));
	if (!error)
		error = rewind_by(s, next,
				  query_of(s, "UPDATE files SET born = ?1 WHERE born > ?1"));
	return state_end(s, error);
}
