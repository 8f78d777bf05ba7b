/* SPDX-License-Identifier: Apache-2.0 */
/* Which exit code an error has. */
#include "tools/cli.h"

#include <errno.h>

int exit_code_of(int error)
{
	switch (-error) {
	case 0:
		return EXIT_DONE;
	case EINVAL:
		return EXIT_USAGE;
	case EHOSTUNREACH:
	case ECONNREFUSED:
	case ENETUNREACH:
		return EXIT_UNREACHABLE;
	case EACCES:
	case EPERM:
	case EROFS:
		return EXIT_DENIED;
	case ENOENT:
		return EXIT_NOT_FOUND;
	case EBADMSG:
	case EUCLEAN:
		return EXIT_DAMAGED;
	case ETIMEDOUT:
		return EXIT_NOT_DURABLE;
	case EBUSY:
	case EEXIST:
	case ENOTUNIQ:
		return EXIT_CONFLICT;
	default:
		return EXIT_FAILED;
	}
}
