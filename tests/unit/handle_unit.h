/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of open files share: a volume that each of them has for itself. */
#ifndef EPOCHFS_TESTS_HANDLE_UNIT_H
#define EPOCHFS_TESTS_HANDLE_UNIT_H

#include "tests/unit/volume_unit.h"

static struct vu u;

__attribute__((unused)) static void setup(void)
{
	vu_start(&u);
}

__attribute__((unused)) static void teardown(void)
{
	vu_stop(&u);
}

__attribute__((unused)) static TCase *handle_case(Suite *s, const char *name)
{
	TCase *t = unit_case(s, name);

	tcase_add_checked_fixture(t, setup, teardown);
	return t;
}

#endif
