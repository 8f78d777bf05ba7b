/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into the programs of the tests, and into nothing that is installed: arms the fault points. */
#include "lib/util/faultpoint.h"

const char *fault_variable(void)
{
	return "EPOCHFS_FAULT";
}
