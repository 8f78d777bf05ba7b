/* SPDX-License-Identifier: Apache-2.0 */
/* The note in the file `lock`. */
#include "lib/state/left.h"

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

int left_boot_id(struct buf *out)
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

enum left_how left_read(int cache_fd, const char *text)
{
	cleanup_buf struct buf boot = {0};
	const char *note = strchr(text, '\n');
	char word[16], id[BOOT_ID_MAX];
	uint64_t size;
	int64_t mtime_ns;

	if (!note)
		return LEFT_UNKNOWN;
	if (sscanf(note, " closed %" SCNu64 " %" SCNd64, &size, &mtime_ns) == 2)
		return is_as_closed(cache_fd, size, mtime_ns) ? LEFT_IN_ORDER : LEFT_CHANGED;
	if (sscanf(note, " %15s %63s", word, id) != 2 || left_boot_id(&boot))
		return !strncmp(note, "\ndamaged", strlen("\ndamaged")) ? LEFT_DAMAGED
									: LEFT_CHANGED;
	if (strcmp(id, buf_str(&boot)) != 0)
		return LEFT_REBOOTED;
	return strcmp(word, "ending") ? LEFT_RUNNING : LEFT_ENDING;
}

void left_holder(const char *text, struct left_holder *ret_holder)
{
	char word[16] = "";

	*ret_holder = (struct left_holder){0};
	sscanf(text, "%9ld %15s %*63s device %23s %1023s", &ret_holder->pid, word,
	       ret_holder->device, ret_holder->path);
	ret_holder->ending = !strcmp(word, "unmounted") || !strcmp(word, "ending");
}

bool left_is_ending(const char *cache, pid_t pid)
{
	cleanup_buf struct buf text = {0};
	cleanup_close int fd = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct left_holder h;

	if (fd < 0 || io_read_file(fd, "lock", LOCK_FILE_MAX, &text))
		return false;
	left_holder(buf_str(&text), &h);
	return h.ending && h.pid == pid;
}

int left_note(const struct left_place *place, enum left_note note)
{
	static const char *const words[] = {"running", "unmounted", "ending", "closed", "damaged"};
	cleanup_buf struct buf text = {0};
	struct stat st;
	int error = 0;

	buf_printf(&text, "%d\n%s ", (int)getpid(), words[note]);
	if (note == NOTE_CLOSED) {
		if (fstatat(place->cache_fd, "state.db", &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		buf_printf(&text, "%lld %lld", (long long)st.st_size,
			   (long long)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec);
	} else if (note != NOTE_DAMAGED) {
		error = left_boot_id(&text);
	}
	buf_printf(&text, "\n");
	if (note == NOTE_RUNNING && place->device[0])
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
