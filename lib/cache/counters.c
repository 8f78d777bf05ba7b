/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/cache/counters.h"

#include "lib/util/clock.h"

const int64_t histogram_bounds_ns[HISTOGRAM_BOUNDS] = {
	NS_PER_MS,	 5 * NS_PER_MS,	 10 * NS_PER_MS, 50 * NS_PER_MS, 100 * NS_PER_MS,
	500 * NS_PER_MS, NS_PER_S,	 5 * NS_PER_S,	 10 * NS_PER_S,	 30 * NS_PER_S,
	60 * NS_PER_S,	 300 * NS_PER_S, 600 * NS_PER_S,
};

void histogram_add(struct histogram *h, int64_t ns)
{
	unsigned place = 0;

	while (place < HISTOGRAM_BOUNDS && ns > histogram_bounds_ns[place])
		place++;
	atomic_fetch_add_explicit(&h->count[place], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

void counters_add_stored(struct counters *c, uint64_t input, uint64_t fresh, uint64_t output)
{
	atomic_fetch_add(&c->store_input, input);
	atomic_fetch_add(&c->store_new, fresh);
	atomic_fetch_add(&c->store_output, output);
}
