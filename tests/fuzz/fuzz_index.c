/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: index objects. */
#include "lib/format/index.h"
#include "tests/fuzz/fuzz.h"

/* All that the reader gives, as index_encode takes it. */
struct listing {
	struct index_pack *packs;
	size_t pack_count;
	struct pack_entry *entries;
	size_t count;
};

static void add(struct listing *l, const struct hash *pack, const struct pack_entry *e)
{
	struct index_pack *last = l->pack_count ? &l->packs[l->pack_count - 1] : NULL;

	if (!last || !hash_equal(&last->id, pack)) {
		l->packs = reallocarray(l->packs, l->pack_count + 1, sizeof(*l->packs));
		fuzz_assert(l->packs);
		last = &l->packs[l->pack_count++];
		*last = (struct index_pack){.id = *pack};
	}
	last->count++;
	l->entries = reallocarray(l->entries, l->count + 1, sizeof(*l->entries));
	fuzz_assert(l->entries);
	l->entries[l->count++] = *e;
}

static void check_index(const uint8_t *data, size_t len)
{
	cleanup_buf struct buf again = {0};
	struct listing l = {0};
	struct index_reader r;
	struct pack_entry e, *next;
	struct hash pack;
	int more;

	if (index_reader_init(&r, data, len) < 0)
		return;
	while ((more = index_reader_next(&r, &pack, &e)) == 1)
		add(&l, &pack, &e);
	if (more == 0) {
		next = l.entries;
		for (size_t i = 0; i < l.pack_count; i++) {
			l.packs[i].entries = next;
			next += l.packs[i].count;
		}
		fuzz_assert(index_encode(l.packs, l.pack_count, &again) == 0);
		fuzz_same(&again, data, len);
	} else {
		fuzz_assert(index_reader_next(&r, &pack, &e) == more);
	}
	free(l.packs);
	free(l.entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	cleanup_free uint8_t *repaired = fuzz_copy(data, len);

	check_index(data, len);
	fuzz_repair_crc(repaired, len);
	check_index(repaired, len);
	return 0;
}
