/* SPDX-License-Identifier: Apache-2.0 */
/* What .epochs shows: its names, symlinks and attributes. */
#include "fs/epochs_dir.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/epochs/epochs.h"
#include "lib/format/names.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/parse.h"

/* Classes of inode numbers, in the highest four bits. */
#define INO_EPOCH   (UINT64_C(8) << 60) /* 36 bits of epoch, 24 bits of entry */
#define INO_NUMBER  (UINT64_C(9) << 60)
#define INO_SPECIAL (UINT64_C(10) << 60)
#define INO_TORN    (UINT64_C(11) << 60)
#define INO_TAG	    (UINT64_C(12) << 60)
#define INO_STEP    (UINT64_C(13) << 60) /* 60 bits of the step */
#define INO_KINDS   (UINT64_C(15) << 60)
#define ENTRY_BITS  24

/* Cookies of the listing: specials by themselves, then epochs, then tags, the newest name first: one that is
 * renamed while it is listed gets a higher one. */
#define COOKIE_LATEST  1
#define COOKIE_CURRENT 2
#define COOKIE_TORN    3
#define COOKIE_EPOCHS  (UINT64_C(1) << 60)
#define COOKIE_TAGS    (UINT64_C(2) << 60)

uint64_t epochs_dir_ino(uint64_t epoch, uint64_t entry)
{
	return INO_EPOCH | epoch << ENTRY_BITS | entry;
}

uint64_t epochs_dir_torn_ino(uint64_t id)
{
	return INO_TORN | id;
}

mode_t epochs_dir_mode(struct fs_mount *m)
{
	struct live_attr root;

	return live_getattr(m->vol, FUSE_ROOT_ID, 0, &root) == 0 ? root.mode & 0777 : 0755;
}

void epochs_dir_stat_base(struct fs_mount *m, uint64_t ino, mode_t mode, int64_t ns,
			  struct stat *ret_st)
{
	struct live_attr root;
	bool known = live_getattr(m->vol, FUSE_ROOT_ID, 0, &root) == 0;

	*ret_st = (struct stat){
		.st_ino = ino,
		.st_mode = mode,
		.st_nlink = 1,
		.st_uid = known ? root.uid : m->uid,
		.st_gid = known ? root.gid : m->gid,
		.st_size = S_ISDIR(mode) ? 4096 : 0,
		.st_blksize = 4096,
		.st_mtim = clock_timespec(ns),
		.st_ctim = clock_timespec(ns),
		.st_atim = clock_timespec(ns),
	};
}

/* ---- attributes ---- */

static int64_t sealed_ns(struct fs_mount *m, uint64_t epoch)
{
	int64_t ns = 0;

	(void)epochs_sealed_ns(m->vol, epoch, &ns);
	return ns;
}

void epochs_dir_name(uint64_t epoch, char ret_name[EPOCHS_NAME_MAX])
{
	snprintf(ret_name, EPOCHS_NAME_MAX, "%06llu", (unsigned long long)epoch);
}

static void symlink_stat(struct fs_mount *m, uint64_t ino, uint64_t epoch, struct stat *ret_st)
{
	char text[EPOCHS_NAME_MAX];

	epochs_dir_name(epoch, text);
	epochs_dir_stat_base(m, ino, S_IFLNK | 0777, sealed_ns(m, epoch), ret_st);
	ret_st->st_size = (off_t)strlen(text);
}

static void directory_stat(struct fs_mount *m, enum special which, struct stat *ret_st)
{
	epochs_dir_stat_base(m, INO_SPECIAL | which, S_IFDIR | epochs_dir_mode(m),
			     sealed_ns(m, epochs_current(m->vol)), ret_st);
	if (which == SPECIAL_TORN) {
		/* Files of all users land there, whatever their modes were. */
		ret_st->st_mode = S_IFDIR | 0700;
		ret_st->st_uid = m->uid;
		ret_st->st_gid = m->gid;
	}
}

static void control_stat(struct fs_mount *m, struct stat *ret_st)
{
	epochs_dir_stat_base(m, INO_SPECIAL | SPECIAL_CONTROL, S_IFREG | 0600, 0, ret_st);
	ret_st->st_uid = m->uid;
	ret_st->st_gid = m->gid;
}

