/* SPDX-License-Identifier: Apache-2.0 */
/* Units, and the final names that temporary ones tell. */
#include "lib/meta/doubt_units.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/cleanup.h"

/* So many parts a save may have whose numbers have no word before them. */
#define PARTS_LIKELY 10

/* The length of the path down to its topmost temporary name; 0: it has none. */
static size_t temporary_prefix(const struct rules *r, const char *path)
{
	cleanup_free char *copy = strdup(path);
	size_t from = 0, result = 0;

	while (copy && !result && copy[from]) {
		size_t end = from + strcspn(copy + from, "/");
		char after = copy[end];

		copy[end] = '\0';
		if (rules_temporary(r, copy + from, copy))
			result = end;
		copy[end] = after;
		from = end + (after == '/');
	}
	return result;
}

struct doubt_unit doubt_unit_of(const struct rules *r, const char *path)
{
	struct doubt_unit unit = {.len = temporary_prefix(r, path)};
	struct step_place place;

	if (unit.len) {
		unit.temporary = true;
	} else if (rules_step(r, path, &place)) {
		unit.len = place.end;
		unit.file = !path[place.end];
		unit.step = place.step;
	}
	return unit;
}

size_t doubt_directory_len(const char *path, size_t len)
{
	while (len && path[len - 1] != '/')
		len--;
	return len;
}

bool doubt_may_be_part(const struct rules *r, const char *path)
{
	struct step_place place;

	return doubt_unit_of(r, path).file && rules_step(r, path, &place) &&
	       place.kind == STEP_KIND_TAIL;
}

struct doubt_unit doubt_unit_of_again(const struct rules *r, const char *path)
{
	struct doubt_unit unit = doubt_unit_of(r, path);
	char *beside;

	if (!doubt_may_be_part(r, path))
		return unit;
	/* As any name there that has no number. */
	beside = strndup(path, doubt_directory_len(path, strlen(path)) + 1);
	if (!beside)
		return unit;
	beside[strlen(beside) - 1] = 'x';
	unit = doubt_unit_of(r, beside);
	free(beside);
	return unit;
}

bool doubt_same_shape(const char *a, const char *b)
{
	while (*a && *b) {
		if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
			a += strspn(a, "0123456789");
			b += strspn(b, "0123456789");
		} else if (*a++ != *b++) {
			return false;
		}
	}
	return *a == *b;
}

bool doubt_is_of_another_save(const char *a, const char *b)
{
	bool differs = false;

	for (size_t i = 0, j = 0; a[i] || b[j];) {
		size_t la = strspn(a + i, "0123456789"), lb = strspn(b + j, "0123456789");

		if (!la != !lb || (!la && a[i] != b[j]))
			return false;
		if (la != lb || strncmp(a + i, b + j, la) != 0) {
			if (rules_number_of_part(a, i))
				return false;
			differs = true;
		}
		i += la ? la : 1;
		j += lb ? lb : 1;
	}
	return differs;
}

/* Of two numbers at these places that differ. */
static bool counts_saves(const char *a, size_t i, const char *b, size_t j)
{
	uint64_t x = strtoull(a + i, NULL, 10), y = strtoull(b + j, NULL, 10);

	if (rules_number_of_part(a, i))
		return false;
	return rules_number_of_progress(a, i) ||
	       (!rules_number_of_layer(a, i) && x >= PARTS_LIKELY && y >= PARTS_LIKELY &&
		(x > y ? x - y : y - x) >= PARTS_LIKELY);
}

bool doubt_is_next_in_step(const char *a, const char *b)
{
	bool next = false;

	if (!doubt_same_shape(a, b))
		return false;
	for (size_t i = 0, j = 0; a[i];) {
		size_t la = strspn(a + i, "0123456789"), lb = strspn(b + j, "0123456789");

		if (la && (la != lb || strncmp(a + i, b + j, la) != 0))
			next |= counts_saves(a, i, b, j);
		i += la ? la : 1;
		j += lb ? lb : 1;
	}
	return next;
}

bool doubt_same_shape_beside(const char *a, const char *b)
{
	size_t dir = doubt_directory_len(a, strlen(a));

	return doubt_directory_len(b, strlen(b)) == dir && !strncmp(a, b, dir) &&
	       doubt_same_shape(a + dir, b + dir);
}

/* ---- temporary names of files ---- */

bool doubt_name_is_temporary(const struct rules *r, const char *path)
{
	size_t len = temporary_prefix(r, path);

	return len && !path[len];
}

bool doubt_is_separator(char c)
{
	return c && strchr("._-", c);
}

