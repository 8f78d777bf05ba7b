/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a volume's objects in the remote, and of tags. */
#ifndef EPOCHFS_FORMAT_NAMES_H
#define EPOCHFS_FORMAT_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/hash.h"

/*
 *   epochfs.json                        the volume (volume_info.h)
 *   epochs/<20 digits>.json             an epoch's record (record.h)
 *   packs/<2 hex>/<64 hex>              a pack (pack.h); the 2 are the first of the 64
 *   index/<20 digits>-<64 hex>          an index object (index.h)
 *   tags/<name>                         a tag: the epoch's number in decimal and a newline. Bytes of
 *                                       the name but [A-Za-z0-9.-] are written as _<2 hex>, since
 *                                       not every remote takes every byte in a key.
 *   summaries/<20 digits>.json          copies of records, up to that epoch (lib/meta/records.h)
 *   lease/<20 digits>.json              who writes to the volume (lease.h); the digits are the generation
 *   lease/<20 digits>-<node>.json       a node of the node set that has that generation (lease.h)
 *   lease/<20 digits>.base              the epoch that the node set began from, as text of a tag; 0: none
 *   parts/<20 digits>/<20 digits>-<node>.json
 *                                       what one node of a set sealed: generation of the set, number of the
 *                                       part on that node, node; an epoch's record (record.h) with "part"
 *   keys/<16 hex>.json                  what opens an encrypted volume (key_slot.h); the digits are random
 *   gc/<20 digits>.json                 what garbage collection has condemned (gc_list.h); likewise by generation
 *
 * Parsers accept exactly what the formatters make: anything else in the remote is foreign, -EINVAL.
 */
#define KEY_VOLUME	 "epochfs.json"
#define PREFIX_EPOCHS	 "epochs/"
#define PREFIX_PACKS	 "packs/"
#define PREFIX_INDEX	 "index/"
#define PREFIX_TAGS	 "tags/"
#define PREFIX_SUMMARIES "summaries/"
#define PREFIX_LEASE	 "lease/"
#define PREFIX_PARTS	 "parts/"
#define PREFIX_GC	 "gc/"
#define PREFIX_KEYS	 "keys/"

#define TAG_NAME_MAX  255
#define NODE_NAME_MAX 63
#define KEY_ID_MAX    17 /* with the NUL */
#define KEY_MAX                                                                                    \
	(sizeof(PREFIX_TAGS) +                                                                     \
	 3 * TAG_NAME_MAX) /* with the NUL; holds every key, also while a long tag's is made */

/* 1 to INT64_MAX. */
void epoch_key(uint64_t number, char ret_key[KEY_MAX]);
int epoch_key_parse(const char *key, uint64_t *ret_number);
void summary_key(uint64_t last, char ret_key[KEY_MAX]);
int summary_key_parse(const char *key, uint64_t *ret_last);
void lease_key(uint64_t generation, char ret_key[KEY_MAX]);
int lease_key_parse(const char *key, uint64_t *ret_generation);
/* The generation of anything below lease/. */
int lease_any_key_parse(const char *key, uint64_t *ret_generation);
/* `node` is a valid name of a node. */
void lease_node_key(uint64_t generation, const char *node, char ret_key[KEY_MAX]);
int lease_node_key_parse(const char *key, uint64_t *ret_generation,
			 char ret_node[NODE_NAME_MAX + 1]);
void lease_base_key(uint64_t generation, char ret_key[KEY_MAX]);
int lease_base_key_parse(const char *key, uint64_t *ret_generation);
void part_key(uint64_t generation, uint64_t sequence, const char *node, char ret_key[KEY_MAX]);
int part_key_parse(const char *key, uint64_t *ret_generation, uint64_t *ret_sequence,
		   char ret_node[NODE_NAME_MAX + 1]);
void gc_key(uint64_t generation, char ret_key[KEY_MAX]);
int gc_key_parse(const char *key, uint64_t *ret_generation);
/* `id` is 16 lower-case hex digits. */
void slot_key(const char *id, char ret_key[KEY_MAX]);
int slot_key_parse(const char *key, char ret_id[KEY_ID_MAX]);
void pack_key(const struct hash *id, char ret_key[KEY_MAX]);
int pack_key_parse(const char *key, struct hash *ret_id);
void index_key(uint64_t epoch, const struct hash *id, char ret_key[KEY_MAX]);
int index_key_parse(const char *key, uint64_t *ret_epoch, struct hash *ret_id);
/* 0, or -EINVAL where the name may not be a tag's. */
int tag_key(const char *name, char ret_key[KEY_MAX]);
int tag_key_parse(const char *key, char ret_name[TAG_NAME_MAX + 1]);

/* 1 to 255 bytes, also as escaped in the key; no '/', not only digits, no '.' in front (so not "."
 * or ".." or ".control"), and none of the names that .epochs itself has: latest, current, torn. */
bool tag_name_valid(const char *name);

/* Whether it begins as the name of the epochs of a step does, "step=500". Such tags were made once: they stay and can be removed, and no new
 * ones are made. */
#define TAG_STEP_PREFIX "step="
bool tag_name_is_step(const char *name);

/* A node of a set: 1 to 63 bytes of [A-Za-z0-9._-], the first a letter or a digit. */
bool node_name_valid(const char *name);

/* The content of a tag's object. */
#define TAG_TEXT_MAX 24
void tag_text(uint64_t number, char ret_text[TAG_TEXT_MAX]);
/* 0, or -EBADMSG. The newline may be missing. */
int tag_text_parse(const void *data, size_t len, uint64_t *ret_number);

#endif
