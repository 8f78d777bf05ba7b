/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests wait for closes, and how long each is likely to take. */
#include "fs/opcodes.h"

#include <linux/fuse.h>

bool opcode_waits_for_closes(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case FUSE_SETATTR:
	case FUSE_READLINK:
	case FUSE_SYMLINK:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_OPEN:
	case FUSE_CREATE:
	case FUSE_SETXATTR:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_OPENDIR:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_FSYNCDIR:
	case FUSE_STATFS:
		return true;
	default:
		return false;
	}
}

enum pace opcode_pace(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
	case FUSE_OPENDIR:
	case FUSE_RELEASEDIR:
		return PACE_QUICK;
	case FUSE_READ:
	case FUSE_LSEEK:
	case FUSE_FSYNC:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		return PACE_SLOW;
	default:
		return PACE_BY_NODE;
	}
}
