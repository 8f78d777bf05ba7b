/* SPDX-License-Identifier: Apache-2.0 */
/* Opening remotes by URL: the table of all kinds. */
#include "lib/net/open.h"

#include <errno.h>
#include <string.h>

#include "lib/remote/remote_ops.h"

static int open_fault(const struct remote_url *url, const char *text,
		      const struct remote_limits *limits, struct remote **ret_remote)
{
	return remote_fault_open(url, text, limits, remote_open_with, ret_remote);
}

static const struct {
	const char *scheme;
	bool layered;
	remote_open_fn *open;
} kinds[] = {
	{"file", false, remote_file_open}, {"memory", false, remote_memory_open},
	{"none", false, remote_none_open}, {"s3", false, remote_s3_open},
	{"gs", false, remote_s3_open},	   {"https", false, remote_dav_open},
	{"http", false, remote_dav_open},  {"sftp", false, remote_sftp_open},
	{"exec", false, remote_exec_open}, {"fault", true, open_fault},
};

int remote_open(const char *url, struct remote **ret_remote)
{
	return remote_open_with(url, NULL, ret_remote);
}

int remote_open_with(const char *url, const struct remote_limits *limits,
		     struct remote **ret_remote)
{
	static const struct remote_limits defaults = {0};
	struct remote_url cleanup_remote_url parts = {0};
	int r = remote_url_parse(url, &parts);

	remote_open_forget();
	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].scheme, parts.scheme) == 0 && kinds[i].layered == parts.layered)
			return kinds[i].open(&parts, url, limits ? limits : &defaults, ret_remote);
	return -EPROTONOSUPPORT;
}