int epochs_dir_target(struct fs_mount *m, const char *name, uint64_t *ret_epoch)
{
	if (epochs_names_get_temporary(m->names, name, ret_epoch) == 0)
		return 0;
	return epochs_tag_get(m->vol, name, ret_epoch);
}

/* The epoch that a symlink leads to. Its node is that of this target (node.h), so the kernel may keep it. */
static int node_target(struct fs_mount *m, const struct node *n, uint64_t *ret_epoch)
{
	int64_t ns;

	switch (n->kind) {
	case NODE_NUMBER:
		*ret_epoch = n->a;
		break;
	case NODE_TAG:
	case NODE_STEP:
	case NODE_SPECIAL:
		*ret_epoch = n->b;
		break;
	default:
		return -EINVAL;
	}
	return *ret_epoch ? epochs_sealed_ns(m->vol, *ret_epoch, &ns) : -EINVAL;
}

static uint64_t symlink_ino(const struct node_key *key)
{
	switch (key->kind) {
	case NODE_NUMBER:
		return INO_NUMBER | key->a;
	case NODE_TAG:
		return INO_TAG | key->a;
	case NODE_STEP:
		return INO_STEP | (key->a & ~INO_KINDS);
	default:
		return INO_SPECIAL | key->a;
	}
}

int epochs_dir_stat(struct fs_mount *m, const struct node *n, struct stat *ret_st)
{
	struct node_key key = {.kind = n->kind, .a = n->a};
	uint64_t epoch;
	int r;

	if (n->kind == NODE_SPECIAL && n->a == SPECIAL_CONTROL) {
		control_stat(m, ret_st);
		return 0;
	}
	if (n->kind == NODE_SPECIAL && (n->a == SPECIAL_EPOCHS || n->a == SPECIAL_TORN)) {
		directory_stat(m, (enum special)n->a, ret_st);
		return 0;
	}
	r = node_target(m, n, &epoch);
	if (r == 0)
		symlink_stat(m, symlink_ino(&key), epoch, ret_st);
	return r;
}

int epochs_dir_readlink(struct fs_mount *m, const struct node *n, struct buf *out)
{
	char text[EPOCHS_NAME_MAX];
	uint64_t epoch;
	int r = node_target(m, n, &epoch);

	if (r < 0)
		return r;
	epochs_dir_name(epoch, text);
	buf_put(out, text, strlen(text));
	return buf_error(out);
}

/* ---- lookup ---- */

int epochs_dir_entry(struct fs_mount *m, struct fuse_entry_param *ret_e)
{
	struct node_key key = {
		.kind = NODE_SPECIAL,
		.a = SPECIAL_EPOCHS,
		.view = epochs_views_free_one(m->views),
	};
	bool lasts = m->expires && !epochs_views_any_busy(m->views);
	struct stat st;
	int r;

	directory_stat(m, SPECIAL_EPOCHS, &st);
	r = entry_of_key(m, &key, NULL, &st, TIMEOUT_LIVE, ret_e);
	/* The next one may be given another view. */
	if (!lasts)
		ret_e->entry_timeout = 0;
	return r;
}

/* -ENOENT: there is no latest one yet. */
static int special_key(struct fs_mount *m, enum special which, uint32_t view,
		       struct node_key *ret_key, struct stat *ret_st)
{
	struct node n = {.kind = NODE_SPECIAL, .a = which};

	if (which == SPECIAL_LATEST || which == SPECIAL_CURRENT) {
		n.b = which == SPECIAL_LATEST ? epochs_latest(m->vol) : epochs_current(m->vol);
		if (!n.b)
			return -ENOENT;
	}
	*ret_key = (struct node_key){.kind = NODE_SPECIAL, .a = which, .b = n.b, .view = view};
	return epochs_dir_stat(m, &n, ret_st);
}

static int special_entry(struct fs_mount *m, enum special which, uint32_t view,
			 struct fuse_entry_param *ret_e)
{
	struct node_key key;
	struct stat st;
	int r = special_key(m, which, view, &key, &st);

