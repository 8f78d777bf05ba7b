/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests wait for closes, and which the reading thread answers itself. */
#include "fs/loop.h"

#include <linux/fuse.h>
#include "tests/unit/unit.h"

/* What shows whether a file was committed: its name, its attributes, a directory, the disk's room. */
START_TEST(what_looks_at_names_waits_for_closes)
{
	static const uint32_t yes[] = {
		FUSE_LOOKUP,   FUSE_GETATTR,   FUSE_SETATTR, FUSE_OPEN,	       FUSE_CREATE,
		FUSE_RENAME,   FUSE_RENAME2,   FUSE_UNLINK,  FUSE_LINK,	       FUSE_MKDIR,
		FUSE_RMDIR,    FUSE_OPENDIR,   FUSE_READDIR, FUSE_READDIRPLUS, FUSE_FSYNCDIR,
		FUSE_GETXATTR, FUSE_LISTXATTR, FUSE_STATFS,
	};

	for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
		ck_assert_msg(opcode_waits_for_closes(yes[i]), "opcode %u", yes[i]);
}
END_TEST

/* Else closes would wait for themselves, or for what is to end a wait. */
START_TEST(closes_and_what_ends_waits_never_wait)
{
	static const uint32_t no[] = {
		FUSE_FLUSH,	FUSE_RELEASE, FUSE_RELEASEDIR, FUSE_FORGET, FUSE_BATCH_FORGET,
		FUSE_INTERRUPT, FUSE_DESTROY, FUSE_READ,       FUSE_WRITE,  UINT32_MAX,
	};

	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
		ck_assert_msg(!opcode_waits_for_closes(no[i]), "opcode %u", no[i]);
}
END_TEST

START_TEST(paces)
{
	static const struct {
		uint32_t opcode;
		enum pace pace;
	} rows[] = {
		{FUSE_FORGET, PACE_QUICK},	   {FUSE_BATCH_FORGET, PACE_QUICK},
		{FUSE_INTERRUPT, PACE_QUICK},	   {FUSE_READ, PACE_SLOW},
		{FUSE_FSYNC, PACE_SLOW},	   {FUSE_FSYNCDIR, PACE_SLOW},
		{FUSE_COPY_FILE_RANGE, PACE_SLOW}, {FUSE_LOOKUP, PACE_BY_NODE},
		{FUSE_RELEASE, PACE_BY_NODE},	   {FUSE_WRITE, PACE_BY_NODE},
		{UINT32_MAX, PACE_BY_NODE},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		ck_assert_msg(opcode_pace(rows[i].opcode) == rows[i].pace, "opcode %u",
			      rows[i].opcode);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs_opcodes");
	TCase *t = unit_case(s, "opcodes");

	tcase_add_test(t, what_looks_at_names_waits_for_closes);
	tcase_add_test(t, closes_and_what_ends_waits_never_wait);
	tcase_add_test(t, paces);
	return unit_run(s);
}
