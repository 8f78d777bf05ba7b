/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests of sealing before the next save begins share. */
#ifndef EPOCHFS_TESTS_EPOCHS_BEFORE_UNIT_H
#define EPOCHFS_TESTS_EPOCHS_BEFORE_UNIT_H

#include "tests/unit/epochs_unit.h"

/* How many epochs have begun. */
__attribute__((unused)) static uint64_t begun(void)
{
	SCOPED_LOCK(&u.vol->lock);
	return u.vol->next_epoch - 1;
}

__attribute__((unused)) static bool is_frozen(void)
{
	SCOPED_LOCK(&u.vol->lock);
	return !u.vol->sealer->first;
}

/* As if a second had passed since the last one. */
__attribute__((unused)) static void a_second_later(void)
{
	mutex_lock(&u.vol->lock);
	sealer_hurry_locked(u.vol);
	mutex_unlock(&u.vol->lock);
	unit_until(is_frozen());
	SCOPED_LOCK(&u.vol->lock);
	u.vol->sealer->before_ns = 0;
}

__attribute__((unused)) static void save_much(const char *path, char c)
{
	char data[65536];

	memset(data, c, sizeof(data));
	eu_save_bytes(path, data, sizeof(data));
}

__attribute__((unused)) static void save_step(const char *dir)
{
	char path[128];

	eu_mkdir(dir);
	snprintf(path, sizeof(path), "%s/model", dir);
	eu_save(path, "weights");
	snprintf(path, sizeof(path), "%s/trainer_state.json", dir);
	eu_save(path, "{}");
}

#endif