	return r < 0 ? r : entry_of_key(m, &key, NULL, &st, 0, ret_e);
}

static int symlink_entry(struct fs_mount *m, const struct node_key *key, uint64_t epoch,
			 double timeout, struct fuse_entry_param *ret_e)
{
	struct stat st;

	symlink_stat(m, symlink_ino(key), epoch, &st);
	return entry_of_key(m, key, NULL, &st, timeout, ret_e);
}

static int number_entry(struct fs_mount *m, uint64_t number, struct fuse_entry_param *ret_e)
{
	struct node_key key = {.kind = NODE_NUMBER, .a = number};
	int64_t ns;
	int r = number ? epochs_sealed_ns(m->vol, number, &ns) : -ENOENT;

	/* It leads nowhere else; a drop is told by the name that it leads to. */
	return r < 0 ? r : symlink_entry(m, &key, number, TIMEOUT_LIVE, ret_e);
}

static int step_entry(struct fs_mount *m, uint64_t step, struct fuse_entry_param *ret_e)
{
	struct node_key key = {.kind = NODE_STEP, .a = step};
	uint64_t epoch = 0;
	int r = epochs_of_step(m->vol, step, &epoch);

	key.b = epoch;
	return r < 0 ? r : symlink_entry(m, &key, epoch, 0, ret_e);
}

static int tag_entry(struct fs_mount *m, const char *name, struct fuse_entry_param *ret_e)
{
	struct node_key key = {.kind = NODE_TAG};
	uint64_t epoch;
	int r = epochs_dir_target(m, name, &epoch);

	if (r < 0)
		return r == -EINVAL ? -ENOENT : r;
	key.a = epochs_names_id(m->names, name);
	key.b = epoch;
	return key.a ? symlink_entry(m, &key, epoch, 0, ret_e) : -ENOMEM;
}

int epochs_dir_lookup(struct fs_mount *m, const struct node *dir, const char *name,
		      struct fuse_entry_param *ret_e)
{
	uint64_t number;

	switch (epochs_name_kind(name, &number)) {
	case EPOCHS_NAME_EPOCH:
		return epoch_dir_entry(m, number, NODE_EPOCH, dir->view, ret_e);
	case EPOCHS_NAME_NUMBER:
		return number_entry(m, number, ret_e);
	case EPOCHS_NAME_LATEST:
		return special_entry(m, SPECIAL_LATEST, 0, ret_e);
	case EPOCHS_NAME_CURRENT:
		return special_entry(m, SPECIAL_CURRENT, 0, ret_e);
	case EPOCHS_NAME_TORN:
		return special_entry(m, SPECIAL_TORN, dir->view, ret_e);
	case EPOCHS_NAME_CONTROL:
		return special_entry(m, SPECIAL_CONTROL, 0, ret_e);
	case EPOCHS_NAME_STEP:
		return step_entry(m, number, ret_e);
	default:
		return tag_entry(m, name, ret_e);
	}
}

/* ---- listing ---- */

static bool list_special(struct dir_reply *r, enum special which, uint32_t view, const char *name,
			 uint64_t cookie)
{
	struct node_key key;
	struct stat st;

	if (special_key(r->m, which, view, &key, &st) < 0)
		return true;
	return dir_reply_add(r, name, cookie + DIR_DOTS, &key, NULL, &st, 0);
}

struct epochs_listing {
	struct dir_reply *r;
	uint32_t view;
	struct stat base;
	bool full;
};

static int list_epoch(void *arg, uint64_t number, int64_t ns)
{
	struct epochs_listing *l = arg;
	struct node_key key = {.kind = NODE_EPOCH, .a = number, .view = l->view};
	struct stat st = l->base;
	char name[EPOCHS_NAME_MAX];

	epochs_dir_name(number, name);
	st.st_ino = epochs_dir_ino(number, 0);
	st.st_mtim = st.st_ctim = st.st_atim = clock_timespec(ns);
	l->full = !dir_reply_add(l->r, name, (COOKIE_EPOCHS | number) + DIR_DOTS, &key, NULL, &st,
				 TIMEOUT_LIVE);
	return l->full;
}

