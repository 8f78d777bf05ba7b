/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other processes, as /proc shows them. Was a descriptor closed, or did its process die? In FLUSH the request's pid is the closing
 * thread, which waits for our answer, so /proc/TID tells how it ends: of /proc/TID/stat (proc(5))
 * field 9 has PF_EXITING, and field 52 the exit code as wait(2) gives it: the signal in the low 7
 * bits, the exit status above. PF_SIGNALED is no help: a normal exit with running threads sets it.
 */
#include "lib/util/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"

#define PF_EXITING   0x4
#define FIELD_PARENT 4
#define FIELD_FLAGS  9
#define FIELD_START  22
#define FIELD_EXIT   52

static ssize_t proc_read(pid_t tid, const char *file, char *data, size_t size)
{
	char path[64];
	cleanup_close int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = io_pread_some(fd, data, size - 1, 0);
	if (n >= 0)
		data[n] = '\0';
	return n;
}

pid_t process_of(pid_t tid)
{
	char text[2048];
	const char *line;

	/* Most threads that ask are the first of their process, and that takes one quick call to see. */
	if (tid > 0 && tgkill(tid, tid, 0) == 0)
		return tid;
	if (tid <= 0 || proc_read(tid, "status", text, sizeof(text)) <= 0)
		return 0;
	line = strstr(text, "\nTgid:");
	return line ? (pid_t)strtol(line + strlen("\nTgid:"), NULL, 10) : 0;
}

/* Field `want` of a stat line, counted from 1; the name in field 2 may hold anything. */
static bool stat_field(const char *text, int want, unsigned long *ret_value)
{
	const char *p = strrchr(text, ')');

	for (int field = 2; p && field < want; field++)
		p = strchr(p + 1, ' ');
	if (!p)
		return false;
	*ret_value = strtoul(p + 1, NULL, 10);
	return true;
}

/* Field 52 reads 0 where we may not trace the process; then even its links are hidden. */
static bool may_trace(pid_t tid)
{
	char path[64], target[PATH_MAX];

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)tid);
	return readlink(path, target, sizeof(target)) >= 0 || errno != EACCES;
}

bool process_was_killed(pid_t tid)
{
	unsigned long flags, code;
	char text[2048];

	if (tid <= 0 || proc_read(tid, "stat", text, sizeof(text)) <= 0)
		return false;
	if (!stat_field(text, FIELD_FLAGS, &flags) || !(flags & PF_EXITING))
		return false;
	if (!stat_field(text, FIELD_EXIT, &code))
		return true;
	return (code & 0x7f) || (code >> 8) || !may_trace(tid);
}

/* PIDFD_GET_INFO of Linux 6.15, as far as it is read. */
struct exit_info {
	uint64_t mask, cgroup;
	uint32_t ids[11];
	int32_t code; /* as wait(2) gives it */
};
#define EXIT_INFO	 _IOWR(0xff, 11, struct exit_info)
#define EXIT_INFO_WANTED 8u

int process_hold(pid_t tgid)
{
	int fd = pidfd_open(tgid, 0);

	return fd < 0 ? -errno : fd;
}

static bool has_exit_code(int hold, int32_t *ret_code)
{
	struct exit_info info = {.mask = EXIT_INFO_WANTED};

	if (ioctl(hold, EXIT_INFO, &info) < 0 || !(info.mask & EXIT_INFO_WANTED))
		return false;
	*ret_code = info.code;
	return true;
}

bool process_ended_badly(int hold, pid_t tgid)
{
	int32_t code = 0;

	/* Until it is waited for /proc tells, and no other process has its number. */
	if (!has_exit_code(hold, &code) && process_was_killed(tgid))
		return true;
	return code || (has_exit_code(hold, &code) && code);
}

/* As a shell says it. */
static unsigned shell_status(unsigned long code)
{
	return code & 0x7f ? 128 + (code & 0x7f) : code >> 8 & 0xff;
}

/* Until it is waited for /proc tells. */
static bool has_end_in_proc(pid_t tgid, unsigned long *ret_code)
{
	unsigned long flags;
	char text[2048];

	return proc_read(tgid, "stat", text, sizeof(text)) > 0 &&
	       stat_field(text, FIELD_FLAGS, &flags) && flags & PF_EXITING &&
	       stat_field(text, FIELD_EXIT, ret_code) && may_trace(tgid);
}

bool process_end_status(int hold, pid_t tgid, unsigned *ret_status)
{
	unsigned long code;
	int32_t reaped;

	if (!has_exit_code(hold, &reaped) && has_end_in_proc(tgid, &code)) {
		*ret_status = shell_status(code);
		return true;
	}
	/* It may have been waited for meanwhile. */
	if (!has_exit_code(hold, &reaped))
		return false;
	*ret_status = shell_status((uint32_t)reaped);
	return true;
}

/* Whether a line of /proc/PID/status, such as "SigPnd:", has the bit of SIGKILL. */
static bool has_kill(const char *status, const char *line)
{
	const char *p = strstr(status, line);

	return p && strtoull(p + strlen(line), NULL, 16) & UINT64_C(1) << (SIGKILL - 1);
}

/* Whether a stat line is that of one which nobody has waited for yet. */
static bool has_ended(const char *text)
{
	const char *state = strrchr(text, ')');

	return state && (!strncmp(state, ") Z", 3) || !strncmp(state, ") X", 3));
}

bool process_is_ending(pid_t pid)
{
	unsigned long flags;
	char text[4096];

	if (proc_read(pid, "stat", text, sizeof(text)) <= 0)
		return kill(pid, 0) < 0 && errno == ESRCH;
	if (has_ended(text))
		return true;
	if (stat_field(text, FIELD_FLAGS, &flags) && flags & PF_EXITING)
		return true;
	return proc_read(pid, "status", text, sizeof(text)) > 0 &&
	       (has_kill(text, "\nSigPnd:") || has_kill(text, "\nShdPnd:"));
}

