/* SPDX-License-Identifier: Apache-2.0 */
/* Why an epoch is not complete. */
#include "lib/meta/reason.h"

void reason_add(struct buf *reason, unsigned *named, const char *name, const char *why)
{
	if ((*named)++ < REASON_NAMED_MAX)
		buf_printf(reason, "%s%s: %s", reason->len ? "; " : "", name, why);
}

void reason_end(struct buf *reason, unsigned named)
{
	if (named > REASON_NAMED_MAX)
		buf_printf(reason, "; and %u more", named - REASON_NAMED_MAX);
}