static bool list_epochs(struct dir_reply *r, uint32_t view, uint64_t after)
{
	struct epochs_listing l = {.r = r, .view = view};
	int error;

	epochs_dir_stat_base(r->m, 0, S_IFDIR | epochs_dir_mode(r->m), 0, &l.base);
	error = epochs_numbers(r->m->vol, after, list_epoch, &l);
	if (error < 0)
		r->error = error;
	return error >= 0 && !l.full;
}

/* A tag as listed: in falling order of the numbers that names get, so that cookies are stable. */
struct tag {
	uint64_t id, epoch;
	char *name;
};

struct tags {
	struct fs_mount *m;
	struct tag *tag;
	size_t count, room;
};

static int collect_tag(void *arg, const char *name, uint64_t number)
{
	struct tags *t = arg;
	struct tag *more;

	if (t->count == t->room) {
		more = realloc(t->tag, (t->room * 2 + 16) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		t->tag = more;
		t->room = t->room * 2 + 16;
	}
	more = &t->tag[t->count];
	more->epoch = number;
	more->id = epochs_names_id(t->m->names, name);
	more->name = strdup(name);
	if (!more->id || !more->name) {
		free(more->name);
		return -ENOMEM;
	}
	t->count++;
	return 0;
}

static int compare_tags(const void *a, const void *b)
{
	uint64_t x = ((const struct tag *)a)->id, y = ((const struct tag *)b)->id;

	return x > y ? -1 : x < y;
}

/* Those with a number below `before`; 0: all. */
static void list_tags(struct dir_reply *r, uint64_t before)
{
	struct tags t = {.m = r->m};
	int error = epochs_tag_each(r->m->vol, collect_tag, &t);
	bool go_on = error >= 0;

	if (t.count)
		qsort(t.tag, t.count, sizeof(*t.tag), compare_tags);
	for (size_t i = 0; i < t.count; i++) {
		struct node_key key = {.kind = NODE_TAG, .a = t.tag[i].id, .b = t.tag[i].epoch};
		struct stat st;

		if (go_on && (!before || t.tag[i].id < before) &&
		    !tag_name_is_step(t.tag[i].name)) {
			symlink_stat(r->m, symlink_ino(&key), t.tag[i].epoch, &st);
			go_on = dir_reply_add(r, t.tag[i].name,
					      (COOKIE_TAGS | t.tag[i].id) + DIR_DOTS, &key, NULL,
					      &st, 0);
		}
		free(t.tag[i].name);
	}
	free(t.tag);
	if (error < 0)
		r->error = error;
}

void epochs_dir_list(struct dir_reply *r, const struct node *dir, uint64_t after)
{
	if (after < COOKIE_LATEST && !list_special(r, SPECIAL_LATEST, 0, "latest", COOKIE_LATEST))
		return;
	if (after < COOKIE_CURRENT &&
	    !list_special(r, SPECIAL_CURRENT, 0, "current", COOKIE_CURRENT))
		return;
	if (after < COOKIE_TORN && !list_special(r, SPECIAL_TORN, dir->view, "torn", COOKIE_TORN))
		return;
	if (after < COOKIE_TAGS &&
	    !list_epochs(r, dir->view, after >= COOKIE_EPOCHS ? after - COOKIE_EPOCHS : 0))
		return;
	list_tags(r, after >= COOKIE_TAGS ? after - COOKIE_TAGS : 0);
}

/* ---- Names in .epochs: what they mean, and the numbers of those that people choose. ---- */

struct name {
	struct name *next;
	uint64_t id;
	uint64_t epoch; /* of a temporary symlink; 0: a tag */
	char text[];
};

struct epoch_names {
	struct mutex lock;
	uint64_t last_id; /* guarded by lock */
	struct name *first;
};

int epochs_names_new(struct epoch_names **ret_names)
{
	struct epoch_names *names = calloc(1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	mutex_init(&names->lock, LOCK_FS_EPOCH_NAMES);
	*ret_names = names;
	return 0;
}

void epochs_names_free(struct epoch_names *names)
{
	if (!names)
		return;
	while (names->first) {
		cleanup_free struct name *n = names->first;

		names->first = n->next;
	}
	mutex_destroy(&names->lock);
	free(names);
}

/* ---- what a name means ---- */

static enum epochs_name step_name(const char *digits, uint64_t *ret_step)
{
	if (!*digits || digits[strspn(digits, "0123456789")] || (digits[0] == '0' && digits[1]) ||
	    parse_u64(digits, ret_step) < 0)
		*ret_step = UINT64_MAX;
	return EPOCHS_NAME_STEP;
}

enum epochs_name epochs_name_kind(const char *name, uint64_t *ret_number)
{
	char canonical[24];
	uint64_t number;

	*ret_number = 0;
	if (strcmp(name, "latest") == 0)
		return EPOCHS_NAME_LATEST;
	if (strcmp(name, "current") == 0)
		return EPOCHS_NAME_CURRENT;
	if (strcmp(name, "torn") == 0)
		return EPOCHS_NAME_TORN;
	if (strcmp(name, ".control") == 0)
		return EPOCHS_NAME_CONTROL;
	if (tag_name_is_step(name))
		return step_name(name + strlen(TAG_STEP_PREFIX), ret_number);
	if (!*name || name[strspn(name, "0123456789")])
		return EPOCHS_NAME_OTHER;
	if (parse_u64(name, &number) < 0)
		return EPOCHS_NAME_NUMBER;
	snprintf(canonical, sizeof(canonical), "%06llu", (unsigned long long)number);
	if (strcmp(name, canonical) == 0) {
		*ret_number = number;
		return EPOCHS_NAME_EPOCH;
	}
	if (name[0] != '0')
		*ret_number = number;
	return EPOCHS_NAME_NUMBER;
}

bool epochs_name_temporary(const char *name)
{
	if (!tag_name_valid(name))
		return true;
	if (strlen(name) != 8 || strncmp(name, "Cu", 2))
		return false;
	for (const char *p = name + 2; *p; p++) {
		if (!isalnum((unsigned char)*p))
			return false;
	}
	return true;
}

/* ---- the table ---- */

static struct name **find_locked(struct epoch_names *names, const char *text)
{
	struct name **p = &names->first;

	while (*p && strcmp((*p)->text, text))
		p = &(*p)->next;
	return p;
}

static struct name *add_locked(struct epoch_names *names, const char *text, uint64_t epoch)
{
	size_t len = strlen(text) + 1;
	struct name *n = calloc(1, sizeof(*n) + len);

	if (!n)
		return NULL;
	n->id = ++names->last_id;
	n->epoch = epoch;
	memcpy(n->text, text, len);
	n->next = names->first;
	names->first = n;
	return n;
}

uint64_t epochs_names_id(struct epoch_names *names, const char *name)
{
	SCOPED_LOCK(&names->lock);
	struct name *n = *find_locked(names, name);

	if (!n)
		n = add_locked(names, name, 0);
	return n ? n->id : 0;
}

int epochs_names_add_temporary(struct epoch_names *names, const char *name, uint64_t epoch)
{
	SCOPED_LOCK(&names->lock);
	struct name *n = *find_locked(names, name);

	if (n && n->epoch)
		return -EEXIST;
	if (n)
		n->epoch = epoch;
	else
		n = add_locked(names, name, epoch);
	return n ? 0 : -ENOMEM;
}

int epochs_names_get_temporary(struct epoch_names *names, const char *name, uint64_t *ret_epoch)
{
	SCOPED_LOCK(&names->lock);
	const struct name *n = *find_locked(names, name);

	if (!n || !n->epoch)
		return -ENOENT;
	*ret_epoch = n->epoch;
	return 0;
}

int epochs_names_remove_temporary(struct epoch_names *names, const char *name)
{
	SCOPED_LOCK(&names->lock);
	struct name **p = find_locked(names, name);
	cleanup_free struct name *n = *p;

	if (!n || !n->epoch) {
		n = NULL;
		return -ENOENT;
	}
	*p = n->next;
	return 0;
}
