/* SPDX-License-Identifier: Apache-2.0 */
/* File systems that a network lies behind. */
#include "lib/util/network_fs.h"

#include <stddef.h>
#include <stdint.h>

const char *network_fs_name(const struct statfs *st)
{
	static const struct {
		unsigned long type;
		const char *name;
	} known[] = {
		{0x6969, "NFS"},       {0x517B, "SMB"},	       {0xFF534D42, "SMB"},
		{0xFE534D42, "SMB"},   {0x0BD00BD0, "Lustre"}, {0x00C36400, "CephFS"},
		{0x47504653, "GPFS"},  {0x19830326, "BeeGFS"}, {0x5346414F, "AFS"},
		{0x6B414653, "AFS"},   {0x73757245, "Coda"},   {0x20030528, "OrangeFS"},
		{0xAAD7AAEA, "PanFS"}, {0x01161970, "GFS2"},   {0x7461636F, "OCFS2"},
		{0x01021997, "9P"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((uint32_t)st->f_type == known[i].type)
			return known[i].name;
	return NULL;
}
