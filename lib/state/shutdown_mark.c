/* SPDX-License-Identifier: Apache-2.0 */
/* The shutdown mark in the file `lock`. */
#include "lib/state/shutdown_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/util/io.h"

#define BOOT_ID	    "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_MAX 64
/* More than the file ever has. */
#define LOCK_FILE_MAX 4096

int shutdown_mark_boot_id(struct buf *out)
{
	int error = io_read_file(AT_FDCWD, BOOT_ID, BOOT_ID_MAX, out);

	while (!error && out->len && out->data[out->len - 1] == '\n')
		out->len--;
	return error;
}

static bool is_as_closed(int cache_fd, uint64_t size, int64_t mtime_ns)
{
	struct stat st;

	return fstatat(cache_fd, "state.db", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (uint64_t)st.st_size == size &&
	       (int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec == mtime_ns;
}

enum last_shutdown shutdown_mark_read(int cache_fd, const char *text)
{
	cleanup_buf struct buf boot = {0};
	const char *mark = strchr(text, '\n');
	char word[16], id[BOOT_ID_MAX];
	uint64_t size;
	int64_t mtime_ns;

	if (!mark)
		return SHUTDOWN_UNKNOWN;
	if (sscanf(mark, " closed %" SCNu64 " %" SCNd64, &size, &mtime_ns) == 2)
		return is_as_closed(cache_fd, size, mtime_ns) ? SHUTDOWN_CLEAN : SHUTDOWN_CHANGED;
	if (sscanf(mark, " %15s %63s", word, id) != 2 || shutdown_mark_boot_id(&boot))
		return !strncmp(mark, "\ndamaged", strlen("\ndamaged")) ? SHUTDOWN_DAMAGED
									: SHUTDOWN_CHANGED;
	if (strcmp(id, buf_str(&boot)) != 0)
		return SHUTDOWN_REBOOTED;
	return strcmp(word, "ending") ? SHUTDOWN_KILLED : SHUTDOWN_KILLED_CLOSING;
}

void shutdown_mark_holder(const char *text, struct shutdown_mark_holder *ret_holder)
{
	char word[16] = "";

	*ret_holder = (struct shutdown_mark_holder){0};
	sscanf(text, "%9ld %15s %*63s device %23s %1023s", &ret_holder->pid, word,
	       ret_holder->device, ret_holder->path);
	ret_holder->ending = !strcmp(word, "unmounted") || !strcmp(word, "ending");
}

bool shutdown_mark_is_ending(const char *cache, pid_t pid)
{
	cleanup_buf struct buf text = {0};
	cleanup_close int fd = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct shutdown_mark_holder h;

	if (fd < 0 || io_read_file(fd, "lock", LOCK_FILE_MAX, &text))
		return false;
	shutdown_mark_holder(buf_str(&text), &h);
	return h.ending && h.pid == pid;
}

int shutdown_mark_write(const struct shutdown_mark_place *place, enum shutdown_mark mark)
{
	static const char *const words[] = {"running", "unmounted", "ending", "closed", "damaged"};
	cleanup_buf struct buf text = {0};
	struct stat st;
	int error = 0;

	buf_printf(&text, "%d\n%s ", (int)getpid(), words[mark]);
	if (mark == MARK_CLEAN) {
		if (fstatat(place->cache_fd, "state.db", &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		buf_printf(&text, "%lld %lld", (long long)st.st_size,
			   (long long)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec);
	} else if (mark != MARK_DAMAGED) {
		error = shutdown_mark_boot_id(&text);
	}
	buf_printf(&text, "\n");
	if (mark == MARK_RUNNING && place->device[0])
		buf_printf(&text, "device %s %s\n", place->device, place->mounted_at);
	if (!error)
		error = buf_error(&text);
	/* Over what is there: a full disk has no space for another block. */
	if (!error)
		error = io_pwrite_full(place->lock_fd, text.data, text.len, 0);
	if (!error && ftruncate(place->lock_fd, (off_t)text.len) < 0)
		error = -errno;
	return error;
}
