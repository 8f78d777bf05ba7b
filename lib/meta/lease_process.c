/* SPDX-License-Identifier: Apache-2.0 */
/* Which process holds a lease, and whether it is still there. */
#include "lib/meta/lease_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/hash.h"
#include "lib/util/io.h"

#define BOOT_ID	      "/proc/sys/kernel/random/boot_id"
#define UUID_LEN      36
#define STAT_MAX      4096
#define FIELD_STATE   3 /* of /proc/PID/stat, proc(5) */
#define FIELD_STARTED 22

/* From field 3 on; the name in field 2 may hold anything. NULL: there is no such process, or it is hidden. */
static const char *stat_of(uint64_t pid, struct buf *text)
{
	char path[64];
	const char *end;

	snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)pid);
	if (io_read_file(AT_FDCWD, path, STAT_MAX, text))
		return NULL;
	end = strrchr(buf_str(text), ')');
	return end && end[1] == ' ' ? end + 2 : NULL;
}

static uint64_t started_of(const char *stat)
{
	for (int field = FIELD_STATE; stat && field < FIELD_STARTED; field++) {
		stat = strchr(stat, ' ');
		stat = stat ? stat + 1 : NULL;
	}
	return stat ? strtoull(stat, NULL, 10) : 0;
}

static int own_boot(char ret_boot[UUID_LEN + 1])
{
	cleanup_buf struct buf text = {0};

	if (io_read_file(AT_FDCWD, BOOT_ID, 2 * UUID_LEN, &text) || text.len < UUID_LEN)
		return uuid_make(ret_boot);
	memcpy(ret_boot, text.data, UUID_LEN);
	ret_boot[UUID_LEN] = '\0';
	return 0;
}

int lease_process_self(struct lease_info *ret_self)
{
	cleanup_buf struct buf text = {0};
	struct stat namespace;
	int error = own_boot(ret_self->boot_id);

	if (error)
		return error;
	ret_self->pid = (uint64_t)getpid();
	ret_self->pid_started = started_of(stat_of(ret_self->pid, &text));
	ret_self->pid_namespace =
		stat("/proc/self/ns/pid", &namespace) == 0 ? (uint64_t) namespace.st_ino : 0;
	if (gethostname(ret_self->host, sizeof(ret_self->host) - 1) < 0)
		snprintf(ret_self->host, sizeof(ret_self->host), "localhost");
	return 0;
}

bool lease_process_same_boot(const struct lease_info *holder, const struct lease_info *self)
{
	return !strcmp(holder->boot_id, self->boot_id);
}

enum lease_process lease_process_of(const struct lease_info *holder, const struct lease_info *self)
{
	cleanup_buf struct buf text = {0};
	const char *stat;

	if (!lease_process_same_boot(holder, self) || !holder->pid_namespace ||
	    holder->pid_namespace != self->pid_namespace || !holder->pid || !holder->pid_started)
		return LEASE_PROCESS_UNKNOWN;
	if (holder->pid > INT32_MAX || (kill((pid_t)holder->pid, 0) < 0 && errno == ESRCH))
		return LEASE_PROCESS_GONE;
	stat = stat_of(holder->pid, &text);
	if (!stat) /* hidden from us, or it ended just now: kill told which */
		return kill((pid_t)holder->pid, 0) < 0 && errno == ESRCH ? LEASE_PROCESS_GONE
									 : LEASE_PROCESS_THERE;
	if (*stat == 'Z' || *stat == 'X' || started_of(stat) != holder->pid_started)
		return LEASE_PROCESS_GONE;
	return LEASE_PROCESS_THERE;
}
