/* SPDX-License-Identifier: Apache-2.0 */
/* Machines, each with a cache of its own, that mount one volume in turn; and the weather between them and the remote. */
#ifndef EPOCHFS_TESTS_MACHINES_UNIT_H
#define EPOCHFS_TESTS_MACHINES_UNIT_H

#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/net/open.h"
#include "tests/unit/epochs_unit.h"

#define MACHINES 3
#define MU_READ	 ((size_t)128 << 10)

static char *mu_cache[MACHINES], *mu_control;
/* The volume's remote, in fair weather. */
static struct remote *mu_remote;

/* Faults (lib/remote/fault.c) from now on; NULL: none. */
__attribute__((unused)) static void mu_weather(const char *faults)
{
	if (faults)
		unit_ok(io_replace_file(AT_FDCWD, mu_control, faults, strlen(faults)));
	else
		ck_assert_int_eq(unlink(mu_control), 0);
}

/* Machine 0 has the volume open. */
__attribute__((unused)) static void mu_start(void)
{
	cleanup_free char *dir = unit_dir();
	char *url = NULL;

	eu_prepare();
	free(u.remote);
	free(u.cache);
	mu_control = unit_path(dir, "weather");
	ck_assert_int_gt(asprintf(&url, "fault+memory:machines?control=%s", mu_control), 0);
	u.remote = url;
	unit_ok(remote_open("memory:machines", &mu_remote));
	for (int i = 0; i < MACHINES; i++)
		mu_cache[i] = unit_dir();
	u.cache = mu_cache[0];
	eu_mount();
}

__attribute__((unused)) static void mu_stop(void)
{
	if (u.vol)
		volume_close(u.vol);
	remote_close(mu_remote);
	for (int i = 0; i < MACHINES; i++)
		free(mu_cache[i]);
	free(mu_control);
	free(u.remote);
}

/* The machine that had it closes the volume as it is, and this one opens it. */
__attribute__((unused)) static void mu_go_to(int machine)
{
	if (u.vol)
		volume_close(u.vol);
	u.vol = NULL;
	u.cache = mu_cache[machine];
	eu_mount();
}

/* All that is closed is in the remote. */
__attribute__((unused)) static void mu_drain(void)
{
	unit_ok(epochs_wait(u.vol, 0, 50 * NS_PER_S, NULL, NULL));
}

__attribute__((unused)) static bool mu_in_remote(const char *key)
{
	uint64_t size;

	return remote_size(mu_remote, key, &size) == 0;
}

__attribute__((unused)) static bool mu_has_epoch(uint64_t number)
{
	char key[KEY_MAX];

	epoch_key(number, key);
	return mu_in_remote(key);
}

__attribute__((unused)) static int mu_count_key(void *arg, const char *key, uint64_t size)
{
	(void)key;
	(void)size;
	++*(size_t *)arg;
	return 0;
}

__attribute__((unused)) static size_t mu_count(const char *prefix)
{
	size_t count = 0;

	unit_ok(remote_list(mu_remote, prefix, mu_count_key, &count));
	return count;
}

__attribute__((unused)) static enum epoch_state mu_state(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	enum epoch_state state = info.state;

	epoch_info_free(&info);
	return state;
}

/* Bytes that nothing compresses, the same for the same seed; the caller frees them. */
__attribute__((unused)) static uint8_t *mu_noise(size_t len, uint64_t seed)
{
	uint64_t x = 88172645463325252u + 977 * seed;
	uint8_t *data = malloc(len);

	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (uint8_t)x;
	}
	return data;
}

__attribute__((unused)) static void mu_save_noise(const char *path, size_t len, uint64_t seed)
{
	cleanup_free uint8_t *data = mu_noise(len, seed);

	eu_save_bytes(path, data, len);
}

/* Reads all of it: 0 where each byte is right, or the first error. Wrong bytes fail. */
__attribute__((unused)) static int mu_read_noise(const char *path, size_t len, uint64_t seed)
{
	cleanup_free uint8_t *data = mu_noise(len, seed), *found = malloc(len);
	struct handle *h = eu_open(path, O_RDONLY);
	size_t done = 0;
	ssize_t n = 0;

	/* As the kernel asks for it. */
	while (done < len &&
	       (n = handle_read(h, found + done, len - done < MU_READ ? len - done : MU_READ, done,
				NULL, NULL)) > 0)
		done += (size_t)n;
	handle_release(h, false);
	ck_assert_msg(!done || !memcmp(data, found, done), "%s has wrong bytes", path);
	if (n < 0)
		return (int)n;
	ck_assert_uint_eq(done, len);
	return 0;
}

#endif
