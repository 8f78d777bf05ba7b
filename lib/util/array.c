/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow. */
#include "lib/util/array.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_CAP 64

int array_reserve(void **items, size_t *cap, size_t count, size_t size)
{
	size_t more = *cap ? *cap * 2 : FIRST_CAP;
	void *grown;

	if (count < *cap)
		return 0;
	grown = reallocarray(*items, more, size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*cap = more;
	return 0;
}