/* 0 where it is not known. */
static unsigned long read_stat_field(pid_t pid, int field)
{
	unsigned long value;
	char text[2048];

	if (pid <= 0 || proc_read(pid, "stat", text, sizeof(text)) <= 0 ||
	    !stat_field(text, field, &value))
		return 0;
	return value;
}

void process_name(pid_t pid, char *ret_name, size_t size)
{
	char text[64];

	*ret_name = '\0';
	if (proc_read(pid, "comm", text, sizeof(text)) > 0)
		snprintf(ret_name, size, "%.*s", (int)strcspn(text, "\n"), text);
}

pid_t process_parent(pid_t pid)
{
	return (pid_t)read_stat_field(pid, FIELD_PARENT);
}

uint64_t process_started(pid_t pid)
{
	return read_stat_field(pid, FIELD_START);
}

int64_t process_started_ns(pid_t pid)
{
	uint64_t ticks = process_started(pid);
	long second = sysconf(_SC_CLK_TCK);
	struct timespec up;

	if (!ticks || second <= 0 || clock_gettime(CLOCK_BOOTTIME, &up) < 0)
		return 0;
	return clock_wall_ns() - clock_ns(up) + (int64_t)(ticks * (NS_PER_S / (uint64_t)second));
}

static bool ends_in(const char *link, const char *path)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(link), path_len = strlen(path);

	if (len > sizeof(deleted) - 1 && !strcmp(link + len - (sizeof(deleted) - 1), deleted))
		len -= sizeof(deleted) - 1;
	return len > path_len && link[len - path_len - 1] == '/' &&
	       !memcmp(link + len - path_len, path, path_len);
}

/* The number behind a key, in this base, of what the kernel says of the descriptor: false where that is not known. */
static bool descriptor_info(pid_t tgid, const char *fd, const char *key, int base,
			    unsigned long *ret_value)
{
	char file[32 + NAME_MAX], text[4096];
	const char *found;

	snprintf(file, sizeof(file), "fdinfo/%s", fd);
	if (proc_read(tgid, file, text, sizeof(text)) <= 0)
		return false;
	found = strstr(text, key);
	if (found)
		*ret_value = strtoul(found + strlen(key), NULL, base);
	return found;
}

/* True where it is not known. */
static bool is_for_writing(pid_t tgid, const char *fd)
{
	unsigned long flags;

	return !descriptor_info(tgid, fd, "flags:", 8, &flags) || (flags & O_ACCMODE) != O_RDONLY;
}

/* Why /proc does not tell. Of one that has ended it is root's alone, and there is nothing to see. */
static bool is_hidden(pid_t tgid, int error)
{
	char text[2048];

	if (error == ENOENT || error == ESRCH)
		return false;
	return proc_read(tgid, "stat", text, sizeof(text)) <= 0 || !has_ended(text);
}

/* The kernel says so since Linux 5.14. That another file system has a file of this number, too, is not looked at but for devices. */
static bool is_of_inode(pid_t tgid, const char *fd, const char *link, uint64_t ino)
{
	unsigned long found;

	return ino && link[0] == '/' && strncmp(link, "/dev/", 5) != 0 &&
	       descriptor_info(tgid, fd, "\nino:", 10, &found) && found == ino;
}

bool process_has_open(pid_t tgid, const char *path, uint64_t ino, bool writing)
{
	char fds[64], target[PATH_MAX];
	cleanup_closedir DIR *dir = NULL;
	const char *name;

	snprintf(fds, sizeof(fds), "/proc/%d/fd", (int)tgid);
	dir = opendir(fds);
	if (!dir)
		return (errno == EACCES || errno == EPERM) && is_hidden(tgid, errno);
	/* An error ends it as the process's own end does. */
	while (io_readdir(dir, &name) > 0) {
		ssize_t n = readlinkat(dirfd(dir), name, target, sizeof(target) - 1);

		if (n <= 0)
			continue;
		target[n] = '\0';
		if ((ends_in(target, path) || is_of_inode(tgid, name, target, ino)) &&
		    (!writing || is_for_writing(tgid, name)))
			return true;
	}
	return false;
}

bool process_has_mapped(pid_t tgid, const char *path)
{
	cleanup_free char *line = NULL;
	bool mapped = false;
	size_t room = 0;
	char maps[64];
	ssize_t len;
	FILE *f;

	snprintf(maps, sizeof(maps), "/proc/%d/maps", (int)tgid);
	f = fopen(maps, "re");
	if (!f)
		return is_hidden(tgid, errno);
	while (!mapped && (len = getline(&line, &room, f)) > 0) {
		line[len - 1] = '\0';
		mapped = ends_in(line, path);
	}
	fclose(f);
	return mapped;
}

pid_t process_with_open(const char *path, bool writing, pid_t likely)
{
	cleanup_closedir DIR *proc = NULL;
	const char *name;

	if (likely > 0 && process_has_open(likely, path, 0, writing))
		return likely;
	proc = opendir("/proc");
	while (proc && io_readdir(proc, &name) > 0) {
		char fds[300];
		uint64_t pid;

		/* What we may not look into is not blamed. */
		snprintf(fds, sizeof(fds), "/proc/%s/fd", name);
		if (parse_u64(name, &pid) == 0 && pid <= INT_MAX && access(fds, R_OK) == 0 &&
		    process_has_open((pid_t)pid, path, 0, writing))
			return (pid_t)pid;
	}
	return 0;
}
