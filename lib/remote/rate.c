/* SPDX-License-Identifier: Apache-2.0 */
/* The shared limit in bytes a second. */
#include "lib/remote/rate.h"

#include <errno.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"

#define SAVED_NS  (100 * NS_PER_MS)
#define LEAST_LEN 512

void rate_init(struct rate *r, uint64_t rate)
{
	r->rate = rate;
	r->paid_at_ns = 0;
	mutex_init(&r->lock, LOCK_REMOTE_RATE);
}

void rate_destroy(struct rate *r)
{
	mutex_destroy(&r->lock);
}

int64_t rate_take(struct rate *r, size_t bytes, int64_t now_ns)
{
	int64_t wait_ns;

	if (!r->rate)
		return 0;
	SCOPED_LOCK(&r->lock);
	if (r->paid_at_ns < now_ns - SAVED_NS)
		r->paid_at_ns = now_ns - SAVED_NS;
	wait_ns = r->paid_at_ns - now_ns;
	r->paid_at_ns += (int64_t)((double)bytes * (double)NS_PER_S / (double)r->rate);
	return wait_ns > 0 ? wait_ns : 0;
}

size_t rate_piece(const struct rate *r, size_t bytes)
{
	uint64_t most = r->rate / 10;

	if (!r->rate)
		return bytes;
	if (most < LEAST_LEN)
		most = LEAST_LEN;
	return bytes < most ? bytes : (size_t)most;
}

int rate_wait(struct rate *r, struct remote *remote, size_t bytes)
{
	int error = 0;

	while (!error && bytes && r->rate) {
		size_t piece = rate_piece(r, bytes);
		int64_t wait_ns = rate_take(r, piece, clock_mono_ns());

		bytes -= piece;
		if (wait_ns)
			error = remote_sleep(remote, wait_ns);
	}
	return error;
}
