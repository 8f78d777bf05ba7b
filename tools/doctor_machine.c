/* SPDX-License-Identifier: Apache-2.0 */
/* What epochfs doctor looks at in this machine: FUSE, the kernel, limits, memory, and mounts. */
#include "tools/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "tools/mounts.h"

#define MIB		 (UINT64_C(1) << 20)
#define CAP_SYS_ADMIN_AT 21

/* The number behind a word of a file of /proc, such as "MemAvailable:"; false: it has none. */
static bool read_number(const char *path, const char *word, int base, uint64_t *ret_number)
{
	cleanup_fclose FILE *f = fopen(path, "re");
	cleanup_free char *line = NULL;
	size_t room = 0, len = strlen(word);

	while (f && getline(&line, &room, f) > 0) {
		if (strncmp(line, word, len) != 0)
			continue;
		*ret_number = strtoull(line + len, NULL, base);
		return true;
	}
	return false;
}

static bool may_administer(void)
{
	uint64_t capabilities = 0;

	return read_number("/proc/self/status", "CapEff:", 16, &capabilities) &&
	       (capabilities >> CAP_SYS_ADMIN_AT & 1);
}

/* ---- FUSE ---- */

static void look_at_device(struct doctor *d)
{
	cleanup_close int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		doctor_ok(d, "device", "/dev/fuse can be opened");
	else if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		doctor_wrong(
			d, "device",
			"load the module (modprobe fuse), or give the container the device (docker run --device /dev/fuse); "
			"`epochfs import` and `epochfs watch` need none",
			"/dev/fuse is not there");
	else
		doctor_wrong(
			d, "device",
			"its mode is to be 666, and a container must be allowed the device; `epochfs import` and `epochfs watch` need none",
			"/dev/fuse cannot be opened: %s", strerror(errno));
}

/* The program as a shell finds it, else where it is installed. */
static bool find_program(const char *name, char ret_path[PATH_MAX])
{
	const char *path = getenv("PATH"), *dir = path ? path : "/bin:/usr/bin";

	for (; *dir; dir += strspn(dir, ":")) {
		size_t len = strcspn(dir, ":");

		snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)len, dir, name);
		if (access(ret_path, X_OK) == 0)
			return true;
		dir += len;
	}
	snprintf(ret_path, PATH_MAX, "/usr/bin/%s", name);
	return access(ret_path, X_OK) == 0;
}

/* Setuid root, or with capabilities of its own. */
static bool lends_rights(const char *program)
{
	struct stat st;

	return (stat(program, &st) == 0 && (st.st_mode & S_ISUID) && st.st_uid == 0) ||
	       getxattr(program, "security.capability", NULL, 0) > 0;
}

/* Who mounts without it must be root. */
static void look_at_fusermount(struct doctor *d)
{
	static const char check[] = "fusermount3";
	cleanup_free char *what_to_do = NULL;
	char path[PATH_MAX];

	if (may_administer()) {
		doctor_ok(d, check, "this user may mount without fusermount3");
	} else if (!find_program("fusermount3", path)) {
		doctor_wrong(d, check, "install the package fuse3",
			     "fusermount3 is not there, and this user cannot mount without it");
	} else if (geteuid() == 0) {
		doctor_wrong(
			d, check,
			"give the container the capability (docker run --cap-add SYS_ADMIN --device /dev/fuse), or use `epochfs import` or `epochfs watch`",
			"root cannot mount here: it lacks CAP_SYS_ADMIN");
	} else if (!lends_rights(path)) {
		text_print(&what_to_do, "as root: chown root %s && chmod 4755 %s", path, path);
		doctor_wrong(d, check, what_to_do ? what_to_do : "",
			     "%s is not setuid root, so this user cannot mount", path);
	} else {
		doctor_ok(d, check, "%s is setuid root", path);
	}
}

