/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the mount. */
#include "lib/cache/events.h"

#include "lib/cache/context.h"
#include "lib/util/lock.h"

void volume_set_events(struct volume *vol, const struct volume_events *events)
{
	rwlock_write(&vol->events_lock);
	vol->events = *events;
	rwlock_unlock(&vol->events_lock);
}

void volume_entry_changed(struct volume *vol, uint64_t parent, const char *name)
{
	rwlock_read(&vol->events_lock);
	if (vol->events.entry_changed)
		vol->events.entry_changed(vol->events.arg, parent, name);
	rwlock_unlock(&vol->events_lock);
}

void volume_file_changed(struct volume *vol, uint64_t ino)
{
	rwlock_read(&vol->events_lock);
	if (vol->events.file_changed)
		vol->events.file_changed(vol->events.arg, ino);
	rwlock_unlock(&vol->events_lock);
}

void volume_epoch_dropped(struct volume *vol, uint64_t number)
{
	rwlock_read(&vol->events_lock);
	if (vol->events.epoch_dropped)
		vol->events.epoch_dropped(vol->events.arg, number);
	rwlock_unlock(&vol->events_lock);
}