size_t doubt_stem_len(const struct rules *r, const char *path)
{
	size_t dir = doubt_directory_len(path, strlen(path)), len = strlen(path);
	cleanup_free char *copy = strdup(path);

	while (copy && len > dir && rules_temporary(r, copy + dir, copy))
		copy[--len] = '\0';
	while (len > dir && !doubt_is_separator(path[len]))
		len--;
	return copy && len > dir && rules_temporary(r, path + len, NULL) ? len : 0;
}

size_t doubt_tail_at(const struct rules *r, const char *path)
{
	size_t end = strlen(path), dir = doubt_directory_len(path, end), at = dir;
	cleanup_free char *copy = strdup(path);

	while (at < end && rules_temporary(r, path + at, NULL))
		at++;
	while (at < end && (at == dir || !doubt_is_separator(path[at - 1])))
		at++;
	if (!copy)
		return end;
	copy[at] = '\0';
	return rules_temporary(r, copy + dir, NULL) ? at : end;
}

static void put_final_name(const char *name, size_t len, char ret_name[NAME_MAX + 1])
{
	len = len < NAME_MAX ? len : NAME_MAX;
	memcpy(ret_name, name, len);
	ret_name[len] = '\0';
}

/* model.npz of model.tmp.npz, as NumPy adds an ending that is missing. */
static bool put_without_temporary(const struct rules *r, const char *path, size_t dir, size_t stem,
				  char ret_name[NAME_MAX + 1])
{
	const char *rest = strchr(path + stem + 1, '.');
	cleanup_free char *name = strdup(path + dir);

	if (!rest || !name)
		return false;
	name[rest - path - dir] = '\0';
	if (!rules_temporary(r, name, NULL))
		return false;
	snprintf(ret_name, NAME_MAX + 1, "%.*s%s", (int)(stem - dir), path + dir, rest);
	return true;
}

unsigned doubt_final_names(const struct rules *r, const char *path,
			   char ret_names[DOUBT_FINAL_NAMES][NAME_MAX + 1])
{
	size_t dir = doubt_directory_len(path, strlen(path)), stem, tail;
	unsigned count = 0;

	if (!doubt_name_is_temporary(r, path))
		return 0;
	stem = doubt_stem_len(r, path);
	tail = doubt_tail_at(r, path);
	if (stem)
		put_final_name(path + dir, stem - dir, ret_names[count++]);
	if (stem > dir + 1 && doubt_is_separator(path[dir]))
		put_final_name(path + dir + 1, stem - dir - 1, ret_names[count++]);
	if (path[tail])
		put_final_name(path + tail, strlen(path + tail), ret_names[count++]);
	if (stem && put_without_temporary(r, path, dir, stem, ret_names[count]))
		count++;
	return count;
}

/* Of a name without what makes it temporary: the number that follows that is of a process, no step. */
static void final_step(const struct rules *r, const char *path, struct doubt_unit *ret_unit)
{
	size_t dir = doubt_directory_len(path, strlen(path));
	cleanup_free char *stem = strndup(path, doubt_stem_len(r, path));
	cleanup_free char *tail = strdup(path);
	struct step_place place;
	const char *name = stem;

	if (!stem || !tail)
		return;
	strcpy(tail + dir, path + doubt_tail_at(r, path));
	if (!rules_step(r, stem, &place)) {
		name = tail;
		if (!rules_step(r, tail, &place))
			return;
	}
	*ret_unit =
		(struct doubt_unit){.len = place.end, .file = !name[place.end], .step = place.step};
}

struct doubt_unit doubt_unit_of_kill(const struct rules *r, const char *path)
{
	struct doubt_unit unit = {0};

	if (!doubt_name_is_temporary(r, path))
		return doubt_unit_of(r, path);
	final_step(r, path, &unit);
	return unit;
}

bool doubt_unit_same(const char *a, const struct doubt_unit *ua, const char *b,
		     const struct doubt_unit *ub)
{
	size_t la = ua->len, lb = ub->len;

	if (ua->temporary != ub->temporary || ua->file != ub->file || !la != !lb)
		return false;
	if (la && !ua->temporary) {
		if (ua->step != ub->step)
			return false;
		la = doubt_directory_len(a, la);
		lb = doubt_directory_len(b, lb);
	}
	return la == lb && strncmp(a, b, la) == 0;
}

bool doubt_unit_is_around(const char *a, const struct doubt_unit *around, const char *b,
			  const struct doubt_unit *ub)
{
	return !around->file && around->len < ub->len && strncmp(a, b, around->len) == 0 &&
	       b[around->len] == '/';
}