static bool file_has_line(const char *path, const char *wanted)
{
	cleanup_fclose FILE *f = fopen(path, "re");
	char line[256], word[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%255s", word) == 1 && !strcmp(word, wanted))
			return true;
	return false;
}

static void look_at_sharing(struct doctor *d)
{
	if (geteuid() == 0 || file_has_line("/etc/fuse.conf", "user_allow_other"))
		doctor_ok(d, "allow_other", "-o allow_other is allowed to this user");
	else
		doctor_note(d, "allow_other",
			    "for mounts that other users share, root adds that line",
			    "/etc/fuse.conf has no user_allow_other");
}

static void look_at_kernel(struct doctor *d)
{
	struct utsname name;
	int major = 0, minor = 0;

	if (uname(&name) < 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
		return;
	if (major < 6 || (major == 6 && minor < 9))
		doctor_note(
			d, "kernel",
			"Linux 6.9 or newer has passthrough (for root) and restarts of a mount's process (-o supervise)",
			"Linux %s: the process of a mount serves all reads and writes",
			name.release);
	else if (!may_administer())
		doctor_note(
			d, "kernel", "passthrough is for mounts by root",
			"Linux %s: the process of a mount by this user serves all reads and writes",
			name.release);
	else
		doctor_ok(d, "kernel", "Linux %s: passthrough is possible", name.release);
}

/* ---- limits and memory ---- */

/* Of open files: a mount has a descriptor for each, and those of its own. */
#define FILES_NEEDED 256
#define FILES_WANTED 4096
/* Keys are locked into memory. */
#define LOCKED_WANTED 65536

static void look_at_open_files(struct doctor *d)
{
	static const char what_to_do[] =
		"ulimit -n 65536 before the mount, or LimitNOFILE= of its unit";
	struct rlimit limit;
	unsigned long long files;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	files = limit.rlim_cur;
	if (limit.rlim_cur == RLIM_INFINITY)
		doctor_ok(d, "open-files", "open files of a process are not limited");
	else if (limit.rlim_cur < FILES_NEEDED)
		doctor_wrong(d, "open-files", what_to_do,
			     "the limit of open files is %llu: a mount needs more", files);
	else if (limit.rlim_cur < FILES_WANTED)
		doctor_note(
			d, "open-files", what_to_do,
			"the limit of open files is %llu, which many programs in a mount use up",
			files);
	else
		doctor_ok(d, "open-files", "the limit of open files is %llu", files);
}

static void look_at_locked_memory(struct doctor *d)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		return;
	if (limit.rlim_cur >= LOCKED_WANTED || may_administer())
		doctor_ok(d, "locked-memory", "keys of encrypted volumes can be kept from swap");
	else
		doctor_note(
			d, "locked-memory", "ulimit -l 64",
			"the limit of locked memory is %llu: keys of encrypted volumes may be swapped out",
			(unsigned long long)limit.rlim_cur);
}

#define MEMORY_NEEDED (128 * MIB)
#define MEMORY_WANTED (512 * MIB)

static void look_at_memory(struct doctor *d)
{
	char size[FORMAT_MAX];
	uint64_t kib;

	if (!read_number("/proc/meminfo", "MemAvailable:", 10, &kib))
		return;
	format_size(kib * 1024, size);
	if (kib * 1024 < MEMORY_NEEDED)
		doctor_wrong(d, "memory", "end what takes it, before the kernel kills a process",
			     "only %s of memory is available", size);
	else if (kib * 1024 < MEMORY_WANTED)
		doctor_note(d, "memory", "a mount needs little, but uploads buffer what they send",
			    "%s of memory is available", size);
	else
		doctor_ok(d, "memory", "%s of memory is available", size);
}

/* ---- mounts ---- */

struct mounts_asked {
	struct doctor *doctor;
	unsigned answering, all;
};

static void ask_mount(void *arg, const char *mount)
{
	struct mounts_asked *asked = arg;
	enum doctor_answer answer = doctor_ask(mount);

	asked->all++;
	if (answer == DOCTOR_DEAD || answer == DOCTOR_HANGS)
		doctor_no_answer(asked->doctor, mount, answer);
	else
		asked->answering++;
}

static void look_at_mounts(struct doctor *d)
{
	struct mounts_asked asked = {.doctor = d};

	mounts_each(ask_mount, &asked);
	if (asked.answering == asked.all)
		doctor_ok(d, "mounts", "%u mount%s of epochfs, and %s", asked.all,
			  plural(asked.all), asked.all == 1 ? "it answers" : "none is dead");
}

void doctor_machine(struct doctor *d)
{
	look_at_device(d);
	look_at_fusermount(d);
	look_at_sharing(d);
	look_at_kernel(d);
	look_at_open_files(d);
	look_at_locked_memory(d);
	look_at_memory(d);
	look_at_mounts(d);
}
